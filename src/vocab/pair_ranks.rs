//! (rank, rank) → rank: the question that encoding asks all the time.
//!
//! Pairs of bytes, which every unseen piece starts with, have a plain 256 × 256 table. All others
//! are in one flat hash table whose slot holds both ranks and the result in 8 bytes, so that a
//! look-up, found or not, nearly always costs one cache line.

use super::NONE;

const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;
const FREE: u64 = u64::MAX;

/// What pairs of tokens become.
#[derive(Debug)]
pub struct PairRanks {
    bytes: Vec<u32>,
    slots: Vec<u64>,
    shift: u32,
}

impl PairRanks {
    /// A table of these merges; the result of the `i`th has rank `256 + i`.
    pub fn new(merges: &[(u32, u32)]) -> Self {
        // At most a third full: misses are as common as hits, and end at the first free slot.
        let log = (merges.len() * 3).next_power_of_two().trailing_zeros().max(4);
        let mut table =
            PairRanks { bytes: vec![NONE; 1 << 16], slots: vec![FREE; 1 << log], shift: 64 - log };
        for (i, &(left, right)) in merges.iter().enumerate() {
            let result = 256 + i as u32;
            if left < 256 && right < 256 {
                table.bytes[(left << 8 | right) as usize] = result;
            }
            let key = Self::key(left, right);
            let mut at = table.slot(key);
            while table.slots[at] != FREE && table.slots[at] >> BITS != key {
                at = (at + 1) & (table.slots.len() - 1);
            }
            table.slots[at] = key << BITS | u64::from(result);
        }
        table
    }

    #[inline]
    fn key(left: u32, right: u32) -> u64 {
        u64::from(left) << BITS | u64::from(right)
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// What two bytes become, or [`NONE`].
    #[inline]
    pub fn of_bytes(&self, left: u8, right: u8) -> u32 {
        self.bytes[usize::from(left) << 8 | usize::from(right)]
    }

    /// What two tokens become, or [`NONE`].
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> u32 {
        let key = Self::key(left, right);
        let mut at = self.slot(key);
        let mut slot = self.slots[at];
        // Found or free is no branch, for it could not be predicted; a slot taken by another pair
        // is rare.
        while slot != FREE && slot >> BITS != key {
            at = (at + 1) & (self.slots.len() - 1);
            slot = self.slots[at];
        }
        if slot == FREE { NONE } else { (slot & MASK) as u32 }
    }
}
