//! The state that one thread reuses from piece to piece and from call to call.

use std::ops::Range;

use super::cache::{self, Cache, Keyed, Pending};
use super::long_cache::LongCache;
use super::merge_lanes::MergeLanes;
use super::short_merge::ShortMerge;
use crate::base::memory::reserve;
use crate::base::table::Key;
use crate::tokenizer::merge::Scratch;

/// Waiting ids are copied in blocks of this many.
const WAITING_BLOCK: usize = cache::MAX_IDS;

/// The state that encoding reuses from piece to piece and from call to call.
#[derive(Debug)]
pub struct Worker {
    pub(super) pieces: Pieces,
    pub(super) cache: Cache,
    pub(super) long: LongCache,
    pub(super) merger: Merger,
    /// Used if the processor supports it.
    pub(super) lanes: Option<Box<MergeLanes>>,
    pub(super) waiting: Waiting,
}

/// A batch of pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pub(super) ends: Vec<usize>,
    /// The ids of those that are single tokens.
    pub(super) ids: Vec<u32>,
    /// The numbers of the others.
    pub(super) missing: Vec<u32>,
    /// The missing pieces, or their parts, as keys.
    pub(super) keyed: Vec<Keyed>,
    /// The ranges of those that are too long for a key.
    pub(super) long: Vec<Range<usize>>,
}

/// Ids that wait for pending pieces.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// The ids from the first pending piece on.
    pub(super) known: Vec<u32>,
    pub(super) pending: Pending,
    /// The pieces to be merged, and their numbers among the pending ones.
    pub(super) keys: Vec<Key>,
    pub(super) numbers: Vec<u32>,
    /// The ids of pending pieces.
    pub(super) found: Vec<u32>,
}

/// Reusable memory for merging, and the tokens of the last piece.
#[derive(Debug, Default)]
pub(super) struct Merger {
    pub(super) small: ShortMerge,
    pub(super) tokens: Vec<u32>,
    pub(super) scratch: Scratch,
}

impl Worker {
    /// A worker whose caches take at most this many bytes.
    pub fn new(cache_bytes: usize) -> Self {
        Worker {
            pieces: Pieces::default(),
            cache: Cache::new(cache_bytes),
            long: LongCache::new(cache_bytes),
            merger: Merger::default(),
            lanes: MergeLanes::new().map(Box::new),
            waiting: Waiting::default(),
        }
    }

    /// The limit of the caches, in bytes.
    pub fn cache_bytes(&self) -> usize {
        self.cache.limit()
    }

    /// Frees the memory that a very long piece needed.
    pub fn trim(&mut self) {
        self.merger.scratch.trim();
        self.merger.tokens.shrink_to(1 << 16);
        if self.waiting.found.capacity() > 1 << 20 {
            self.waiting.found = Vec::new();
        }
    }

    /// Simulates a processor that cannot merge side by side.
    #[cfg(test)]
    pub fn without_lanes(self) -> Self {
        Worker { lanes: None, ..self }
    }

    /// The memory for merging one piece.
    pub(super) fn merger(&mut self) -> &mut Merger {
        &mut self.merger
    }

    /// Adds an id after everything encoded so far.
    pub(super) fn push(&mut self, id: u32, ids: &mut Vec<u32>) {
        self.waiting.out(ids).push(id);
    }
}

impl Waiting {
    /// The list that the next ids are appended to: `ids`, unless pieces are pending.
    pub(super) fn out<'a>(&'a mut self, ids: &'a mut Vec<u32>) -> &'a mut Vec<u32> {
        if self.pending.pieces.is_empty() { ids } else { &mut self.known }
    }

    /// Appends all waiting ids, in order.
    pub(super) fn put_together(&mut self, ids: &mut Vec<u32>) {
        let Waiting { known, pending, found, .. } = self;
        let pending = &mut pending.pieces;
        let same = |one: usize| (pending[one].start, pending[one].n);
        let n_found: usize = pending.iter().map(|one| same(one.same as usize).1).sum();
        // The copy may overrun the last id; the excess is overwritten or ignored.
        reserve(ids, known.len() + n_found + WAITING_BLOCK);
        known.reserve(WAITING_BLOCK);
        found.reserve(WAITING_BLOCK);
        let mut to = ids.len();
        let mut copy = |from: *const u32, n: usize| {
            for i in (0..n).step_by(WAITING_BLOCK) {
                // SAFETY: a block of room was reserved after the last id of each of the three lists.
                unsafe {
                    let (from, to) = (from.add(i), ids.as_mut_ptr().add(to + i));
                    std::ptr::copy_nonoverlapping(from, to, WAITING_BLOCK);
                }
            }
            to += n;
        };
        let mut at = 0;
        for one in pending.iter() {
            let (start, n) = same(one.same as usize);
            // SAFETY: pieces are in the order in which they were met, so `one.at` is `at` or more; it and
            // `start + n` are at most the lengths of the lists.
            unsafe {
                copy(known.as_ptr().add(at), one.at as usize - at);
                copy(found.as_ptr().add(start), n);
            }
            at = one.at as usize;
        }
        // SAFETY: `at` is at most the length of `known`.
        unsafe { copy(known.as_ptr().add(at), known.len() - at) };
        // SAFETY: `to` ids were written, one block after the other.
        unsafe { ids.set_len(to) };
        known.clear();
        pending.clear();
        found.clear();
    }
}
