//! Text in which nothing is special → ids.
//!
//! Some hundred pieces at a time: all are looked up in the cache, and the ids of those that are
//! there go to a small array that stays in the first-level cache. Those that are not there wait
//! until there are enough of them to be merged side by side. Then all ids are put together in
//! order, so that the result is written once and from front to back.

use super::Tokenizer;
use super::cache::{self, Cache, Looked};
use super::lanes::Lanes;
use super::long::LongCache;
use super::small::Small;
use crate::base::error::Result;
use crate::base::memory::reserve;
use crate::base::table::Key;
use crate::text::keys::Records;
use crate::tokenizer::merge::Scratch;
use crate::tokenizer::vocab::Joins;

/// So many unseen pieces are merged at once.
const ENOUGH: usize = 64;
/// Fewer than this are merged one by one.
const FEW: usize = 4;
/// No more known ids than this wait for unseen pieces.
const PATIENCE: usize = 4096;
/// Ids are copied so many at a time.
const BLOCK: usize = cache::MOST;

/// What encoding reuses from piece to piece and from call to call.
#[derive(Debug)]
pub struct Worker {
    records: Records,
    cache: Cache,
    long: LongCache,
    merger: Merger,
    /// Where the processor can.
    lanes: Option<Box<Lanes>>,
    waiting: Waiting,
}

/// Ids that are to be put together.
#[derive(Debug, Default)]
struct Waiting {
    looked: Looked,
    /// The pieces to be merged, and which of the unseen they are.
    keys: Vec<Key>,
    numbers: Vec<u32>,
    /// The ids of unseen pieces.
    found: Vec<u32>,
}

/// What merging reuses; the tokens of the last piece.
#[derive(Debug, Default)]
pub(super) struct Merger {
    pub(super) small: Small,
    pub(super) tokens: Vec<u32>,
    pub(super) scratch: Scratch,
}

impl Worker {
    /// A worker whose caches take at most so much memory.
    pub fn new(cache_bytes: usize) -> Self {
        Worker {
            records: Records::default(),
            cache: Cache::new(cache_bytes),
            long: LongCache::new(cache_bytes),
            merger: Merger::default(),
            lanes: Lanes::available().then(Box::default),
            waiting: Waiting::default(),
        }
    }

    /// What its caches may take.
    pub fn cache_bytes(&self) -> usize {
        self.cache.limit()
    }

    /// Gives memory back that a very long piece needed.
    pub fn trim(&mut self) {
        self.merger.scratch.trim();
        self.merger.tokens.shrink_to(1 << 16);
        if self.waiting.found.capacity() > 1 << 20 {
            self.waiting.found = Vec::new();
        }
    }

    /// As it is on a processor that cannot merge side by side.
    #[cfg(test)]
    pub fn without_lanes(self) -> Self {
        Worker { lanes: None, ..self }
    }

    /// For merging by itself.
    pub(super) fn merger(&mut self) -> &mut Merger {
        &mut self.merger
    }

    /// Adds an id behind all that was encoded so far.
    pub(super) fn push(&mut self, id: u32, ids: &mut Vec<u32>) {
        if self.waiting.looked.unseen.is_empty() {
            ids.push(id);
        } else {
            self.waiting.looked.known.push(id);
        }
    }
}

impl Tokenizer {
    /// Encodes text in which nothing is special. The last ids may have to wait for
    /// [`Tokenizer::finish`].
    pub(super) fn encode_plain(
        &self,
        worker: &mut Worker,
        text: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let joins = self.joins(text);
        let mut from = 0;
        while from < text.len() {
            from = self.look_up(worker, text, from, joins)?;
            let Worker { waiting, .. } = worker;
            if waiting.looked.unseen.is_empty() {
                ids.extend_from_slice(&waiting.looked.known);
                waiting.looked.known.clear();
                continue;
            }
            if !waiting.looked.long.is_empty()
                && let Err(error) = self.encode_all_long(worker, text)
            {
                // What waits is lost, and so must be what points at it.
                worker.waiting = Waiting::default();
                worker.cache.clear();
                return Err(error);
            }
            let Looked { known, unseen, .. } = &worker.waiting.looked;
            if unseen.len() >= ENOUGH || known.len() >= PATIENCE {
                self.finish(worker, ids);
            }
        }
        Ok(())
    }

