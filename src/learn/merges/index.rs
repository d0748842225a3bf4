//! Slots → pairs, their counts and their positions.
//!
//! Two or three linear passes over the slots, to count and then to list, so that every list has its
//! exact size in one big array.

use std::ops::Range;

use super::pairs::{Pair, PairEntry, PairTable, SlotNumber};
use super::slots::Slots;
use crate::base::error::Result;
use crate::base::job::Job;
use crate::base::pages::Pages;
use crate::base::threads::{Team, for_each_on};

/// The positions of pairs, list after list, with room for later lists.
#[derive(Debug)]
pub struct Positions {
    pub list: Pages<u32>,
    /// The free range at the end.
    end: Range<usize>,
    /// Another free range: the list of a pair that was merged.
    hole: Range<usize>,
}

impl Default for Positions {
    fn default() -> Self {
        Positions::new(0)
    }
}

impl Positions {
    /// Room for all lists: at first every slot begins at most one pair, and each replacement creates
    /// two new pairs and removes a slot. Unused room is never touched, so it takes no memory.
    fn new(n_slots: usize) -> Self {
        let list = Pages::new(3 * n_slots + 1);
        let end = 0..list.len() - 1;
        Positions { list, end, hole: 0..0 }
    }

    /// Allocates `n` positions; returns the first.
    #[inline]
    pub fn add(&mut self, n: usize) -> usize {
        // Memory that was used before is cached, and costs no page fault.
        let free = if n <= self.hole.len() { &mut self.hole } else { &mut self.end };
        free.start += n;
        free.start - n
    }

    /// Frees a list.
    #[inline]
    pub fn remove(&mut self, list: Range<usize>) {
        if list.len() > self.hole.len() {
            self.hole = list;
        }
    }
}

/// The expected number of tracked pairs per merge; the table grows if there are more.
const PAIRS_PER_MERGE: usize = 4;

/// Slots between two checks for cancellation.
const SLOTS_PER_CHECK: usize = 1 << 20;

/// The most shares of the slots: more would cost more memory than they save time.
const MAX_SHARES: usize = 8;

/// Counts all pairs, then lists the positions of those with a count of at least `floor`, in ascending
/// order. `n_merges` is the number of merges left.
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
    // Most pairs are rare, and a table of all would take more memory than everything else. So they are
    // first counted by hash, together with all pairs of the same hash: that is an upper bound, so no
    // pair above the floor is missed.
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

/// Calls `visit` for every two neighbors with their position, the pair and its weight.
fn for_each_pair<I: SlotNumber>(
    slots: &Slots<I>,
    job: &Job,
    mut visit: impl FnMut(u32, Pair, u64),
) -> Result<()> {
    let all = slots.all();
    let (mut at, mut next_check) = (1, 0);
    while at < all.len() {
        if at >= next_check {
            job.check()?;
            next_check = at + SLOTS_PER_CHECK;
        }
        let id = all[at].id;
        if id == I::SEPARATOR {
            at += 1;
            continue;
        }
        let next = at + slots.length(id.number());
        let right = all[next].id;
        if right != I::SEPARATOR {
            let pair = Pair::new(id.number(), right.number());
            visit(at as u32, pair, slots.weight(all[at]));
        }
        at = next;
    }
    Ok(())
}

