//! Very long pieces, merged window by window: the same tokens, in memory that does not depend on the
//! length of the piece.
//!
//! M(x) denotes the tokens that the bytes x merge into. A *border* of M(x) is a position between two of
//! its tokens.
//!
//! 1. If M(xy) has a border between x and y, then M(xy) = M(x) M(y). Merging takes the lowest rank
//!    first, the leftmost of equal ones. No merge crosses the border, so the merges
//!    within x happen in the same order as in x alone, and likewise in y.
//! 2. Let l be the last token of M(x) and r the first of M(y). M(xy) has a border between x and y
//!    if and only if M(lr) = [l, r]. Until a merge crosses that position, l and r are built from
//!    their own bytes only (by 1), and the merges within the bytes of l and r happen in the order of
//!    M(lr), whatever happens elsewhere. So a merge crosses in M(xy) if and only if one does in M(lr).
//!
//! Both hold for any table of merges, even if a token needs merges that are listed after its own.
//!
//! A window w is the start of the rest of a piece, and more text u follows. Is a border b of M(w) also a
//! border of M(wu), for every u? Let i be the last border of M(wu) within w. Its
//! distance to the end of w is less than the longest token, and by 1 the tokens before it are
//! M(w[..i]). So b is a border of M(wu) if it is a border of M(w[..i]) for every i that close to the end;
//! and by 2 that depends only on the first token of M(w[b..i]). These first tokens follow from the last
//! token of every prefix of w[b..]: it is the only token t ending there that stays separate, in the
//! sense of 2, from the last token of the prefix before t.
//!
//! If no border passes, the window is doubled, up to the whole piece. No vocabulary in use has been seen
//! to need that, but one can be constructed.

use std::collections::HashMap;

use super::tokenizer::{Recognise, Tokenizer};
use super::worker::Merger;
use crate::base::error::Result;
use crate::base::memory::reserve;
use crate::text::keys::BATCH;
use crate::text::specials::Segment;
use crate::tokenizer::merge::NONE;

/// Bytes of a window, unless the vocabulary has very long tokens.
const WINDOW: usize = 128 << 10;
/// A window has at least this many times the length of the longest token: the cost of finding a
/// border grows with the length of tokens.
const LONGEST_TOKENS: usize = 32;
/// Steps for each byte of a window before finding a border in it is given up: hostile vocabularies
/// have thousands of tokens that end at one place.
const STEPS_PER_BYTE: usize = 64;
/// The steps that merging one byte counts as.
const MERGE_STEPS: usize = 8;
/// The most pairs whose result is cached.
const MAX_KNOWN: usize = 1 << 16;

/// Reusable state of the search for borders.
#[derive(Debug)]
pub(super) struct Borders {
    /// The size of the first window.
    window: usize,
    /// The size of the largest window so far.
    pub(super) largest: usize,
    /// Steps left for this window.
    steps: usize,
    merger: Merger,
    bytes: Vec<u8>,
    /// Whether two adjacent tokens stay separate; for [`NONE`] and a token, whether its bytes merge
    /// into it.
    known: HashMap<(u32, u32), bool>,
    /// The tokens that end at each position, and where in the list those of a position start.
    endings: Vec<u32>,
    starts: Vec<usize>,
    /// By position, the first and the last token of the bytes before it.
    ends: Vec<(u32, u32)>,
}

/// The beginning of a piece that continues in text that has not arrived yet.
#[derive(Debug)]
pub struct OpenPiece {
    /// The bytes that have no ids yet.
    bytes: Vec<u8>,
    /// Whether bytes before them have ids.
    is_cut: bool,
    /// The size of the next window.
    size: usize,
    borders: Borders,
}

