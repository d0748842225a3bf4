//! Pieces with their counts as a list in memory.

use crate::base::memory::reserve;

/// Pieces with their counts: all bytes in one buffer, and 24 bytes per piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PieceList {
    bytes: Vec<u8>,
    /// (start, end in `bytes`, count)
    entries: Vec<(usize, usize, u64)>,
}

impl PieceList {
    pub fn with_capacity(n_pieces: usize, n_bytes: usize) -> Self {
        let mut list = PieceList::default();
        reserve(&mut list.bytes, n_bytes);
        reserve(&mut list.entries, n_pieces);
        list
    }

    pub fn push(&mut self, piece: &[u8], count: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        self.entries.push((start, self.bytes.len(), count));
    }

    pub fn append(&mut self, other: &PieceList) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let moved = other.entries.iter().map(|&(start, end, n)| (start + before, end + before, n));
        self.entries.extend(moved);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A piece and its count.
    pub fn entry(&self, index: usize) -> (&[u8], u64) {
        let (start, end, count) = self.entries[index];
        (&self.bytes[start..end], count)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        self.entries.iter().map(|&(start, end, count)| (&self.bytes[start..end], count))
    }

    /// Sorts the pieces in byte order.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| bytes[a.0..a.1].cmp(&bytes[b.0..b.1]));
    }
}
