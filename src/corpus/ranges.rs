//! Uncompressed text and JSON lines, by position: only the ends of blocks are searched here, in small
//! windows; the worker that gets a block reads it.

use std::sync::Arc;

use super::bytes::read_range;
use super::inputs::{Input, Source, SourcePosition, Storage};
use super::kind::{FileFormat, TEXT_SAMPLE, not_text};
use super::reading::{Context, Fault, Skipped};
use super::records::{BlockContent, BlockEnd, Cut, LinesBefore, Raw, RecordSpan};
use super::separator::Separator;
use crate::base::error::Result;
use crate::text::cutter::Cutter;

/// Bytes that are read first when searching for a cut; doubled until one is found.
const FIRST_WINDOW: u64 = 16 << 10;
/// The most bytes that are read at a time.
const MAX_WINDOW: u64 = 8 << 20;
/// A block may end inside a piece after this many bytes without another cut.
const MAX_CUT_SEARCH: u64 = 64 << 10;

/// The blocks of a file, or of a range of it.
pub(super) struct Ranges<'a> {
    name: &'a str,
    storage: Arc<dyn Storage>,
    source: Option<&'a Source>,
    format: FileFormat,
    at: u64,
    end: u64,
    over: bool,
    skipped: Skipped,
}

impl<'a> Ranges<'a> {
    pub(super) fn open(
        input: &'a Input,
        storage: Arc<dyn Storage>,
        source: Option<&'a Source>,
        from: SourcePosition,
        context: &Context<'_>,
    ) -> Result<Self> {
        let size = storage.size();
        let format = input.kind.format;
        let mut ranges = Ranges {
            name: &input.name,
            storage,
            source,
            format,
            at: from.offset,
            end: size,
            over: false,
            skipped: Skipped::default(),
        };
        if format == FileFormat::Text {
            ranges.refuse_other_than_text(context)?;
        }
        if let Some((start, end)) = input.range {
            if ranges.over {
                // A file that is not text is skipped once, with its first range.
                if start > 0 {
                    ranges.skipped = Skipped::default();
                }
                return Ok(ranges);
            }
            ranges.end = ranges.border(end, context)?;
            // An empty file belongs to the range that begins at 0.
            ranges.over = start >= size.max(1);
            ranges.at = ranges.at.max(ranges.border(start, context)?);
            // A record of the previous range may extend to the end of this one.
            ranges.over |= ranges.at >= ranges.end && start > 0;
        }
        Ok(ranges)
    }

    /// Where a range with the nominal end `nominal` actually ends and the next one begins.
    fn border(&self, nominal: u64, context: &Context<'_>) -> Result<u64> {
        if nominal == 0 || nominal >= self.storage.size() {
            return Ok(nominal.min(self.storage.size()));
        }
        let storage = self.storage.as_ref();
        match Separator::of(self.format, context.reading) {
            Some(separator) => Ok(separator.end_from(storage, 0, nominal, u64::MAX)?.0),
            None => {
                let cut = cut_from(storage, context.cutter, 0, nominal, u64::MAX)?;
                Ok(cut.unwrap_or(storage.size()))
            }
        }
    }

    /// Where the block of text from `self.at` ends, at or after `nominal`, and whether that is inside a
    /// piece.
    fn cut(&self, nominal: u64, context: &Context<'_>) -> Result<(u64, bool)> {
        let (storage, cutter) = (self.storage.as_ref(), context.cutter);
        if context.open_pieces {
            let upto = nominal.saturating_add(MAX_CUT_SEARCH);
            if let Some(cut) = cut_from(storage, cutter, self.at, nominal, upto)? {
                return Ok((cut.min(self.end), false));
            }
            let mut text = Vec::new();
            read_range(storage, self.at, upto.min(storage.size()), &mut text)?;
            let place = cutter.inside_after(&text, (nominal - self.at) as usize);
            if let Some(cut) = place.map(|at| self.at + at as u64).filter(|&cut| cut < self.end) {
                return Ok((cut, true));
            }
        }
        let cut = cut_from(storage, cutter, self.at, nominal, u64::MAX)?;
        Ok((cut.unwrap_or(self.end).min(self.end), false))
    }

