//! Text or JSON lines that can only be read from front to back, cut into blocks.
//!
//! Input is read in steps of a fixed size, so that what can be read of a damaged file does not
//! depend on the block size. The buffer holds a block and a little more: memory does not grow with
//! the source, except for a document that cannot be cut, up to `max_document`.

use std::io::ErrorKind;

use super::bytes::ByteStream;
use super::inputs::SourcePosition;
use super::kind::{FileFormat, TEXT_SAMPLE, not_text};
use super::reading::{Context, Fault, ReadFailure, Skipped};
use super::records::{BlockContent, BlockEnd, LinesBefore, Raw, RecordSpan, count_lines};
use super::separator::Separator;
use crate::base::error::{Error, Result};
use crate::base::memory::reserve;

/// Bytes that are read at a time.
pub(super) const READ_SIZE: usize = 64 << 10;
/// Bytes after the nominal end of a block in which its end is searched first.
const CUT_SEARCH_BYTES: usize = 16 << 10;

pub(super) struct TextStream {
    /// The source, and the member of an archive.
    pub name: String,
    format: FileFormat,
    input: ByteStream,
    buffer: Vec<u8>,
    /// The consumed bytes of `buffer`.
    start: usize,
    /// The position in the stream of the first unconsumed byte.
    pub at: SourcePosition,
    /// Whether the input has ended, and whether because of a fault.
    pub ended: bool,
    pub broken: bool,
    /// Whether everything was consumed.
    pub over: bool,
    /// What was skipped since this was last taken.
    pub skipped: Skipped,
}

impl TextStream {
    pub fn new(name: String, format: FileFormat, input: ByteStream) -> Self {
        TextStream {
            name,
            format,
            input,
            buffer: Vec::new(),
            start: 0,
            at: SourcePosition::default(),
            ended: false,
            broken: false,
            over: false,
            skipped: Skipped::default(),
        }
    }

    /// Skips to a position at which an earlier block ended.
    pub fn seek(&mut self, to: SourcePosition, context: &Context<'_>) -> Result<()> {
        while self.at.offset < to.offset {
            self.fill(1, context)?;
            let n = self.held().min((to.offset - self.at.offset) as usize);
            if n == 0 {
                break;
            }
            self.pass(n);
        }
        self.at.records = to.records;
        // Faults before this position were counted when it was first read.
        self.skipped = Skipped::default();
        Ok(())
    }

    /// Reads and discards the rest.
    pub fn drain(&mut self) {
        // A failure was reported when the rest was first read.
        let _ = std::io::copy(&mut self.input, &mut std::io::sink());
    }

