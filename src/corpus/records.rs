//! The content of a block → its texts: running text unchanged; text between separators, JSON lines and
//! rows of batches as documents.
//!
//! A block is found by one worker at a time, which only looks for its end or decompresses it. The work
//! of this module is done by the worker that gets the block, in parallel with the others.

use std::str::from_utf8;
use std::sync::Arc;

use memchr::memchr;

use super::bytes::read_range;
use super::inputs::{RowBatch, Source, SourcePosition, Storage};
use super::json;
use super::kind::FileFormat;
use super::reading::{Context, Fault, Nulls, Reading, SKIP_HINT, Skipped};
use super::separator::Separator;
use crate::base::error::Result;

/// A block as its source finds it.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    pub content: BlockContent<'a>,
    /// Where the next one begins.
    pub after: SourcePosition,
    pub ends_source: bool,
    /// The number of stored bytes of the source that were read for it.
    pub weight: u64,
    /// What was skipped while it was found.
    pub skipped: Skipped,
}

#[derive(Debug)]
pub(super) enum BlockContent<'a> {
    Nothing,
    /// Bytes to be read; if `check` is set, the source must not have changed by then.
    Range {
        storage: Arc<dyn Storage>,
        start: u64,
        end: u64,
        raw: Raw,
        check: Option<&'a Source>,
    },
    Bytes {
        data: Vec<u8>,
        raw: Raw,
    },
    /// Documents end to end, and the end of each.
    Documents {
        text: Vec<u8>,
        ends: Vec<usize>,
    },
    /// Rows of a batch; `place` names the row group, which has `before` rows before the batch.
    Rows {
        batch: Arc<dyn RowBatch>,
        first: usize,
        end: usize,
        place: String,
        before: u64,
    },
}

/// What the bytes of a block are.
#[derive(Debug)]
pub(super) enum Raw {
    Text {
        end: BlockEnd,
    },
    Lines(RecordSpan, LinesBefore),
    /// Text in which separators end documents.
    Separated(RecordSpan),
}

/// What one read of a block yields.
#[derive(Debug)]
pub enum BlockText<'t> {
    /// Text in which special tokens separate documents; empty only if the whole file is.
    Running {
        text: &'t [u8],
        end: BlockEnd,
    },
    Documents(Vec<&'t [u8]>),
}

/// What else ends at the end of a block of running text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockEnd {
    /// The file, or the member of an archive.
    EndOfText,
    /// A piece or a special token.
    BetweenPieces,
    /// Nothing: the piece continues in the next block. Only with [`Context::open_pieces`].
    InsidePiece,
}

