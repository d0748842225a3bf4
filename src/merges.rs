//! Counts → merges.
//!
//! All pieces lie end to end in one flat array of slots, one per byte, with a wall between two
//! pieces. A token's id stands in its first and in its last slot, and its length follows from its
//! id, so both neighbours of a token are one load away and a merge writes at most four slots.
//!
//! A tracked pair has a count and a list of the positions where it stood when it came into being.
//! A pair can only come into being during the merge that makes the younger of its two tokens;
//! after that its occurrences only vanish. So a list is written once, at its exact size, into one
//! big array; positions that have vanished are skipped when the list is read.
//!
//! Most pairs are too rare ever to be merged. Since counts only fall, a pair below a *floor* when
//! it comes into being stays below it, so only pairs above the floor are tracked, which keeps the
//! tables small. The floor is a guess at the count of the last merge, on the low side; if the
//! candidates run out before the merges do, it is lowered and the pairs are indexed again from the
//! slots as they are then.
//!
//! The best pair comes from a heap with stale counts: counts only fall, so the top entry is either
//! right or is put back with its present count.
//!
//! Time: O(symbols × log) for the pieces given, plus a heap operation per changed pair.

mod heap;
mod pairs;

use heap::{Candidate, Heap};
use pairs::{Entry, Pair, PairTable};

use crate::counts::PieceList;
use crate::error::{Error, Result};
use crate::job::Job;

/// Which of several pairs with the same count is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TieBreak {
    /// The greatest pair of byte strings, the left one compared first.
    #[default]
    Bytes,
    /// The one that the `tokenizers` library takes: the smallest pair of its ids.
    HuggingFace,
}

/// What to learn.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many merges at most.
    pub n_merges: usize,
    /// Which of equally common pairs.
    pub tie_break: TieBreak,
    /// Pairs that occur less often are not merged.
    pub min_frequency: u64,
    /// Tokens do not grow longer than this.
    pub max_token_length: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            n_merges: usize::MAX,
            tie_break: TieBreak::default(),
            min_frequency: 1,
            max_token_length: usize::MAX,
        }
    }
}

/// What merging starts from: tokens, and pieces written in them.
pub trait Base {
    /// The tokens there are, by number; the first 256 are the bytes.
    fn tokens(&self) -> Vec<Vec<u8>>;
    /// Writes the tokens of `piece` to `out`.
    fn segment(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()>;
    /// Whether these bytes are a token already.
    fn contains(&self, token: &[u8]) -> bool;
}

/// The 256 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bytes;

impl Base for Bytes {
    fn tokens(&self) -> Vec<Vec<u8>> {
        (0..=255u8).map(|byte| vec![byte]).collect()
    }

    fn segment(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()> {
        out.extend(piece.iter().map(|&byte| u32::from(byte)));
        Ok(())
    }

    fn contains(&self, token: &[u8]) -> bool {
        token.len() == 1
    }
}

/// Learns merges: pairs of token numbers, of which the first makes the token number
/// `base.tokens().len()`, and so on.
pub fn learn(
    pieces: &PieceList,
    base: &dyn Base,
    options: &Options,
    job: &Job,
) -> Result<Vec<(u32, u32)>> {
    let mut learner = Learner::new(pieces, base, *options, job)?;
    while learner.merges.len() < options.n_merges {
        let Some(pair) = learner.best_pair(base, job)? else { break };
        learner.merge(pair);
        job.advance(1);
        job.check()?;
    }
    Ok(learner.merges)
}

/// Stands between two pieces.
const WALL: u32 = u32::MAX;
/// Stands where a token used to begin or end, inside a longer one.
const INSIDE: u32 = u32::MAX - 1;
/// Weights from here on are numbers in `heavy`.
const HEAVY: u32 = 1 << 31;

/// The first floor is the number of bytes by the number of merges and by this.
const FLOOR_SHARE: u64 = 32;
/// The next one is the last by this.
const FLOOR_STEP: u64 = 16;

/// One byte of a piece, or a wall. Id and weight are needed together, so they lie together.
#[derive(Debug, Clone, Copy)]
struct Slot {
    id: u32,
    /// How often the piece occurs.
    weight: u32,
}

struct Learner {
    options: Options,
    slots: Vec<Slot>,
    /// Counts that do not fit a slot.
    heavy: Vec<u64>,
    /// Token bytes by number.
    tokens: Vec<Vec<u8>>,
    /// Token lengths by number: what the inner loop needs of `tokens`.
    lengths: Vec<u32>,
    /// Pairs that are rarer are not tracked.
    floor: u64,
    pairs: PairTable,
    /// The positions of all tracked pairs.
    positions: Vec<u32>,
    heap: Heap,
    merges: Vec<(u32, u32)>,
    /// The order of the tokens in the `tokenizers` library.
    ranks: Vec<u32>,
    left: Neighbours,
    right: Neighbours,
}

/// The tokens on one side of a merge. Indexed directly by number, so that a hash look-up is paid
/// per neighbour, not per occurrence.
#[derive(Default)]
struct Neighbours {
    sums: Vec<Sum>,
    touched: Vec<u32>,
    /// (neighbour, position of the pair)
    found: Vec<(u32, u32)>,
}

/// What is known of one neighbour during a merge.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    weight: u64,
    /// How often it was found; then, where its next position goes.
    n: usize,
}

/// A neighbour whose positions are not kept.
const UNTRACKED: usize = usize::MAX;

impl Neighbours {
    #[inline]
    fn add(&mut self, id: u32, weight: u64, position: u32) {
        let sum = &mut self.sums[id as usize];
        if sum.n == 0 {
            self.touched.push(id);
        }
        sum.n += 1;
        sum.weight += weight;
        self.found.push((id, position));
    }