    /// The content of the next block. Must not be called once `over`.
    pub fn next<'a>(&mut self, context: &Context<'_>) -> Result<BlockContent<'a>> {
        if self.format == FileFormat::Text && self.at.offset == 0 && self.is_not_text(context)? {
            self.over = true;
            return Ok(BlockContent::Nothing);
        }
        match Separator::of(self.format, context.reading) {
            Some(separator) => self.next_records(&separator, context),
            None => self.next_text(context),
        }
    }

    /// Whether it begins with something else than text, which is counted or an error.
    fn is_not_text(&mut self, context: &Context<'_>) -> Result<bool> {
        self.fill(TEXT_SAMPLE, context)?;
        let sample = &self.data()[..self.held().min(TEXT_SAMPLE)];
        let Some((what, hint)) = not_text(sample) else { return Ok(false) };
        let report = || (format!("{}: {what}", self.name), hint);
        context.reading.skip_or_fail(Fault::NotText, &mut self.skipped, report)?;
        Ok(true)
    }

    pub fn held(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub fn data(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Consumes `n` bytes.
    pub fn pass(&mut self, n: usize) {
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

    /// Reads until `wanted` bytes are held, or the input ends.
    pub fn fill(&mut self, wanted: usize, context: &Context<'_>) -> Result<()> {
        if self.start > 0 && (self.held() < wanted || self.start > self.buffer.len() / 2) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        while !self.ended && self.held() < wanted {
            let before = self.buffer.len();
            reserve(&mut self.buffer, READ_SIZE);
            self.buffer.resize(before + READ_SIZE, 0);
            let read = self.input.read(&mut self.buffer[before..]);
            self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.fail(ReadFailure::of_io(error), context)?,
            }
        }
        Ok(())
    }

    fn fail(&mut self, failure: ReadFailure, context: &Context<'_>) -> Result<()> {
        (self.ended, self.broken) = (true, true);
        let mut skipped = std::mem::take(&mut self.skipped);
        let settled = failure.skip_or_fail(context.reading, &mut skipped, || {
            let offset = self.at.offset + self.held() as u64;
            let line = self.at.records + count_lines(self.data()) + 1;
            match self.format {
                FileFormat::Jsonl => {
                    format!("{}: line {line}, after {offset} decompressed bytes", self.name)
                }
                _ => format!("{}: after {offset} decompressed bytes", self.name),
            }
        });
        self.skipped = skipped;
        settled
    }

    // --- text ---------------------------------------------------------------------------------

    fn next_text<'a>(&mut self, context: &Context<'_>) -> Result<BlockContent<'a>> {
        let size = context.block_size.max(1);
        let mut wanted = size + CUT_SEARCH_BYTES.max(4 * context.cutter.specials.longest());
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
                return Err(self.uncuttable(held));
            }
            wanted = held * 2;
        };
        // If more follows, some of it is held already: the last block of a text is never empty.
        self.over = end == self.held();
        if self.broken && self.held() == 0 {
            return Ok(BlockContent::Nothing);
        }
        let data = self.take(end);
        let end = match self.over {
            _ if is_open => BlockEnd::InsidePiece,
            true => BlockEnd::EndOfText,
            false => BlockEnd::BetweenPieces,
        };
        Ok(BlockContent::Bytes { data, raw: Raw::Text { end } })
    }

    fn uncuttable(&self, length: usize) -> Error {
        Error::corpus(format!(
            "{}: {length} bytes after {} decompressed bytes have no position at which the split \
             pattern allows a cut",
            self.name, self.at.offset
        ))
        .with_hint(
            "raise max_document=, or use a named pattern (gpt2, cl100k, o200k): with a regular \
             expression, text is only cut at special tokens",
        )
    }

    // --- records ------------------------------------------------------------------------------

    fn next_records<'a>(
        &mut self,
        separator: &Separator<'_>,
        context: &Context<'_>,
    ) -> Result<BlockContent<'a>> {
        let mut wanted = context.block_size.max(1);
        loop {
            self.fill(wanted, context)?;
            let whole = separator.last_end(self.data());
            if self.ended || whole.is_some() {
                // A last record without a separator is whole, unless a fault truncated it.
                let to_the_end = self.ended && !self.broken;
                let n = if to_the_end { self.held() } else { whole.unwrap_or(0) };
                self.over = self.ended;
                let raw = self.raw(false);
                let data = self.take(n);
                self.at.records += separator.count(&data);
                return Ok(BlockContent::Bytes { data, raw });
            }
            // The last bytes may be the beginning of a separator.
            if self.held() >= context.reading.max_document.saturating_add(separator.len()) {
                let raw = self.raw(true);
                let data = self.take(1);
                self.pass_record(separator, context)?;
                return Ok(BlockContent::Bytes { data, raw });
            }
            wanted = self.held() * 2;
        }
    }

    fn raw(&self, cut_short: bool) -> Raw {
        let span = RecordSpan { name: self.name.clone(), offset: self.at.offset, cut_short };
        match self.format {
            FileFormat::Jsonl => Raw::Lines(span, LinesBefore::Known(self.at.records)),
            _ => Raw::Separated(span),
        }
    }

    /// Skips the rest of a record.
    fn pass_record(&mut self, separator: &Separator<'_>, context: &Context<'_>) -> Result<()> {
        loop {
            if let Some(end) = separator.first_end(self.data()) {
                self.pass(end);
                self.at.records += 1;
                return Ok(());
            }
            if self.ended {
                self.pass(self.held());
                self.over = true;
                return Ok(());
            }
            self.pass(self.held().saturating_sub(separator.len() - 1));
            self.fill(separator.len(), context)?;
        }
    }
}
