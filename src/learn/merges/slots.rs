//! All pieces in one flat array, and what a merge does to it.
//!
//! One slot per byte, with a wall between two pieces and at both ends. A token's id stands in its
//! first and in its last slot, and its length follows from its id, so both neighbours of a token
//! are one load away and a merge writes at most four slots.

use std::ops::Range;

use super::neighbours::Neighbours;
use super::options::Base;
use super::pairs::Pair;
use super::slot_number::SlotNumber;
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::pages::{Pages, Zeroable, prefetch};
use crate::base::threads::{Team, for_each_on};
use crate::learn::counts::PieceList;

/// Positions are known in advance, so their slots can be on the way: this many ahead.
const AHEAD: usize = 12;
/// Positions that are looked at together.
const BLOCK: usize = 128;
/// Blocks between two looks at whether to stop.
const LOOK: usize = 4096;
/// Lists shorter than this are not worth a second thread.
const SHARE: usize = 1024;

/// One byte of a piece, or a wall. SlotNumber and weight are needed together, so they lie together.
#[derive(Debug, Clone, Copy)]
pub struct Slot<I> {
    pub id: I,
    /// How often the piece occurs.
    weight: I,
}

// SAFETY: two numbers.
unsafe impl<I: SlotNumber> Zeroable for Slot<I> {}

/// All pieces as tokens.
#[derive(Debug)]
pub struct Slots<I> {
    slots: Pages<Slot<I>>,
    /// Counts that do not fit a slot, in order.
    heavy: Vec<u64>,
    /// Token lengths by number.
    lengths: Vec<u32>,
}

/// A pair that becomes a token.
#[derive(Debug, Clone, Copy)]
pub struct Replacement {
    pub pair: Pair,
    /// The new token.
    pub c: u32,
}

/// What one thread finds while it replaces.
#[derive(Debug, Default)]
pub struct Findings {
    pub left: Neighbours,
    pub right: Neighbours,
    /// The weight of the pairs of two new tokens.
    pub twins: u64,
}

impl Findings {
    /// Makes room for tokens up to `n`.
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
    /// Lays out pieces of two tokens or more.
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
                "the distinct pieces have {total} bytes, more than merging can address"
            ))
            .with_hint("drop rare pieces with min_piece_count=2 or more"));
        }
        let heavy = heavy::<I>(pieces);
        let lengths: Vec<u32> = tokens.iter().map(|token| token.len() as u32).collect();
        let mut slots = Pages::new(total + 1);
        slots[0] = Slot { id: I::WALL, weight: I::new(0) };
        let layout = Layout { pieces, base, lengths: &lengths, heavy: &heavy, job };
        layout.fill_all(&mut slots[1..], team)?;
        Ok(Slots { slots, heavy, lengths })
    }

    /// The slots, to be read.
    pub fn all(&self) -> &[Slot<I>] {
        &self.slots
    }

    /// How often the piece of a slot occurs.
    #[inline(always)]
    pub fn weight(&self, slot: Slot<I>) -> u64 {
        weighed(&self.heavy, slot.weight)
    }

    /// The length of a token.
    #[inline(always)]
    pub fn length(&self, id: u32) -> usize {
        self.lengths[id as usize] as usize
    }

    /// Whether every token is a byte.
    pub fn are_bytes(&self) -> bool {
        self.lengths.len() == 256
    }

    /// Notes the length of a new token.
    pub fn add_token(&mut self, length: usize) {
        self.lengths.push(length as u32);
    }

    /// Replaces the pair at those of the ascending `positions` where it still stands. What was
    /// beside it is noted in the first of `findings`; the others are for further threads, which
    /// take part where the list is long. They are empty before and after. If the job is stopped,
    /// so is this, and the slots are of no use any more.
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
            heavy: &self.heavy,
            job,
        };
        work.share(&mut self.slots, positions, findings, team)
    }
}

#[inline(always)]
fn weighed<I: SlotNumber>(heavy: &[u64], weight: I) -> u64 {
    let weight = weight.number();
    if weight < I::HEAVY { u64::from(weight) } else { heavy[(weight - I::HEAVY) as usize] }
}

/// The counts that do not fit a slot, in order.
fn heavy<I: SlotNumber>(pieces: &PieceList) -> Vec<u64> {
    let counts = pieces.iter().map(|(_, count)| count);
    let mut heavy: Vec<u64> = counts.filter(|&count| count >= u64::from(I::HEAVY)).collect();
    heavy.sort_unstable();
    heavy.dedup();
    heavy
}

/// Whether slots of 16 bits can hold all of `n_tokens`, and the counts of these pieces.
pub fn are_small(pieces: &PieceList, n_tokens: usize) -> bool {
    n_tokens <= usize::from(u16::INSIDE) && heavy::<u16>(pieces).len() <= u16::HEAVY as usize
}

