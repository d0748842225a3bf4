//! One text → ids.
//!
//! About five hundred pieces at a time are looked up in the cache, and the ids of those found are
//! written to a small array that stays in the first-level cache. Missing pieces are *pending* until there
//! are enough of them to be merged side by side. Then all ids are copied in order, so that the result is
//! written once, from front to back. Long pieces are cut where no token can span, or merged in windows,
//! so the cost is linear in the text except for pieces of up to one window, which take O(n log n).

use std::ops::Range;

use super::cache::{Keyed, PendingPiece, SINGLES_BLOCK};
use super::long_cache::{LongCache, MAX_CACHED_LENGTH};
use super::single::SingleTokens;
use super::tokenizer::{Recognise, Tokenizer};
use super::worker::{Merger, Pieces, Waiting, Worker};
use crate::base::error::Result;
use crate::base::table::{SHORT, TOO_LONG, hash, key, key_bytes, key_or_too_long};
use crate::text::specials::Segment;
use crate::tokenizer::vocab::Joins;

/// This many pending pieces are merged at once.
const MAX_PENDING: usize = 64;
/// Fewer pieces than this are merged one by one.
const MIN_LANE_BATCH: usize = 4;
/// The most known ids that wait for pending pieces.
const MAX_WAITING_IDS: usize = 4096;
/// For less text, building [`Joins`](crate::tokenizer::vocab::Joins) costs more than it saves.
const MIN_TEXT_FOR_JOINS: usize = 64 << 10;
/// Bytes of a long piece that are searched for cuts at once.
const MAX_CUTS: usize = 128;
/// Pieces in a batch, about.
const BATCH: usize = 512;

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

    /// Encodes text without special tokens. The last ids may wait for [`Tokenizer::finish`].
    pub(super) fn encode_plain(
        &self,
        worker: &mut Worker,
        text: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let mut pieces = std::mem::take(&mut worker.pieces);
        let single = self.single_tokens();
        let joins = self.joins(text);
        let mut from = 0;
        while from < text.len() {
            pieces.ends.clear();
            let upto = self.cutter.pattern.scan(text, from, BATCH, &mut pieces.ends)?;
            single.look_up(text, from, &pieces.ends, &mut pieces.ids, &mut pieces.missing);
            self.look_up_missing(worker, &mut pieces, text, from, joins, ids)?;
            from = upto;
        }
        worker.pieces = pieces;
        Ok(())
    }

    /// Looks up the pieces of a batch that are not single tokens. Appends the ids of the whole batch, or
    /// keeps them until its pending pieces are merged.
    #[inline(always)]
    fn look_up_missing(
        &self,
        worker: &mut Worker,
        pieces: &mut Pieces,
        text: &[u8],
        from: usize,
        joins: Option<&Joins>,
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Pieces { ends, ids: single_ids, missing, keyed, long } = pieces;
        let mut cuts = [0; MAX_CUTS + 1];
        let mut n_copied = 0;
        keyed.clear();
        for numbers in missing.chunks(BATCH) {
            let mut lines = worker.cache.lines();
            for &number in numbers {
                let at = number as usize;
                let (mut start, end) = (if at == 0 { from } else { ends[at - 1] }, ends[at]);
                if end - start <= SHORT {
                    let key = key(text, start, end);
                    let hash = hash(key);
                    lines.prefetch(hash);
                    keyed.push(Keyed { key, hash, after: number });
                    continue;
                }
                let mut place = start + 1;
                while start < end {
                    // Memory must not grow with the length of the piece.
                    let places = place..end.min(place + MAX_CUTS);
                    place = places.end;
                    let mut n = joins.map_or(0, |joins| joins.cuts(text, places, &mut cuts[..]));
                    cuts[n] = end;
                    n += usize::from(place == end);
                    for &part in &cuts[..n] {
                        let key = key_or_too_long(text, start, part);
                        let hash = hash(key);
                        lines.prefetch(hash);
                        keyed.push(Keyed { key, hash, after: number });
                        if key == TOO_LONG {
                            long.push(start..part);
                        }
                        start = part;
                    }
                    if keyed.len() >= 2 * BATCH {
                        let copied = &mut n_copied;
                        self.look_up_keyed(worker, keyed, long, single_ids, copied, text, ids)?;
                        lines = worker.cache.lines();
                    }
                }
            }
            self.look_up_keyed(worker, keyed, long, single_ids, &mut n_copied, text, ids)?;
        }
        worker.waiting.out(ids).extend_from_slice(&single_ids[n_copied..]);
        Ok(())
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn look_up_keyed(
        &self,
        worker: &mut Worker,
        keyed: &mut Vec<Keyed>,
        long: &mut Vec<Range<usize>>,
        single_ids: &mut Vec<u32>,
        n_copied: &mut usize,
        text: &[u8],
        ids: &mut Vec<u32>,
    ) -> Result<()> {
        let Worker { cache, waiting, .. } = worker;
        let Waiting { known, pending, .. } = waiting;
        let waits = !pending.pieces.is_empty();
        let out = if waits { &mut *known } else { &mut *ids };
        single_ids.reserve(SINGLES_BLOCK);
        // SAFETY: the room was just reserved, and a piece comes after those with smaller numbers.
        unsafe { cache.look_up(keyed, single_ids, n_copied, out, pending) };
        keyed.clear();
        if pending.pieces.is_empty() {
            return Ok(());
        }
        if !waits {
            // All ids from the first pending piece on wait.
            known.extend_from_slice(&ids[pending.origin..]);
            ids.truncate(pending.origin);
            pending.origin = 0;
        }
        if !long.is_empty() {
            let encoded = self.encode_all_long(worker, long, text);
            long.clear();
            if let Err(error) = encoded {
                // The pending pieces are lost, so the entries that refer to them must be removed, too.
                worker.waiting = Waiting::default();
                worker.cache.clear();
                return Err(error);
            }
        }
        let Waiting { known, pending, .. } = &worker.waiting;
        if pending.pieces.len() >= MAX_PENDING || known.len() >= MAX_WAITING_IDS {
            self.finish(worker, ids);
        }
        Ok(())
    }

    /// The table of single tokens, built for the first text.
    fn single_tokens(&self) -> &SingleTokens {
        self.single.get_or_init(|| {
            let made = self.vocab.made();
            let ranks = (0..self.vocab.n_ranks() as u32)
                .filter(|&rank| self.ignore_merges || made[rank as usize]);
            SingleTokens::new(
                ranks.map(|rank| (self.vocab.rank_bytes(rank), self.vocab.rank_id(rank))),
            )
        })
    }

    /// Encodes the long pieces of the last lookup.
    #[cold]
    fn encode_all_long(
        &self,
        worker: &mut Worker,
        places: &[Range<usize>],
        text: &[u8],
    ) -> Result<()> {
        let Worker { long, merger, waiting, .. } = worker;
        let Waiting { pending, found, .. } = waiting;
        for (number, place) in pending.long.drain(..).zip(places) {
            let one = &mut pending.pieces[number];
            one.start = found.len();
            self.encode_long(merger, long, &text[place.clone()], found)?;
            one.n = found.len() - one.start;
        }
        Ok(())
    }

    /// Merges the pending pieces and appends all waiting ids.
    #[inline(never)]
    pub(super) fn finish(&self, worker: &mut Worker, ids: &mut Vec<u32>) {
        let Worker { cache, merger, lanes, waiting, .. } = worker;
        if waiting.pending.pieces.is_empty() {
            return;
        }
        let Waiting { pending, keys, numbers, found, .. } = waiting;
        let pending = &mut pending.pieces;
        keys.clear();
        numbers.clear();
        // In a short text most pieces are tokens, and too few are left to be merged side by side.
        let few = pending.len() < MAX_PENDING;
        if few {
            pending.iter().for_each(|one| self.vocab.prefetch(one.hash));
        }
        let mut done = |pending: &mut [PendingPiece], number: u32, ranks: &[u32]| {
            let one = &mut pending[number as usize];
            one.start = found.len();
            found.extend(ranks.iter().map(|&rank| self.vocab.rank_id(rank)));
            one.n = found.len() - one.start;
            if one.expected {
                cache.fill(one.key, one.hash, &found[one.start..]);
            }
        };
        for number in 0..pending.len() as u32 {
            let PendingPiece { key, hash, n, same, .. } = pending[number as usize];
            // Long pieces are merged already, and equal ones are merged once.
            if n > 0 || same != number {
                continue;
            }
            if few && let Some(rank) = self.vocab.made_rank(key, hash) {
                done(pending, number, &[rank]);
            } else {
                keys.push(key);
                numbers.push(number);
            }
        }
        // Lanes only find tokens that merges create.
        if let Some(lanes) = lanes
            && keys.len() >= MIN_LANE_BATCH
            && self.whole.is_empty()
        {
            lanes.merge(keys, self.vocab.pairs(), |i, ranks| done(pending, numbers[i], ranks));
        } else {
            for (&key, &number) in keys.iter().zip(&*numbers) {
                let (bytes, length) = key_bytes(key);
                let piece = &bytes[..length];
                if let Some(rank) = self.whole(piece) {
                    done(pending, number, &[rank]);
                } else {
                    merger.small.merge(piece, self.vocab.pairs());
                    done(pending, number, &merger.small.ranks[..merger.small.n]);
                }
            }
        }
        waiting.put_together(ids);
    }

    /// Where pieces of this text can be cut; None if that is not worth it or not possible.
    pub(super) fn joins(&self, text: &[u8]) -> Option<&Joins> {
        // A piece that becomes a token regardless of the merges must not be cut.
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
