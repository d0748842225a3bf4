//! Unseen short pieces merged sixteen side by side, one in each lane of AVX-512.
//!
//! Merging one piece is a chain of dependent steps: find the lowest rank, merge, look up two pairs in a
//! large table, find the lowest rank again. Sixteen such chains run at once, so that their latencies
//! overlap; a lane that is done takes the next piece. As in [`super::short_merge`], a token is at the
//! place of its first byte, a bit mask says which places have one, and a rank and its place are one
//! number. Processors without AVX-512 merge piece by piece.

#![cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "nothing is ever in a lane"))]

use crate::base::cpu::{Avx512, Level};
use crate::base::table::{Key, key_bytes};
use crate::tokenizer::vocab::PairRanks;

/// Lanes of a vector.
const LANES: usize = 16;
/// Vectors at once: while one waits for its lookups, the other proceeds.
const SETS: usize = 2;
/// Bits of a place.
const BITS: u32 = 4;
/// Nothing to merge.
const NOTHING: u32 = u32::MAX;

/// One value for each lane.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
struct Row([u32; LANES]);

/// Sixteen pieces.
#[derive(Debug)]
struct Lanes {
    /// By place: the tokens there.
    tokens: [Row; LANES],
    /// By place: the rank of the merge of the token there with the next one, and the place.
    merges: [Row; LANES],
    /// By lane: the places that have a token.
    live: Row,
    /// By lane: the number of its piece.
    numbers: [usize; LANES],
    /// One bit per lane: whether it has no piece.
    idle: u16,
}

/// The memory for merging side by side.
#[derive(Debug)]
pub struct MergeLanes {
    sets: [Lanes; SETS],
    #[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "its existence is the proof"))]
    level: Avx512,
}

impl MergeLanes {
    /// None if the processor has no AVX-512.
    pub fn new() -> Option<Self> {
        let Level::Avx512(level) = Level::best() else { return None };
        Some(MergeLanes { sets: std::array::from_fn(|_| Lanes::new()), level })
    }

    /// Merges pieces. `done` gets the tokens of each as it is finished, in no particular order.
    pub fn merge(&mut self, pieces: &[Key], pairs: &PairRanks, done: impl FnMut(usize, &[u32])) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `self.level` proves that the processor has the features that the function enables.
        unsafe {
            self.merge_avx512(pieces, pairs, done);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (pieces, pairs, done);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt"
    )]
    fn merge_avx512(
        &mut self,
        pieces: &[Key],
        pairs: &PairRanks,
        mut done: impl FnMut(usize, &[u32]),
    ) {
        let mut later = pieces.iter().copied().enumerate();
        for lanes in &mut self.sets {
            lanes.fill(&mut later, pairs);
        }
        while self.sets.iter().any(|lanes| lanes.idle != u16::MAX) {
            for lanes in &mut self.sets {
                if lanes.idle != u16::MAX {
                    lanes.step_avx512(&mut later, pairs, &mut done);
                }
            }
        }
    }
}

impl Lanes {
    fn new() -> Self {
        Lanes {
            tokens: [Row([0; LANES]); LANES],
            merges: [Row([NOTHING; LANES]); LANES],
            live: Row([0; LANES]),
            numbers: [0; LANES],
            idle: u16::MAX,
        }
    }

    /// Puts pieces into the lanes that have none.
    #[inline(always)]
    fn fill(&mut self, later: &mut impl Iterator<Item = (usize, Key)>, pairs: &PairRanks) {
        while self.idle != 0
            && let Some((number, piece)) = later.next()
        {
            let lane = self.idle.trailing_zeros() as usize % LANES;
            self.idle &= self.idle - 1;
            self.numbers[lane] = number;
            self.load(lane, piece, pairs);
        }
    }

    /// Puts a piece into a lane in which there is nothing to merge.
    #[inline(always)]
    fn load(&mut self, lane: usize, piece: Key, pairs: &PairRanks) {
        let (bytes, length) = key_bytes(piece);
        // A key has at most fifteen bytes.
        let length = length.min(LANES - 1);
        self.tokens[0].0[lane] = u32::from(bytes[0]);
        for place in 1..length {
            self.tokens[place].0[lane] = u32::from(bytes[place]);
            let rank = pairs.of_bytes(bytes[place - 1], bytes[place]);
            // No branch: whether two bytes merge cannot be predicted.
            let none = u32::from(rank == NOTHING).wrapping_neg();
            self.merges[place - 1].0[lane] = rank << BITS | (place as u32 - 1) | none;
        }
        self.live.0[lane] = (1 << length) - 1;
    }

