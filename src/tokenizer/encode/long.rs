//! Parts of pieces that are too long for the cache of short ones.
//!
//! A long piece (a sentence in a script without spaces, an address, a line of dashes) is cut where
//! no token can span first, see [`crate::tokenizer::vocab::Joins`], and most parts of it are short then. What
//! is still long, but not very, is kept in a cache of its own; what is very long is merged in
//! [windows](super::window).

use super::{Merger, Tokenizer};
use crate::base::error::Result;
use crate::base::table::Table;
use crate::tokenizer::vocab::Joins;

/// Longer ones are not kept.
const LONGEST: usize = 128;
/// For shorter texts it is not worth finding out where pieces can be cut.
const MUCH: usize = 64 << 10;
/// The share of a worker's cache that is for long pieces.
const SHARE: usize = 16;

/// Long pieces that were encoded before.
#[derive(Debug)]
pub struct LongCache {
    /// Piece → where its ids start and how many they are, as `start << 8 | n`.
    places: Table<u64>,
    ids: Vec<u32>,
    /// Bytes kept, about.
    size: usize,
    limit: usize,
}

impl LongCache {
    /// For a worker whose caches may take so much memory.
    pub fn new(cache_bytes: usize) -> Self {
        let limit = cache_bytes / SHARE;
        LongCache { places: Table::default(), ids: Vec::new(), size: 0, limit }
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
            self.places = Table::default();
            self.ids.clear();
            self.size = 0;
        }
        self.size += size;
        *self.places.long_entry(piece) = (self.ids.len() as u64) << 8 | ids.len() as u64;
        self.ids.extend_from_slice(ids);
    }
}

impl Tokenizer {
    /// Where pieces of this text can be cut, if they can be.
    pub(super) fn joins(&self, text: &[u8]) -> Option<&Joins> {
        // A piece that is a token whatever the merges say must be seen as a whole.
        if self.whole.is_empty() { self.vocab.joins(text.len() >= MUCH) } else { None }
    }

    /// Encodes a piece, or a part of one, that is too long for a key.
    pub(super) fn encode_long(
        &self,
        merger: &mut Merger,
        long: &mut LongCache,
        piece: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if let Some(known) = long.get(piece) {
            ids.extend_from_slice(known);
            return Ok(());
        }
        if piece.len() > self.window() {
            return self.encode_windows(merger, piece, ids);
        }
        self.merge_piece(merger, piece)?;
        let first = ids.len();
        ids.extend(merger.tokens.iter().map(|&rank| self.vocab.rank_id(rank)));
        if piece.len() <= LONGEST {
            long.put(piece, &ids[first..]);
        }
        Ok(())
    }
}
