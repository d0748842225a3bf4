//! Text and lines that lie on disk as they are: only where blocks end is looked for, and whoever
//! gets a block reads it.

use std::sync::Arc;

use super::block::{Block, Content, Raw, StretchEnd};
use super::blocks::{Blocks, Context};
use super::inputs::{Input, Position};
use super::kind::Format;
use super::lines::{self, Before, Place};
use super::reading::{Fault, Skipped};
use super::source::Source;
use super::storage::{Storage, read_range};
use super::text;
use crate::base::error::Result;
use crate::text::cutter::Cutter;

/// What is read at a time when looking for a cut.
const WINDOW: usize = 16 << 10;
/// After so many bytes without a cut, one inside a piece will do.
const NO_CUT_FOR_LONG: u64 = 64 << 10;

/// The blocks of a file, or of a range of it.
pub(super) struct Ranges<'a> {
    name: &'a str,
    number: usize,
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
        number: usize,
        storage: Arc<dyn Storage>,
        source: Option<&'a Source>,
        from: Position,
        context: &Context<'_>,
    ) -> Result<Self> {
        let size = storage.size();
        let is_text = input.kind.format == Format::Text;
        let mut ranges = Ranges {
            name: &input.name,
            number,
            storage,
            source,
            is_text,
            at: from.offset,
            end: size,
            over: false,
            skipped: Skipped::default(),
        };
        if is_text {
            ranges.refuse_what_is_not_text(context)?;
        }
        if let Some((start, end)) = input.range {
            ranges.end = ranges.border(end, context)?;
            // A file of nothing is of the range that begins with it.
            ranges.over = start >= size.max(1);
            ranges.at = ranges.at.max(ranges.border(start, context)?);
            // What the range before reached the end with is all there is.
            ranges.over |= ranges.at >= ranges.end && start > 0;
        }
        Ok(ranges)
    }

    /// Where a range that ends, about, at `nominal` ends. The same whoever asks.
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
        Ok(lines::end_of_line(self.storage.as_ref(), nominal - 1, u64::MAX)?.0)
    }

    /// Where a block of text that begins here ends, from `nominal` on; and whether that is inside a
    /// piece.
    fn cut(&self, nominal: u64, context: &Context<'_>) -> Result<(u64, bool)> {
        let (storage, cutter) = (self.storage.as_ref(), context.cutter);
        if context.open_pieces {
            let upto = nominal.saturating_add(NO_CUT_FOR_LONG);
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

    fn refuse_what_is_not_text(&mut self, context: &Context<'_>) -> Result<()> {
        let mut sample = Vec::new();
        let end = self.storage.size().min(text::SAMPLE as u64);
        read_range(self.storage.as_ref(), 0, end, &mut sample)?;
        if let Some((what, hint)) = text::refusal(&sample) {
            self.over = true;
            context.reading.fault(Fault::NotText, &mut self.skipped, || {
                (format!("{}: {what}", self.name), hint)
            })?;
        }
        Ok(())
    }
}

impl<'a> Blocks<'a> for Ranges<'a> {
    fn next(&mut self, context: &Context<'_>) -> Result<Option<Block<'a>>> {
        if self.over {
            if self.skipped.is_empty() {
                return Ok(None);
            }
            let skipped = std::mem::take(&mut self.skipped);
            let (after, content) = (Position::default(), Content::Nothing);
            let number = self.number;
            return Ok(Some(Block {
                number,
                after,
                ends_source: true,
                weight: 0,
                content,
                skipped,
            }));
        }
        let (storage, start) = (self.storage.as_ref(), self.at);
        let nominal = start + context.chunk_size as u64;
        let mut next = self.end;
        let (mut end, mut cut_short, mut is_open) = (self.end, false, false);
        if nominal < self.end {
            if self.is_text {
                (end, is_open) = self.cut(nominal, context)?;
                next = end;
            } else {
                let limit = nominal.saturating_add(context.reading.max_document as u64 + 1);
                let (found, is_end) = lines::end_of_line(storage, nominal - 1, limit)?;
                (end, next) = (found, found);
                if !is_end {
                    // A line that is too long; what is left of it is passed over, not read.
                    cut_short = true;
                    (next, _) = lines::end_of_line(storage, found, u64::MAX)?;
                }
            }
        }
        self.at = next;
        self.over = next >= self.end;
        let raw = if self.is_text {
            Raw::Text {
                end: match end {
                    _ if is_open => StretchEnd::Inside,
                    _ if end == storage.size() => StretchEnd::Text,
                    _ => StretchEnd::Piece,
                },
            }
        } else {
            let before = Before::Of(Arc::clone(&self.storage));
            Raw::Lines(Place { name: self.name.to_owned(), offset: start, before, cut_short })
        };
        let check = if self.over { self.source } else { None };
        Ok(Some(Block {
            number: self.number,
            after: Position { offset: next, ..Position::default() },
            ends_source: self.over,
            weight: next - start,
            content: Content::Range { storage: Arc::clone(&self.storage), start, end, raw, check },
            skipped: Skipped::default(),
        }))
    }
}

/// The first place from `nominal` on, behind `start`, at which the text may be cut, if there is one
/// up to about `limit`.
fn cut_from(
    storage: &dyn Storage,
    cutter: &Cutter,
    start: u64,
    mut nominal: u64,
    limit: u64,
) -> Result<Option<u64>> {
    // Enough in front to see the character and any special token before the cut.
    let before = cutter.specials.longest().max(8) as u64;
    let size = storage.size();
    let mut window = Vec::new();
    let mut width = WINDOW.max(4 * before as usize) as u64;
    while nominal < size.min(limit) {
        let from = nominal.saturating_sub(before).max(start);
        let upto = (nominal + width).min(size);
        read_range(storage, from, upto, &mut window)?;
        let whole = upto == size;
        if let Some(at) = cutter.cut_after(&window, (nominal - from) as usize, whole) {
            return Ok(Some(from + at as u64));
        }
        // What was seen has no cut; only its last few bytes may yet be one.
        nominal = upto.saturating_sub(before).max(nominal + 1);
        if whole {
            break;
        }
        width = (width * 2).min(8 << 20);
    }
    Ok(None)
}
