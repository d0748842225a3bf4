//! Slots → pairs: which pairs there are, how often, and where.
//!
//! Two passes over the slots, one to count and one to list, so that every list has its exact size
//! and its place in one big array.

use std::ops::Range;

use super::pairs::{Pair, PairEntry, PairTable};
use super::slot_number::SlotNumber;
use super::slots::Slots;
use crate::base::error::Result;
use crate::base::job::Job;
use crate::base::pages::Pages;
use crate::base::threads::{Team, for_each_on};

/// Positions of pairs, list after list, with room for the lists to come.
#[derive(Debug)]
pub struct Positions {
    pub list: Pages<u32>,
    /// What is free at the end.
    end: Range<usize>,
    /// What is free elsewhere: the list of a pair that was merged.
    hole: Range<usize>,
}

impl Default for Positions {
    fn default() -> Self {
        Positions::new(0)
    }
}

impl Positions {
    /// Room for every list there will ever be: at first every slot begins a pair at most, and each
    /// merge at one of them makes two new pairs and one slot less. What is never used is never
    /// touched, and takes no memory.
    fn new(n_slots: usize) -> Self {
        let list = Pages::new(3 * n_slots + 1);
        let end = 0..list.len() - 1;
        Positions { list, end, hole: 0..0 }
    }

    /// Room for `n` more; returns where.
    #[inline]
    pub fn add(&mut self, n: usize) -> usize {
        // Memory that was used before is in reach, and not another page to be had.
        let free = if n <= self.hole.len() { &mut self.hole } else { &mut self.end };
        free.start += n;
        free.start - n
    }

    /// Takes back a list that is not needed any more.
    #[inline]
    pub fn remove(&mut self, list: Range<usize>) {
        if list.len() > self.hole.len() {
            self.hole = list;
        }
    }
}

/// Expected number of tracked pairs per merge; with more, the table grows.
const PAIRS_PER_MERGE: usize = 4;

/// Slots between two looks at whether to stop.
const STEP: usize = 1 << 20;

/// More parts would cost more memory than they save time.
const MAX_PARTS: usize = 8;

/// Counts all pairs, then lists the positions of those of at least `floor`, in ascending order.
/// `n_merges` is how many are to come.
pub fn index<I: SlotNumber>(
    slots: &Slots<I>,
    floor: u64,
    n_merges: usize,
    team: &Team,
    job: &Job,
) -> Result<(PairTable, Positions)> {
    let n_pairs = n_merges.saturating_mul(PAIRS_PER_MERGE).min(slots.all().len());
    let pairs = PairTable::new(n_pairs);
    let positions = Positions::new(slots.all().len());
    if slots.are_bytes() {
        index_bytes(slots, floor, team, pairs, positions, job)
    } else {
        index_tokens(slots, floor, pairs, positions, job)
    }
}

fn index_tokens<I: SlotNumber>(
    slots: &Slots<I>,
    floor: u64,
    mut pairs: PairTable,
    mut positions: Positions,
    job: &Job,
) -> Result<(PairTable, Positions)> {
    // Most pairs are rare, and a table of them all would take more memory than everything else. So
    // they are first counted together with whatever falls on the same place: that is never too
    // little, and a pair above the floor is never missed.
    let mut rough = Pages::<u32>::new((slots.all().len() / 4).next_power_of_two());
    let mask = rough.len() - 1;
    for_each_pair(slots, job, |_, pair, weight| {
        let count = &mut rough[pair.hash() as usize & mask];
        *count = count.saturating_add(u32::try_from(weight).unwrap_or(u32::MAX));
    })?;
    let least = u32::try_from(floor).unwrap_or(u32::MAX);
    let mut all = PairTable::new(0);
    for_each_pair(slots, job, |_, pair, weight| {
        if rough[pair.hash() as usize & mask] >= least {
            let entry = all.entry(pair);
            entry.count += weight;
            entry.n += 1;
        }
    })?;
    drop(rough);
    for entry in all.entries().filter(|entry| entry.count >= floor) {
        let start = positions.add(entry.n as usize) as u64;
        *pairs.entry(entry.pair) = PairEntry { start, n: 0, ..*entry };
    }
    for_each_pair(slots, job, |at, pair, _| {
        if let Some(entry) = pairs.find(pair) {
            positions.list[entry.start as usize + entry.n as usize] = at;
            entry.n += 1;
        }
    })?;
    Ok((pairs, positions))
}

