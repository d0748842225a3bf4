//! The loop: take the best pair, merge it, update the counts.

use super::index::Positions;
use super::pairs::{NeighborSum, Neighbors, Pair, PairEntry, PairTable, SlotNumber};
use super::queue::{Candidate, PairOrder, PairQueue};
use super::slots::{Findings, Replacement, Slots};
use super::{Base, MAX_TOKEN_LENGTH, Options, TieBreak};

use crate::base::error::Result;
use crate::base::job::Job;
use crate::base::threads::{Idle, Team};
use crate::learn::counts::PieceList;

/// Learns merges: pairs of ids. The first merge creates the id `base.tokens().len()`, the next one the
/// id after it, and so on.
pub fn learn_merges(
    pieces: PieceList,
    base: &(dyn Base + Sync),
    options: &Options,
    job: &Job,
) -> Result<Vec<(u32, u32)>> {
    // Waking a sleeping thread takes longer than its share of most merges.
    let team = Team::new(options.threads, Idle::Spin);
    let n_tokens = base.tokens().len().saturating_add(options.n_merges);
    if super::slots::are_small(&pieces, n_tokens) {
        learn_with::<u16>(pieces, base, options, &team, job)
    } else {
        learn_with::<u32>(pieces, base, options, &team, job)
    }
}

pub(super) fn learn_with<I: SlotNumber>(
    pieces: PieceList,
    base: &(dyn Base + Sync),
    options: &Options,
    team: &Team,
    job: &Job,
) -> Result<Vec<(u32, u32)>> {
    let mut learner = Learner::<I>::new(pieces, base, *options, team, job)?;
    while learner.merges.len() < options.n_merges {
        let Some(pair) = learner.best_pair(base, job)? else { break };
        learner.merge(pair, job)?;
        job.advance(1);
        job.check()?;
    }
    Ok(learner.merges)
}

/// A floor that is too high is divided by this.
const FLOOR_STEP: u64 = 16;
/// In text of `n` bytes whose pieces hardly repeat, the last of `m` merges has a count of about
/// `n / (35 m)`; the first floor is `n / (64 m)`.
const FLOOR_SHARE: u64 = 64;

/// Neighbors whose pairs are prefetched together.
const PREFETCH_BATCH: usize = 32;

/// Marks a neighbor whose pair is not tracked.
const UNTRACKED: usize = usize::MAX;

struct Learner<'a, I> {
    options: Options,
    team: &'a Team,
    slots: Slots<I>,
    vocab: LearnerVocab,
    /// Pairs that are rarer are not tracked.
    floor: u64,
    /// The positions of all tracked pairs.
    positions: Positions,
    queue: PairQueue,
    merges: Vec<(u32, u32)>,
    /// By thread.
    findings: Vec<Findings>,
}

impl<'a, I: SlotNumber> Learner<'a, I> {
    fn new(
        pieces: PieceList,
        base: &(dyn Base + Sync),
        options: Options,
        team: &'a Team,
        job: &Job,
    ) -> Result<Self> {
        let tokens = base.tokens();
        let slots = Slots::new(&pieces, base, &tokens, team, job)?;
        let floor = first_floor(&pieces, options.n_merges).max(options.min_frequency).max(1);
        // Only the slots are needed from here on.
        drop(pieces);
        let (pairs, positions) = super::index::index(&slots, floor, options.n_merges, team, job)?;
        let mut learner = Learner {
            options,
            team,
            slots,
            floor,
            vocab: LearnerVocab {
                tie_break: options.tie_break,
                ranks: huggingface_ranks(tokens.len()),
                tokens,
                pairs,
            },
            positions,
            queue: PairQueue::default(),
            merges: Vec::new(),
            findings: (0..options.threads.max(1)).map(|_| Findings::default()).collect(),
        };
        learner.fill_queue();
        Ok(learner)
    }

    /// Pairs with a smaller count are never merged.
    fn least(&self) -> u64 {
        self.options.min_frequency.max(1)
    }