/// Buffers that a worker reuses from block to block.
#[derive(Debug, Default)]
pub struct BlockBuffers {
    raw: Vec<u8>,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl BlockContent<'_> {
    /// Passes the texts to `each`, in order.
    pub fn read(
        &self,
        context: &Context<'_>,
        buffers: &mut BlockBuffers,
        skipped: &mut Skipped,
        each: &mut dyn FnMut(BlockText<'_>) -> Result<()>,
    ) -> Result<()> {
        let BlockBuffers { raw: buffer, text, ends } = buffers;
        let (data, raw) = match self {
            BlockContent::Nothing => return Ok(()),
            BlockContent::Range { storage, start, end, raw, check } => {
                read_range(storage.as_ref(), *start, *end, buffer)?;
                if let Some(source) = check {
                    storage.check(source)?;
                }
                (&buffer[..], raw)
            }
            BlockContent::Bytes { data, raw } => (&data[..], raw),
            BlockContent::Documents { text, ends } => {
                return each(BlockText::Documents(documents(text, ends)));
            }
            BlockContent::Rows { batch, first, end, place, before } => {
                let mut documents = Vec::with_capacity(end - first);
                for row in *first..*end {
                    let mut text = batch.get(row);
                    if context.reading.nulls == Nulls::Keep {
                        text = text.or(Some(b""));
                    }
                    let Some((fault, what)) = row_fault(text, batch.as_ref(), context) else {
                        documents.extend(text);
                        continue;
                    };
                    context.reading.skip_or_fail(fault, skipped, || {
                        // From 1, as lines are.
                        let number = before + row as u64 + 1;
                        (format!("{place}, row {number}: {what}"), hint(fault))
                    })?;
                }
                return each(BlockText::Documents(documents));
            }
        };
        match raw {
            Raw::Text { end } => each(BlockText::Running { text: data, end: *end }),
            Raw::Lines(span, lines) => {
                text.clear();
                ends.clear();
                read_lines(data, span, lines, context.reading, text, ends, skipped)?;
                each(BlockText::Documents(documents(text, ends)))
            }
            Raw::Separated(span) => {
                each(BlockText::Documents(separated(data, span, context.reading, skipped)?))
            }
        }
    }

    /// Whether it ends inside a piece, which the next block continues.
    pub fn is_open(&self) -> bool {
        let (BlockContent::Range { raw, .. } | BlockContent::Bytes { raw, .. }) = self else {
            return false;
        };
        matches!(raw, Raw::Text { end: BlockEnd::InsidePiece })
    }

    /// The number of bytes in memory when it is read.
    pub fn size(&self) -> u64 {
        match self {
            BlockContent::Nothing => 0,
            BlockContent::Range { start, end, .. } => end - start,
            BlockContent::Bytes { data, .. } => data.len() as u64,
            BlockContent::Documents { text, .. } => text.len() as u64,
            BlockContent::Rows { batch, first, end, .. } => {
                (*first..*end).map(|row| batch.get(row).map_or(0, <[u8]>::len) as u64).sum()
            }
        }
    }
}

fn documents<'t>(text: &'t [u8], ends: &[usize]) -> Vec<&'t [u8]> {
    let mut start = 0;
    let document = |&end: &usize| {
        let document = &text[start..end];
        start = end;
        document
    };
    ends.iter().map(document).collect()
}

fn row_fault(
    text: Option<&[u8]>,
    batch: &dyn RowBatch,
    context: &Context<'_>,
) -> Option<(Fault, String)> {
    let max_size = context.reading.max_document;
    match text {
        None => Some((Fault::Null, "the text is null".to_owned())),
        Some(_) if batch.is_callers_own() => None,
        Some(text) if text.len() > max_size => {
            Some((Fault::TooLong, format!("longer than {max_size} bytes")))
        }
        // Parquet trusts the writer that a column is UTF-8; no reader has checked it.
        Some(text) if from_utf8(text).is_err() => Some((Fault::Utf8, "not UTF-8".to_owned())),
        Some(_) => None,
    }
}

/// The remedy for a record that cannot be read.
pub(super) fn hint(fault: Fault) -> &'static str {
    match fault {
        Fault::Field => {
            "set text_field= to the field with the text, dotted if nested; on_error=\"skip\" skips \
             and counts such records"
        }
        Fault::Null => {
            "null=\"keep\" reads null as an empty document, null=\"skip\" skips and counts it"
        }
        Fault::TooLong => "raise max_document=; on_error=\"skip\" skips and counts such records",
        Fault::Json => {
            "each line must be a JSON object; on_error=\"skip\" skips and counts such lines, \
             input_format=\"text\" reads the file as text"
        }
        _ => SKIP_HINT,
    }
}

// --- text between separators, lines of JSON -----------------------------------------------------

/// Of UTF-8: some programs begin files with it.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Where whole records are in their source, for messages.
#[derive(Debug)]
pub(super) struct RecordSpan {
    /// The file, and the member of an archive.
    pub name: String,
    /// The byte at which they begin.
    pub offset: u64,
    /// Whether the last record is too long, and only its beginning is here.
    pub cut_short: bool,
}