/// [`index`] while all tokens are bytes: the largest index, with arrays instead of a hash table, and
/// the slots divided among the threads.
fn index_bytes<I: SlotNumber>(
    slots: &Slots<I>,
    floor: u64,
    team: &Team,
    mut pairs: PairTable,
    mut positions: Positions,
    job: &Job,
) -> Result<(PairTable, Positions)> {
    let shares = shares(slots, team.size().min(MAX_SHARES));
    // By share and pair: the count and the number of positions; then where the next position goes,
    // and the step to the one after.
    let mut shares: Vec<_> =
        shares.into_iter().map(|share| (share, vec![(0u64, 0u64); 1 << 16])).collect();
    for_each_on(team, &mut shares, |(share, counts), _| {
        // A slice, because the address of a `Vec` reached through a reference is reloaded for every pair.
        let counts = &mut counts[..];
        for_each_byte_pair(slots, share.clone(), job, |_, pair, weight| {
            let (count, n) = &mut counts[pair];
            *count += weight;
            *n += 1;
        })
    })?;
    for pair in 0..1 << 16 {
        let (count, n) =
            shares.iter().map(|(_, t)| t[pair]).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let tracked = n > 0 && count >= floor;
        let mut start = positions.end.start as u64;
        if tracked {
            let key = Pair::new(pair as u32 >> 8, pair as u32 & 255);
            *pairs.entry(key) = PairEntry { pair: key, count, start, n: n as u32 };
            positions.add(n as usize);
        }
        for (_, table) in &mut shares {
            let n = table[pair].1;
            // Positions of untracked pairs are written too, all to the last element.
            table[pair] = if tracked { (start, 1) } else { (positions.list.len() as u64 - 1, 0) };
            start += n;
        }
    }
    let list = SharedPositions(positions.list.as_mut_ptr());
    for_each_on(team, &mut shares, |(share, cursors), _| {
        let cursors = &mut cursors[..];
        for_each_byte_pair(slots, share.clone(), job, |at, pair, _| {
            let (cursor, step) = &mut cursors[pair];
            // SAFETY: cursors are within the list: the first pass made room for every position.
            // Each share has its own range of every list; only the last element, which is never
            // read, is written by all threads, and so atomically.
            unsafe { list.put(*cursor as usize, at as u32) };
            *cursor += *step;
        })
    })?;
    Ok((pairs, positions))
}

/// The positions, which several threads write.
#[derive(Clone, Copy)]
struct SharedPositions(*mut u32);

// SAFETY: sharing the address reads and writes nothing; `put` is unsafe and states its own conditions.
unsafe impl Sync for SharedPositions {}

impl SharedPositions {
    /// Writes one position.
    ///
    /// # Safety
    /// `at` must be within the array, and no thread may read that element at the same time.
    #[inline(always)]
    unsafe fn put(&self, at: usize, position: u32) {
        use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        // SAFETY: the caller guarantees that the element is within the array, which is aligned, and that no
        // thread reads it meanwhile. Other threads may store to it, so the store is atomic; it compiles to
        // a plain one.
        unsafe { AtomicU32::from_ptr(self.0.add(at)) }.store(position, Relaxed);
    }
}

/// Divides the slots into up to `n` ranges that no piece crosses.
fn shares<I: SlotNumber>(slots: &Slots<I>, n: usize) -> Vec<Range<usize>> {
    let all = slots.all();
    let mut shares = Vec::new();
    let mut start = 0;
    for i in 1..=n.max(1) {
        let near = (all.len() * i / n.max(1)).max(start);
        let end = all[near..]
            .iter()
            .position(|slot| slot.id == I::SEPARATOR)
            .map_or(all.len(), |w| near + w);
        if start < end {
            shares.push(start..end);
        }
        start = end;
    }
    shares
}

#[inline(always)]
fn for_each_byte_pair<I: SlotNumber>(
    slots: &Slots<I>,
    share: Range<usize>,
    job: &Job,
    mut visit: impl FnMut(usize, usize, u64),
) -> Result<()> {
    let all = slots.all();
    for first in share.clone().step_by(SLOTS_PER_CHECK) {
        job.check()?;
        // One more slot, for the pair that begins with the last.
        let end = (first + SLOTS_PER_CHECK).min(share.end) + 1;
        for (at, two) in all[first..end.min(all.len())].windows(2).enumerate() {
            let (left, right) = (two[0].id.number(), two[1].id.number());
            // A separator is greater than any byte.
            if left.max(right) < 256 {
                let pair = (left << 8 | right) as usize;
                visit(first + at, pair, slots.weight(two[0]));
            }
        }
    }
    Ok(())
}
