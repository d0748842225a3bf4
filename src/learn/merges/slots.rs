//! All pieces in one flat array, and the replacement of a pair in it.
//!
//! One slot per byte, with a separator between two pieces and at both ends. A token's id is in its
//! first and in its last slot, and its length follows from its id, so both neighbors of a token are
//! one load away and a replacement writes at most four slots.

use std::ops::Range;

use super::Base;
use super::pairs::{Neighbors, Pair, SlotNumber};
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::pages::{Pages, Zeroable, prefetch};
use crate::base::threads::{Team, for_each_on};
use crate::learn::counts::PieceList;

/// Positions whose slots are prefetched ahead.
const SLOTS_AHEAD: usize = 12;
/// Positions that are filtered together.
const FILTER_BATCH: usize = 128;
/// Batches between two checks for cancellation.
const BATCHES_PER_CHECK: usize = 4096;
/// Shorter lists are not worth a second thread.
const MIN_SHARE: usize = 1024;

/// One byte of a piece, or a separator. Id and weight are adjacent because they are used together.
#[derive(Debug, Clone, Copy)]
pub struct Slot<I> {
    pub id: I,
    /// The count of the piece, or an index into the large counts.
    weight: I,
}

// SAFETY: both fields are `Zeroable` numbers, so zeroed memory is a valid slot, which needs no drop; the
// alignment is that of the number, at most 4096.
unsafe impl<I: SlotNumber> Zeroable for Slot<I> {}

/// All pieces as tokens.
#[derive(Debug)]
pub struct Slots<I> {
    slots: Pages<Slot<I>>,
    /// Counts that do not fit into a slot, in order.
    large_counts: Vec<u64>,
    /// Token lengths by id.
    lengths: Vec<u32>,
}

/// A pair that becomes a token.
#[derive(Debug, Clone, Copy)]
pub struct Replacement {
    pub pair: Pair,
    /// The new id.
    pub c: u32,
}

/// The neighbors that one thread finds while it replaces.
#[derive(Debug, Default)]
pub struct Findings {
    pub left: Neighbors,
    pub right: Neighbors,
    /// The weight of the pairs of two new tokens.
    pub twins: u64,
}

impl Findings {
    /// Makes room for ids below `n`.
    pub fn resize(&mut self, n: usize) {
        self.left.resize(n);
        self.right.resize(n);
    }

    fn absorb(&mut self, other: &mut Findings) {
        self.left.absorb(&mut other.left);
        self.right.absorb(&mut other.right);
        self.twins += std::mem::take(&mut other.twins);
    }
}

impl<I: SlotNumber> Slots<I> {
    /// Lays out the pieces of two bytes or more.
    pub fn new(
        pieces: &PieceList,
        base: &(dyn Base + Sync),
        tokens: &[Vec<u8>],
        team: &Team,
        job: &Job,
    ) -> Result<Self> {
        let total: usize = pieces.iter().map(|(piece, _)| size(piece)).sum();
        if total >= u32::MAX as usize {
            return Err(Error::config(format!(
                "merging is limited to 2^32 bytes of distinct pieces, got {total}"
            ))
            .with_hint("drop rare pieces with min_piece_count=2 or more"));
        }
        let mut weights = pieces.iter().map(|(piece, count)| count.checked_mul(piece.len() as u64));
        if weights.try_fold(0u64, |sum, weight| sum.checked_add(weight?)).is_none() {
            return Err(Error::corpus("the counts are of more than 2^64 bytes of text")
                .with_hint("were counts merged with copies of themselves?"));
        }
        let large_counts = large_counts::<I>(pieces);
        let lengths: Vec<u32> = tokens.iter().map(|token| token.len() as u32).collect();
        let mut slots = Pages::new(total + 1);
        slots[0] = Slot { id: I::SEPARATOR, weight: I::new(0) };
        let layout = Layout { pieces, base, lengths: &lengths, large_counts: &large_counts, job };
        layout.fill_all(&mut slots[1..], team)?;
        Ok(Slots { slots, large_counts, lengths })
    }

    pub fn all(&self) -> &[Slot<I>] {
        &self.slots
    }

    /// The count of the piece of a slot.
    #[inline(always)]
    pub fn weight(&self, slot: Slot<I>) -> u64 {
        weighed(&self.large_counts, slot.weight)
    }

    /// The length of a token in bytes.
    #[inline(always)]
    pub fn length(&self, id: u32) -> usize {
        self.lengths[id as usize] as usize
    }

    /// Whether every token is a byte.
    pub fn are_bytes(&self) -> bool {
        self.lengths.len() == 256
    }

