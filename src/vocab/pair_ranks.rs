//! (rank, rank) → rank: the question that encoding asks all the time.
//!
//! Pairs of bytes, which every unseen piece starts with, have a plain 256 × 256 table. All others
//! are in one flat hash table whose slot holds both ranks and the result in 8 bytes, so that a
//! look-up nearly always costs one cache line. Most questions are about pairs that do not merge; a
//! bit for every hash, in a table that the second-level cache holds, answers nearly all of these.

use super::NONE;
use crate::pages::Pages;

const BITS: u32 = 21;
const MASK: u64 = (1 << BITS) - 1;
const FREE: u64 = 0;

/// What pairs of tokens become.
#[derive(Debug)]
pub struct PairRanks {
    bytes: Vec<u32>,
    /// All bits turned over: 0 is free.
    slots: Pages<u64>,
    shift: u32,
    filter: Vec<u64>,
    filter_shift: u32,
}

impl PairRanks {
    /// A table of these merges; the result of the `i`th has rank `256 + i`.
    pub fn new(merges: &[(u32, u32)]) -> Self {
        let log = (merges.len() * 2).next_power_of_two().trailing_zeros().max(4);
        // One bit in sixteen is set, or fewer.
        let filter_log = (merges.len() * 16).next_power_of_two().trailing_zeros().max(6);
        let mut table = PairRanks {
            bytes: vec![NONE; 1 << 16],
            slots: Pages::new(1 << log),
            shift: 64 - log,
            filter: vec![0; 1 << (filter_log - 6)],
            filter_shift: 64 - filter_log,
        };
        for (i, &(left, right)) in merges.iter().enumerate() {
            let result = 256 + i as u32;
            if left < 256 && right < 256 {
                table.bytes[(left << 8 | right) as usize] = result;
            }
            let key = Self::key(left, right);
            let hash = Self::hash(key);
            let bit = (hash >> table.filter_shift) as usize;
            table.filter[bit / 64] |= 1 << (bit % 64);
            let mut at = (hash >> table.shift) as usize;
            while table.slots[at] != FREE && !table.slots[at] >> BITS != key {
                at = (at + 1) & (table.slots.len() - 1);
            }
            table.slots[at] = !(key << BITS | u64::from(result));
        }
        table
    }

    #[inline]
    fn key(left: u32, right: u32) -> u64 {
        u64::from(left) << BITS | u64::from(right)
    }

    #[inline]
    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
        let hash = Self::hash(key);
        let bit = (hash >> self.filter_shift) as usize;
        if self.filter[bit / 64] >> (bit % 64) & 1 == 0 {
            return NONE;
        }
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = self.slots[at];
            if !slot >> BITS == key {
                return (!slot & MASK) as u32;
            }
            if slot == FREE {
                return NONE;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }
}
