//! Short pieces that were encoded lately, with their ids.
//!
//! A fixed number of entries, each with one place: a new piece takes the place of the old. So the
//! cache never grows, never needs clearing, and costs one cache line a look-up.

use crate::pieces::Key;

/// The usual size, as a power of two: 2 MiB.
pub const USUAL: u32 = 16;
/// For streams, which promise to need little memory: 128 KiB.
pub const SMALL: u32 = 12;

/// Encodings of up to this many ids are kept.
const KEPT: usize = 3;

#[repr(align(32))]
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// 0: nothing here.
    key: Key,
    ids: [u32; KEPT],
    n: u32,
}

/// A cache of pieces.
#[derive(Debug)]
pub struct Cache {
    entries: Vec<Entry>,
}

impl Cache {
    /// A cache with `2^log_entries` places.
    pub fn new(log_entries: u32) -> Self {
        Cache { entries: vec![Entry { key: 0, ids: [0; KEPT], n: 0 }; 1 << log_entries] }
    }

    /// The ids of a piece, if it is here.
    #[inline]
    pub fn get(&self, key: Key, hash: u64) -> Option<&[u32]> {
        let entry = &self.entries[hash as usize & (self.entries.len() - 1)];
        (entry.key == key).then(|| &entry.ids[..entry.n as usize])
    }

    /// Keeps the ids of a piece, if they are few.
    #[inline]
    pub fn put(&mut self, key: Key, hash: u64, ids: &[u32]) {
        if ids.len() <= KEPT {
            let mask = self.entries.len() - 1;
            let entry = &mut self.entries[hash as usize & mask];
            entry.key = key;
            entry.n = ids.len() as u32;
            entry.ids[..ids.len()].copy_from_slice(ids);
        }
    }
}