impl Borders {
    /// Starts with windows of this size.
    pub(super) fn new(window: usize) -> Self {
        Borders {
            window,
            largest: 0,
            steps: 0,
            merger: Merger::default(),
            bytes: Vec::new(),
            known: HashMap::new(),
            endings: Vec::new(),
            starts: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl OpenPiece {
    /// No piece yet; for this tokenizer.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        OpenPiece::with_window(tokenizer.window())
    }

    /// The same, with windows of another size.
    pub(super) fn with_window(window: usize) -> Self {
        OpenPiece { bytes: Vec::new(), is_cut: false, size: window, borders: Borders::new(window) }
    }

    /// Whether no piece is open.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that have no ids yet.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }
}

impl Tokenizer {
    /// Appends the ids of the next stretch of a text. If it `goes_on`, it ends inside a piece, whose last
    /// ids are appended with the following stretches.
    pub fn encode_stretch(
        &self,
        text: &[u8],
        recognise: &Recognise,
        goes_on: bool,
        piece: &mut OpenPiece,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if piece.is_empty() && !goes_on {
            return self.encode(text, recognise, ids);
        }
        let mut worker = self.worker();
        let merger = worker.merger();
        let mut ends = Vec::new();
        self.segments(text, recognise, |segment| {
            let plain = match segment {
                Segment::Plain(_, plain) => plain,
                Segment::Special(found) => {
                    self.end_piece(merger, piece, ids)?;
                    ids.push(self.vocab.specials()[found.index].id);
                    return Ok(());
                }
            };
            // Only the last piece of the previous stretch is open.
            let (mut from, mut start) = (0, 0);
            while from < plain.len() {
                ends.clear();
                from = self.cutter.pattern.scan(plain, from, BATCH, &mut ends)?;
                for &end in &ends {
                    if start > 0 {
                        self.end_piece(merger, piece, ids)?;
                    }
                    self.extend_piece(merger, piece, &plain[start..end], ids)?;
                    start = end;
                }
            }
            Ok(())
        })?;
        if !goes_on {
            self.end_piece(merger, piece, ids)?;
        }
        self.give_back(worker);
        Ok(())
    }

    /// The size of a window: longer than any token, so no longer piece is a token.
    pub(super) fn window(&self) -> usize {
        WINDOW.max(LONGEST_TOKENS * self.vocab.longest())
    }

    /// Appends the ids of a piece, or of a part of one that is not a token, window by window.
    pub(super) fn encode_windows(
        &self,
        merger: &mut Merger,
        piece: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut borders = Borders::new(self.window());
        let mut size = borders.window;
        self.merge_windows(merger, &mut borders, piece, true, &mut size, ids)?;
        Ok(())
    }

    /// Continues a piece: appends the ids that are final.
    pub(super) fn extend_piece(
        &self,
        merger: &mut Merger,
        piece: &mut OpenPiece,
        bytes: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let OpenPiece { bytes: held, is_cut, size, borders } = piece;
        for part in bytes.chunks(borders.window) {
            held.extend_from_slice(part);
            let done = self.merge_windows(merger, borders, held, false, size, ids)?;
            *is_cut |= done > 0;
            held.drain(..done);
        }
        Ok(())
    }

    /// Ends a piece: appends the ids that are left.
    pub(super) fn end_piece(
        &self,
        merger: &mut Merger,
        piece: &mut OpenPiece,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let OpenPiece { bytes, is_cut, size, borders } = piece;
        if *is_cut {
            self.merge_windows(merger, borders, bytes, true, size, ids)?;
        } else if !bytes.is_empty() {
            self.merge_piece(merger, bytes)?;
            ids.extend(merger.tokens.iter().map(|&rank| self.vocab.rank_id(rank)));
        }
        (*is_cut, *size) = (false, borders.window);
        bytes.clear();
        bytes.shrink_to(2 * borders.window);
        Ok(())
    }

    /// Appends the ids that are final, all of them if the piece `ends`; returns the number of bytes that
    /// they stand for. `size` is the size of the next window, on entry and on return.
    pub(super) fn merge_windows(
        &self,
        merger: &mut Merger,
        borders: &mut Borders,
        piece: &[u8],
        ends: bool,
        size: &mut usize,
        ids: &mut Vec<u32>,
    ) -> Result<usize> {
        let mut at = 0;
        loop {
            let rest = &piece[at..];
            let is_last = rest.len() <= *size;
            if is_last && !ends {
                return Ok(at);
            }
            let window = if is_last { rest } else { &rest[..*size] };
            borders.largest = borders.largest.max(window.len());
            self.merge_bytes(merger, window)?;
            let border = if is_last {
                Some((merger.tokens.len(), window.len()))
            } else {
                self.certain_border(borders, &merger.tokens, window)?
            };
            let Some((n, length)) = border else {
                *size *= 2;
                continue;
            };
            reserve(ids, n);
            ids.extend(merger.tokens[..n].iter().map(|&rank| self.vocab.rank_id(rank)));
            at += length;
            *size = borders.window;
            if is_last {
                return Ok(at);
            }
        }
    }

    /// A border between the tokens of a window that remains one whatever follows: the numbers of tokens
    /// and of bytes before it.
    fn certain_border(
        &self,
        borders: &mut Borders,
        tokens: &[u32],
        window: &[u8],
    ) -> Result<Option<(usize, usize)>> {
        borders.steps = STEPS_PER_BYTE * window.len();
        let mut reach = 2 * self.vocab.longest();
        while reach <= window.len() / 2 {
            let (mut n, mut at) = (tokens.len(), window.len());
            while at + reach > window.len() {
                n -= 1;
                at -= self.vocab.rank_bytes(tokens[n]).len();
            }
            if n > 0 && self.is_certain(borders, tokens[n - 1], &window[at..])? {
                return Ok(Some((n, at)));
            }
            reach *= 4;
        }
        Ok(None)
    }

    /// Whether the border between a token and the `text` after it, up to the end of the window, remains one
    /// whatever follows.
    fn is_certain(&self, borders: &mut Borders, token: u32, text: &[u8]) -> Result<bool> {
        borders.endings.clear();
        borders.starts.clear();
        borders.starts.push(0);
        borders.ends.clear();
        borders.ends.push((NONE, NONE));
        let length = |token: u32| self.vocab.rank_bytes(token).len();
        for (i, &byte) in (1..).zip(text) {
            let Borders { endings, starts, steps, .. } = borders;
            let start = endings.len();
            starts.push(start);
            endings.push(u32::from(byte));
            let mut next = start;
            while next < endings.len() {
                let right = endings[next];
                let place = i - length(right);
                let before = starts[place]..starts[place + 1];
                *steps = steps.saturating_sub(1 + before.len());
                for at in before {
                    let merged = self.vocab.pairs().get(endings[at], right);
                    if merged != NONE {
                        endings.push(merged);
                    }
                }
                next += 1;
                if *steps == 0 {
                    return Ok(false);
                }
            }
            let mut found = None;
            for at in (start..borders.endings.len()).rev() {
                let last = borders.endings[at];
                let (first, before) = borders.ends[i - length(last)];
                if self.stay_two(borders, before, last)? {
                    found = Some((if before == NONE { last } else { first }, last));
                    break;
                }
            }
            // There always is one, unless the steps ran out before all tokens were found.
            let Some(ends) = found.filter(|_| borders.steps > 0) else { return Ok(false) };
            borders.ends.push(ends);
        }
        for i in text.len() + 1 - self.vocab.longest()..=text.len() {
            let (first, _) = borders.ends[i];
            if !self.stay_two(borders, token, first)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the concatenated bytes of two tokens merge into these two.
    fn stay_two(&self, borders: &mut Borders, left: u32, right: u32) -> Result<bool> {
        let Borders { merger, bytes, known, steps, .. } = borders;
        if let Some(&answer) = known.get(&(left, right)) {
            return Ok(answer);
        }
        bytes.clear();
        if left != NONE {
            bytes.extend_from_slice(self.vocab.rank_bytes(left));
        }
        bytes.extend_from_slice(self.vocab.rank_bytes(right));
        *steps = steps.saturating_sub(MERGE_STEPS * bytes.len());
        self.merge_bytes(merger, bytes)?;
        let answer =
            if left == NONE { merger.tokens == [right] } else { merger.tokens == [left, right] };
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert((left, right), answer);
        Ok(answer)
    }
}
