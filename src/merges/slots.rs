//! All pieces in one flat array, and what a merge does to it.
//!
//! One slot per byte, with a wall between two pieces and at both ends. A token's id stands in its
//! first and in its last slot, and its length follows from its id, so both neighbours of a token
//! are one load away and a merge writes at most four slots.

use super::Base;
use super::neighbours::Neighbours;
use super::pairs::{Entry, Pair, PairTable};
use crate::counts::PieceList;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::pages::{Pages, Plain, prefetch};

/// Stands between two pieces.
const WALL: u32 = u32::MAX;
/// Stands where a token used to begin or end, inside a longer one.
const INSIDE: u32 = u32::MAX - 1;
/// Weights from here on are numbers in `heavy`.
const HEAVY: u32 = 1 << 31;
/// Positions are known in advance, so their slots can be on the way: this many ahead.
const AHEAD: usize = 12;
/// Lists shorter than this are not worth a second thread.
const SHARE: usize = 4096;

/// One byte of a piece, or a wall. Id and weight are needed together, so they lie together.
#[derive(Debug, Clone, Copy)]
struct Slot {
    id: u32,
    /// How often the piece occurs.
    weight: u32,
}

// SAFETY: two numbers.
unsafe impl Plain for Slot {}

/// All pieces as tokens.
#[derive(Debug)]
pub struct Slots {
    slots: Pages<Slot>,
    /// How many slots are in use.
    n: usize,
    /// Counts that do not fit a slot.
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

impl Slots {
    /// Lays out pieces of two tokens or more.
    pub fn new(pieces: &PieceList, base: &dyn Base, tokens: &[Vec<u8>], job: &Job) -> Result<Self> {
        let total: usize = pieces.iter().map(|(piece, _)| piece.len() + 1).sum();
        if total >= INSIDE as usize {
            return Err(Error::config(format!(
                "the distinct pieces have {total} bytes, more than merging can address"
            ))
            .with_hint("drop rare pieces with min_piece_count=2 or more"));
        }
        let mut this = Slots {
            slots: Pages::new(total + 1),
            n: 0,
            heavy: Vec::new(),
            lengths: tokens.iter().map(|token| token.len() as u32).collect(),
        };
        this.push(Slot { id: WALL, weight: 0 });
        let mut ids = Vec::new();
        for (number, (piece, count)) in pieces.iter().enumerate() {
            if number % 65536 == 0 {
                job.check()?;
            }
            if piece.len() < 2 {
                continue;
            }
            let weight = this.weight_of(count);
            if tokens.len() == 256 {
                for (slot, &byte) in this.slots[this.n..].iter_mut().zip(piece) {
                    *slot = Slot { id: u32::from(byte), weight };
                }
                this.n += piece.len();
            } else {
                ids.clear();
                base.segment(piece, &mut ids)?;
                this.push_tokens(&ids, weight);
            }
            this.push(Slot { id: WALL, weight: 0 });
        }
        Ok(this)
    }

    fn push(&mut self, slot: Slot) {
        self.slots[self.n] = slot;
        self.n += 1;
    }

    fn push_tokens(&mut self, ids: &[u32], weight: u32) {
        for &id in ids {
            let length = self.lengths[id as usize] as usize;
            let token = &mut self.slots[self.n..self.n + length];
            token.fill(Slot { id: INSIDE, weight });
            token[0].id = id;
            token[length - 1].id = id;
            self.n += length;
        }
    }

    fn weight_of(&mut self, count: u64) -> u32 {
        if count < u64::from(HEAVY) {
            count as u32
        } else {
            self.heavy.push(count);
            HEAVY | (self.heavy.len() - 1) as u32
        }
    }

    /// Notes the length of a new token.
    pub fn add_token(&mut self, length: usize) {
        self.lengths.push(length as u32);
    }

