//! CSV from front to back: rows of a stream → documents.
//!
//! Rows are those of Python's `csv` module: a value that begins with a quotation mark extends to the
//! next single one and may contain anything; a doubled one stands for itself. Elsewhere a quotation
//! mark is an ordinary character. Rows end with `\n`, `\r\n` or `\r`; the first names the columns.
//!
//! `memchr` finds the end of each value, so a byte of text costs 1.2 instructions. `csv-core`, which
//! looks at every byte, needs 11.5 (docs/performance.md), and does not report an unclosed quotation
//! mark.

use std::str::from_utf8;

use memchr::{memchr, memchr3};

use super::inputs::SourcePosition;
use super::reading::{Context, Fault, Nulls};
use super::records::{BYTE_ORDER_MARK, BlockContent, hint};
use super::text_stream::{READ_SIZE, TextStream};
use crate::base::error::{Error, Result};

pub(super) struct CsvStream {
    stream: TextStream,
    separator: u8,
    /// Names of the columns, once the first row was read.
    columns: Option<Vec<String>>,
}

impl CsvStream {
    pub fn new(stream: TextStream, separator: u8) -> Self {
        CsvStream { stream, separator, columns: None }
    }

    pub fn stream(&mut self) -> &mut TextStream {
        &mut self.stream
    }

    /// Skips to a position at which an earlier block ended.
    pub fn seek(&mut self, to: SourcePosition, context: &Context<'_>) -> Result<()> {
        self.read_columns(context)?;
        self.stream.seek(to, context)
    }

    /// Reads the names of the columns, unless already done.
    fn read_columns(&mut self, context: &Context<'_>) -> Result<()> {
        if self.columns.is_some() {
            return Ok(());
        }
        let stream = &mut self.stream;
        let mut wanted = READ_SIZE;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let row = loop {
            stream.fill(wanted, context)?;
            // Skipped first: the first name may begin with a quotation mark.
            if stream.at.offset == 0 && stream.data().starts_with(BYTE_ORDER_MARK) {
                stream.pass(BYTE_ORDER_MARK.len());
            }
            names.clear();
            let found = row(stream.data(), self.separator, stream.ended, |number, part| {
                names.resize(names.len().max(number + 1), Vec::new());
                names[number].extend_from_slice(part);
            });
            match found {
                // Blank lines before the names are skipped.
                Some(row) if row.n_values == 0 && stream.held() > 0 => stream.pass(row.end),
                Some(row) => break row,
                None if stream.held() > context.reading.max_document => {
                    return Err(Error::corpus(format!(
                        "{}: the header row is longer than {} bytes",
                        stream.name, context.reading.max_document
                    ))
                    .with_hint("if it is not CSV, set input_format="));
                }
                None => wanted = stream.held() * 2,
            }
        };
        let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
        self.columns = Some(names.iter().map(text).collect());
        stream.pass(row.end);
        stream.at.records += 1;
        Ok(())
    }

