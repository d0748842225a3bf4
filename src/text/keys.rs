//! The pieces of a text as table keys, a batch at a time.
//!
//! A batch is scanned first, then all keys are made and their table lines prefetched; by the time the
//! caller looks the keys up, the lines have arrived. Time is linear in the text; memory is one batch.

use super::pattern::Pattern;
use crate::base::error::Result;
use crate::base::table::{Key, TOO_LONG, hash, key_inside, key_or_too_long, key_shapes};

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
}

/// The approximate number of pieces in a batch.
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
        let mut pairs = self.pieces.iter_mut().zip(&self.ends);
        // The last pieces of the text have a loop of their own, so that this one fits into registers.
        let inside = text.len().saturating_sub(16);
        let mut next = pairs.next();
        let shapes = key_shapes();
        while start < inside
            && let Some((piece, &end)) = next
        {
            // SAFETY: `start < inside`, which is 16 less than the length of the text (or 0, which no
            // `start` is below), so sixteen bytes follow `start`.
            let key = unsafe { key_inside(shapes, text, start, end) };
            let hash = hash(key);
            prefetch(hash);
            *piece = KeyedPiece { key, hash, end };
            start = end;
            next = pairs.next();
        }
        while let Some((piece, &end)) = next {
            let key = key_or_too_long(text, start, end);
            let hash = hash(key);
            *piece = KeyedPiece { key, hash, end };
            start = end;
            next = pairs.next();
        }
        self.n = self.ends.len();
        Ok(upto)
    }

    #[inline(always)]
    pub fn all(&self) -> &[KeyedPiece] {
        &self.pieces[..self.n]
    }
}
