//! Pairs: their counts and positions, the numbers in slots that they are made of, and the neighbors of
//! the occurrences of a merged pair.
//!
//! Counts are in a hash table with open addressing, at most half full: expected O(1), 32 bytes per
//! entry. Neighbors are counted in arrays: O(1) per occurrence, 16 bytes per id.
//!
//! Slot numbers have 16 bits if that is enough, since slots are most of the memory that merging needs
//! and waits for. Half the width saved a quarter of the time of replacing on English
//! (docs/performance.md).

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

const FREE_PAIR: Pair = Pair(0);

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

// SAFETY: all fields are numbers, of which zero is a valid value and which need no drop; the alignment
// is 32.
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
        while self.entries[at].pair != pair && self.entries[at].pair != FREE_PAIR {
            at = (at + 1) & mask;
        }
        at
    }

    /// The entry of a pair, inserted if missing.
    #[inline]
    pub fn entry(&mut self, pair: Pair) -> &mut PairEntry {
        let mut at = self.slot(pair);
        if self.entries[at].pair == FREE_PAIR {
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
        self.entries.iter().filter(|entry| entry.pair != FREE_PAIR)
    }

    fn grow(&mut self) {
        let larger = Pages::new(self.entries.len() * 2);
        for &entry in std::mem::replace(&mut self.entries, larger).iter() {
            if entry.pair != FREE_PAIR {
                let at = self.slot(entry.pair);
                self.entries[at] = entry;
            }
        }
    }
}

/// A token id or a count in a slot.
pub trait SlotNumber: Zeroable + Eq + Send + Sync + std::fmt::Debug + 'static {
    /// Separates two pieces.
    const SEPARATOR: Self;
    /// Replaces an id inside a longer token.
    const INSIDE: Self;
    /// Counts from here on are indices into a list of large counts.
    const LARGE_COUNT: u32;

    /// From a number that must fit.
    fn new(number: u32) -> Self;
    fn number(self) -> u32;
    /// Its index in [`Neighbors`]: the id + 1, or 0 for the separator.
    fn index(self) -> usize;
}

impl SlotNumber for u16 {
    const SEPARATOR: u16 = u16::MAX;
    const INSIDE: u16 = u16::MAX - 1;
    const LARGE_COUNT: u32 = 1 << 15;

    #[inline(always)]
    fn new(number: u32) -> u16 {
        number as u16
    }

    #[inline(always)]
    fn number(self) -> u32 {
        u32::from(self)
    }

    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self.wrapping_add(1))
    }
}

impl SlotNumber for u32 {
    const SEPARATOR: u32 = u32::MAX;
    const INSIDE: u32 = u32::MAX - 1;
    const LARGE_COUNT: u32 = 1 << 31;

    #[inline(always)]
    fn new(number: u32) -> u32 {
        number
    }

    #[inline(always)]
    fn number(self) -> u32 {
        self
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.wrapping_add(1) as usize
    }
}

/// The neighbors on one side, in arrays indexed by id + 1, with 0 for a separator, so that there is one
/// hash lookup per neighbor instead of per occurrence. A separator is recorded like a token, because
/// the branch to avoid that could not be predicted; it is skipped in the results.
#[derive(Debug)]
pub struct Neighbors {
    sums: Vec<NeighborSum>,
    /// The indices of the distinct neighbors.
    touched: Vec<u32>,
    /// (index, position of the new token); the first `n_found` are valid.
    found: Vec<(u32, u32)>,
    n_found: usize,
}

/// The totals of one neighbor during a merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct NeighborSum {
    pub weight: u64,
    /// The number of times it was found; later, where its next position goes.
    pub n: usize,
}

/// Its `n` is never 0, so it is never added to `touched`.
const SEPARATOR_SUM: NeighborSum = NeighborSum { weight: 0, n: 1 };

impl Default for Neighbors {
    fn default() -> Self {
        Neighbors { sums: vec![SEPARATOR_SUM], touched: Vec::new(), found: Vec::new(), n_found: 0 }
    }
}

impl Neighbors {
    /// Makes room for ids below `n`.
    pub fn resize(&mut self, n: usize) {
        self.sums.resize(n + 1, NeighborSum::default());
    }

    /// Makes room for `n` more occurrences.
    pub fn make_room(&mut self, n: usize) {
        // One more, for a separator that may be last.
        let needed = self.n_found + n + 1;
        if self.found.len() < needed {
            self.found.resize(needed, (0, 0));
        }
    }

    /// Records an occurrence.
    #[inline(always)]
    pub fn add(&mut self, index: usize, weight: u64, position: u32) {
        let sum = &mut self.sums[index];
        if sum.n == 0 {
            self.touched.push(index as u32);
        }
        sum.n += 1;
        sum.weight += weight;
        self.found[self.n_found] = (index as u32, position);
        self.n_found += usize::from(index != 0);
    }

    /// Subtracts weight from a recorded neighbor.
    pub fn subtract(&mut self, index: usize, weight: u64) {
        self.sums[index].weight -= weight;
    }

    /// The number of distinct neighbors.
    pub fn n_touched(&self) -> usize {
        self.touched.len()
    }

    /// The id of the i-th distinct neighbor.
    #[inline(always)]
    pub fn touched(&self, i: usize) -> u32 {
        self.touched[i] - 1
    }

    /// The totals of a neighbor.
    #[inline(always)]
    pub fn sum(&mut self, id: u32) -> &mut NeighborSum {
        &mut self.sums[id as usize + 1]
    }

    /// Calls `visit` for each occurrence, in order, with the neighbor, its totals and the position of
    /// the new token.
    #[inline(always)]
    pub fn for_each_found(&mut self, mut visit: impl FnMut(u32, &mut NeighborSum, u32)) {
        for &(index, position) in &self.found[..self.n_found] {
            visit(index - 1, &mut self.sums[index as usize], position);
        }
    }

    /// Moves the occurrences that another thread found, at later positions, here.
    pub fn absorb(&mut self, other: &mut Neighbors) {
        for &index in &other.touched {
            let theirs = other.sums[index as usize];
            let ours = &mut self.sums[index as usize];
            if ours.n == 0 {
                self.touched.push(index);
            }
            ours.n += theirs.n;
            ours.weight += theirs.weight;
        }
        self.make_room(other.n_found);
        self.found[self.n_found..self.n_found + other.n_found]
            .copy_from_slice(&other.found[..other.n_found]);
        self.n_found += other.n_found;
        other.clear();
    }

    pub fn clear(&mut self) {
        for &index in &self.touched {
            self.sums[index as usize] = NeighborSum::default();
        }
        self.sums[0] = SEPARATOR_SUM;
        self.touched.clear();
        self.n_found = 0;
    }
}
