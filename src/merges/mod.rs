//! Counts → merges.
//!
//! All pieces lie end to end in one flat array ([`slots`]), in which a merge replaces one pair.
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
mod neighbours;
mod pairs;
mod slots;

use heap::{Candidate, Heap};
use neighbours::Sum;
use pairs::{Entry, Pair, PairTable};
use slots::{Findings, Replacement, Slots};

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
    /// How many threads replace where a pair is common.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            n_merges: usize::MAX,
            tie_break: TieBreak::default(),
            min_frequency: 1,
            max_token_length: usize::MAX,
            threads: 1,
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
    base: &(dyn Base + Sync),
    options: &Options,
    job: &Job,
) -> Result<Vec<(u32, u32)>> {
    if options.threads < 2 {
        return learn_here(pieces, base, options, job);
    }
    // A pool of its own: threads of a shared one would not survive a fork of the process.
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads)
        .build()
        .map_err(|e| Error::config(format!("{} threads cannot be had: {e}", options.threads)))?;
    pool.install(|| learn_here(pieces, base, options, job))
}

fn learn_here(
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

/// The first floor is the number of bytes by the number of merges and by this.
const FLOOR_SHARE: u64 = 32;
/// The next one is the last by this.
const FLOOR_STEP: u64 = 16;

/// A neighbour whose positions are not kept.
const UNTRACKED: usize = usize::MAX;

struct Learner {
    options: Options,
    slots: Slots,
    /// Token bytes by number.
    tokens: Vec<Vec<u8>>,
    /// Pairs that are rarer are not tracked.
    floor: u64,
    pairs: PairTable,
    /// The positions of all tracked pairs.
    positions: Vec<u32>,
    heap: Heap,
    merges: Vec<(u32, u32)>,
    /// The order of the tokens in the `tokenizers` library.
    ranks: Vec<u32>,
    /// One for each thread.
    findings: Vec<Findings>,
}

impl Learner {
    fn new(pieces: &PieceList, base: &dyn Base, options: Options, job: &Job) -> Result<Self> {
        let tokens = base.tokens();
        let mut learner = Learner {
            options,
            slots: Slots::new(pieces, base, &tokens, job)?,
            floor: 0,
            ranks: huggingface_ranks(tokens.len()),
            tokens,
            pairs: PairTable::default(),
            positions: Vec::new(),
            heap: Heap::default(),
            merges: Vec::new(),
            findings: (0..options.threads.max(1)).map(|_| Findings::default()).collect(),
        };
        let n_bytes: u64 = pieces.iter().map(|(piece, count)| piece.len() as u64 * count).sum();
        // The count of the last of n merges is some n_bytes / (12 n) for natural text.
        let guess = n_bytes / (options.n_merges.max(1) as u64).saturating_mul(FLOOR_SHARE);
        learner.floor = guess.max(learner.least());
        learner.index_pairs(job)?;
        Ok(learner)
    }

    /// The count below which a pair is never merged.
    fn least(&self) -> u64 {
        self.options.min_frequency.max(1)
    }

    /// Starts to track all pairs that are above the floor.
    fn index_pairs(&mut self, job: &Job) -> Result<()> {
        job.check()?;
        (self.pairs, self.positions) = self.slots.index(self.floor);
        job.check()?;
        self.heap = Heap::default();
        let candidates: Vec<Candidate> = self
            .pairs
            .entries()
            .map(|entry| Candidate { count: entry.count, pair: entry.pair })
            .collect();
        for candidate in candidates {
            self.push(candidate);
        }
        Ok(())
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
        self.slots.add_token(token.len());
        self.tokens.push(token);
        self.ranks.push(c);
        self.merges.push((a, b));
        for findings in &mut self.findings {
            findings.resize(self.tokens.len());
        }
        let entry = self.pairs.entry(pair);
        entry.count = 0;
        let list = entry.start as usize..entry.start as usize + entry.n as usize;
        self.slots.replace(Replacement { pair, c }, &self.positions[list], &mut self.findings);
        self.settle(pair, c);
    }

    /// Brings the pair counts up to date: what stood beside `a` or `b` stands beside `c` now.
    fn settle(&mut self, pair: Pair, c: u32) {
        let [a, b] = pair.ids();
        let Findings { mut left, mut right, twins } = std::mem::take(&mut self.findings[0]);
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
        self.findings[0] = Findings { left, right, twins: 0 };
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
