//! Pieces too long for the cache of short ones.
//!
//! They are cut where no token can span (text without spaces falls into words or characters that
//! way), and what is short then is encoded as a short piece is. What is still long but not very
//! (runs of white space in code, lines of dashes) is kept in a cache of its own.

use super::cache::Cache;
use super::{Merger, Tokenizer};
use crate::error::Result;
use crate::pieces::{self, Key, PieceMap, SHORT};

/// Longer parts are not kept.
const LONGEST: usize = 128;
/// Marks the key of a part of a piece, which a token that is no merge's result never stands for.
const PART: Key = 1 << 127;
/// The share of a worker's cache that is for long pieces.
const SHARE: usize = 16;

/// Long pieces that were encoded before.
#[derive(Debug)]
pub struct LongCache {
    /// Piece → where its ids start and how many they are, as `start << 8 | n`.
    places: PieceMap<u64>,
    ids: Vec<u32>,
    /// Bytes kept, about.
    size: usize,
    limit: usize,
}

impl LongCache {
    /// For a worker whose caches may take so much memory.
    pub fn new(cache_bytes: usize) -> Self {
        let limit = cache_bytes / SHARE;
        LongCache { places: PieceMap::default(), ids: Vec::new(), size: 0, limit }
    }

    fn get(&self, piece: &[u8]) -> Option<&[u32]> {
        let place = self.places.get(piece)?;
        let start = (place >> 8) as usize;
        Some(&self.ids[start..start + (place & 0xff) as usize])
    }

    fn put(&mut self, piece: &[u8], ids: &[u32]) {
        let size = piece.len() + 4 * ids.len() + 64;
        if self.size + size > self.limit {
            // A small cache is soon filled again.
            self.places = PieceMap::default();
            self.ids.clear();
            self.size = 0;
        }
        self.size += size;
        *self.places.long_entry(piece) = (self.ids.len() as u64) << 8 | ids.len() as u64;
        self.ids.extend_from_slice(ids);
    }
}

impl Tokenizer {
    /// Encodes a piece of more than [`SHORT`] bytes.
    pub(super) fn encode_long(
        &self,
        merger: &mut Merger,
        cache: &mut Cache,
        long: &mut LongCache,
        piece: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if let Some(rank) = self.whole(piece) {
            ids.push(self.vocab.rank_id(rank));
            return Ok(());
        }
        let joins = self.vocab.joins();
        let mut start = 0;
        for at in 1..piece.len() {
            // Within a character it is hardly ever worth the question.
            if piece[at] & 0xc0 != 0x80 && !joins.may_span(piece, at) {
                self.encode_part(merger, cache, long, &piece[start..], at - start, ids)?;
                start = at;
            }
        }
        let length = piece.len() - start;
        self.encode_part(merger, cache, long, &piece[start..], length, ids)
    }

    /// Encodes the first `length` bytes of `rest`, by the merges alone.
    fn encode_part(
        &self,
        merger: &mut Merger,
        cache: &mut Cache,
        long: &mut LongCache,
        rest: &[u8],
        length: usize,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let part = &rest[..length];
        if length <= SHORT {
            let key = pieces::key(rest, 0, length) | if self.whole.is_empty() { 0 } else { PART };
            let hash = pieces::hash(key);
            ids.reserve(super::cache::MOST);
            // SAFETY: there is room for so many.
            let n = unsafe { cache.get(key, hash, ids.as_mut_ptr().add(ids.len())) };
            if n == 0 {
                self.encode_unseen(merger, cache, key, hash, part, None, ids);
            } else {
                // SAFETY: they were written just now.
                unsafe { ids.set_len(ids.len() + n) };
            }
            return Ok(());
        }
        if length > LONGEST {
            self.merge_bytes(merger, part)?;
            ids.extend(merger.tokens.iter().map(|&rank| self.vocab.rank_id(rank)));
        } else if let Some(known) = long.get(part) {
            ids.extend_from_slice(known);
        } else {
            self.merge_bytes(merger, part)?;
            let first = ids.len();
            ids.extend(merger.tokens.iter().map(|&rank| self.vocab.rank_id(rank)));
            long.put(part, &ids[first..]);
        }
        Ok(())
    }
}
