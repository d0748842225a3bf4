//! Sixteen unseen short pieces merged side by side, one in each lane of AVX-512.
//!
//! Merging a piece by itself is a chain in which everything waits for the one before: the least of
//! the ranks, the merge, two look-ups in a large table, the least again. Sixteen such chains at once
//! wait together. As in [`super::small`], a token stands where its first byte does, which places
//! have one is a bit mask, and a rank and its place are one number. Processors without AVX-512 merge
//! piece by piece.

use crate::pieces::{Key, SHORT};
use crate::vocab::PairRanks;

/// Pieces at once.
pub const LANES: usize = 16;

/// Bits of a place.
const BITS: u32 = 4;

/// One value for each lane.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
struct Row([u32; LANES]);

/// Pieces and, after merging, their tokens.
#[derive(Debug)]
pub struct Lanes {
    /// By place: the token there.
    tokens: [Row; LANES],
    /// By lane: which places have a token.
    live: Row,
}

impl Default for Lanes {
    fn default() -> Self {
        Lanes { tokens: [Row([0; LANES]); LANES], live: Row([0; LANES]) }
    }
}

impl Lanes {
    /// Whether this processor has what it takes.
    #[inline]
    pub fn available() -> bool {
        #[cfg(target_arch = "x86_64")]
        return std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512cd");
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Merges up to sixteen pieces. Only where it is [available](Lanes::available).
    #[cfg(target_arch = "x86_64")]
    pub fn merge(&mut self, keys: &[Key], pairs: &PairRanks) {
        let mut all = [0; LANES + 1];
        all[..keys.len()].copy_from_slice(keys);
        assert!(Self::available());
        // SAFETY: the processor has what is asked for.
        unsafe { self.merge_avx512(&all, pairs) };
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn merge(&mut self, _keys: &[Key], _pairs: &PairRanks) {
        unreachable!("not available");
    }

    /// The tokens of the piece in a lane.
    #[inline]
    pub fn tokens(&self, lane: usize) -> impl Iterator<Item = u32> {
        let mut live = self.live.0[lane];
        std::iter::from_fn(move || {
            let place = live.trailing_zeros() as usize;
            live &= live.wrapping_sub(1);
            Some(self.tokens.get(place)?.0[lane])
        })
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512cd")]
    fn merge_avx512(&mut self, keys: &[Key; LANES + 1], pairs: &PairRanks) {
        use std::arch::x86_64::*;

        let splat = |number: u32| _mm512_set1_epi32(number as i32);
        let (none, one) = (splat(u32::MAX), splat(1));
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        // Where in `keys`, and where in rows, a lane's values are.
        let key_at = _mm512_slli_epi32::<4>(lanes);
        let in_row = |place| _mm512_or_si512(_mm512_slli_epi32::<4>(place), lanes);
        // SAFETY: the last four bytes of each key, the very last of which is the piece's length.
        let top = unsafe {
            _mm512_i32gather_epi32::<1>(key_at, keys.as_ptr().cast::<u8>().add(12).cast())
        };
        let lengths = _mm512_srli_epi32::<24>(top);
        let n_places = (_mm512_reduce_max_epu32(lengths) as usize).min(SHORT);
        let mut live = _mm512_sub_epi32(_mm512_sllv_epi32(one, lengths), one);
        let mut merges = [Row([u32::MAX; LANES]); LANES];
        // At a merge of rank r at place p: r << 4 | p; all ones if there is none.
        let merge = |rank, place| {
            let some = _mm512_cmplt_epu32_mask(rank, none);
            _mm512_mask_or_epi32(none, some, _mm512_slli_epi32::<BITS>(rank), place)
        };
        for place in 0..n_places {
            // SAFETY: four bytes from a place below 15 on reach into the key behind, of which there is
            // one more than there are lanes.
            let four = unsafe {
                let at = _mm512_add_epi32(key_at, splat(place as u32));
                _mm512_i32gather_epi32::<1>(at, keys.as_ptr().cast())
            };
            let byte = splat(0xff);
            let left = _mm512_and_si512(four, byte);
            let right = _mm512_and_si512(_mm512_srli_epi32::<8>(four), byte);
            // SAFETY: a row is sixteen numbers.
            unsafe { _mm512_store_si512(self.tokens[place].0.as_mut_ptr().cast(), left) };
            if place + 1 == n_places {
                break;
            }
            let rank = pairs.of_bytes_x16(_mm512_or_si512(_mm512_slli_epi32::<8>(left), right));
            let inside = _mm512_cmplt_epu32_mask(splat(place as u32 + 1), lengths);
            let row = _mm512_mask_mov_epi32(none, inside, merge(rank, splat(place as u32)));
            // SAFETY: as above.
            unsafe { _mm512_store_si512(merges[place].0.as_mut_ptr().cast(), row) };
        }
        loop {
            let mut least = none;
            for row in &merges[..n_places] {
                // SAFETY: as above.
                least = _mm512_min_epu32(least, unsafe { _mm512_load_si512(row.0.as_ptr().cast()) });
            }
            let active = _mm512_cmplt_epu32_mask(least, none);
            if active == 0 {
                break;
            }
            let at = _mm512_and_si512(least, splat(LANES as u32 - 1));
            let merged = _mm512_srli_epi32::<BITS>(least);
            let bit = _mm512_sllv_epi32(one, at);
            let up_to = _mm512_or_si512(bit, _mm512_sub_epi32(bit, one));
            let lowest = |bits| _mm512_and_si512(bits, _mm512_sub_epi32(_mm512_setzero_si512(), bits));
            let highest = |bits| _mm512_sub_epi32(splat(31), _mm512_lzcnt_epi32(bits));
            // The right one of the two goes.
            let behind = _mm512_andnot_si512(up_to, live);
            let right = lowest(behind);
            live = _mm512_mask_andnot_epi32(live, active, right, live);
            let behind = _mm512_andnot_si512(right, behind);
            let ahead = _mm512_and_si512(live, _mm512_sub_epi32(bit, one));
            let has_next = _mm512_mask_test_epi32_mask(active, behind, behind);
            let has_before = _mm512_mask_test_epi32_mask(active, ahead, ahead);
            let (next, before) = (highest(lowest(behind)), highest(ahead));
            let tokens = self.tokens.as_mut_ptr();
            let ranks = merges.as_mut_ptr();
            // SAFETY: places of live tokens are below sixteen, and so are lanes.
            unsafe {
                _mm512_mask_i32scatter_epi32::<4>(tokens.cast(), active, in_row(at), merged);
                _mm512_mask_i32scatter_epi32::<4>(ranks.cast(), active, in_row(highest(right)), none);
                let with = |which, place| {
                    _mm512_mask_i32gather_epi32::<4>(none, which, in_row(place), tokens.cast())
                };
                let (next_token, token_before) = (with(has_next, next), with(has_before, before));
                let with_next = pairs.get_x16(has_next, merged, next_token);
                let with_before = pairs.get_x16(has_before, token_before, merged);
                _mm512_mask_i32scatter_epi32::<4>(
                    ranks.cast(),
                    active,
                    in_row(at),
                    merge(with_next, at),
                );
                _mm512_mask_i32scatter_epi32::<4>(
                    ranks.cast(),
                    has_before,
                    in_row(before),
                    merge(with_before, before),
                );
            }
        }
        // SAFETY: a row is sixteen numbers.
        unsafe { _mm512_store_si512(self.live.0.as_mut_ptr().cast(), live) };
    }
}
