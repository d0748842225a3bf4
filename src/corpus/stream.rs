//! Sources that can only be read from front to back: packed ones, members of archives, rows of
//! values.
//!
//! Always in steps of the same size, so that what can be read of a damaged file does not depend on
//! how the work is cut.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memchr::{memchr, memrchr};

use super::block::{Block, Content, Raw, StretchEnd};
use super::blocks::{Blocks, Context};
use super::inputs::Position;
use super::kind::Format;
use super::lines::{self, BYTE_ORDER_MARK, Before, Place};
use super::reading::{Fault, Skipped, Trouble};
use super::source::Source;
use super::storage::Storage;
use super::unpack::Input;
use super::{separated, text};
use crate::base::error::{Error, Result};
use crate::base::memory::reserve;

/// What is read at a time.
const STEP: usize = 64 << 10;
/// What is wanted beyond a block to find its end in.
const WINDOW: usize = 16 << 10;

/// A text, lines or rows that are read from front to back.
pub(super) struct Stream {
    name: String,
    format: Format,
    input: Input,
    buffer: Vec<u8>,
    /// How much of `buffer` was given away.
    start: usize,
    /// Where in the stream that is.
    pub(super) at: Position,
    /// Whether there is nothing left to read, and whether that is because of a fault.
    ended: bool,
    broken: bool,
    /// Whether everything was given away.
    over: bool,
    /// Of rows, which value is the text: known once the first row was read.
    column: Option<Option<usize>>,
    columns: Vec<String>,
    skipped: Skipped,
}

/// A stretch of a stream.
pub(super) struct Cut<'a> {
    pub(super) content: Content<'a>,
    pub(super) skipped: Skipped,
    /// Whether the stream ends with it.
    pub(super) ends: bool,
}

impl Stream {
    pub(super) fn new(name: String, format: Format, input: Input) -> Self {
        Stream {
            name,
            format,
            input,
            buffer: Vec::new(),
            start: 0,
            at: Position::default(),
            ended: false,
            broken: false,
            over: false,
            column: None,
            columns: Vec::new(),
            skipped: Skipped::default(),
        }
    }

    /// Goes to a place at which a stretch once ended.
    pub(super) fn seek(&mut self, to: Position, context: &Context<'_>) -> Result<()> {
        if to.offset == 0 {
            return Ok(());
        }
        if let Format::Separated(separator) = self.format {
            self.first_row(separator, context)?;
        }
        while self.at.offset < to.offset {
            self.fill(1, context)?;
            let n = self.held().min((to.offset - self.at.offset) as usize);
            if n == 0 {
                break;
            }
            self.pass(n);
        }
        self.at.records = to.records;
        // What was left out on the way was counted then.
        self.skipped = Skipped::default();
        Ok(())
    }

    /// Reads all of it, and forgets it.
    pub(super) fn pass_over(&mut self) {
        // What cannot be read was told of when it was read.
        let _ = std::io::copy(&mut self.input, &mut std::io::sink());
    }

