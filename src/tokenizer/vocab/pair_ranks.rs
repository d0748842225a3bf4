//! (rank, rank) → rank: the lookup in the inner loop of encoding.
//!
//! Pairs of bytes, with which every uncached piece starts, have a plain 256 × 256 table. All others
//! are in a cuckoo hash table whose slot holds both ranks and the result in 8 bytes. A pair is in one
//! of two slots, so a lookup is two loads without a loop, and sixteen lookups run in the lanes of a
//! vector register. Most lookups are of pairs that do not merge; a filter with one bit per hash,
//! small enough for the second-level cache, answers nearly all of these.
//!
//! Building is O(n) expected. Memory is 16 to 32 bytes per merge for the slots, 2 to 4 for the filter,
//! and 256 kB.

use crate::base::pages::Pages;
use crate::base::table::seed;
use crate::tokenizer::merge::{Merges, NONE};

const RANK_BITS: u32 = 21;
const RANK_MASK: u64 = (1 << RANK_BITS) - 1;
/// An empty slot: no pair of ranks has all bits set.
const EMPTY_SLOT: u64 = u64::MAX;
/// Moves of other pairs to insert one, before another hash is tried.
const MAX_MOVES: usize = 500;

#[derive(Debug)]
pub struct PairRanks {
    bytes: Vec<u32>,
    /// Inverted, so that zeroed memory is empty.
    slots: Pages<u64>,
    filter: Vec<u32>,
    hash: PairHash,
}

/// Two multiplicative hashes, and the slots and filter bits that they select.
#[derive(Debug, Clone, Copy)]
struct PairHash {
    /// Odd factors of the two ranks.
    left: u32,
    right: u32,
    slot_shift: u32,
    filter_shift: u32,
}

/// The second hash is the first times this.
const SECOND_HASH: u32 = 0x9e37_79b1;

impl PairHash {
    #[inline(always)]
    fn of(self, left: u32, right: u32) -> u32 {
        left.wrapping_mul(self.left).wrapping_add(right.wrapping_mul(self.right))
    }

    #[inline(always)]
    fn slots(self, hash: u32) -> [usize; 2] {
        [hash, hash.wrapping_mul(SECOND_HASH)].map(|hash| (hash >> self.slot_shift) as usize)
    }

    #[inline(always)]
    fn bit(self, hash: u32) -> u32 {
        hash >> self.filter_shift
    }
}

#[inline(always)]
fn packed_pair(left: u32, right: u32) -> u64 {
    u64::from(left) << RANK_BITS | u64::from(right)
}

impl PairRanks {
    /// A table of these merges; the result of the `i`th has rank `256 + i`.
    pub fn new(merges: &[(u32, u32)]) -> Self {
        let mut log = (merges.len() * 2).next_power_of_two().trailing_zeros().max(4);
        // One bit in sixteen is set, or fewer.
        let filter_log = (merges.len() * 16).next_power_of_two().trailing_zeros().max(6);
        let mut state = seed() as u64;
        let mut odd = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32 | 1
        };
        // Until all pairs have a slot, another hash and a larger table are tried. The first nearly
        // always succeeds, and since it is random, no file can be made for which it fails.
        let (hash, slots) = loop {
            let hash = PairHash {
                left: odd(),
                right: odd(),
                slot_shift: 32 - log,
                filter_shift: 32 - filter_log,
            };
            if let Some(slots) = place_all(merges, hash) {
                break (hash, slots);
            }
            log = (log + 1).min(28);
        };
        let mut table = PairRanks {
            bytes: vec![NONE; 1 << 16],
            slots,
            filter: vec![0; 1 << (filter_log - 5)],
            hash,
        };
        for (&(left, right), result) in merges.iter().zip(256..) {
            if left < 256 && right < 256 {
                table.bytes[(left << 8 | right) as usize] = result;
            }
            let bit = hash.bit(hash.of(left, right));
            table.filter[bit as usize / 32] |= 1 << (bit % 32);
        }
        table
    }

    /// The result of two bytes, or [`NONE`].
    #[inline]
    pub fn of_bytes(&self, left: u8, right: u8) -> u32 {
        self.bytes[usize::from(left) << 8 | usize::from(right)]
    }

    /// The result of two ranks, or [`NONE`].
    #[inline]
    pub fn get(&self, left: u32, right: u32) -> u32 {
        let hash = self.hash.of(left, right);
        let bit = self.hash.bit(hash);
        if self.filter[bit as usize / 32] >> (bit % 32) & 1 == 0 {
            return NONE;
        }
        let key = packed_pair(left, right);
        for at in self.hash.slots(hash) {
            let slot = !self.slots[at];
            if slot >> RANK_BITS == key {
                return (slot & RANK_MASK) as u32;
            }
        }
        NONE
    }
}

