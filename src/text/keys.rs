//! The pieces of a text as table keys, a batch at a time.
//!
//! A batch is scanned first, then all keys are made and their table lines prefetched; by the time the
//! caller looks the keys up, the lines have arrived. Time is linear in the text; memory is one batch.

use super::pattern::Pattern;
use crate::base::error::Result;
use crate::base::table::{Key, SHORT, TOO_LONG, hash, key_inside, key_or_too_long, shapes};

/// A piece as a table key.
#[derive(Debug, Clone, Copy)]
pub struct KeyedPiece {
    pub key: Key,
    pub hash: u64,
    /// The end of the piece in the text.
    pub end: usize,
}

impl KeyedPiece {
    /// Whether the piece is too long for a key.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.key == TOO_LONG
    }
}

/// A reusable batch of pieces.
#[derive(Debug, Default)]
pub struct PieceBatch {
    ends: Vec<usize>,
    pieces: Vec<KeyedPiece>,
    n: usize,
    any_long: bool,
    /// The end of the long piece that the last batch ended inside of.
    inside: Option<usize>,
}

/// Pieces in a batch, about.
pub const BATCH: usize = 256;

impl PieceBatch {
    /// Takes about [`BATCH`] pieces of `text` from `from` on; returns where they end. Calls `prefetch`
    /// with their hashes.
    #[inline(always)]
    pub fn next(
        &mut self,
        pattern: &Pattern,
        text: &[u8],
        from: usize,
        prefetch: impl Fn(u64),
    ) -> Result<usize> {
        self.ends.clear();
        let upto = pattern.scan(text, from, BATCH, &mut self.ends)?;
        if self.pieces.len() < self.ends.len() {
            self.pieces.resize(self.ends.len(), KeyedPiece { key: 0, hash: 0, end: 0 });
        }
        let mut start = from;
        // The bitwise or of all lengths exceeds 15 if any length does.
        let mut lengths = 0;
        let mut pairs = self.pieces.iter_mut().zip(&self.ends);
        // The last pieces of the text have a loop of their own, so that this one fits into registers.
        let inside = text.len().saturating_sub(16);
        let mut next = pairs.next();
        let shapes = shapes();
        while start < inside
            && let Some((piece, &end)) = next
        {
            // SAFETY: `start + 16` is within the text.
            let key = unsafe { key_inside(shapes, text, start, end) };
            let hash = hash(key);
            prefetch(hash);
            *piece = KeyedPiece { key, hash, end };
            lengths |= end - start;
            start = end;
            next = pairs.next();
        }
        while let Some((piece, &end)) = next {
            let key = key_or_too_long(text, start, end);
            let hash = hash(key);
            *piece = KeyedPiece { key, hash, end };
            lengths |= end - start;
            start = end;
            next = pairs.next();
        }
        self.n = self.ends.len();
        self.any_long = lengths > SHORT;
        Ok(upto)
    }

    /// [`PieceBatch::next`] with long pieces cut in parts: `cut(start, end)` is the end of the first part
    /// of `text[start..end]`, or None to keep it whole. A text must be scanned from its start to its end.
    #[inline(always)]
    pub fn next_parts(
        &mut self,
        pattern: &Pattern,
        text: &[u8],
        from: usize,
        cut: impl Fn(usize, usize) -> Option<usize>,
        prefetch: impl Fn(u64),
    ) -> Result<usize> {
        if from > 0
            && let Some(end) = self.inside.take()
        {
            self.n = 0;
            return Ok(self.cut_long(text, from, end, &cut, &prefetch));
        }
        self.inside = None;
        let upto = self.next(pattern, text, from, &prefetch)?;
        if self.any_long { Ok(self.cut_all(text, from, upto, &cut, &prefetch)) } else { Ok(upto) }
    }

    /// Cuts the long pieces of the batch; returns where the last one ends.
    #[cold]
    #[inline(never)]
    fn cut_all(
        &mut self,
        text: &[u8],
        from: usize,
        upto: usize,
        cut: &impl Fn(usize, usize) -> Option<usize>,
        prefetch: &impl Fn(u64),
    ) -> usize {
        let whole = self.pieces[..self.n].to_vec();
        self.n = 0;
        let mut start = from;
        for piece in whole {
            if piece.is_long() {
                start = self.cut_long(text, start, piece.end, cut, prefetch);
                if self.inside.is_some() {
                    return start;
                }
            } else {
                self.push(piece);
                start = piece.end;
            }
        }
        upto
    }

    /// Appends the parts of a long piece, or the first of them if there are many; returns where the
    /// last one ends.
    fn cut_long(
        &mut self,
        text: &[u8],
        mut start: usize,
        end: usize,
        cut: &impl Fn(usize, usize) -> Option<usize>,
        prefetch: &impl Fn(u64),
    ) -> usize {
        while start < end {
            let part = cut(start, end).unwrap_or(end);
            let key = key_or_too_long(text, start, part);
            let hash = hash(key);
            prefetch(hash);
            self.push(KeyedPiece { key, hash, end: part });
            start = part;
            if self.n >= 2 * BATCH && start < end {
                self.inside = Some(end);
                break;
            }
        }
        start
    }

    fn push(&mut self, piece: KeyedPiece) {
        if self.n < self.pieces.len() {
            self.pieces[self.n] = piece;
        } else {
            self.pieces.push(piece);
        }
        self.n += 1;
    }

    #[inline(always)]
    pub fn all(&self) -> &[KeyedPiece] {
        &self.pieces[..self.n]
    }
}