    /// Indexes the pairs again, with a lower floor.
    fn lower_floor(&mut self, job: &Job) -> Result<()> {
        job.check()?;
        self.floor = (self.floor / FLOOR_STEP).max(self.least());
        // The old lists are freed before the new ones are allocated.
        self.positions = Positions::default();
        let n_left = self.options.n_merges - self.merges.len();
        (self.vocab.pairs, self.positions) =
            super::index::index(&self.slots, self.floor, n_left, self.team, job)?;
        self.fill_queue();
        job.check()
    }

    fn fill_queue(&mut self) {
        self.queue = PairQueue::default();
        for entry in self.vocab.pairs.entries() {
            self.queue.push(Candidate { count: entry.count, pair: entry.pair }, &self.vocab);
        }
    }

    /// The pair to merge next.
    fn best_pair(&mut self, base: &dyn Base, job: &Job) -> Result<Option<Pair>> {
        loop {
            let Some(top) = self.queue.pop(self.floor, &self.vocab) else {
                if self.floor <= self.least() {
                    return Ok(None);
                }
                self.lower_floor(job)?;
                continue;
            };
            let [left, right] = top.pair.ids();
            let (left, right) =
                (&self.vocab.tokens[left as usize], &self.vocab.tokens[right as usize]);
            if left.len() + right.len() > self.options.max_token_length.min(MAX_TOKEN_LENGTH) {
                continue;
            }
            // Starting from bytes, no two merges create the same token: how the bytes of a token are
            // merged depends on these bytes alone. But a base may have tokens that its own merges
            // never create.
            if base.contains(&[&left[..], &right[..]].concat()) {
                continue;
            }
            return Ok(Some(top.pair));
        }
    }

    fn merge(&mut self, pair: Pair, job: &Job) -> Result<()> {
        let [a, b] = pair.ids();
        let c = self.vocab.tokens.len() as u32;
        let token = [&self.vocab.tokens[a as usize][..], &self.vocab.tokens[b as usize]].concat();
        self.slots.add_token(token.len());
        self.vocab.tokens.push(token);
        self.vocab.ranks.push(c);
        self.merges.push((a, b));
        for findings in &mut self.findings {
            findings.resize(self.vocab.tokens.len());
        }
        let entry = self.vocab.pairs.entry(pair);
        entry.count = 0;
        let list = entry.start as usize..entry.start as usize + entry.n as usize;
        let positions = &self.positions.list[list.clone()];
        self.slots.replace(
            Replacement { pair, c },
            positions,
            &mut self.findings,
            self.team,
            job,
        )?;
        self.positions.remove(list);
        self.update_counts(pair, c);
        Ok(())
    }

    /// Updates the counts of pairs: the neighbors of `a` and `b` are neighbors of `c` now.
    fn update_counts(&mut self, pair: Pair, c: u32) {
        let [a, b] = pair.ids();
        let Findings { mut left, mut right, twins } = std::mem::take(&mut self.findings[0]);
        left.sum(c).weight = twins;
        for i in 0..left.n_touched() {
            if i.is_multiple_of(PREFETCH_BATCH) {
                for next in i..left.n_touched().min(i + PREFETCH_BATCH) {
                    self.vocab.pairs.prefetch(Pair::new(left.touched(next), a));
                    self.vocab.pairs.prefetch(Pair::new(left.touched(next), c));
                }
            }
            let x = left.touched(i);
            let sum = left.sum(x);
            if x != c {
                self.subtract(Pair::new(x, a), sum.weight);
            }
            sum.n = self.add_pair(Pair::new(x, c), *sum);
        }
        for i in 0..right.n_touched() {
            if i.is_multiple_of(PREFETCH_BATCH) {
                for next in i..right.n_touched().min(i + PREFETCH_BATCH) {
                    self.vocab.pairs.prefetch(Pair::new(b, right.touched(next)));
                    self.vocab.pairs.prefetch(Pair::new(c, right.touched(next)));
                }
            }
            let y = right.touched(i);
            let sum = right.sum(y);
            // In a run such as `abab`, the count of (b, a) falls by every occurrence, including the
            // `twins` whose new pair (c, a) is already gone.
            let lost = if y == a { sum.weight + twins } else { sum.weight };
            if Pair::new(b, y) != pair {
                self.subtract(Pair::new(b, y), lost);
            }
            sum.n = self.add_pair(Pair::new(c, y), *sum);
        }
        self.write_positions(&mut left, |slots, id| slots.length(id) as u32);
        self.write_positions(&mut right, |_, _| 0);
        self.findings[0] = Findings { left, right, twins: 0 };
    }