    /// The next stretch, or None behind the one that ends the stream.
    pub(super) fn next<'a>(&mut self, context: &Context<'_>) -> Result<Option<Cut<'a>>> {
        if self.over {
            return Ok(None);
        }
        let content = match self.format {
            Format::Jsonl => self.next_lines(context)?,
            Format::Separated(separator) => self.next_rows(separator, context)?,
            _ => self.next_text(context)?,
        };
        let skipped = std::mem::take(&mut self.skipped);
        Ok(Some(Cut { content, skipped, ends: self.over }))
    }

    fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn data(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Gives `n` bytes away.
    fn pass(&mut self, n: usize) {
        self.start += n;
        self.at.offset += n as u64;
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        reserve(&mut taken, n);
        taken.extend_from_slice(&self.buffer[self.start..self.start + n]);
        self.pass(n);
        taken
    }

    /// Reads until there are so many bytes, or all there are.
    fn fill(&mut self, wanted: usize, context: &Context<'_>) -> Result<()> {
        if self.start > 0 && (self.held() < wanted || self.start > self.buffer.len() / 2) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        while !self.ended && self.held() < wanted {
            let before = self.buffer.len();
            reserve(&mut self.buffer, STEP);
            self.buffer.resize(before + STEP, 0);
            let read = self.input.read(&mut self.buffer[before..]);
            self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.fail(Trouble::of_io(error), context)?,
            }
        }
        Ok(())
    }

    fn fail(&mut self, trouble: Trouble, context: &Context<'_>) -> Result<()> {
        (self.ended, self.broken) = (true, true);
        match trouble {
            Trouble::Stop(error) => Err(error),
            Trouble::Fault(fault, what, hint) => {
                let offset = self.at.offset + self.held() as u64;
                let line = self.at.records + lines::count(&self.buffer[self.start..]) + 1;
                let place = match self.format {
                    Format::Jsonl => format!("in line {line}, after {offset} bytes"),
                    _ => format!("after {offset} bytes"),
                };
                context.reading.fault(fault, &mut self.skipped, || {
                    (format!("{}: {place}, unpacked: {what}", self.name), hint)
                })
            }
        }
    }

    // --- text ---------------------------------------------------------------------------------

    fn next_text<'a>(&mut self, context: &Context<'_>) -> Result<Content<'a>> {
        let size = context.chunk_size.max(1);
        let mut wanted = size + WINDOW.max(4 * context.cutter.specials.longest());
        if self.at.offset == 0 {
            self.fill(wanted.max(text::SAMPLE), context)?;
            let sample = &self.data()[..self.held().min(text::SAMPLE)];
            if let Some((what, hint)) = text::refusal(sample) {
                let report = || (format!("{}: {what}", self.name), hint);
                context.reading.fault(Fault::NotText, &mut self.skipped, report)?;
                self.over = true;
                return Ok(Content::Nothing);
            }
        }
        let (end, is_open) = loop {
            self.fill(wanted, context)?;
            let held = self.held();
            if self.ended && held <= size {
                break (held, false);
            }
            match context.cutter.cut_after(self.data(), size, self.ended) {
                Some(cut) if cut < held => break (cut, false),
                _ if self.ended => break (held, false),
                _ => {}
            }
            if context.open_pieces
                && let Some(cut) = context.cutter.inside_after(self.data(), size)
            {
                break (cut, true);
            }
            if held > size.saturating_add(context.reading.max_document) {
                return Err(self.too_long(held));
            }
            wanted = held * 2;
        };
        // If more follows, some of it is here already: the last stretch of a text is never empty.
        self.over = end == self.held();
        if self.broken && self.held() == 0 {
            return Ok(Content::Nothing);
        }
        let data = self.take(end);
        let end = match self.over {
            _ if is_open => StretchEnd::Inside,
            true => StretchEnd::Text,
            false => StretchEnd::Piece,
        };
        Ok(Content::Bytes { data, raw: Raw::Text { end } })
    }

    fn too_long(&self, length: usize) -> Error {
        Error::corpus(format!(
            "{}: from byte {} on, unpacked, {length} bytes that the pattern does not let be cut",
            self.name, self.at.offset
        ))
        .with_hint(
            "a larger max_document= allows it; a regular expression can only be cut at special \
             tokens, a named pattern (gpt2, cl100k, o200k) at most places",
        )
    }

    // --- lines --------------------------------------------------------------------------------

    fn next_lines<'a>(&mut self, context: &Context<'_>) -> Result<Content<'a>> {
        let size = context.chunk_size.max(1);
        let mut wanted = size;
        let place = |stream: &Self, cut_short| Place {
            name: stream.name.clone(),
            offset: stream.at.offset,
            before: Before::Lines(stream.at.records),
            cut_short,
        };
        loop {
            self.fill(wanted, context)?;
            let last = memrchr(b'\n', self.data());
            if self.ended || last.is_some() {
                let mut n = if self.ended { self.held() } else { last.map_or(0, |last| last + 1) };
                if self.broken {
                    // The line that the fault is in is no whole line.
                    n = last.map_or(0, |last| last + 1);
                }
                self.over = self.ended;
                let raw = Raw::Lines(place(self, false));
                let data = self.take(n);
                self.at.records += lines::count(&data);
                return Ok(Content::Bytes { data, raw });
            }
            if self.held() > context.reading.max_document {
                let raw = Raw::Lines(place(self, true));
                let data = self.take(1);
                self.pass_line(context)?;
                return Ok(Content::Bytes { data, raw });
            }
            wanted = self.held() * 2;
        }
    }

    /// Passes what is left of a line.
    fn pass_line(&mut self, context: &Context<'_>) -> Result<()> {
        loop {
            if let Some(n) = memchr(b'\n', self.data()) {
                self.pass(n + 1);
                self.at.records += 1;
                return Ok(());
            }
            self.pass(self.held());
            self.fill(1, context)?;
            if self.ended && self.held() == 0 {
                self.over = true;
                return Ok(());
            }
        }
    }

    // --- rows ---------------------------------------------------------------------------------

    /// Reads the names of the columns.
    fn first_row(&mut self, separator: u8, context: &Context<'_>) -> Result<()> {
        let mut wanted = STEP;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let row = loop {
            self.fill(wanted, context)?;
            // Before the quotation mark that the first name may begin with.
            if self.at.offset == 0 && self.data().starts_with(BYTE_ORDER_MARK) {
                self.pass(BYTE_ORDER_MARK.len());
            }
            names.clear();
            let found = separated::row(self.data(), separator, self.ended, |number, part| {
                names.resize(names.len().max(number + 1), Vec::new());
                names[number].extend_from_slice(part);
            });
            match found {
                // Blank lines before the names are none.
                Some(row) if row.values == 0 && self.held() > 0 => self.pass(row.end),
                Some(row) => break row,
                None if self.held() > context.reading.max_document => {
                    return Err(Error::corpus(format!(
                        "{}: the row of names is endless",
                        self.name
                    ))
                    .with_hint("is it CSV? input_format= says what it is"));
                }
                None => wanted = self.held() * 2,
            }
        };
        self.columns =
            names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let field = &context.reading.text_field;
        self.column = Some(self.columns.iter().position(|name| name == field));
        self.pass(row.end);
        self.at.records += 1;
        Ok(())
    }

    fn next_rows<'a>(&mut self, separator: u8, context: &Context<'_>) -> Result<Content<'a>> {
        if self.column.is_none() {
            self.first_row(separator, context)?;
        }
        let column = self.column.flatten();
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        let size = context.chunk_size.max(1);
        let mut wanted = size;
        let begin = self.at.offset;
        while self.at.offset - begin < size as u64 {
            self.fill(wanted, context)?;
            if self.held() == 0 {
                self.over = true;
                break;
            }
            let before = text.len();
            let row = separated::row(self.data(), separator, self.ended, |number, part| {
                if Some(number) == column {
                    text.extend_from_slice(part);
                }
            });
            let length = row.map_or(self.held(), |row| row.end);
            let Some(row) = row.filter(|_| length <= context.reading.max_document) else {
                text.truncate(before);
                if length <= context.reading.max_document {
                    wanted = self.held() * 2;
                    continue;
                }
                self.row_fault(Fault::TooLong, context, || {
                    format!("longer than {} bytes", context.reading.max_document)
                })?;
                self.pass_row(separator, context)?;
                wanted = size;
                continue;
            };
            wanted = size;
            let fault = if row.values == 0 {
                None
            } else if row.unclosed {
                Some((Fault::Csv, "a quotation mark that is never closed"))
            } else if column.is_none_or(|column| column >= row.values) {
                Some((Fault::Field, "no such column"))
            } else if std::str::from_utf8(&text[before..]).is_err() {
                Some((Fault::Utf8, "not UTF-8"))
            } else {
                ends.push(text.len());
                None
            };
            if let Some((fault, what)) = fault {
                text.truncate(before);
                // What the fault of the file cut off is no fault of its own.
                if !(self.broken && row.end == self.held()) {
                    self.row_fault(fault, context, || what.to_owned())?;
                }
            } else if self.broken && row.end == self.held() && row.values > 0 {
                // The row that the fault is in may not be whole.
                ends.pop();
                text.truncate(before);
            }
            self.pass(row.end);
            self.at.records += u64::from(row.values > 0);
        }
        Ok(Content::Documents { text, ends })
    }

    /// Passes a row that is too long.
    fn pass_row(&mut self, separator: u8, context: &Context<'_>) -> Result<()> {
        let mut passing = separated::Passing::default();
        self.at.records += 1;
        loop {
            if let Some(end) = passing.end(self.data(), separator) {
                self.pass(end);
                return Ok(());
            }
            self.pass(self.held());
            self.fill(1, context)?;
            if self.held() == 0 {
                return Ok(());
            }
        }
    }

    fn row_fault(
        &mut self,
        fault: Fault,
        context: &Context<'_>,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let Stream { name, at, columns, skipped, .. } = self;
        context.reading.fault(fault, skipped, || {
            let place = format!("{name}: row {} (byte {})", at.records + 1, at.offset);
            if fault == Fault::Field {
                let field = &context.reading.text_field;
                let message = format!(
                    "{place}: no value in column {field:?}; columns are {}",
                    columns.join(", ")
                );
                return (message, "name the column that holds the text: text_field=");
            }
            (format!("{place}: {}", what()), lines::hint(fault))
        })
    }
}