    pub fn add_token(&mut self, length: usize) {
        self.lengths.push(length as u32);
    }

    /// Replaces the pair at those of the ascending `positions` where it still occurs. Its neighbors are
    /// recorded in the first of `findings`; the others are for further threads if the list is long, and
    /// are empty before and after. If the job is stopped, this returns early with invalid slots.
    pub fn replace(
        &mut self,
        replacement: Replacement,
        positions: &[u32],
        findings: &mut [Findings],
        team: &Team,
        job: &Job,
    ) -> Result<()> {
        let [a, b] = replacement.pair.ids();
        let work = MergeWork {
            a: I::new(a),
            b: I::new(b),
            c: I::new(replacement.c),
            a_length: self.lengths[a as usize] as usize,
            b_length: self.lengths[b as usize] as usize,
            large_counts: &self.large_counts,
            job,
        };
        work.share(&mut self.slots, positions, findings, team)
    }
}

#[inline(always)]
fn weighed<I: SlotNumber>(large_counts: &[u64], weight: I) -> u64 {
    let weight = weight.number();
    if weight < I::LARGE_COUNT {
        u64::from(weight)
    } else {
        large_counts[(weight - I::LARGE_COUNT) as usize]
    }
}

/// The counts that do not fit into a slot, in order.
fn large_counts<I: SlotNumber>(pieces: &PieceList) -> Vec<u64> {
    let counts = pieces.iter().map(|(_, count)| count);
    let mut large_counts: Vec<u64> =
        counts.filter(|&count| count >= u64::from(I::LARGE_COUNT)).collect();
    large_counts.sort_unstable();
    large_counts.dedup();
    large_counts
}

/// Whether slots of 16 bits can hold `n_tokens` ids and the counts of these pieces.
pub fn are_small(pieces: &PieceList, n_tokens: usize) -> bool {
    n_tokens <= usize::from(u16::INSIDE)
        && large_counts::<u16>(pieces).len() <= u16::LARGE_COUNT as usize
}

/// The number of slots of a piece with its separator; 0 if it is too short for a pair.
fn size(piece: &[u8]) -> usize {
    if piece.len() < 2 { 0 } else { piece.len() + 1 }
}

/// What the slots are filled from, shared by all threads.
struct Layout<'a> {
    pieces: &'a PieceList,
    base: &'a (dyn Base + Sync),
    lengths: &'a [u32],
    large_counts: &'a [u64],
    job: &'a Job,
}

impl Layout<'_> {
    /// Fills the slots, with the pieces divided among the threads.
    fn fill_all<I: SlotNumber>(&self, mut slots: &mut [Slot<I>], team: &Team) -> Result<()> {
        let n = self.pieces.len();
        let n_shares = if n < MIN_SHARE { 1 } else { team.size() };
        let mut shares = Vec::with_capacity(n_shares);
        for share in 0..n_shares {
            let range = n * share / n_shares..n * (share + 1) / n_shares;
            let size: usize = range.clone().map(|i| size(self.pieces.entry(i).0)).sum();
            let (here, rest) = slots.split_at_mut(size);
            slots = rest;
            shares.push((range, here));
        }
        for_each_on(team, &mut shares, |(range, slots), _| self.fill(range.clone(), slots))
    }

    fn fill<I: SlotNumber>(&self, range: Range<usize>, mut slots: &mut [Slot<I>]) -> Result<()> {
        let mut ids = Vec::new();
        for number in range {
            if number.is_multiple_of(65536) {
                self.job.check()?;
            }
            let (piece, count) = self.pieces.entry(number);
            if piece.len() < 2 {
                continue;
            }
            let weight = self.weight_of(count);
            let (here, rest) = std::mem::take(&mut slots).split_at_mut(piece.len() + 1);
            slots = rest;
            if self.lengths.len() == 256 {
                for (slot, &byte) in here.iter_mut().zip(piece) {
                    *slot = Slot { id: I::new(u32::from(byte)), weight };
                }
            } else {
                ids.clear();
                self.base.segment(piece, &mut ids)?;
                here.fill(Slot { id: I::INSIDE, weight });
                let mut at = 0;
                for &id in &ids {
                    here[at].id = I::new(id);
                    at += self.lengths[id as usize] as usize;
                    here[at - 1].id = I::new(id);
                }
            }
            here[piece.len()] = Slot { id: I::SEPARATOR, weight: I::new(0) };
        }
        Ok(())
    }

    fn weight_of<I: SlotNumber>(&self, count: u64) -> I {
        if count < u64::from(I::LARGE_COUNT) {
            return I::new(count as u32);
        }
        let number = self.large_counts.partition_point(|&other| other < count);
        I::new(I::LARGE_COUNT + number as u32)
    }
}

