//! One text → ids.
//!
//! Some hundred pieces at a time: all are looked up in the cache, and the ids of those found go to a
//! small array that stays in the first-level cache. Those not found wait until there are enough of them
//! to be merged side by side. Then all ids are put together in order, so that the result is written once
//! and from front to back. Long pieces are cut where no token can span, or merged in windows, so the cost
//! is linear in the text but for pieces of up to one window, which take O(n log n).

use super::cache::Looked;
use super::long_cache::{LongCache, MAX_CACHED_LENGTH};
use super::tokenizer::{Recognise, Tokenizer};
use super::worker::{Merger, Waiting, Worker};
use crate::base::error::Result;
use crate::base::table::key_bytes;
use crate::text::specials::Segment;
use crate::tokenizer::vocab::Joins;

/// As many pending pieces as this are merged at once.
const MAX_PENDING: usize = 64;
/// Fewer pieces than this are merged one by one.
const MIN_LANE_BATCH: usize = 4;
/// At most this many known ids wait for pending pieces.
const MAX_WAITING_IDS: usize = 4096;
/// In shorter texts, finding out where pieces can be cut costs more than it saves.
const MIN_TEXT_FOR_JOINS: usize = 64 << 10;

impl Tokenizer {
    /// Appends the ids of `text` to `ids`.
    pub fn encode(&self, text: &[u8], recognise: &Recognise, ids: &mut Vec<u32>) -> Result<()> {
        let mut worker = self.worker();
        let result = self.encode_with(&mut worker, text, recognise, ids);
        self.give_back(worker);
        result
    }

    pub(super) fn encode_with(
        &self,
        worker: &mut Worker,
        text: &[u8],
        recognise: &Recognise,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let result = self.segments(text, recognise, |segment| match segment {
            Segment::Plain(_, plain) => self.encode_plain(worker, plain, ids),
            Segment::Special(found) => {
                worker.push(self.vocab.specials()[found.index].id, ids);
                Ok(())
            }
        });
        self.finish(worker, ids);
        result
    }

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
            if waiting.looked.pending.is_empty() {
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
            let Looked { known, pending, .. } = &worker.waiting.looked;
            if pending.len() >= MAX_PENDING || known.len() >= MAX_WAITING_IDS {
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
            let one = &mut looked.pending[number];
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
        if waiting.looked.pending.is_empty() {
            return;
        }
        let Waiting { looked, keys, numbers, found } = waiting;
        let pending = &mut looked.pending;
        keys.clear();
        numbers.clear();
        for (one, number) in pending.iter().zip(0..) {
            // What is long is found already, and what came twice waits once.
            if one.n == 0 && one.same == number {
                keys.push(one.key);
                numbers.push(number);
            }
        }
        let mut done = |i: usize, ranks: &[u32]| {
            let one = &mut pending[numbers[i] as usize];
            one.start = found.len();
            found.extend(ranks.iter().map(|&rank| self.vocab.rank_id(rank)));
            one.n = found.len() - one.start;
            if one.expected {
                cache.fill(one.key, one.hash, &found[one.start..]);
            }
        };
        // A token that the merges do not make is no work for lanes.
        if let Some(lanes) = lanes
            && keys.len() >= MIN_LANE_BATCH
            && self.whole.is_empty()
        {
            lanes.merge(keys, self.vocab.pairs(), done);
        } else {
            for (i, &key) in keys.iter().enumerate() {
                let (bytes, length) = key_bytes(key);
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

    /// Where pieces of this text can be cut, if they can be.
    pub(super) fn joins(&self, text: &[u8]) -> Option<&Joins> {
        // A piece that is a token whatever the merges say must be seen as a whole.
        if self.whole.is_empty() {
            self.vocab.joins(text.len() >= MIN_TEXT_FOR_JOINS)
        } else {
            None
        }
    }

    /// Encodes a piece, or a part of one, that is too long for a key.
    pub(super) fn encode_long(
        &self,
        merger: &mut Merger,
        long: &mut LongCache,
        piece: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        if let Some(known) = long.get(piece) {
            ids.extend_from_slice(known);
            return Ok(());
        }
        if piece.len() > self.window() {
            return self.encode_windows(merger, piece, ids);
        }
        self.merge_piece(merger, piece)?;
        let first = ids.len();
        ids.extend(merger.tokens.iter().map(|&rank| self.vocab.rank_id(rank)));
        if piece.len() <= MAX_CACHED_LENGTH {
            long.put(piece, &ids[first..]);
        }
        Ok(())
    }
}