/// What is to be done when a stream is over.
pub(super) struct Closing<'a> {
    pub(super) number: usize,
    /// Where it lies, if anywhere.
    pub(super) storage: Option<Arc<dyn Storage>>,
    pub(super) source: Option<&'a Source>,
    /// How much was read, and how much of that was told.
    pub(super) passed: Arc<AtomicU64>,
    pub(super) told: u64,
}

impl<'a> Closing<'a> {
    /// Bytes read since the last time.
    pub(super) fn weight(&mut self) -> u64 {
        let most = self.storage.as_ref().map_or(u64::MAX, |storage| storage.size());
        let passed = self.passed.load(Relaxed).min(most);
        let weight = passed.saturating_sub(self.told);
        self.told += weight;
        weight
    }

    /// The last block of a source; it must still be what it was.
    pub(super) fn last(&mut self, skipped: Skipped) -> Result<Block<'a>> {
        let weight = match &self.storage {
            Some(storage) => {
                self.source.map_or(Ok(()), |source| storage.check(source))?;
                storage.size().saturating_sub(self.told)
            }
            None => self.weight(),
        };
        let (after, content) = (Position::default(), Content::Nothing);
        Ok(Block { number: self.number, after, ends_source: true, weight, content, skipped })
    }

    /// The blocks of a source that is one stream.
    pub(super) fn of(self, stream: Stream, from: Position) -> OneStream<'a> {
        OneStream { stream, closing: self, from: Some(from), over: false }
    }
}

/// A source that is one stream.
pub(super) struct OneStream<'a> {
    stream: Stream,
    closing: Closing<'a>,
    from: Option<Position>,
    over: bool,
}

impl<'a> Blocks<'a> for OneStream<'a> {
    fn next(&mut self, context: &Context<'_>) -> Result<Option<Block<'a>>> {
        if self.over {
            return Ok(None);
        }
        if let Some(from) = self.from.take() {
            self.stream.seek(from, context)?;
        }
        let Some(Cut { content, skipped, ends }) = self.stream.next(context)? else {
            return Ok(None);
        };
        if ends {
            self.over = true;
            let last = self.closing.last(skipped)?;
            return Ok(Some(Block { content, ..last }));
        }
        let (number, after, weight) = (self.closing.number, self.stream.at, self.closing.weight());
        Ok(Some(Block { number, after, ends_source: false, weight, content, skipped }))
    }
}