/// The documents between separators; nothing between two of them is not a document.
fn separated<'t>(
    data: &'t [u8],
    span: &RecordSpan,
    reading: &Reading,
    skipped: &mut Skipped,
) -> Result<Vec<&'t [u8]>> {
    let Some(separator) = Separator::of(FileFormat::Text, reading) else { return Ok(vec![data]) };
    let (mut documents, mut start) = (Vec::new(), 0);
    for end in separator.ends(data).map(Some).chain([None]) {
        let document = match end {
            Some(end) => &data[start..end - separator.len()],
            None => &data[start..],
        };
        if document.len() > reading.max_document || (end.is_none() && span.cut_short) {
            reading.skip_or_fail(Fault::TooLong, skipped, || {
                let (offset, limit) = (span.offset + start as u64, reading.max_document);
                let what =
                    format!("the text up to the next separator is longer than {limit} bytes");
                (format!("{}: byte {offset}: {what}", span.name), hint(Fault::TooLong))
            })?;
        } else if !document.is_empty() {
            documents.push(document);
        }
        start = end.unwrap_or(data.len());
    }
    Ok(documents)
}

#[derive(Debug)]
pub(super) enum LinesBefore {
    Known(u64),
    /// To be counted in this storage if a message needs it.
    In(Arc<dyn Storage>),
}

impl LinesBefore {
    /// The number, from 1, of the line after `text`, which begins at byte `offset`.
    fn line_after(&self, text: &[u8], offset: u64) -> u64 {
        let before = match self {
            LinesBefore::Known(n) => *n,
            LinesBefore::In(storage) => lines_in(storage.as_ref(), offset).unwrap_or(0),
        };
        before + count_lines(text) + 1
    }
}

/// Appends the texts of lines to `text`, and the end of each to `ends`. Blank lines are skipped.
fn read_lines(
    data: &[u8],
    span: &RecordSpan,
    lines: &LinesBefore,
    reading: &Reading,
    text: &mut Vec<u8>,
    ends: &mut Vec<usize>,
    skipped: &mut Skipped,
) -> Result<()> {
    // Validating all lines at once is cheaper; single lines are validated only if that fails.
    let all_valid = from_utf8(data).is_ok();
    let mut at = 0;
    while at < data.len() {
        let newline = memchr(b'\n', &data[at..]);
        let end = newline.map_or(data.len(), |n| at + n);
        let (start, mut line) = (at, &data[at..end]);
        at = end + 1;
        if span.offset + start as u64 == 0 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        let wrong = if line.len() > reading.max_document || (newline.is_none() && span.cut_short) {
            Some((Fault::TooLong, format!("longer than {} bytes", reading.max_document)))
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else if !all_valid && from_utf8(line).is_err() {
            Some((Fault::Utf8, "not UTF-8".to_owned()))
        } else {
            let before = text.len();
            match json::text_at(line, &reading.path, text) {
                Ok(json::FieldValue::Null) if reading.nulls == Nulls::Keep => None,
                Ok(found) => other_than_text(found, &reading.text_field),
                Err(wrong) => {
                    text.truncate(before);
                    Some((Fault::Json, format!("not JSON: {} at byte {}", wrong.what, wrong.at)))
                }
            }
        };
        let Some((fault, what)) = wrong else {
            ends.push(text.len());
            continue;
        };
        reading.skip_or_fail(fault, skipped, || {
            let line = lines.line_after(&data[..start], span.offset);
            let offset = span.offset + start as u64;
            (format!("{}: line {line} (byte {offset}): {what}", span.name), hint(fault))
        })?;
    }
    Ok(())
}

fn other_than_text(found: json::FieldValue, field: &str) -> Option<(Fault, String)> {
    match found {
        json::FieldValue::Text => None,
        json::FieldValue::Missing => Some((Fault::Field, format!("no field {field:?}"))),
        json::FieldValue::Null => Some((Fault::Null, format!("the field {field:?} is null"))),
        json::FieldValue::Other(what) => {
            Some((Fault::Type, format!("expected a string {field:?}, found {what}")))
        }
    }
}

pub(super) fn count_lines(text: &[u8]) -> u64 {
    Separator::new(Separator::NEWLINE).count(text)
}

/// The number of lines before byte `end`.
fn lines_in(storage: &dyn Storage, end: u64) -> Result<u64> {
    let (mut lines, mut at, mut buffer) = (0, 0, Vec::new());
    while at < end {
        let next = (at + (1 << 20)).min(end);
        read_range(storage, at, next, &mut buffer)?;
        lines += count_lines(&buffer);
        at = next;
    }
    Ok(lines)
}