    /// The content of the next block.
    pub fn next<'a>(&mut self, context: &Context<'_>) -> Result<BlockContent<'a>> {
        self.read_columns(context)?;
        let (field, max_document) = (&context.reading.text_field, context.reading.max_document);
        let columns = self.columns.as_deref().unwrap_or_default();
        let column = columns.iter().position(|name| name == field);
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        let size = context.block_size.max(1);
        let mut wanted = size;
        let begin = self.stream.at.offset;
        while self.stream.at.offset - begin < size as u64 {
            let stream = &mut self.stream;
            stream.fill(wanted, context)?;
            if stream.held() == 0 {
                stream.over = true;
                break;
            }
            let before = text.len();
            let row = row(stream.data(), self.separator, stream.ended, |number, part| {
                if Some(number) == column {
                    text.extend_from_slice(part);
                }
            });
            let length = row.map_or(stream.held(), |row| row.end);
            if length > max_document {
                text.truncate(before);
                let what = format!("longer than {max_document} bytes");
                self.skip_or_fail(Fault::TooLong, &what, context)?;
                self.pass_row(context)?;
                wanted = size;
                continue;
            }
            let Some(row) = row else {
                text.truncate(before);
                wanted = stream.held() * 2;
                continue;
            };
            wanted = size;
            // A row truncated by a fault of the file is neither a record nor a fault of its own.
            let cut_off = stream.broken && row.end == stream.held();
            let fault = if row.n_values == 0 || cut_off {
                None
            } else if row.unclosed {
                Some((Fault::Csv, "unclosed quotation mark"))
            } else if column.is_none() {
                Some((Fault::Field, "no such column"))
            } else if column.is_some_and(|column| column >= row.n_values) {
                // A row that is too short has nulls in the other columns, as in Python.
                let is_kept = context.reading.nulls == Nulls::Keep;
                (!is_kept).then_some((Fault::Null, "no value"))
            } else if from_utf8(&text[before..]).is_err() {
                Some((Fault::Utf8, "not UTF-8"))
            } else {
                None
            };
            if row.n_values == 0 || cut_off || fault.is_some() {
                text.truncate(before);
            } else {
                ends.push(text.len());
            }
            if let Some((fault, what)) = fault {
                self.skip_or_fail(fault, what, context)?;
            }
            self.stream.pass(row.end);
            self.stream.at.records += u64::from(row.n_values > 0);
        }
        Ok(BlockContent::Documents { text, ends })
    }

    /// Skips a row that is too long for memory.
    fn pass_row(&mut self, context: &Context<'_>) -> Result<()> {
        let (stream, mut row) = (&mut self.stream, LongRow::default());
        stream.at.records += 1;
        loop {
            if let Some(end) = row.end(stream.data(), self.separator) {
                stream.pass(end);
                return Ok(());
            }
            stream.pass(stream.held());
            stream.fill(1, context)?;
            if stream.held() == 0 {
                return Ok(());
            }
        }
    }

    fn skip_or_fail(&mut self, fault: Fault, what: &str, context: &Context<'_>) -> Result<()> {
        let TextStream { name, at, skipped, .. } = &mut self.stream;
        context.reading.skip_or_fail(fault, skipped, || {
            let place = format!("{name}: row {} (byte {})", at.records + 1, at.offset);
            if matches!(fault, Fault::Field | Fault::Null) {
                let field = &context.reading.text_field;
                let columns = self.columns.as_deref().unwrap_or_default().join(", ");
                let message =
                    format!("{place}: no value in column {field:?}; columns are {columns}");
                let hint = match fault {
                    Fault::Null => hint(fault),
                    _ => "set text_field= to the column with the text",
                };
                return (message, hint);
            }
            (format!("{place}: {what}"), hint(fault))
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CsvRow {
    /// Where it ends, with its line end.
    end: usize,
    /// 0 if it is blank.
    n_values: usize,
    /// Whether the data ended before a quotation mark was closed.
    unclosed: bool,
}

/// Reads the row at the beginning of `data`: `emit` gets the number and the parts of each value.
/// None if the row does not end in `data` and more follows, that is, unless `whole`.
fn row(
    data: &[u8],
    separator: u8,
    whole: bool,
    mut emit: impl FnMut(usize, &[u8]),
) -> Option<CsvRow> {
    let (mut at, mut number) = (0, 0);
    loop {
        if data.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let Some(n) = memchr(b'"', &data[at..]) else {
                    emit(number, &data[at..]);
                    let row = CsvRow { end: data.len(), n_values: number + 1, unclosed: true };
                    return whole.then_some(row);
                };
                emit(number, &data[at..at + n]);
                at += n + 1;
                match data.get(at) {
                    Some(b'"') => emit(number, b"\""),
                    None if !whole => return None,
                    _ => break,
                }
                at += 1;
            }
        }
        let Some(n) = memchr3(separator, b'\n', b'\r', &data[at..]) else {
            emit(number, &data[at..]);
            let n_values = if data.is_empty() { 0 } else { number + 1 };
            return whole.then_some(CsvRow { end: data.len(), n_values, unclosed: false });
        };
        emit(number, &data[at..at + n]);
        at += n + 1;
        let end = match data[at - 1] {
            b'\n' => at,
            b'\r' if data.get(at) == Some(&b'\n') => at + 1,
            b'\r' if at == data.len() && !whole => return None,
            b'\r' => at,
            _ => {
                number += 1;
                continue;
            }
        };
        let blank = matches!(data[0], b'\n' | b'\r');
        return Some(CsvRow { end, n_values: if blank { 0 } else { number + 1 }, unclosed: false });
    }
}

/// Finds the end of a row that is too long for memory, byte by byte.
#[derive(Debug, Default)]
struct LongRow {
    state: RowState,
}

#[derive(Debug, Default, Clone, Copy)]
enum RowState {
    /// At the beginning of a value.
    #[default]
    Begin,
    /// In a value, outside of quotation marks.
    Plain,
    Quoted,
    /// After a quotation mark in a quoted value: its end, or the first of a doubled one.
    Mark,
    /// After a `\r`, which a `\n` may follow.
    Return,
}

impl LongRow {
    /// Where the row ends in `data`, which follows the data of earlier calls; None if not in it.
    fn end(&mut self, data: &[u8], separator: u8) -> Option<usize> {
        for (at, &byte) in data.iter().enumerate() {
            self.state = match (self.state, byte) {
                (RowState::Return, b'\n') => return Some(at + 1),
                (RowState::Return, _) => return Some(at),
                (RowState::Begin | RowState::Mark, b'"') => RowState::Quoted,
                (RowState::Quoted, b'"') => RowState::Mark,
                (RowState::Quoted, _) => RowState::Quoted,
                (_, b'\n') => return Some(at + 1),
                (_, b'\r') => RowState::Return,
                (_, byte) if byte == separator => RowState::Begin,
                _ => RowState::Plain,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(mut data: &[u8]) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        while !data.is_empty() {
            let mut values = Vec::new();
            let row = row(data, b',', true, |number, part| {
                values.resize(values.len().max(number + 1), Vec::new());
                values[number].extend_from_slice(part);
            });
            let row = row.unwrap();
            values.truncate(row.n_values);
            // Truncated anywhere, a row is whole or None.
            for end in 0..row.end {
                let short = super::row(&data[..end], b',', false, |_, _| {});
                assert!(short.is_none_or(|short| short.end <= end), "{data:?} {end}");
            }
            // Skipped in pieces of any length, it ends at the same position.
            for length in 1..4 {
                let (mut long_row, mut at) = (LongRow::default(), 0);
                let end = data.chunks(length).find_map(|some| {
                    at += some.len();
                    long_row.end(some, b',').map(|end| at - some.len() + end)
                });
                assert_eq!(end.unwrap_or(data.len()), row.end, "{data:?}");
            }
            data = &data[row.end..];
            rows.push(
                values.iter().map(|value| String::from_utf8(value.clone()).unwrap()).collect(),
            );
        }
        rows
    }

    #[test]
    fn rows_and_values() {
        assert_eq!(
            rows(b"a,b\r\n1,\"x, \"\"y\"\"\n\"\n"),
            [vec!["a", "b"], vec!["1", "x, \"y\"\n"]]
        );
        assert_eq!(rows(b"\n\r\n\ra"), [vec![], vec![], vec![], vec!["a"]]);
        assert_eq!(rows(b"a\"b,\"c\"d\"\n,"), [vec!["a\"b", "cd\""], vec!["", ""]]);
        assert_eq!(rows(b"\"\"\n"), [vec![""]]);
        assert!(row(b"\"a\n", b',', true, |_, _| {}).unwrap().unclosed);
        assert_eq!(row(b"\"a\"", b',', false, |_, _| {}), None);
        assert_eq!(row(b"a\r", b',', false, |_, _| {}), None);
    }
}
