//! Text in which nothing is special → ids.
//!
//! Some hundred pieces at a time: all are looked up in the cache, and the ids of those that are
//! there go to a small array that stays in the first-level cache. Those that are not are noted, and
//! merged afterwards, sixteen side by side where the processor can. Then all ids are put together
//! in order, so that the result is written once and from front to back.

use super::Tokenizer;
use super::cache::{self, Cache, Unseen};
use super::lanes::{LANES, Lanes};
use super::long::LongCache;
use super::small::Small;
use crate::bpe::Scratch;
use crate::error::Result;
use crate::pieces::{Record, Records};

/// Fewer unseen pieces than this are merged one by one.
const FEW: usize = 4;
/// Ids are copied so many at a time.
const BLOCK: usize = cache::MOST;

/// What encoding reuses from piece to piece and from call to call.
#[derive(Debug)]
pub struct Worker {
    records: Records,
    batch: Batch,
}

/// What encoding some pieces needs.
#[derive(Debug)]
struct Batch {
    cache: Cache,
    long: LongCache,
    merger: Merger,
    lanes: Lanes,
    /// The ids of pieces that were in the cache.
    known: Vec<u32>,
    unseen: Vec<Unseen>,
    /// The ids of the others.
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
            batch: Batch {
                cache: Cache::new(cache_bytes),
                long: LongCache::new(cache_bytes),
                merger: Merger::default(),
                lanes: Lanes::default(),
                known: Vec::new(),
                unseen: Vec::new(),
                found: Vec::new(),
            },
        }
    }

    /// Gives memory back that a very long piece needed.
    pub fn trim(&mut self) {
        self.batch.merger.scratch.trim();
        if self.batch.found.capacity() > 1 << 20 {
            self.batch.found = Vec::new();
        }
    }

    /// For merging by itself.
    pub(super) fn merger(&mut self) -> &mut Merger {
        &mut self.batch.merger
    }
}

impl Tokenizer {
    /// Encodes text in which nothing is special.
    pub(super) fn encode_plain(
        &self,
        worker: &mut Worker,
        text: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Worker { records, batch } = worker;
        let mut from = 0;
        while from < text.len() {
            let cut = |start, end| self.cut(text, start, end);
            let lines = batch.cache.lines();
            let prefetch = |hash| lines.prefetch(hash);
            let upto = records.next_parts(&self.cutter.pattern, text, from, cut, prefetch)?;
            let some = records.all();
            batch.unseen.clear();
            batch.cache.look_up(some, &mut batch.known, &mut batch.unseen);
            if batch.unseen.is_empty() {
                ids.extend_from_slice(&batch.known);
            } else {
                self.encode_unseen(batch, text, from, some)?;
                batch.put_together(ids);
            }
            from = upto;
        }
        Ok(())
    }

    /// Merges the pieces that are not in the cache, and puts them there.
    #[inline(never)]
    fn encode_unseen(
        &self,
        batch: &mut Batch,
        text: &[u8],
        from: usize,
        records: &[Record],
    ) -> Result<()> {
        let Batch { cache, long, merger, lanes, unseen, found, .. } = batch;
        found.clear();
        let piece = |number: u32| {
            let number = number as usize;
            let start = if number == 0 { from } else { records[number - 1].end };
            &text[start..records[number].end]
        };
        // A token that the merges do not make is no work for lanes.
        let side_by_side = self.whole.is_empty() && Lanes::available();
        let mut rest = &mut unseen[..];
        while !rest.is_empty() {
            let mut keys = [0; LANES];
            let mut n = 0;
            let mut next = 0;
            // The next sixteen short ones; long ones in between are done right away.
            for one in rest.iter_mut() {
                let record = &records[one.record as usize];
                if record.is_long() {
                    one.start = found.len();
                    self.encode_long(merger, long, piece(one.record), found)?;
                    one.n = found.len() - one.start;
                } else if n == LANES {
                    break;
                } else {
                    keys[n] = record.key;
                    n += 1;
                }
                next += 1;
            }
            let (now, later) = rest.split_at_mut(next);
            rest = later;
            let side_by_side = side_by_side && n >= FEW;
            if side_by_side {
                lanes.merge(&keys[..n], self.vocab.pairs());
            }
            let short = now.iter_mut().filter(|one| !records[one.record as usize].is_long());
            for (lane, one) in short.enumerate() {
                let record = &records[one.record as usize];
                one.start = found.len();
                if side_by_side {
                    found.extend(lanes.tokens(lane).map(|rank| self.vocab.rank_id(rank)));
                } else if let Some(rank) = self.whole(piece(one.record)) {
                    found.push(self.vocab.rank_id(rank));
                } else {
                    let small = &mut merger.small;
                    small.merge(piece(one.record), self.vocab.pairs());
                    let ranks = &small.ranks[..small.n];
                    found.extend(ranks.iter().map(|&rank| self.vocab.rank_id(rank)));
                }
                one.n = found.len() - one.start;
                cache.put(record.key, record.hash, &found[one.start..]);
            }
        }
        Ok(())
    }
}

impl Batch {
    /// Appends all ids, in order.
    fn put_together(&mut self, ids: &mut Vec<u32>) {
        let Batch { known, unseen, found, .. } = self;
        ids.reserve(known.len() + found.len() + BLOCK);
        // What is behind the last of them is copied too, and does not matter.
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
            // SAFETY: both are within the lists.
            unsafe {
                copy(known.as_ptr().add(at), one.at as usize - at);
                copy(found.as_ptr().add(one.start), one.n);
            }
            at = one.at as usize;
        }
        // SAFETY: as above.
        unsafe { copy(known.as_ptr().add(at), known.len() - at) };
        // SAFETY: so many were written.
        unsafe { ids.set_len(to) };
    }
}
