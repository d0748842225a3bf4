//! Parts of pieces that are too long for the cache of short ones.
//!
//! A long piece (a sentence in a script without spaces, a URL, a line of dashes) is first cut where no
//! token can span ([`crate::tokenizer::vocab::Joins`]), and most parts of it are short then. Parts of up
//! to 128 bytes are kept in a cache of their own; very long ones are merged in [windows](super::window).

use crate::base::table::Table;

/// Longer pieces are not cached.
pub const MAX_CACHED_LENGTH: usize = 128;
/// Long pieces get this fraction (1 / n) of a worker's cache.
const CACHE_FRACTION: usize = 8;

/// Long pieces that were encoded before.
#[derive(Debug)]
pub struct LongCache {
    /// Piece → the start and the number of its ids, as `start << 8 | n`.
    places: Table<u64>,
    ids: Vec<u32>,
    /// The approximate number of bytes in use.
    size: usize,
    limit: usize,
}

impl LongCache {
    /// For a worker whose caches may take `cache_bytes`.
    pub fn new(cache_bytes: usize) -> Self {
        let limit = cache_bytes / CACHE_FRACTION;
        LongCache { places: Table::default(), ids: Vec::new(), size: 0, limit }
    }

    pub fn get(&self, piece: &[u8]) -> Option<&[u32]> {
        let place = self.places.get(piece)?;
        let start = (place >> 8) as usize;
        Some(&self.ids[start..start + (place & 0xff) as usize])
    }

    pub fn put(&mut self, piece: &[u8], ids: &[u32]) {
        let size = piece.len() + 4 * ids.len() + 64;
        if self.size + size > self.limit {
            // Emptied: a small cache fills again soon.
            self.places = Table::default();
            self.ids.clear();
            self.size = 0;
        }
        self.size += size;
        *self.places.long_entry(piece) = (self.ids.len() as u64) << 8 | ids.len() as u64;
        self.ids.extend_from_slice(ids);
    }
}