    fn clear(&mut self) {
        for &id in &self.touched {
            self.sums[id as usize] = Sum::default();
        }
        self.touched.clear();
        self.found.clear();
    }
}

impl Learner {
    fn new(pieces: &PieceList, base: &dyn Base, options: Options, job: &Job) -> Result<Self> {
        let tokens = base.tokens();
        let mut learner = Learner {
            options,
            slots: vec![Slot { id: WALL, weight: 0 }],
            heavy: Vec::new(),
            lengths: tokens.iter().map(|token| token.len() as u32).collect(),
            floor: 0,
            ranks: huggingface_ranks(tokens.len()),
            tokens,
            pairs: PairTable::default(),
            positions: Vec::new(),
            heap: Heap::default(),
            merges: Vec::new(),
            left: Neighbours::default(),
            right: Neighbours::default(),
        };
        learner.lay_out(pieces, base, job)?;
        let n_bytes: u64 = pieces.iter().map(|(piece, count)| piece.len() as u64 * count).sum();
        // The count of the last of n merges is some n_bytes / (12 n) for natural text.
        learner.floor = (n_bytes / (options.n_merges.max(1) as u64).saturating_mul(FLOOR_SHARE))
            .max(learner.least());
        learner.index_pairs(job)?;
        Ok(learner)
    }

    /// The count below which a pair is never merged.
    fn least(&self) -> u64 {
        self.options.min_frequency.max(1)
    }

    /// Writes all pieces into the slots.
    fn lay_out(&mut self, pieces: &PieceList, base: &dyn Base, job: &Job) -> Result<()> {
        let total: usize = pieces.iter().map(|(piece, _)| piece.len() + 1).sum();
        if total >= INSIDE as usize {
            return Err(Error::config(format!(
                "the distinct pieces have {total} bytes, more than merging can address"
            ))
            .with_hint("drop rare pieces with min_piece_count=2 or more"));
        }
        self.slots.reserve(total);
        let mut ids = Vec::new();
        for (number, (piece, count)) in pieces.iter().enumerate() {
            if number % 65536 == 0 {
                job.check()?;
            }
            ids.clear();
            base.segment(piece, &mut ids)?;
            if ids.len() < 2 {
                continue;
            }
            let weight = if count < u64::from(HEAVY) {
                count as u32
            } else {
                self.heavy.push(count);
                HEAVY | (self.heavy.len() - 1) as u32
            };
            for &id in &ids {
                let start = self.slots.len();
                let length = self.lengths[id as usize] as usize;
                self.slots.resize(start + length, Slot { id: INSIDE, weight });
                self.slots[start].id = id;
                self.slots[start + length - 1].id = id;
            }
            self.slots.push(Slot { id: WALL, weight: 0 });
        }
        Ok(())
    }

    /// Calls `visit` for every pair of neighbours: its position, its tokens, its weight.
    fn for_each_pair(&self, mut visit: impl FnMut(u32, Pair, u64)) {
        let mut at = 1;
        while at < self.slots.len() {
            let Slot { id, weight } = self.slots[at];
            if id == WALL {
                at += 1;
                continue;
            }
            let next = at + self.lengths[id as usize] as usize;
            let right = self.slots[next].id;
            if right != WALL {
                visit(at as u32, Pair::new(id, right), self.weight(weight));
            }
            at = next;
        }
    }