/// Calls `visit` for every two neighbours: their position, the pair, its weight.
fn for_each_pair<I: SlotNumber>(
    slots: &Slots<I>,
    job: &Job,
    mut visit: impl FnMut(u32, Pair, u64),
) -> Result<()> {
    let all = slots.all();
    let (mut at, mut next_look) = (1, 0);
    while at < all.len() {
        if at >= next_look {
            job.check()?;
            next_look = at + STEP;
        }
        let id = all[at].id;
        if id == I::WALL {
            at += 1;
            continue;
        }
        let next = at + slots.length(id.number());
        let right = all[next].id;
        if right != I::WALL {
            let pair = Pair::new(id.number(), right.number());
            visit(at as u32, pair, slots.weight(all[at]));
        }
        at = next;
    }
    Ok(())
}

/// The same while all tokens are bytes: the largest index, with plain arrays instead of a hash
/// table, each thread at its own part of the slots.
fn index_bytes<I: SlotNumber>(
    slots: &Slots<I>,
    floor: u64,
    team: &Team,
    mut pairs: PairTable,
    mut positions: Positions,
    job: &Job,
) -> Result<(PairTable, Positions)> {
    let parts = parts(slots, team.size().min(MAX_PARTS));
    // By part and pair: the count, and how many positions; then where the next position goes, and
    // the step to the one after.
    let mut parts: Vec<_> =
        parts.into_iter().map(|part| (part, vec![(0u64, 0u64); 1 << 16])).collect();
    for_each_on(team, &mut parts, |(part, counts), _| {
        // A slice: the address of a list in a reference would be loaded anew for every pair.
        let counts = &mut counts[..];
        for_each_byte_pair(slots, part.clone(), job, |_, pair, weight| {
            let (count, n) = &mut counts[pair];
            *count += weight;
            *n += 1;
        })
    })?;
    for pair in 0..1 << 16 {
        let (count, n) =
            parts.iter().map(|(_, t)| t[pair]).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let tracked = n > 0 && count >= floor;
        let mut start = positions.end.start as u64;
        if tracked {
            let key = Pair::new(pair as u32 >> 8, pair as u32 & 255);
            *pairs.entry(key) = PairEntry { pair: key, count, start, n: n as u32 };
            positions.add(n as usize);
        }
        for (_, table) in &mut parts {
            let n = table[pair].1;
            // What is not tracked is written all the same, to one place at the end.
            table[pair] = if tracked { (start, 1) } else { (positions.list.len() as u64 - 1, 0) };
            start += n;
        }
    }
    let list = SharedPositions(positions.list.as_mut_ptr());
    for_each_on(team, &mut parts, |(part, cursors), _| {
        let cursors = &mut cursors[..];
        for_each_byte_pair(slots, part.clone(), job, |at, pair, _| {
            let (place, step) = &mut cursors[pair];
            // SAFETY: places are within the list: the first pass made room for every position.
            // Each part has its own stretch of every list; only the place at the end, which is
            // never read, is written by all, and so atomically.
            unsafe { list.put(*place as usize, at as u32) };
            *place += *step;
        })
    })?;
    Ok((pairs, positions))
}

/// The positions, for several threads to write to.
#[derive(Clone, Copy)]
struct SharedPositions(*mut u32);

// SAFETY: `put` says what is asked of those who write.
unsafe impl Sync for SharedPositions {}

impl SharedPositions {
    /// Writes one position.
    ///
    /// # Safety
    /// The place must be within the array, and no thread may read it at the same time.
    #[inline(always)]
    unsafe fn put(&self, place: usize, position: u32) {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        // SAFETY: within the array, says the caller. A plain store, but one that may meet others.
        unsafe { AtomicU32::from_ptr(self.0.add(place)) }.store(position, Relaxed);
    }
}

/// Stretches of the slots that no piece crosses.
fn parts<I: SlotNumber>(slots: &Slots<I>, n: usize) -> Vec<Range<usize>> {
    let all = slots.all();
    let mut parts = Vec::new();
    let mut start = 0;
    for i in 1..=n.max(1) {
        let near = (all.len() * i / n.max(1)).max(start);
        let end =
            all[near..].iter().position(|slot| slot.id == I::WALL).map_or(all.len(), |w| near + w);
        if start < end {
            parts.push(start..end);
        }
        start = end;
    }
    parts
}

#[inline(always)]
fn for_each_byte_pair<I: SlotNumber>(
    slots: &Slots<I>,
    part: Range<usize>,
    job: &Job,
    mut visit: impl FnMut(usize, usize, u64),
) -> Result<()> {
    let all = slots.all();
    for first in part.clone().step_by(STEP) {
        job.check()?;
        // One more, for the pair that begins with the last.
        let end = (first + STEP).min(part.end) + 1;
        for (at, two) in all[first..end.min(all.len())].windows(2).enumerate() {
            let (left, right) = (two[0].id.number(), two[1].id.number());
            // A wall is greater than any byte.
            if left.max(right) < 256 {
                let pair = (left << 8 | right) as usize;
                visit(first + at, pair, slots.weight(two[0]));
            }
        }
    }
    Ok(())
}