    /// Writes the positions of the new pairs, which are `before` slots before the new token.
    fn write_positions(&mut self, side: &mut Neighbors, before: impl Fn(&Slots<I>, u32) -> u32) {
        side.for_each_found(|id, sum, at| {
            if sum.n != UNTRACKED {
                self.positions.list[sum.n] = at - before(&self.slots, id);
                sum.n += 1;
            }
        });
        side.clear();
    }

    /// Tracks a new pair if its count reaches the floor; returns where its positions go.
    fn add_pair(&mut self, pair: Pair, sum: NeighborSum) -> usize {
        if sum.weight < self.floor {
            return UNTRACKED;
        }
        let start = self.positions.add(sum.n);
        *self.vocab.pairs.entry(pair) =
            PairEntry { pair, count: sum.weight, start: start as u64, n: sum.n as u32 };
        self.queue.push(Candidate { count: sum.weight, pair }, &self.vocab);
        start
    }

    /// Lowers the count of a pair, if it is tracked.
    fn subtract(&mut self, pair: Pair, weight: u64) {
        if let Some(entry) = self.vocab.pairs.find(pair) {
            entry.count -= weight;
        }
    }
}

/// A low estimate of the count of the last of `n_merges` merges.
///
/// Merges end up creating whole pieces, the common ones first, and there are more merges than pieces
/// created: so the piece that is `n_merges`th by count is rarer than the last merge, by a factor of
/// 1.7 to 4 in all corpora tried; the estimate uses 1.6. Where pieces hardly repeat, as sentences
/// without spaces, it uses the size of the text.
fn first_floor(pieces: &PieceList, n_merges: usize) -> u64 {
    let mut counts: Vec<u64> = pieces.iter().map(|(_, count)| count).collect();
    let by_piece = match counts.len().checked_sub(n_merges.saturating_add(1)) {
        Some(at) => *counts.select_nth_unstable(at).1,
        None => 0,
    };
    if by_piece > 1 {
        return by_piece.saturating_mul(8) / 5;
    }
    let n_bytes: u64 = pieces.iter().map(|(piece, count)| piece.len() as u64 * count).sum();
    n_bytes / (n_merges.max(1) as u64).saturating_mul(FLOOR_SHARE)
}

/// The tokens and pairs so far, which determine the order of pairs.
struct LearnerVocab {
    tie_break: TieBreak,
    /// Token bytes by id.
    tokens: Vec<Vec<u8>>,
    /// The order of the tokens in the `tokenizers` library.
    ranks: Vec<u32>,
    pairs: PairTable,
}

impl PairOrder for LearnerVocab {
    fn count(&self, pair: Pair) -> u64 {
        self.pairs.count(pair)
    }

    fn prefetch(&self, pair: Pair) {
        self.pairs.prefetch(pair);
    }

    fn is_before(&self, a: Pair, b: Pair) -> bool {
        let ([a_left, a_right], [b_left, b_right]) = (a.ids(), b.ids());
        match self.tie_break {
            TieBreak::Bytes => {
                let key = |left: u32, right: u32| {
                    (&self.tokens[left as usize], &self.tokens[right as usize])
                };
                key(a_left, a_right) > key(b_left, b_right)
            }
            TieBreak::HuggingFace => {
                let key =
                    |left: u32, right: u32| (self.ranks[left as usize], self.ranks[right as usize]);
                key(a_left, a_right) < key(b_left, b_right)
            }
            TieBreak::RustBpe => (a_left, a_right) < (b_left, b_right),
        }
    }
}

/// The order of `tokenizers`: bytes by the characters that represent them, which puts the printable
/// ones first; then the other tokens by id.
fn huggingface_ranks(n_tokens: usize) -> Vec<u32> {
    let printable = |byte: &u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let (first, second): (Vec<u8>, Vec<u8>) = (0..=255).partition(printable);
    let mut ranks: Vec<u32> = (0..n_tokens as u32).collect();
    for (rank, byte) in first.into_iter().chain(second).enumerate() {
        ranks[usize::from(byte)] = rank as u32;
    }
    ranks
}