/// How many slots a piece takes: it needs two bytes for a pair.
fn size(piece: &[u8]) -> usize {
    if piece.len() < 2 { 0 } else { piece.len() + 1 }
}

/// What the slots are filled from, as all threads see it.
struct Layout<'a> {
    pieces: &'a PieceList,
    base: &'a (dyn Base + Sync),
    lengths: &'a [u32],
    heavy: &'a [u64],
    job: &'a Job,
}

impl Layout<'_> {
    /// Fills the slots, each thread those of some of the pieces.
    fn fill_all<I: SlotNumber>(&self, mut slots: &mut [Slot<I>], team: &Team) -> Result<()> {
        let n = self.pieces.len();
        let n_shares = if n < SHARE { 1 } else { team.size() };
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
            here[piece.len()] = Slot { id: I::WALL, weight: I::new(0) };
        }
        Ok(())
    }

    fn weight_of<I: SlotNumber>(&self, count: u64) -> I {
        if count < u64::from(I::HEAVY) {
            return I::new(count as u32);
        }
        let number = self.heavy.partition_point(|&other| other < count);
        I::new(I::HEAVY + number as u32)
    }
}

/// A wall where the first of `n_shares` equal shares of the positions can end.
fn wall_near<I: SlotNumber>(
    slots: &[Slot<I>],
    offset: usize,
    positions: &[u32],
    n_shares: usize,
) -> Option<usize> {
    let middle = positions[positions.len() / n_shares] as usize - offset;
    // In a very long piece the search would cost more than the work it shares.
    let first = middle.saturating_sub(SHARE).max(1);
    (first..=middle).rev().find(|&at| slots[at].id == I::WALL)
}

/// One merge, as all threads see it.
struct MergeWork<'a, I> {
    a: I,
    b: I,
    c: I,
    a_length: usize,
    b_length: usize,
    heavy: &'a [u64],
    job: &'a Job,
}

impl<I: SlotNumber> MergeWork<'_, I> {
    /// Splits a long list between threads, at walls.
    fn share(
        &self,
        mut slots: &mut [Slot<I>],
        mut positions: &[u32],
        findings: &mut [Findings],
        team: &Team,
    ) -> Result<()> {
        let n_shares = (2 * positions.len() / SHARE).clamp(1, findings.len());
        let mut shares = Vec::with_capacity(n_shares);
        let (mut offset, mut left) = (0, &mut *findings);
        for n_left in (1..=n_shares).rev() {
            let wall = if n_left == 1 { None } else { wall_near(slots, offset, positions, n_left) };
            let end = wall.unwrap_or(slots.len());
            let n_here = positions.partition_point(|&at| (at as usize) < end + offset);
            let (here, rest) = std::mem::take(&mut slots).split_at_mut(end);
            let (now, later) = positions.split_at(n_here);
            let Some((first, others)) = left.split_first_mut() else { break };
            shares.push((here, offset, now, first));
            (slots, positions, left) = (rest, later, others);
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
        let mut standing = [0; BLOCK];
        for (number, block) in positions.chunks(BLOCK).enumerate() {
            if number % LOOK == LOOK - 1 && self.job.check().is_err() {
                return;
            }
            // About half of the positions have vanished, which ones cannot be foreseen: so they
            // are sorted out first, without a branch.
            let mut n = 0;
            for (i, &position) in block.iter().enumerate() {
                if let Some(&later) = positions.get(number * BLOCK + i + AHEAD) {
                    prefetch(slots, later as usize - offset);
                }
                let start = position as usize - offset;
                standing[n] = position;
                // A slot where a token begins changes only when that token is merged, so this
                // tells whether the pair still stands here.
                n += usize::from((slots[start].id == a) & (slots[start + a_length].id == b));
            }
            for &position in &standing[..n] {
                let start = position as usize - offset;
                let middle = start + a_length;
                let slot = slots[start];
                // In a run such as `aaa` it no longer does after its left half was taken.
                if slot.id != a || slots[middle].id != b {
                    continue;
                }
                let end = middle + b_length;
                let weight = weighed(self.heavy, slot.weight);
                let before = slots[start - 1].id;
                // The wall after the last piece of a thread's share is the first of the next.
                let after = slots.get(end).map_or(I::WALL, |slot| slot.id);
                slots[middle - 1].id = I::INSIDE;
                slots[middle].id = I::INSIDE;
                slots[start].id = c;
                slots[end - 1].id = c;
                if before == c {
                    // The token before was made a moment ago, with this one's `a` as its right
                    // neighbour: that pair is gone again.
                    right.take(a.place(), weight);
                    *twins += weight;
                    left.add(c.place(), 0, position);
                } else {
                    left.add(before.place(), weight, position);
                }
                right.add(after.place(), weight, position);
            }
        }
    }
}
