//! Uncompressed text and JSON lines, by position: only the ends of blocks are searched here, in small
//! windows; the worker that gets a block reads it.

use std::sync::Arc;

use memchr::memchr;

use super::bytes::read_range;
use super::inputs::{Input, Source, SourcePosition, Storage};
use super::kind::{FileFormat, TEXT_SAMPLE, not_text};
use super::reading::{Context, Fault, Skipped};
use super::records::{BlockContent, BlockEnd, Cut, LineSpan, LinesBefore, Raw};
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
    is_text: bool,
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
        let is_text = input.kind.format == FileFormat::Text;
        let mut ranges = Ranges {
            name: &input.name,
            storage,
            source,
            is_text,
            at: from.offset,
            end: size,
            over: false,
            skipped: Skipped::default(),
        };
        if is_text {
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
        if self.is_text {
            let storage = self.storage.as_ref();
            return Ok(
                cut_from(storage, context.cutter, 0, nominal, u64::MAX)?.unwrap_or(storage.size())
            );
        }
        Ok(end_of_line(self.storage.as_ref(), nominal - 1, u64::MAX)?.0)
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
        let (storage, start) = (self.storage.as_ref(), self.at);
        let nominal = start + context.block_size as u64;
        let mut next = self.end;
        let (mut end, mut cut_short, mut is_open) = (self.end, false, false);
        if nominal < self.end {
            if self.is_text {
                (end, is_open) = self.cut(nominal, context)?;
                next = end;
            } else {
                let limit = nominal.saturating_add(context.reading.max_document as u64 + 1);
                let (found, is_end) = end_of_line(storage, nominal - 1, limit)?;
                (end, next) = (found, found);
                if !is_end {
                    // The line is too long: the rest of it is skipped.
                    cut_short = true;
                    (next, _) = end_of_line(storage, found, u64::MAX)?;
                }
            }
        }
        self.at = next;
        self.over = next >= self.end;
        let raw = if self.is_text {
            Raw::Text {
                end: match end {
                    _ if is_open => BlockEnd::InsidePiece,
                    _ if end == storage.size() => BlockEnd::EndOfText,
                    _ => BlockEnd::BetweenPieces,
                },
            }
        } else {
            let lines_before = LinesBefore::In(Arc::clone(&self.storage));
            Raw::Lines(LineSpan {
                name: self.name.to_owned(),
                offset: start,
                lines_before,
                cut_short,
            })
        };
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

/// Where the line at `from` ends, with its newline, and whether the end was found before `limit`.
fn end_of_line(storage: &dyn Storage, from: u64, limit: u64) -> Result<(u64, bool)> {
    let (mut at, mut buffer, mut width) = (from, Vec::new(), FIRST_WINDOW);
    let size = storage.size();
    while at < size.min(limit) {
        let next = (at + width).min(size).min(limit);
        read_range(storage, at, next, &mut buffer)?;
        if let Some(n) = memchr(b'\n', &buffer) {
            return Ok((at + n as u64 + 1, true));
        }
        at = next;
        width = (width * 2).min(MAX_WINDOW);
    }
    Ok((at, at >= size))
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