    /// Counts all pairs, then lists the positions of those above the floor: two passes, so that
    /// lists have their size.
    fn index_pairs(&mut self, job: &Job) -> Result<()> {
        let mut all = PairTable::default();
        self.for_each_pair(|_, pair, weight| {
            let entry = all.entry(pair);
            entry.count += weight;
            entry.n += 1;
        });
        job.check()?;
        let mut pairs = PairTable::default();
        let mut start = 0;
        for entry in all.entries().filter(|entry| entry.count >= self.floor) {
            *pairs.entry(entry.pair) = Entry { start, n: 0, ..*entry };
            start += u64::from(entry.n);
        }
        let mut positions = vec![0; start as usize];
        self.for_each_pair(|at, pair, _| {
            if let Some(entry) = pairs.find(pair) {
                positions[entry.start as usize + entry.n as usize] = at;
                entry.n += 1;
            }
        });
        job.check()?;
        self.positions = positions;
        self.heap = Heap::default();
        for entry in pairs.entries() {
            self.push(Candidate { count: entry.count, pair: entry.pair });
        }
        self.pairs = pairs;
        Ok(())
    }

    fn weight(&self, weight: u32) -> u64 {
        if weight < HEAVY { u64::from(weight) } else { self.heavy[(weight & !HEAVY) as usize] }
    }

    fn push(&mut self, candidate: Candidate) {
        let (tokens, ranks, tie_break) = (&self.tokens, &self.ranks, self.options.tie_break);
        self.heap.push(candidate, |a, b| better(a, b, tie_break, tokens, ranks));
    }

    fn pop(&mut self) -> Option<Candidate> {
        let (tokens, ranks, tie_break) = (&self.tokens, &self.ranks, self.options.tie_break);
        self.heap.pop(|a, b| better(a, b, tie_break, tokens, ranks))
    }

    /// The pair to merge next.
    fn best_pair(&mut self, base: &dyn Base, job: &Job) -> Result<Option<Pair>> {
        loop {
            let Some(top) = self.pop() else {
                if self.floor <= self.least() {
                    return Ok(None);
                }
                self.floor = (self.floor / FLOOR_STEP).max(self.least());
                self.index_pairs(job)?;
                continue;
            };
            let count = self.pairs.count(top.pair);
            if count != top.count {
                if count >= self.floor {
                    self.push(Candidate { count, pair: top.pair });
                }
                continue;
            }
            let [left, right] = top.pair.ids();
            let (left, right) = (&self.tokens[left as usize], &self.tokens[right as usize]);
            if left.len() + right.len() > self.options.max_token_length {
                continue;
            }
            // Learning from the bytes up, no two merges make the same token: what happens within
            // a stretch of text that becomes one token depends on that stretch alone. A base may
            // hold tokens that its own merges never make, though.
            if base.contains(&[&left[..], &right[..]].concat()) {
                continue;
            }
            return Ok(Some(top.pair));
        }
    }

    fn merge(&mut self, pair: Pair) {
        let [a, b] = pair.ids();
        let c = self.tokens.len() as u32;
        let token = [&self.tokens[a as usize][..], &self.tokens[b as usize]].concat();
        self.lengths.push(token.len() as u32);
        self.tokens.push(token);
        self.ranks.push(c);
        self.merges.push((a, b));
        for side in [&mut self.left, &mut self.right] {
            side.sums.resize(self.tokens.len(), Sum::default());
        }
        let twins = self.replace(pair, c);
        self.settle(pair, c, twins);
    }

    /// Replaces every occurrence of (a, b) by c and notes the neighbours. Returns the weight of
    /// the pairs (c, c) that came into being.
    fn replace(&mut self, pair: Pair, c: u32) -> u64 {
        let [a, b] = pair.ids();
        let (a_length, b_length) = (self.lengths[a as usize], self.lengths[b as usize]);
        let entry = *self.pairs.entry(pair);
        let mut twins = 0;
        let list = entry.start as usize..entry.start as usize + entry.n as usize;
        for i in list.clone() {
            if i + AHEAD < list.end {
                prefetch(&self.slots, self.positions[i + AHEAD] as usize);
            }
            let start = self.positions[i] as usize;
            let middle = start + a_length as usize;
            let slot = self.slots[start];
            // A slot where a token begins changes only when that token is merged, so this tells
            // whether the pair still stands here; in a run such as `aaa` it no longer does after
            // its left half was taken.
            if slot.id != a || self.slots[middle].id != b {
                continue;
            }
            let end = middle + b_length as usize;
            let weight = self.weight(slot.weight);
            let before = self.slots[start - 1].id;
            let behind = self.slots[end].id;
            self.slots[middle - 1].id = INSIDE;
            self.slots[middle].id = INSIDE;
            self.slots[start].id = c;
            self.slots[end - 1].id = c;
            if before == c {
                // The token before was made a moment ago, with this one's `a` as its right
                // neighbour: that pair is gone again.
                self.right.sums[a as usize].weight -= weight;
                twins += weight;
                let at = start - (a_length + b_length) as usize;
                self.left.add(c, 0, at as u32);
            } else if before != WALL {
                let at = start - self.lengths[before as usize] as usize;
                self.left.add(before, weight, at as u32);
            }
            if behind != WALL {
                self.right.add(behind, weight, start as u32);
            }
        }
        twins
    }