    /// One merge in every lane.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt"
    )]
    #[inline]
    fn step_avx512(
        &mut self,
        later: &mut impl Iterator<Item = (usize, Key)>,
        pairs: &PairRanks,
        done: &mut impl FnMut(usize, &[u32]),
    ) {
        use std::arch::x86_64::*;

        let splat = |number: u32| _mm512_set1_epi32(number as i32);
        let (nothing, one) = (splat(NOTHING), splat(1));
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let in_row = |place| _mm512_or_si512(_mm512_slli_epi32::<4>(place), lanes);
        let merge = |rank, place| {
            let some = _mm512_cmplt_epu32_mask(rank, nothing);
            _mm512_mask_or_epi32(nothing, some, _mm512_slli_epi32::<BITS>(rank), place)
        };
        // SAFETY: a row is sixteen numbers, aligned to the 64 bytes that the load needs.
        let load = |row: &Row| unsafe { _mm512_load_si512(row.0.as_ptr().cast()) };
        let mut least = [nothing; 2];
        for two in self.merges.chunks_exact(2) {
            least = [0, 1].map(|i| _mm512_min_epu32(least[i], load(&two[i])));
        }
        let least = _mm512_min_epu32(least[0], least[1]);
        let active = _mm512_cmplt_epu32_mask(least, nothing);
        let mut finished = !active & !self.idle;
        if finished != 0 {
            self.idle |= finished;
            while finished != 0 {
                let lane = finished.trailing_zeros() as usize % LANES;
                finished &= finished - 1;
                let mut live = self.live.0[lane];
                let mut ranks = [0; LANES];
                let mut n = 0;
                while live != 0 {
                    let place = live.trailing_zeros() as usize % LANES;
                    live &= live - 1;
                    ranks[n % LANES] = self.tokens[place].0[lane];
                    n += 1;
                }
                done(self.numbers[lane], &ranks[..n]);
            }
            // They take part from the next round on: a row cannot be loaded right after parts of it
            // were stored.
            self.fill(later, pairs);
        }
        let at = _mm512_and_si512(least, splat(LANES as u32 - 1));
        let merged = _mm512_srli_epi32::<BITS>(least);
        let bit = _mm512_sllv_epi32(one, at);
        let ahead = _mm512_sub_epi32(bit, one);
        let lowest = |bits| _mm512_and_si512(bits, _mm512_sub_epi32(_mm512_setzero_si512(), bits));
        let highest = |bits| _mm512_sub_epi32(splat(31), _mm512_lzcnt_epi32(bits));
        // The right one of the two is removed.
        let live = load(&self.live);
        let after = _mm512_andnot_si512(_mm512_or_si512(bit, ahead), live);
        let right = lowest(after);
        let live = _mm512_mask_andnot_epi32(live, active, right, live);
        let after = _mm512_andnot_si512(right, after);
        let ahead = _mm512_and_si512(live, ahead);
        let has_next = _mm512_mask_test_epi32_mask(active, after, after);
        let has_before = _mm512_mask_test_epi32_mask(active, ahead, ahead);
        let (next, before) = (highest(lowest(after)), highest(ahead));
        // SAFETY: places of live tokens are below sixteen, and so are lanes; a row is sixteen
        // numbers.
        unsafe {
            let tokens: *mut i32 = self.tokens.as_mut_ptr().cast();
            let merges: *mut i32 = self.merges.as_mut_ptr().cast();
            _mm512_store_si512(self.live.0.as_mut_ptr().cast(), live);
            let token = |which, place| {
                _mm512_mask_i32gather_epi32::<4>(nothing, which, in_row(place), tokens)
            };
            let (next_token, token_before) = (token(has_next, next), token(has_before, before));
            let put = |to: *mut i32, which, place, value| {
                _mm512_mask_i32scatter_epi32::<4>(to, which, in_row(place), value);
            };
            put(tokens, active, at, merged);
            put(merges, active, highest(right), nothing);
            let with_next = pairs.get_x16(has_next, merged, next_token);
            let with_before = pairs.get_x16(has_before, token_before, merged);
            put(merges, active, at, merge(with_next, at));
            put(merges, has_before, before, merge(with_before, before));
        }
    }
}
