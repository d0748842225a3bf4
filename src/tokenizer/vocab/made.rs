//! The tokens that their own bytes merge into: nearly all of a learned vocabulary.
//!
//! Merging the bytes of each token would show that, too, but with more lookups, each of which depends on
//! the one before. Nearly always, every merge joins bytes or results of earlier merges. Then merges
//! happen in the order of their ranks, and the bytes of the merge (a, b) become its token if those of
//! a and b become a and b, and no earlier merge crosses the border between the two. Undoing the later
//! of the two tokens at the border, step by step, visits all pairs that are ever adjacent there. Such a
//! pair crosses if its merge comes before the one that was undone last; after undoing one on the right,
//! also if it is the same merge, since of equal ranks the leftmost happens first. That is one lookup per step, and no
//! more steps than a and b are deep.

use super::pair_ranks::PairRanks;
use crate::tokenizer::merge::{self, Scratch};

/// By rank, whether the bytes of the token merge into it.
pub fn made<'a>(
    tokens: impl ExactSizeIterator<Item = &'a [u8]>,
    merges: &[(u32, u32)],
    pairs: &PairRanks,
) -> Vec<bool> {
    let mut made = vec![true; tokens.len()];
    let in_order = (256..).zip(merges).all(|(rank, &(left, right))| left.max(right) < rank);
    if in_order {
        for (rank, &(left, right)) in (256..).zip(merges) {
            made[rank as usize] = made[left as usize]
                && made[right as usize]
                && !is_crossed(left, right, merges, pairs);
        }
        made[256 + merges.len()..].fill(false);
    } else {
        let (mut merging, mut scratch) = (Vec::new(), Scratch::default());
        for (rank, token) in (0..).zip(tokens) {
            merging.clear();
            merging.extend(token.iter().map(|&byte| u32::from(byte)));
            merge::merge(&mut merging, pairs, &mut scratch);
            made[rank as usize] = merging == [rank];
        }
    }
    made
}

/// Whether a merge crosses the border between two tokens before the two themselves merge. The bytes of
/// each must merge into it.
fn is_crossed(mut left: u32, mut right: u32, merges: &[(u32, u32)], pairs: &PairRanks) -> bool {
    while left.max(right) >= 256 {
        let limit;
        if left > right {
            limit = left;
            left = merges[left as usize - 256].1;
        } else {
            limit = right + 1;
            right = merges[right as usize - 256].0;
        }
        if pairs.get(left, right) < limit {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Merges of bytes and earlier results, each of which makes another token; and all tokens by rank.
    fn vocabulary(picks: &[(usize, usize)]) -> (Vec<Vec<u8>>, Vec<(u32, u32)>) {
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let mut merges = vec![];
        let mut seen = HashSet::new();
        for &(left, right) in picks {
            // Only three of the bytes occur, so that many merges compete.
            let pick = |i: usize| match i % (merges.len() + 3) {
                i @ 0..3 => i,
                i => i + 253,
            };
            let (left, right) = (pick(left), pick(right));
            let token = [&tokens[left][..], &tokens[right]].concat();
            if token.len() <= 40 && seen.insert(token.clone()) {
                tokens.push(token);
                merges.push((left as u32, right as u32));
            }
        }
        (tokens, merges)
    }

    fn slices(tokens: &[Vec<u8>]) -> impl ExactSizeIterator<Item = &[u8]> {
        tokens.iter().map(|token| &token[..])
    }

    /// The same by merging.
    fn by_merging(tokens: &[Vec<u8>], pairs: &PairRanks) -> Vec<bool> {
        let merged = |token: &[u8]| {
            let mut merging: Vec<u32> = token.iter().map(|&byte| u32::from(byte)).collect();
            merge::merge(&mut merging, pairs, &mut Scratch::default());
            merging
        };
        (0..).zip(tokens).map(|(rank, token)| merged(token) == [rank]).collect()
    }

    #[test]
    fn a_merge_across_the_border() {
        // "abc" becomes "ab" and "c" before the merge of "a" and "bc" can happen; and "aaaa" is "aa" twice.
        let (a, b, c) = (97, 98, 99);
        let merges = [(a, b), (b, c), (a, 257), (a, a), (a, 259), (259, 259)];
        let made_of = [&b"ab"[..], b"bc", b"abc", b"aa", b"aaa", b"aaaa"];
        let pairs = PairRanks::new(&merges);
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        tokens.extend(made_of.map(<[u8]>::to_vec));
        let made = made(slices(&tokens), &merges, &pairs);
        assert_eq!(made[256..], [true, true, false, true, false, true]);
        assert_eq!(made, by_merging(&tokens, &pairs));
    }

    proptest! {
        #[test]
        fn undoing_merges_agrees_with_merging(
            picks in prop::collection::vec((any::<usize>(), any::<usize>()), 0..60),
            swaps in prop::collection::vec((any::<usize>(), any::<usize>()), 0..3),
        ) {
            let (mut tokens, mut merges) = vocabulary(&picks);
            let pairs = PairRanks::new(&merges);
            prop_assert_eq!(made(slices(&tokens), &merges, &pairs), by_merging(&tokens, &pairs));
            // Ranks in another order, so that some merges need results of later ones; and a token
            // without a merge.
            let n = merges.len();
            let mut order: Vec<usize> = (0..n).collect();
            for (one, other) in swaps.iter().filter(|_| n > 0) {
                order.swap(one % n, other % n);
            }
            let mut rank: Vec<u32> = (0..256 + n as u32).collect();
            for (new, &old) in order.iter().enumerate() {
                rank[256 + old] = 256 + new as u32;
            }
            merges = order
                .iter()
                .map(|&old| (rank[merges[old].0 as usize], rank[merges[old].1 as usize]))
                .collect();
            let moved: Vec<Vec<u8>> = order.iter().map(|&old| tokens[256 + old].clone()).collect();
            tokens.truncate(256);
            tokens.extend(moved);
            tokens.push(vec![7, 8, 9]);
            let pairs = PairRanks::new(&merges);
            prop_assert_eq!(made(slices(&tokens), &merges, &pairs), by_merging(&tokens, &pairs));
        }
    }
}
