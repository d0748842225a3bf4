//! A piece → tokens: merges the pair of the lowest rank, of equal ones the leftmost, until no pair merges.
//!
//! A short piece is an array of tokens and one of ranks, whose minimum is searched for every merge: O(n²),
//! but faster for a few tokens than any structure that finds it. A long piece (a run of one letter, text
//! without spaces) is a linked list with a heap of pairs: O(n log n), and 20 bytes of memory per byte
//! besides the tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::base::memory::{out_of_memory, reserve, try_reserve};

/// The rank of two tokens that do not merge.
pub const NONE: u32 = u32::MAX;
/// From this number of tokens on, the heap is faster than the array.
const MIN_HEAP_LENGTH: usize = 96;

/// The merges of a tokenizer.
pub trait Merges {
    /// The rank of the merge of two tokens, or [`NONE`].
    fn rank(&self, left: u32, right: u32) -> u32;
    /// The token that the merge of this rank creates.
    fn result(&self, rank: u32) -> u32;
}

/// Memory that merging reuses.
#[derive(Debug, Default)]
pub struct Scratch {
    ranks: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    heap: BinaryHeap<Reverse<u64>>,
}

impl Scratch {
    /// Frees the memory that a very long piece needed.
    pub fn trim(&mut self) {
        if self.ranks.capacity() > 1 << 16 {
            *self = Scratch::default();
        }
    }
}

/// Merges `tokens` until no pair merges. Returns the last merge: left, right, rank.
pub fn merge(
    tokens: &mut Vec<u32>,
    merges: &impl Merges,
    scratch: &mut Scratch,
) -> Option<(u32, u32, u32)> {
    if tokens.len() < MIN_HEAP_LENGTH {
        merge_short(tokens, merges, scratch)
    } else {
        merge_long(tokens, merges, scratch)
    }
}

fn merge_short(
    tokens: &mut Vec<u32>,
    merges: &impl Merges,
    scratch: &mut Scratch,
) -> Option<(u32, u32, u32)> {
    let ranks = &mut scratch.ranks;
    ranks.clear();
    ranks.extend(tokens.windows(2).map(|pair| merges.rank(pair[0], pair[1])));
    let mut last = None;
    loop {
        let mut best = NONE;
        let mut at = 0;
        for (i, &rank) in ranks.iter().enumerate() {
            if rank < best {
                best = rank;
                at = i;
            }
        }
        if best == NONE {
            return last;
        }
        last = Some((tokens[at], tokens[at + 1], best));
        tokens[at] = merges.result(best);
        tokens.remove(at + 1);
        ranks.remove(at);
        if at > 0 {
            ranks[at - 1] = merges.rank(tokens[at - 1], tokens[at]);
        }
        if at < ranks.len() {
            ranks[at] = merges.rank(tokens[at], tokens[at + 1]);
        }
    }
}

/// The end of the linked list.
const LIST_END: u32 = u32::MAX;

fn merge_long(
    tokens: &mut Vec<u32>,
    merges: &impl Merges,
    scratch: &mut Scratch,
) -> Option<(u32, u32, u32)> {
    let n = tokens.len();
    // Callers keep pieces below 4 GiB.
    debug_assert!(n < LIST_END as usize);
    let Scratch { ranks, next, previous, heap } = scratch;
    ranks.clear();
    next.clear();
    previous.clear();
    for list in [&mut *ranks, next, previous] {
        reserve(list, n);
    }
    ranks.extend(tokens.windows(2).map(|pair| merges.rank(pair[0], pair[1])));
    ranks.push(NONE);
    next.extend(1..n as u32);
    next.push(LIST_END);
    previous.push(LIST_END);
    previous.extend(0..n as u32 - 1);
    heap.clear();
    // One entry for each pair at the start; it may grow.
    if heap.capacity() < n && !try_reserve(|| heap.try_reserve(n)) {
        out_of_memory(n * size_of::<u64>());
    }
    // Rank in the upper half, position in the lower: the smallest entry is the leftmost of the lowest rank.
    let entry = |rank: u32, at: u32| Reverse(u64::from(rank) << 32 | u64::from(at));
    heap.extend(
        ranks
            .iter()
            .zip(0u32..)
            .filter(|&(&rank, _)| rank != NONE)
            .map(|(&rank, at)| entry(rank, at)),
    );
    let mut last = None;
    while let Some(Reverse(top)) = heap.pop() {
        let (rank, at) = ((top >> 32) as u32, (top & 0xffff_ffff) as usize);
        // Entries of pairs that have changed since are not removed, but recognized by their rank.
        if ranks[at] != rank {
            continue;
        }
        let right = next[at] as usize;
        last = Some((tokens[at], tokens[right], rank));
        tokens[at] = merges.result(rank);
        ranks[right] = NONE;
        let after = next[right];
        next[at] = after;
        ranks[at] = NONE;
        if after != LIST_END {
            previous[after as usize] = at as u32;
            ranks[at] = merges.rank(tokens[at], tokens[after as usize]);
            if ranks[at] != NONE {
                heap.push(entry(ranks[at], at as u32));
            }
        }
        let before = previous[at];
        if before != LIST_END {
            let rank = merges.rank(tokens[before as usize], tokens[at]);
            // If the rank is the same as before, its entry is still in the heap.
            if rank != ranks[before as usize] {
                ranks[before as usize] = rank;
                if rank != NONE {
                    heap.push(entry(rank, before));
                }
            }
        }
    }
    let mut at = 0;
    let mut n = 0;
    while at != LIST_END {
        tokens[n] = tokens[at as usize];
        n += 1;
        at = next[at as usize];
    }
    tokens.truncate(n);
    last
}
