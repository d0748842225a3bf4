//! The next pair: the most common one, and of equally common ones the first in a given order.
//!
//! Counts only fall, and the pairs that a merge creates are at most as common as the merged one. So
//! pairs are in buckets by the count that they had when they were added, and the buckets are visited
//! from the top down, never back up. A pair that became rarer moves to its new bucket when its old one
//! is reached; only pairs that have the same count at the same time are ever compared. The few very
//! large counts are in a heap. Adding a pair takes O(1), a bucket of n pairs O(n log n); a heap of all
//! pairs took more than twice the time on English (docs/performance.md).

use super::pairs::Pair;

/// Counts below this have buckets.
const BUCKETS: usize = 1 << 16;
/// The end of a bucket.
const BUCKET_END: u32 = u32::MAX;
/// Pairs of a bucket that are prefetched ahead.
const PAIRS_AHEAD: usize = 8;

/// A pair and its count when it was added.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    pub count: u64,
    pub pair: Pair,
}

/// The current counts of pairs, and their order where these are equal.
pub trait PairOrder {
    /// The current count of a pair.
    fn count(&self, pair: Pair) -> u64;
    /// Prefetches the count of a pair.
    fn prefetch(&self, pair: Pair);
    /// Whether `a` comes before `b` if both are equally common.
    fn is_before(&self, a: Pair, b: Pair) -> bool;
}

/// A priority queue of pairs.
#[derive(Debug)]
pub struct PairQueue {
    /// Pairs whose counts are too large for buckets.
    large: Heap<Candidate>,
    /// By count, the first link of a bucket.
    first: Vec<u32>,
    /// A pair and the next link of its bucket.
    links: Vec<(Pair, u32)>,
    /// Free links.
    free: Vec<u32>,
    /// Buckets from here on are empty.
    level: usize,
    /// The pairs of the bucket that was opened last, at `level`.
    open: Heap<Pair>,
    /// The pairs of the bucket that is being opened; kept for its memory.
    held: Vec<Pair>,
}

impl Default for PairQueue {
    fn default() -> Self {
        PairQueue {
            large: Heap::default(),
            first: vec![BUCKET_END; BUCKETS],
            links: Vec::new(),
            free: Vec::new(),
            level: BUCKETS,
            open: Heap::default(),
            held: Vec::new(),
        }
    }
}

impl PairQueue {
    /// Adds a pair. Its count must not exceed that of the last pair popped.
    pub fn push(&mut self, candidate: Candidate, order: &impl PairOrder) {
        let Candidate { count, pair } = candidate;
        if count >= BUCKETS as u64 {
            self.large.push(candidate, |a, b| is_better(a, b, order));
            return;
        }
        let count = count as usize;
        debug_assert!(count <= self.level);
        if count == self.level {
            self.open.push(pair, |&a, &b| order.is_before(a, b));
            return;
        }
        let link = (pair, self.first[count]);
        self.first[count] = match self.free.pop() {
            Some(at) => {
                self.links[at as usize] = link;
                at
            }
            None => {
                self.links.push(link);
                self.links.len() as u32 - 1
            }
        };
    }

    /// Removes the next pair, with its current count. Pairs below `floor`, which is at least 1, are
    /// dropped.
    pub fn pop(&mut self, floor: u64, order: &impl PairOrder) -> Option<Candidate> {
        while let Some(top) = self.large.pop(|a, b| is_better(a, b, order)) {
            let count = order.count(top.pair);
            if count == top.count {
                return Some(top);
            }
            self.put_back(top.pair, count, floor, order);
        }
        loop {
            while let Some(pair) = self.open.pop(|&a, &b| order.is_before(a, b)) {
                let count = order.count(pair);
                if count == self.level as u64 {
                    return Some(Candidate { count, pair });
                }
                self.put_back(pair, count, floor, order);
            }
            if self.level as u64 <= floor {
                return None;
            }
            self.level -= 1;
            self.open_bucket(floor, order);
        }
    }

    fn put_back(&mut self, pair: Pair, count: u64, floor: u64, order: &impl PairOrder) {
        if count >= floor {
            self.push(Candidate { count, pair }, order);
        }
    }

    fn open_bucket(&mut self, floor: u64, order: &impl PairOrder) {
        let mut at = std::mem::replace(&mut self.first[self.level], BUCKET_END);
        let mut held = std::mem::take(&mut self.held);
        while at != BUCKET_END {
            let (pair, next) = self.links[at as usize];
            held.push(pair);
            self.free.push(at);
            at = next;
        }
        for (i, &pair) in held.iter().enumerate() {
            if let Some(&later) = held.get(i + PAIRS_AHEAD) {
                order.prefetch(later);
            }
            self.put_back(pair, order.count(pair), floor, order);
        }
        held.clear();
        self.held = held;
    }
}

fn is_better(a: &Candidate, b: &Candidate, order: &impl PairOrder) -> bool {
    if a.count == b.count { order.is_before(a.pair, b.pair) } else { a.count > b.count }
}

/// A binary heap with the best element on top. The order is an argument of each call, because it
/// depends on counts that the heap does not hold.
#[derive(Debug)]
struct Heap<T>(Vec<T>);

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap(Vec::new())
    }
}

impl<T: Copy> Heap<T> {
    fn push(&mut self, new: T, better: impl Fn(&T, &T) -> bool) {
        let mut at = self.0.len();
        self.0.push(new);
        while at > 0 {
            let parent = (at - 1) / 2;
            if !better(&new, &self.0[parent]) {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = new;
    }

    fn pop(&mut self, better: impl Fn(&T, &T) -> bool) -> Option<T> {
        let last = self.0.pop()?;
        let Some(&top) = self.0.first() else { return Some(last) };
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.0.len() {
                break;
            }
            if child + 1 < self.0.len() && better(&self.0[child + 1], &self.0[child]) {
                child += 1;
            }
            if !better(&self.0[child], &last) {
                break;
            }
            self.0[at] = self.0[child];
            at = child;
        }
        self.0[at] = last;
        Some(top)
    }
}
