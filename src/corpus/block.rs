//! A block: a stretch of a source that one worker turns into text.
//!
//! Whoever hands blocks out, one at a time, only finds where they end, or unpacks them; reading,
//! parsing and all further work is done by the workers, side by side.

use std::sync::Arc;

use super::blocks::Context;
use super::inputs::{Input, Position};
use super::reading::{Fault, Skipped};
use super::records::Batch;
use super::source::Source;
use super::storage::{Storage, read_range};
use super::{json, lines};
use crate::base::error::Result;

/// A stretch of a source.
#[derive(Debug)]
pub struct Block<'a> {
    /// The number of its source.
    pub number: usize,
    /// Where the next one begins.
    pub after: Position,
    /// Whether the source ends with it.
    pub ends_source: bool,
    /// Bytes of the source, as it lies on disk, that were read for it.
    pub weight: u64,
    pub(super) content: Content<'a>,
    /// What was left out while it was found.
    pub(super) skipped: Skipped,
}

/// What a block holds.
#[derive(Debug)]
pub(super) enum Content<'a> {
    /// Nothing.
    Nothing,
    /// Bytes that are yet to be read.
    Range { storage: Arc<dyn Storage>, start: u64, end: u64, raw: Raw, check: Option<&'a Source> },
    /// Bytes.
    Bytes { data: Vec<u8>, raw: Raw },
    /// Documents, end to end, and where they end.
    Documents { text: Vec<u8>, ends: Vec<usize> },
    /// Some rows of a batch; so many rows of the place come before the batch.
    Rows { batch: Arc<dyn Batch>, first: usize, end: usize, place: String, before: u64 },
    /// A whole source, yet to be opened.
    Source { input: &'a Input, source: Option<&'a Source> },
}

/// What bytes are.
#[derive(Debug)]
pub(super) enum Raw {
    /// Text, and what it ends with.
    Text { end: StretchEnd },
    /// Lines of JSON.
    Lines(lines::Place),
}

/// What is in a block.
#[derive(Debug)]
pub enum Text<'t> {
    /// A stretch of text.
    Stretch {
        /// Empty only if the whole file is.
        text: &'t [u8],
        /// What it ends with.
        end: StretchEnd,
    },
    /// Whole documents.
    Documents(Vec<&'t [u8]>),
}

/// What a stretch of text ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StretchEnd {
    /// The file, or the member of an archive.
    Text,
    /// A piece or a special token.
    Piece,
    /// A part of a piece, which goes on in the next stretch. Only where [`Context::open_pieces`].
    Inside,
}

/// What a worker reuses from block to block.
#[derive(Debug, Default)]
pub struct Scratch {
    raw: Vec<u8>,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl<'a> Block<'a> {
    /// Reads the block and gives what is in it, in order; `skipped` gets what was left out.
    pub fn read(
        &mut self,
        context: &Context<'_>,
        scratch: &mut Scratch,
        skipped: &mut Skipped,
        each: &mut dyn FnMut(Text<'_>) -> Result<()>,
    ) -> Result<()> {
        skipped.take(&mut self.skipped);
        match &self.content {
            Content::Nothing => Ok(()),
            Content::Range { storage, start, end, raw, check } => {
                read_range(storage.as_ref(), *start, *end, &mut scratch.raw)?;
                if let Some(source) = check {
                    storage.check(source)?;
                }
                let Scratch { raw: data, text, ends } = scratch;
                give(data, raw, context, text, ends, skipped, each)
            }
            Content::Bytes { data, raw } => {
                let Scratch { text, ends, .. } = scratch;
                give(data, raw, context, text, ends, skipped, each)
            }
            Content::Documents { text, ends } => each(Text::Documents(cut(text, ends))),
            Content::Rows { batch, first, end, place, before } => {
                let mut documents = Vec::with_capacity(end - first);
                for row in *first..*end {
                    let text = batch.get(row);
                    let Some((fault, what)) = wrong_row(text, batch.as_ref(), context) else {
                        documents.extend(text);
                        continue;
                    };
                    context.reading.fault(fault, skipped, || {
                        // From 1, as lines are.
                        let number = before + row as u64 + 1;
                        (format!("{place}, row {number}: {what}"), lines::hint(fault))
                    })?;
                }
                each(Text::Documents(documents))
            }
            Content::Source { input, source } => {
                let start = Position::default();
                let mut blocks = input.open(self.number, *source, start, context)?;
                while let Some(mut block) = blocks.next(context)? {
                    block.read(context, scratch, skipped, each)?;
                }
                Ok(())
            }
        }
    }

    /// Whether it ends inside a piece: the next block goes on with that.
    pub fn is_open(&self) -> bool {
        let (Content::Range { raw, .. } | Content::Bytes { raw, .. }) = &self.content else {
            return false;
        };
        matches!(raw, Raw::Text { end: StretchEnd::Inside })
    }

    /// How many bytes will be in memory at once when it is read.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Range { start, end, .. } => end - start,
            Content::Bytes { data, .. } => data.len() as u64,
            Content::Documents { text, .. } => text.len() as u64,
            Content::Rows { batch, first, end, .. } => {
                (*first..*end).map(|row| batch.get(row).map_or(0, <[u8]>::len) as u64).sum()
            }
            Content::Nothing | Content::Source { .. } => self.weight,
        }
    }
}

/// What to do about a record without its text.
pub(super) const SKIP_HINT: &str = "on_error=\"skip\" leaves such records out, and counts them";

fn give(
    data: &[u8],
    raw: &Raw,
    context: &Context<'_>,
    text: &mut Vec<u8>,
    ends: &mut Vec<usize>,
    skipped: &mut Skipped,
    each: &mut dyn FnMut(Text<'_>) -> Result<()>,
) -> Result<()> {
    match raw {
        Raw::Text { end } => each(Text::Stretch { text: data, end: *end }),
        Raw::Lines(place) => {
            text.clear();
            ends.clear();
            lines::documents(data, place, context.reading, text, ends, skipped)?;
            each(Text::Documents(cut(text, ends)))
        }
    }
}

/// What is wrong with a row, if anything is.
fn wrong_row(
    text: Option<&[u8]>,
    batch: &dyn Batch,
    context: &Context<'_>,
) -> Option<(Fault, String)> {
    let most = context.reading.max_document;
    match text {
        None => Some((Fault::Field, "no text: it is null".to_owned())),
        Some(_) if batch.is_callers_own() => None,
        Some(text) if text.len() > most => {
            Some((Fault::TooLong, format!("longer than {most} bytes")))
        }
        // Nobody else looks: Parquet calls a column text because its writer did.
        Some(text) if std::str::from_utf8(text).is_err() => {
            Some((Fault::Utf8, "not UTF-8".to_owned()))
        }
        Some(_) => None,
    }
}

fn cut<'t>(text: &'t [u8], ends: &[usize]) -> Vec<&'t [u8]> {
    let mut start = 0;
    let document = |&end: &usize| {
        let document = &text[start..end];
        start = end;
        document
    };
    ends.iter().map(document).collect()
}

/// What a JSON record has in place of a text.
pub(super) fn other_than_text(found: json::Found, field: &str) -> Option<(Fault, String)> {
    match found {
        json::Found::Text => None,
        json::Found::Nothing => Some((Fault::Field, format!("no field {field:?}"))),
        json::Found::Null => Some((Fault::Field, format!("the field {field:?} is null"))),
        json::Found::Other(what) => {
            Some((Fault::Type, format!("{what} where the string {field:?} should be")))
        }
    }
}