    /// Counts all pairs, then lists the positions of those of at least `floor`: two passes, so
    /// that every list has its size.
    pub fn index(&self, floor: u64) -> (PairTable, Vec<u32>) {
        if self.lengths.len() == 256 { self.index_bytes(floor) } else { self.index_tokens(floor) }
    }

    fn index_tokens(&self, floor: u64) -> (PairTable, Vec<u32>) {
        let mut all = PairTable::default();
        self.for_each_pair(|_, pair, weight| {
            let entry = all.entry(pair);
            entry.count += weight;
            entry.n += 1;
        });
        let mut pairs = PairTable::default();
        let mut n_positions = 0;
        for entry in all.entries().filter(|entry| entry.count >= floor) {
            *pairs.entry(entry.pair) = Entry { start: n_positions, n: 0, ..*entry };
            n_positions += u64::from(entry.n);
        }
        let mut positions = vec![0; n_positions as usize];
        self.for_each_pair(|at, pair, _| {
            if let Some(entry) = pairs.find(pair) {
                positions[entry.start as usize + entry.n as usize] = at;
                entry.n += 1;
            }
        });
        (pairs, positions)
    }

    /// Calls `visit` for every two neighbours: their position, the pair, its weight.
    fn for_each_pair(&self, mut visit: impl FnMut(u32, Pair, u64)) {
        let mut at = 1;
        while at < self.n {
            let Slot { id, weight } = self.slots[at];
            if id == WALL {
                at += 1;
                continue;
            }
            let next = at + self.lengths[id as usize] as usize;
            let right = self.slots[next].id;
            if right != WALL {
                visit(at as u32, Pair::new(id, right), weighed(&self.heavy, weight));
            }
            at = next;
        }
    }

    /// The same while all tokens are bytes: the largest index, and plain arrays instead of a hash
    /// table.
    fn index_bytes(&self, floor: u64) -> (PairTable, Vec<u32>) {
        let mut counts = vec![(0u64, 0u32); 1 << 16];
        self.for_each_byte_pair(|_, pair, weight| {
            let (count, n) = &mut counts[pair];
            *count += weighed(&self.heavy, weight);
            *n += 1;
        });
        let mut pairs = PairTable::default();
        let mut n_positions = 0;
        // Positions of pairs below the floor all go to one place past the end.
        let mut cursors = vec![(0usize, 0usize); 1 << 16];
        for (pair, &(count, n)) in counts.iter().enumerate() {
            if n > 0 && count >= floor {
                let key = Pair::new(pair as u32 >> 8, pair as u32 & 255);
                *pairs.entry(key) = Entry { pair: key, count, start: n_positions as u64, n };
                cursors[pair] = (n_positions, 1);
                n_positions += n as usize;
            }
        }
        let mut positions = vec![0; n_positions + 1];
        for cursor in cursors.iter_mut().filter(|cursor| cursor.1 == 0) {
            cursor.0 = n_positions;
        }
        self.for_each_byte_pair(|at, pair, _| {
            let (place, step) = &mut cursors[pair];
            positions[*place] = at as u32;
            *place += *step;
        });
        positions.truncate(n_positions);
        (pairs, positions)
    }

    #[inline(always)]
    fn for_each_byte_pair(&self, mut visit: impl FnMut(usize, usize, u32)) {
        for (at, two) in self.slots[..self.n].windows(2).enumerate() {
            // A wall is greater than any byte.
            if two[0].id.max(two[1].id) < 256 {
                visit(at, (two[0].id << 8 | two[1].id) as usize, two[0].weight);
            }
        }
    }