    fn refuse_other_than_text(&mut self, context: &Context<'_>) -> Result<()> {
        let mut sample = Vec::new();
        let end = self.storage.size().min(TEXT_SAMPLE as u64);
        read_range(self.storage.as_ref(), 0, end, &mut sample)?;
        if let Some((what, hint)) = not_text(&sample) {
            self.over = true;
            context.reading.skip_or_fail(Fault::NotText, &mut self.skipped, || {
                (format!("{}: {what}", self.name), hint)
            })?;
        }
        Ok(())
    }

    /// Moves to the end of a block of records; returns where the bytes to be read end, and what they are.
    fn records(
        &mut self,
        separator: &Separator<'_>,
        nominal: u64,
        context: &Context<'_>,
    ) -> Result<(u64, Raw)> {
        let (storage, start) = (self.storage.as_ref(), self.at);
        let (mut end, mut next, mut cut_short) = (self.end, self.end, false);
        if nominal < self.end {
            // A record without a separator up to there is too long, even if one begins just before.
            let longest = context.reading.max_document.saturating_add(separator.len());
            let limit = nominal.saturating_add(longest as u64);
            let (found, is_end) = separator.end_from(storage, start, nominal, limit)?;
            (end, next) = (found, found);
            if !is_end {
                // The rest of the record is skipped.
                cut_short = true;
                (next, _) = separator.end_from(storage, start, found, u64::MAX)?;
            }
        }
        self.at = next;
        let span = RecordSpan { name: self.name.to_owned(), offset: start, cut_short };
        Ok(match self.format {
            FileFormat::Jsonl => {
                (end, Raw::Lines(span, LinesBefore::In(Arc::clone(&self.storage))))
            }
            _ => (end, Raw::Separated(span)),
        })
    }

    /// The next block, or None after the one that ends the source.
    pub(super) fn next(&mut self, context: &Context<'_>) -> Result<Option<Cut<'a>>> {
        if self.over {
            if self.skipped.is_empty() {
                return Ok(None);
            }
            return Ok(Some(Cut {
                content: BlockContent::Nothing,
                after: SourcePosition::default(),
                ends_source: true,
                weight: 0,
                skipped: std::mem::take(&mut self.skipped),
            }));
        }
        let storage = self.storage.as_ref();
        let size = storage.size();
        let start = self.at;
        let nominal = start + context.block_size as u64;
        let (end, raw) = match Separator::of(self.format, context.reading) {
            Some(separator) => self.records(&separator, nominal, context)?,
            None => {
                let (end, is_open) = if nominal < self.end {
                    self.cut(nominal, context)?
                } else {
                    (self.end, false)
                };
                self.at = end;
                let end_kind = match end {
                    _ if is_open => BlockEnd::InsidePiece,
                    _ if end == size => BlockEnd::EndOfText,
                    _ => BlockEnd::BetweenPieces,
                };
                (end, Raw::Text { end: end_kind })
            }
        };
        let next = self.at;
        self.over = next >= self.end;
        let check = if self.over { self.source } else { None };
        Ok(Some(Cut {
            content: BlockContent::Range {
                storage: Arc::clone(&self.storage),
                start,
                end,
                raw,
                check,
            },
            after: SourcePosition { offset: next, ..SourcePosition::default() },
            ends_source: self.over,
            weight: next - start,
            skipped: Skipped::default(),
        }))
    }
}

/// The first position from `nominal` on at which the text may be cut, searched up to about `limit`.
/// `start` is where the block begins.
fn cut_from(
    storage: &dyn Storage,
    cutter: &Cutter,
    start: u64,
    mut nominal: u64,
    limit: u64,
) -> Result<Option<u64>> {
    // Enough text before the position to contain the character and any special token that ends there.
    let before = cutter.specials.longest().max(8) as u64;
    let size = storage.size();
    let mut window = Vec::new();
    let mut width = FIRST_WINDOW.max(4 * before);
    while nominal < size.min(limit) {
        let from = nominal.saturating_sub(before).max(start);
        let upto = (nominal + width).min(size);
        read_range(storage, from, upto, &mut window)?;
        let whole = upto == size;
        if let Some(at) = cutter.cut_after(&window, (nominal - from) as usize, whole) {
            return Ok(Some(from + at as u64));
        }
        // Only in the last few bytes of the window may more text reveal a cut.
        nominal = upto.saturating_sub(before).max(nominal + 1);
        if whole {
            break;
        }
        width = (width * 2).min(MAX_WINDOW);
    }
    Ok(None)
}