/// A separator near the end of the first of `n_shares` equal shares of the positions.
fn separator_near<I: SlotNumber>(
    slots: &[Slot<I>],
    offset: usize,
    positions: &[u32],
    n_shares: usize,
) -> Option<usize> {
    let middle = positions[positions.len() / n_shares] as usize - offset;
    // In a very long piece, the search would cost more than sharing the work saves.
    let first = middle.saturating_sub(MIN_SHARE).max(1);
    (first..=middle).rev().find(|&at| slots[at].id == I::SEPARATOR)
}

/// One merge, shared by all threads.
struct MergeWork<'a, I> {
    a: I,
    b: I,
    c: I,
    a_length: usize,
    b_length: usize,
    large_counts: &'a [u64],
    job: &'a Job,
}

impl<I: SlotNumber> MergeWork<'_, I> {
    /// Divides a long list among threads, at separators.
    fn share(
        &self,
        mut slots: &mut [Slot<I>],
        mut positions: &[u32],
        findings: &mut [Findings],
        team: &Team,
    ) -> Result<()> {
        let n_shares = (2 * positions.len() / MIN_SHARE).clamp(1, findings.len());
        let mut shares = Vec::with_capacity(n_shares);
        let mut offset = 0;
        for (n_left, ours) in (1..=n_shares).rev().zip(&mut *findings) {
            let separator =
                if n_left == 1 { None } else { separator_near(slots, offset, positions, n_left) };
            let end = separator.unwrap_or(slots.len());
            let n_here = positions.partition_point(|&at| (at as usize) < end + offset);
            let (here, rest) = std::mem::take(&mut slots).split_at_mut(end);
            let (now, later) = positions.split_at(n_here);
            shares.push((here, offset, now, ours));
            (slots, positions) = (rest, later);
            offset += end;
            if positions.is_empty() {
                break;
            }
        }
        let n_shares = shares.len();
        for_each_on(team, &mut shares, |(slots, offset, positions, findings), _| {
            self.replace(slots, *offset, positions, findings);
            Ok(())
        })?;
        if let [ours, others @ ..] = &mut findings[..n_shares] {
            others.iter_mut().for_each(|theirs| ours.absorb(theirs));
        }
        Ok(())
    }

    fn replace(
        &self,
        slots: &mut [Slot<I>],
        offset: usize,
        positions: &[u32],
        findings: &mut Findings,
    ) {
        let Findings { left, right, twins } = findings;
        let &MergeWork { a, b, c, a_length, b_length, .. } = self;
        left.make_room(positions.len());
        right.make_room(positions.len());
        let mut live = [0; FILTER_BATCH];
        for (number, batch) in positions.chunks(FILTER_BATCH).enumerate() {
            if number % BATCHES_PER_CHECK == BATCHES_PER_CHECK - 1 && self.job.check().is_err() {
                return;
            }
            // About half of the positions are stale, which no branch predictor can foresee, so they
            // are filtered first, without a branch.
            let mut n = 0;
            for (i, &position) in batch.iter().enumerate() {
                if let Some(&later) = positions.get(number * FILTER_BATCH + i + SLOTS_AHEAD) {
                    prefetch(slots, later as usize - offset);
                }
                let start = position as usize - offset;
                live[n] = position;
                // The first slot of a token changes only when the token is merged, so the pair is
                // still here if both ids are.
                n += usize::from((slots[start].id == a) & (slots[start + a_length].id == b));
            }
            for &position in &live[..n] {
                let start = position as usize - offset;
                let middle = start + a_length;
                let slot = slots[start];
                // In a run such as `aaa`, replacing the left pair has removed this one.
                if slot.id != a || slots[middle].id != b {
                    continue;
                }
                let end = middle + b_length;
                let weight = weighed(self.large_counts, slot.weight);
                let before = slots[start - 1].id;
                // The separator after the last piece of a share is the first slot of the next share.
                let after = slots.get(end).map_or(I::SEPARATOR, |slot| slot.id);
                slots[middle - 1].id = I::INSIDE;
                slots[middle].id = I::INSIDE;
                slots[start].id = c;
                slots[end - 1].id = c;
                if before == c {
                    // The token before was just created, with this one's `a` as its right neighbor:
                    // that pair is gone again.
                    right.subtract(a.index(), weight);
                    *twins += weight;
                    left.add(c.index(), 0, position);
                } else {
                    left.add(before.index(), weight, position);
                }
                right.add(after.index(), weight, position);
            }
        }
    }
}