    /// Replaces the pair at those of the ascending `positions` where it still stands. What was
    /// beside it is noted in the first of `findings`; the others are for further threads, which
    /// take part where the list is long. They are empty before and after.
    pub fn replace(
        &mut self,
        replacement: Replacement,
        positions: &[u32],
        findings: &mut [Findings],
    ) {
        let [a, b] = replacement.pair.ids();
        let work = Work {
            a,
            b,
            c: replacement.c,
            a_length: self.lengths[a as usize] as usize,
            b_length: self.lengths[b as usize] as usize,
            lengths: &self.lengths,
            heavy: &self.heavy,
        };
        work.share(&mut self.slots[..self.n], 0, positions, findings);
    }
}

#[inline(always)]
fn weighed(heavy: &[u64], weight: u32) -> u64 {
    if weight < HEAVY { u64::from(weight) } else { heavy[(weight & !HEAVY) as usize] }
}

/// One merge, as all threads see it.
struct Work<'a> {
    a: u32,
    b: u32,
    c: u32,
    a_length: usize,
    b_length: usize,
    lengths: &'a [u32],
    heavy: &'a [u64],
}

impl Work<'_> {
    /// Splits a long list between threads, at a wall. `slots` begin at place `offset` of all.
    fn share(
        &self,
        slots: &mut [Slot],
        offset: usize,
        positions: &[u32],
        findings: &mut [Findings],
    ) {
        let cut = self.cut(slots, offset, positions, findings.len());
        let Some(wall) = cut else {
            if let [first, ..] = findings {
                self.replace(slots, offset, positions, first);
            }
            return;
        };
        let half = findings.len() / 2;
        let n_before = positions.partition_point(|&at| (at as usize) < wall + offset);
        let (slots_before, slots_behind) = slots.split_at_mut(wall);
        let (before, behind) = positions.split_at(n_before);
        let (findings_before, findings_behind) = findings.split_at_mut(half);
        rayon::join(
            || self.share(slots_before, offset, before, findings_before),
            || self.share(slots_behind, offset + wall, behind, findings_behind),
        );
        let ([ours, ..], [theirs, ..]) = (findings_before, findings_behind) else { return };
        ours.absorb(theirs);
    }

    /// A wall near the middle of the list, if the list is to be split.
    fn cut(
        &self,
        slots: &[Slot],
        offset: usize,
        positions: &[u32],
        threads: usize,
    ) -> Option<usize> {
        if threads < 2 || positions.len() < SHARE {
            return None;
        }
        let middle = positions[positions.len() / 2] as usize - offset;
        // In a piece that is very long the search would cost more than the work it shares.
        let first = middle.saturating_sub(SHARE);
        (first..=middle).rev().find(|&at| slots[at].id == WALL)
    }

    fn replace(
        &self,
        slots: &mut [Slot],
        offset: usize,
        positions: &[u32],
        findings: &mut Findings,
    ) {
        let Findings { left, right, twins } = findings;
        let &Work { a, b, c, a_length, b_length, .. } = self;
        for (i, &position) in positions.iter().enumerate() {
            if let Some(&later) = positions.get(i + AHEAD) {
                prefetch(slots, later as usize - offset);
            }
            let start = position as usize - offset;
            let middle = start + a_length;
            let slot = slots[start];
            // A slot where a token begins changes only when that token is merged, so this tells
            // whether the pair still stands here; in a run such as `aaa` it no longer does after
            // its left half was taken.
            if slot.id != a || slots[middle].id != b {
                continue;
            }
            let end = middle + b_length;
            let weight = weighed(self.heavy, slot.weight);
            let before = slots[start - 1].id;
            // The wall behind the last piece of a thread's share is the first of the next.
            let behind = slots.get(end).map_or(WALL, |slot| slot.id);
            slots[middle - 1].id = INSIDE;
            slots[middle].id = INSIDE;
            slots[start].id = c;
            slots[end - 1].id = c;
            if before == c {
                // The token before was made a moment ago, with this one's `a` as its right
                // neighbour: that pair is gone again.
                right.sums[a as usize].weight -= weight;
                *twins += weight;
                left.add(c, 0, position - (a_length + b_length) as u32);
            } else if before != WALL {
                left.add(before, weight, position - self.lengths[before as usize]);
            }
            if behind != WALL {
                right.add(behind, weight, position);
            }
        }
    }
}