    /// Cuts the next pieces off and looks them up; returns where they end.
    fn look_up(
        &self,
        worker: &mut Worker,
        text: &[u8],
        from: usize,
        joins: Option<&Joins>,
    ) -> Result<usize> {
        let Worker { records, cache, waiting, .. } = worker;
        let cut = |start, end| joins?.cut(text, start, end);
        let lines = cache.lines();
        let prefetch = |hash| lines.prefetch(hash);
        let upto = records.next_parts(&self.cutter.pattern, text, from, cut, prefetch)?;
        cache.look_up(records.all(), from, &mut waiting.looked);
        Ok(upto)
    }

    /// Encodes the long pieces among those that were looked up just now.
    #[cold]
    fn encode_all_long(&self, worker: &mut Worker, text: &[u8]) -> Result<()> {
        let Worker { long, merger, waiting, .. } = worker;
        let Waiting { looked, found, .. } = waiting;
        for (number, piece) in looked.long.drain(..) {
            let one = &mut looked.unseen[number];
            one.start = found.len();
            self.encode_long(merger, long, &text[piece], found)?;
            one.n = found.len() - one.start;
        }
        Ok(())
    }

    /// Appends the ids that wait.
    #[inline(never)]
    pub(super) fn finish(&self, worker: &mut Worker, ids: &mut Vec<u32>) {
        let Worker { cache, merger, lanes, waiting, .. } = worker;
        if waiting.looked.unseen.is_empty() {
            return;
        }
        let Waiting { looked, keys, numbers, found } = waiting;
        let unseen = &mut looked.unseen;
        keys.clear();
        numbers.clear();
        for (one, number) in unseen.iter().zip(0..) {
            // What is long is found already, and what came twice waits once.
            if one.n == 0 && one.same == number {
                keys.push(one.key);
                numbers.push(number);
            }
        }
        let mut done = |i: usize, ranks: &[u32]| {
            let one = &mut unseen[numbers[i] as usize];
            one.start = found.len();
            found.extend(ranks.iter().map(|&rank| self.vocab.rank_id(rank)));
            one.n = found.len() - one.start;
            if one.expected {
                cache.fill(one.key, one.hash, &found[one.start..]);
            }
        };
        // A token that the merges do not make is no work for lanes.
        if let Some(lanes) = lanes
            && keys.len() >= FEW
            && self.whole.is_empty()
        {
            lanes.merge(keys, self.vocab.pairs(), done);
        } else {
            for (i, &key) in keys.iter().enumerate() {
                let (bytes, length) = crate::base::table::key_bytes(key);
                let piece = &bytes[..length];
                if let Some(rank) = self.whole(piece) {
                    done(i, &[rank]);
                } else {
                    merger.small.merge(piece, self.vocab.pairs());
                    done(i, &merger.small.ranks[..merger.small.n]);
                }
            }
        }
        waiting.put_together(ids);
    }
}

impl Waiting {
    /// Appends all ids, in order; nothing waits any more.
    fn put_together(&mut self, ids: &mut Vec<u32>) {
        let Waiting { looked, found, .. } = self;
        let Looked { known, unseen, .. } = looked;
        let same = |one: usize| (unseen[one].start, unseen[one].n);
        let n_found: usize = unseen.iter().map(|one| same(one.same as usize).1).sum();
        // What is behind the last of them is copied too, and does not matter.
        reserve(ids, known.len() + n_found + BLOCK);
        known.reserve(BLOCK);
        found.reserve(BLOCK);
        let mut to = ids.len();
        let mut copy = |from: *const u32, n: usize| {
            for i in (0..n).step_by(BLOCK) {
                // SAFETY: there is room for a block behind the last id, to read and to write.
                unsafe {
                    let (from, to) = (from.add(i), ids.as_mut_ptr().add(to + i));
                    std::ptr::copy_nonoverlapping(from, to, BLOCK);
                }
            }
            to += n;
        };
        let mut at = 0;
        for one in unseen.iter() {
            let (start, n) = same(one.same as usize);
            // SAFETY: both are within the lists.
            unsafe {
                copy(known.as_ptr().add(at), one.at as usize - at);
                copy(found.as_ptr().add(start), n);
            }
            at = one.at as usize;
        }
        // SAFETY: as above.
        unsafe { copy(known.as_ptr().add(at), known.len() - at) };
        // SAFETY: so many were written.
        unsafe { ids.set_len(to) };
        known.clear();
        unseen.clear();
        found.clear();
    }
}