/// A merge is looked up by ranks, and its rank is its result.
impl Merges for PairRanks {
    #[inline]
    fn rank(&self, left: u32, right: u32) -> u32 {
        self.get(left, right)
    }

    #[inline]
    fn result(&self, rank: u32) -> u32 {
        rank
    }
}

/// Puts every pair into one of its two slots; None if [`MAX_MOVES`] are not enough.
fn place_all(merges: &[(u32, u32)], hash: PairHash) -> Option<Pages<u64>> {
    let mut slots: Pages<u64> = Pages::new(1 << (32 - hash.slot_shift));
    'merges: for (&(left, right), result) in merges.iter().zip(256u64..) {
        let mut entry = packed_pair(left, right) << RANK_BITS | result;
        let slots_of_pair = hash.slots(hash.of(left, right));
        // If a pair occurs twice, the later one wins.
        for at in slots_of_pair {
            if !slots[at] >> RANK_BITS == entry >> RANK_BITS {
                slots[at] = !entry;
                continue 'merges;
            }
        }
        let mut at = slots_of_pair[0];
        if slots[at] != !EMPTY_SLOT {
            at = slots_of_pair[1];
        }
        for _ in 0..MAX_MOVES {
            let old = !std::mem::replace(&mut slots[at], !entry);
            if old == EMPTY_SLOT {
                continue 'merges;
            }
            // The pair that was here moves to its other slot.
            entry = old;
            let (left, right) = (entry >> (2 * RANK_BITS), entry >> RANK_BITS & RANK_MASK);
            let [one, other] = hash.slots(hash.of(left as u32, right as u32));
            at = if at == one { other } else { one };
        }
        return None;
    }
    Some(slots)
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    use std::arch::x86_64::*;

    use crate::tokenizer::vocab::pair_ranks::{NONE, PairRanks, RANK_BITS, RANK_MASK, SECOND_HASH};

    impl PairRanks {
        /// [`PairRanks::get`] for the lanes in `which`; [`NONE`] in the others.
        #[target_feature(enable = "avx512f")]
        #[inline]
        pub fn get_x16(&self, which: __mmask16, left: __m512i, right: __m512i) -> __m512i {
            let none = _mm512_set1_epi32(NONE as i32);
            let times =
                |lanes, number: u32| _mm512_mullo_epi32(lanes, _mm512_set1_epi32(number as i32));
            let hashes =
                _mm512_add_epi32(times(left, self.hash.left), times(right, self.hash.right));
            let shift = |lanes, by: u32| _mm512_srl_epi32(lanes, _mm_cvtsi32_si128(by as i32));
            let bits = shift(hashes, self.hash.filter_shift);
            // SAFETY: the filter has 2^filter_log bits in words of 32, and `bits` are 32-bit hashes
            // shifted right by 32 - filter_log, so each index is below the number of words.
            let words = unsafe {
                _mm512_mask_i32gather_epi32::<4>(
                    none,
                    which,
                    _mm512_srli_epi32::<5>(bits),
                    self.filter.as_ptr().cast(),
                )
            };
            let bit = _mm512_sllv_epi32(
                _mm512_set1_epi32(1),
                _mm512_and_si512(bits, _mm512_set1_epi32(31)),
            );
            let likely = _mm512_mask_test_epi32_mask(which, words, bit);
            if likely == 0 {
                return none;
            }
            // The candidates are compressed to the lowest lanes, so one half is nearly always enough.
            let left = _mm512_maskz_compress_epi32(likely, left);
            let right = _mm512_maskz_compress_epi32(likely, right);
            let hashes = _mm512_maskz_compress_epi32(likely, hashes);
            let [first, second] = [hashes, times(hashes, SECOND_HASH)]
                .map(|hashes| shift(hashes, self.hash.slot_shift));
            let n = likely.count_ones();
            let low = |lanes| _mm512_castsi512_si256(lanes);
            let mut results =
                _mm512_castsi256_si512(self.get_x8(low(left), low(right), low(first), low(second)));
            if n > 8 {
                let high = |lanes| _mm512_extracti64x4_epi64::<1>(lanes);
                results = _mm512_inserti64x4::<1>(
                    results,
                    self.get_x8(high(left), high(right), high(first), high(second)),
                );
            }
            _mm512_mask_expand_epi32(none, likely, results)
        }

        /// The results of eight pairs that are in one of their two slots, or nowhere.
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn get_x8(
            &self,
            left: __m256i,
            right: __m256i,
            first: __m256i,
            second: __m256i,
        ) -> __m256i {
            let key = _mm512_or_si512(
                _mm512_slli_epi64::<RANK_BITS>(_mm512_cvtepu32_epi64(left)),
                _mm512_cvtepu32_epi64(right),
            );
            // SAFETY: the table has 2^(32 - slot_shift) slots of 8 bytes (`place_all`), and both indices
            // are 32-bit hashes shifted right by slot_shift, so each is below the number of slots. As
            // the table has at most 2^28 slots, the gather does not read an index as negative.
            let slot = |at| unsafe {
                let slot = _mm512_i32gather_epi64::<8>(at, self.slots.as_ptr().cast());
                _mm512_xor_si512(slot, _mm512_set1_epi64(-1))
            };
            let (one, other) = (slot(first), slot(second));
            let is = |slot| _mm512_cmpeq_epi64_mask(_mm512_srli_epi64::<RANK_BITS>(slot), key);
            let results = _mm512_mask_mov_epi64(
                _mm512_mask_mov_epi64(_mm512_set1_epi64(-1), is(one), one),
                is(other),
                other,
            );
            let found = is(one) | is(other);
            let ranks = _mm512_and_si512(results, _mm512_set1_epi64(RANK_MASK as i64));
            let ranks = _mm512_mask_mov_epi64(_mm512_set1_epi64(-1), found, ranks);
            _mm512_cvtepi64_epi32(ranks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Some merges, many of which are alike.
    fn merges(n: u32) -> Vec<(u32, u32)> {
        (0..n).map(|i| (i % 97 * (i % 5), i.wrapping_mul(2_654_435_761) % (256 + i))).collect()
    }

    #[test]
    fn finds_what_a_hash_map_finds() {
        for n in [0, 1, 2, 3, 17, 300, 5_000, 60_000] {
            let merges = merges(n);
            let table = PairRanks::new(&merges);
            let expected: HashMap<_, _> = merges.iter().copied().zip(256u32..).collect();
            let asked = (0..20_000u32).map(|i| (i % 101 * (i % 6), i * 3 % 1000));
            for (left, right) in asked.chain(merges) {
                let expected = expected.get(&(left, right)).copied().unwrap_or(NONE);
                assert_eq!(table.get(left, right), expected, "{left} {right} of {n}");
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn sixteen_at_once_are_sixteen_one_by_one() {
        use std::arch::x86_64::*;

        #[target_feature(enable = "avx512f")]
        fn ask(table: &PairRanks, which: u16, left: [u32; 16], right: [u32; 16]) -> [u32; 16] {
            // SAFETY: a register of 512 bits and an array of sixteen `u32` have the same size, and any
            // bits are a value of both; this function enables the feature that `get_x16` needs.
            unsafe {
                let [left, right] = [left, right].map(|lanes| std::mem::transmute(lanes));
                std::mem::transmute::<__m512i, _>(table.get_x16(which, left, right))
            }
        }

        if !is_x86_feature_detected!("avx512f") {
            return;
        }
        for n in [0, 300, 60_000] {
            let merges = merges(n);
            let table = PairRanks::new(&merges);
            for round in 0..5_000u32 {
                // From no known pair in the lanes to all of them.
                let pair = |lane: u32| {
                    let i = round.wrapping_mul(40_503).wrapping_add(lane * 7_919);
                    let known = n > 0 && i % 17 < round % 18;
                    if known { merges[(i % n) as usize] } else { (i % 5000, i % 4999) }
                };
                let left = std::array::from_fn(|lane| pair(lane as u32).0);
                let right = std::array::from_fn(|lane| pair(lane as u32).1);
                let which =
                    (round.wrapping_mul(2_654_435_761) >> 16) as u16 | (round % 2 * 0xffff) as u16;
                // SAFETY: the processor has the feature that the function enables, as was checked above.
                let got = unsafe { ask(&table, which, left, right) };
                let expected = std::array::from_fn(|lane| {
                    let asked = which >> lane & 1 == 1;
                    if asked { table.get(left[lane], right[lane]) } else { NONE }
                });
                assert_eq!(got, expected);
            }
        }
    }
}
