//! Merging of pieces of up to 64 bytes, which is nearly all of them, without leaving the stack.
//!
//! Every token is at the place of its first byte, and a bit mask says which places have one, so that
//! neighbors are found by counting zeros. The rank of a place's merge and the place itself are one
//! number, so that the lowest number is the next merge, the leftmost of equal ranks.

#[cfg(target_arch = "x86_64")]
use crate::base::cpu::Level;
use crate::tokenizer::vocab::PairRanks;

/// The longest piece.
pub const MAX_LENGTH: usize = 64;

/// Bits of a place.
const BITS: u32 = 6;
/// Numbers from here on mean that there is nothing to merge. Ranks have 21 bits.
const NOTHING: u32 = u32::MAX << BITS;

/// The tokens of a piece: `n` of them, by rank.
#[derive(Debug)]
pub struct ShortMerge {
    pub ranks: [u32; MAX_LENGTH],
    pub n: usize,
}

impl Default for ShortMerge {
    fn default() -> Self {
        ShortMerge { ranks: [0; MAX_LENGTH], n: 0 }
    }
}

impl ShortMerge {
    /// Merges a piece of 1 to [`MAX_LENGTH`] bytes.
    #[inline]
    pub fn merge(&mut self, piece: &[u8], pairs: &PairRanks) {
        #[cfg(target_arch = "x86_64")]
        if Level::best() != Level::Portable {
            // SAFETY: every other level has the features that the function enables.
            return unsafe { self.merge_avx2(piece, pairs) };
        }
        self.merge_sized(piece, pairs);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn merge_avx2(&mut self, piece: &[u8], pairs: &PairRanks) {
        self.merge_sized(piece, pairs);
    }

    #[inline(always)]
    fn merge_sized(&mut self, piece: &[u8], pairs: &PairRanks) {
        match piece.len() {
            0..=8 => self.merge_within::<8>(piece, pairs),
            9..=16 => self.merge_within::<16>(piece, pairs),
            17..=32 => self.merge_within::<32>(piece, pairs),
            _ => self.merge_within::<MAX_LENGTH>(piece, pairs),
        }
    }

    #[inline(always)]
    fn merge_within<const N: usize>(&mut self, piece: &[u8], pairs: &PairRanks) {
        let n = piece.len().min(N);
        let piece = &piece[..n];
        let mut tokens = [0u32; N];
        let mut merges = [NOTHING; N];
        for (token, &byte) in tokens.iter_mut().zip(piece) {
            *token = u32::from(byte);
        }
        for (i, two) in piece.windows(2).enumerate() {
            merges[i] = pairs.of_bytes(two[0], two[1]) << BITS | i as u32;
        }
        let mut live = u64::MAX >> (64 - n);
        loop {
            // Four minima at a time: a single one would be a chain in which each step waits for the
            // previous one.
            let mut four = [merges[0], merges[1], merges[2], merges[3]];
            for more in merges[4..].chunks_exact(4) {
                for (least, &merge) in four.iter_mut().zip(more) {
                    *least = merge.min(*least);
                }
            }
            let least = four[0].min(four[1]).min(four[2].min(four[3]));
            if least >= NOTHING {
                break;
            }
            let (at, rank) = ((least % MAX_LENGTH as u32) as usize % N, least >> BITS);
            // The right one of the two is removed.
            let after = live & (u64::MAX - 1) << at;
            let right = after.trailing_zeros() as usize % N;
            live &= !(1 << right);
            merges[right] = NOTHING;
            tokens[at] = rank;
            let after = after & after.wrapping_sub(1);
            let next = tokens[after.trailing_zeros() as usize % N];
            let ahead = live & !(u64::MAX << at);
            let before = (63 - (ahead | 1).leading_zeros()) as usize % N;
            // Both are looked up at once, even if there is no such neighbor.
            let (with_next, with_before) = (pairs.get(rank, next), pairs.get(tokens[before], rank));
            merges[at] = if after == 0 { NOTHING } else { with_next << BITS | at as u32 };
            if ahead != 0 {
                merges[before] = with_before << BITS | before as u32;
            }
        }
        self.n = 0;
        while live != 0 {
            self.ranks[self.n % MAX_LENGTH] = tokens[live.trailing_zeros() as usize % N];
            self.n += 1;
            live &= live - 1;
        }
    }
}