    /// Brings the pair counts up to date: what stood beside `a` or `b` stands beside `c` now.
    fn settle(&mut self, pair: Pair, c: u32, twins: u64) {
        let [a, b] = pair.ids();
        let mut left = std::mem::take(&mut self.left);
        let mut right = std::mem::take(&mut self.right);
        left.sums[c as usize].weight = twins;
        for &x in &left.touched {
            let sum = &mut left.sums[x as usize];
            if x != c {
                self.take(Pair::new(x, a), sum.weight);
            }
            sum.n = self.add_pair(Pair::new(x, c), *sum);
        }
        for &y in &right.touched {
            let sum = &mut right.sums[y as usize];
            // In a run of the form `abab`, the count of (b, a) falls by every occurrence, also by
            // those whose new pair (c, a) is gone already: `twins` of them.
            let lost = if y == a { sum.weight + twins } else { sum.weight };
            if Pair::new(b, y) != pair {
                self.take(Pair::new(b, y), lost);
            }
            sum.n = self.add_pair(Pair::new(c, y), *sum);
        }
        for side in [&mut left, &mut right] {
            for &(id, at) in &side.found {
                let place = &mut side.sums[id as usize].n;
                if *place != UNTRACKED {
                    self.positions[*place] = at;
                    *place += 1;
                }
            }
            side.clear();
        }
        self.pairs.entry(pair).count = 0;
        self.left = left;
        self.right = right;
    }

    /// Tracks a pair that came into being, if it is worth it; returns where its positions go.
    fn add_pair(&mut self, pair: Pair, sum: Sum) -> usize {
        let start = self.positions.len();
        if sum.weight < self.floor {
            return UNTRACKED;
        }
        self.positions.resize(start + sum.n, 0);
        *self.pairs.entry(pair) =
            Entry { pair, count: sum.weight, start: start as u64, n: sum.n as u32 };
        self.push(Candidate { count: sum.weight, pair });
        start
    }

    /// Lowers the count of a pair, if it is tracked.
    fn take(&mut self, pair: Pair, weight: u64) {
        if let Some(entry) = self.pairs.find(pair) {
            entry.count -= weight;
        }
    }
}

/// Positions are known in advance, so their slots can be on the way: this many ahead.
const AHEAD: usize = 12;

#[inline(always)]
fn prefetch(slots: &[Slot], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `at` is a position in the slots, and prefetching reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(slots.as_ptr().add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slots, at);
}

/// Whether `a` is to be merged before `b`.
fn better(
    a: &Candidate,
    b: &Candidate,
    tie_break: TieBreak,
    tokens: &[Vec<u8>],
    ranks: &[u32],
) -> bool {
    if a.count != b.count {
        return a.count > b.count;
    }
    let ([a_left, a_right], [b_left, b_right]) = (a.pair.ids(), b.pair.ids());
    match tie_break {
        TieBreak::Bytes => {
            let key = |left: u32, right: u32| (&tokens[left as usize], &tokens[right as usize]);
            key(a_left, a_right) > key(b_left, b_right)
        }
        TieBreak::HuggingFace => {
            let key = |left: u32, right: u32| (ranks[left as usize], ranks[right as usize]);
            key(a_left, a_right) < key(b_left, b_right)
        }
    }
}

/// The order of `tokenizers`: bytes by the character that stands for them, which puts the
/// printable ones first; then as they are.
fn huggingface_ranks(n_tokens: usize) -> Vec<u32> {
    let printable = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let (first, second): (Vec<u8>, Vec<u8>) = (0..=255).partition(printable);
    let mut ranks: Vec<u32> = (0..n_tokens as u32).collect();
    for (rank, byte) in first.into_iter().chain(second).enumerate() {
        ranks[usize::from(byte)] = rank as u32;
    }
    ranks
}

#[cfg(test)]
mod tests;
