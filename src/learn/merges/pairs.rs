//! Pair → count and positions: a hash table with open addressing, at most half full.

use crate::base::pages::{Pages, Zeroable, prefetch};

/// Two ids in one number, inverted: zeroed memory is an empty table, since no token has the largest id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair(u64);

impl Pair {
    #[inline]
    pub fn new(left: u32, right: u32) -> Self {
        Pair(!(u64::from(left) << 32 | u64::from(right)))
    }

    /// The left and the right id.
    #[inline]
    pub fn ids(self) -> [u32; 2] {
        [!(self.0 >> 32) as u32, !self.0 as u32]
    }

    /// The high bits of a product, which are mixed best.
    #[inline]
    pub fn hash(self) -> u64 {
        let mixed = self.0 ^ self.0 >> 32;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.0).wrapping_mul(0xd6e8_feb8_6659_fd93)
            >> 32
    }
}

const FREE: Pair = Pair(0);

/// An entry of the table.
#[repr(align(32))]
#[derive(Debug, Clone, Copy)]
pub struct PairEntry {
    pub pair: Pair,
    /// The current count.
    pub count: u64,
    /// The start of its positions.
    pub start: u64,
    /// The number of its positions, including stale ones.
    pub n: u32,
}

// SAFETY: all fields are numbers.
unsafe impl Zeroable for PairEntry {}

/// All tracked pairs.
#[derive(Debug)]
pub struct PairTable {
    entries: Pages<PairEntry>,
    len: usize,
}

impl PairTable {
    /// A table with room for about `n` pairs before it grows.
    pub fn new(n: usize) -> Self {
        PairTable { entries: Pages::new((2 * n).max(1 << 12).next_power_of_two()), len: 0 }
    }

    #[inline]
    fn home(&self, pair: Pair) -> usize {
        pair.hash() as usize & (self.entries.len() - 1)
    }

    #[inline]
    pub fn prefetch(&self, pair: Pair) {
        prefetch(&self.entries, self.home(pair));
    }

    #[inline]
    fn slot(&self, pair: Pair) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(pair);
        while self.entries[at].pair != pair && self.entries[at].pair != FREE {
            at = (at + 1) & mask;
        }
        at
    }

    /// The entry of a pair, inserted if missing.
    #[inline]
    pub fn entry(&mut self, pair: Pair) -> &mut PairEntry {
        let mut at = self.slot(pair);
        if self.entries[at].pair == FREE {
            if self.len * 2 >= self.entries.len() {
                self.grow();
                at = self.slot(pair);
            }
            self.entries[at].pair = pair;
            self.len += 1;
        }
        &mut self.entries[at]
    }

    /// The entry of a pair, if there is one.
    #[inline]
    pub fn find(&mut self, pair: Pair) -> Option<&mut PairEntry> {
        let at = self.slot(pair);
        (self.entries[at].pair == pair).then(|| &mut self.entries[at])
    }

    /// The current count of a pair.
    pub fn count(&self, pair: Pair) -> u64 {
        self.entries[self.slot(pair)].count
    }

    /// All entries, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = &PairEntry> {
        self.entries.iter().filter(|entry| entry.pair != FREE)
    }

    fn grow(&mut self) {
        let larger = Pages::new(self.entries.len() * 2);
        for &entry in std::mem::replace(&mut self.entries, larger).iter() {
            if entry.pair != FREE {
                let at = self.slot(entry.pair);
                self.entries[at] = entry;
            }
        }
    }
}
