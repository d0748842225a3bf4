//! The pieces of a text as table keys, a batch at a time.
//!
//! A batch is scanned first, then all keys are made and their table lines prefetched; by the time the
//! caller looks the keys up, the lines have arrived.

use super::pattern::Pattern;
use crate::base::error::Result;
use crate::base::table::{Key, SHORT, TOO_LONG, hash, key_inside, key_or_too_long, shapes};

/// A piece as it is looked up.
#[derive(Debug, Clone, Copy)]
pub struct KeyedPiece {
    /// What it is looked up by.
    pub key: Key,
    /// Where.
    pub hash: u64,
    /// Where it ends in the text.
    pub end: usize,
}

impl KeyedPiece {
    /// Whether the piece is too long for a key.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.key == TOO_LONG
    }
}

/// Pieces of a text, some at a time: first all keys are made and their places asked for, then they
/// are looked up, by when what was asked for has come.
#[derive(Debug, Default)]
pub struct PieceBatch {
    ends: Vec<usize>,
    records: Vec<KeyedPiece>,
    n: usize,
    any_long: bool,
    /// The end of the long piece that the last records ended in, of which there is more.
    inside: Option<usize>,
}

/// Pieces at a time.
pub const BATCH: usize = 256;

impl PieceBatch {
    /// Cuts about [`BATCH`] pieces off `text` from `from` on; returns where they end. `prefetch` is
    /// told every hash.
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
        if self.records.len() < self.ends.len() {
            self.records.resize(self.ends.len(), KeyedPiece { key: 0, hash: 0, end: 0 });
        }
        let mut start = from;
        // Whether any is longer than 15 is seen in the bits of all lengths together.
        let mut lengths = 0;
        let mut pairs = self.records.iter_mut().zip(&self.ends);
        // All but the last few of the text, apart: the loop has to fit into the registers.
        let inside = text.len().saturating_sub(16);
        let mut next = pairs.next();
        let shapes = shapes();
        while start < inside
            && let Some((record, &end)) = next
        {
            // SAFETY: sixteen bytes from `start` on are inside.
            let key = unsafe { key_inside(shapes, text, start, end) };
            let hash = hash(key);
            prefetch(hash);
            *record = KeyedPiece { key, hash, end };
            lengths |= end - start;
            start = end;
            next = pairs.next();
        }
        while let Some((record, &end)) = next {
            let key = key_or_too_long(text, start, end);
            let hash = hash(key);
            *record = KeyedPiece { key, hash, end };
            lengths |= end - start;
            start = end;
            next = pairs.next();
        }
        self.n = self.ends.len();
        self.any_long = lengths > SHORT;
        Ok(upto)
    }

    /// The same, but long pieces in parts: `cut` says where the first part of `text[start..end]`
    /// ends, if it is not all of it. The text must be gone through from its beginning to its end.
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

    /// Cuts the long ones among the records; returns where the last record ends.
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
        let whole = self.records[..self.n].to_vec();
        self.n = 0;
        let mut start = from;
        for record in whole {
            if record.is_long() {
                start = self.cut_long(text, start, record.end, cut, prefetch);
                if self.inside.is_some() {
                    return start;
                }
            } else {
                self.push(record);
                start = record.end;
            }
        }
        upto
    }

    /// Appends the parts of a long piece, or some of them if there are many; returns where the last
    /// one ends.
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

    fn push(&mut self, record: KeyedPiece) {
        if self.n < self.records.len() {
            self.records[self.n] = record;
        } else {
            self.records.push(record);
        }
        self.n += 1;
    }

    /// The records.
    #[inline(always)]
    pub fn all(&self) -> &[KeyedPiece] {
        &self.records[..self.n]
    }
}
