//! Many texts, or the stretches of a long text, on several threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::tokenizer::{Recognise, Tokenizer};
use super::worker::Worker;
use crate::base::error::Result;
use crate::base::job::Job;
use crate::base::pages;
use crate::base::threads;
use crate::text::specials::Segment;

/// Texts are handed to threads in groups of about this many bytes.
const GROUP_BYTES: usize = 256 << 10;

/// A group of texts, encoded.
#[derive(Default)]
struct Encoded {
    ids: Vec<u32>,
    /// How many ids each text has.
    lengths: Vec<u64>,
}

/// The result so far.
struct Output {
    /// Has room for all ids; its length is set at the end.
    ids: Vec<u32>,
    /// Ids of the groups whose place is known.
    len: usize,
    offsets: Vec<u64>,
    /// The next group in order.
    next: usize,
    /// Groups that were finished out of order.
    early: BTreeMap<usize, Encoded>,
    /// Buffers for reuse: memory that was touched before causes no page faults.
    spare: Vec<Encoded>,
}

/// A group and its place in the result.
struct Placed {
    group: Encoded,
    to: *mut u32,
}

impl Output {
    /// Adds a group; returns all groups whose place is known now. The caller copies them there without
    /// the lock.
    fn put(&mut self, number: usize, group: Encoded) -> Vec<Placed> {
        self.early.insert(number, group);
        let mut placed = Vec::new();
        while let Some(group) = self.early.remove(&self.next) {
            self.next += 1;
            self.add_lengths(&group.lengths);
            assert!(self.len + group.ids.len() <= self.ids.capacity());
            // SAFETY: the assertion keeps the place within what is allocated.
            let to = unsafe { self.ids.as_mut_ptr().add(self.len) };
            self.len += group.ids.len();
            placed.push(Placed { group, to });
        }
        placed
    }

    fn add_lengths(&mut self, lengths: &[u64]) {
        let mut end = self.offsets.last().copied().unwrap_or(0);
        self.offsets.extend(lengths.iter().map(|length| {
            end += length;
            end
        }));
    }
}

impl Tokenizer {
    /// The ids of all texts end to end, and where each text's ids begin (one more at the end).
    pub fn encode_batch(
        &self,
        texts: &[&[u8]],
        recognise: &Recognise,
        n_threads: usize,
        job: &Job,
    ) -> Result<(Vec<u32>, Vec<u64>)> {
        let sizes = texts.iter().map(|text| text.len());
        self.in_groups(sizes, n_threads, job, |worker, group, encoded| {
            for i in group {
                let before = encoded.ids.len();
                self.encode_with(worker, texts[i], recognise, &mut encoded.ids)
                    .map_err(|error| error.in_file(&format!("text {i}")))?;
                encoded.lengths.push((encoded.ids.len() - before) as u64);
            }
            Ok(())
        })
    }

    /// The ids of a long text, cut where it can be and encoded by several threads.
    pub fn encode_job(
        &self,
        text: &[u8],
        recognise: &Recognise,
        n_threads: usize,
        job: &Job,
    ) -> Result<Vec<u32>> {
        let mut stretches = Vec::new();
        self.segments(text, recognise, |segment| {
            match segment {
                Segment::Plain(_, plain) => {
                    let mut rest = plain;
                    // Cut into stretches whose ids, concatenated, are those of the whole text.
                    while rest.len() > GROUP_BYTES
                        && let Some(cut) = self.cutter.pattern.safe_cut_after(rest, GROUP_BYTES)
                    {
                        stretches.push(Stretch::Plain(&rest[..cut]));
                        rest = &rest[cut..];
                    }
                    stretches.push(Stretch::Plain(rest));
                }
                Segment::Special(found) => {
                    let special = &self.vocab.specials()[found.index];
                    stretches.push(Stretch::Special(special.id, special.text.len()));
                }
            }
            Ok(())
        })?;
        let sizes = stretches.iter().map(|stretch| match stretch {
            Stretch::Plain(text) => text.len(),
            Stretch::Special(_, size) => *size,
        });
        let (ids, _) = self.in_groups(sizes, n_threads, job, |worker, group, encoded| {
            for stretch in &stretches[group] {
                match *stretch {
                    Stretch::Plain(text) => self.encode_plain(worker, text, &mut encoded.ids)?,
                    Stretch::Special(id, _) => worker.push(id, &mut encoded.ids),
                }
            }
            self.finish(worker, &mut encoded.ids);
            Ok(())
        })?;
        Ok(ids)
    }

    /// Calls `encode` for groups of items of these sizes, on several threads; the result is in the
    /// order of the items.
    fn in_groups(
        &self,
        sizes: impl ExactSizeIterator<Item = usize>,
        n_threads: usize,
        job: &Job,
        encode: impl Fn(&mut Worker, Range<usize>, &mut Encoded) -> Result<()> + Sync,
    ) -> Result<(Vec<u32>, Vec<u64>)> {
        let n = sizes.len();
        let groups = groups_of(sizes);
        let n_threads = n_threads.min(groups.len()).max(1);
        let size: usize = groups.iter().map(|group| group.size).sum();
        let mut offsets = Vec::with_capacity(n + 1);
        offsets.push(0);
        // Every id stands for at least one byte. Room that is not needed is never touched.
        let ids = pages::with_room(size);
        // Without that much room the result has to grow, which only one thread can do.
        let n_threads = if ids.capacity() < size { 1 } else { n_threads };
        let mut output =
            Output { ids, len: 0, offsets, next: 0, early: BTreeMap::new(), spare: Vec::new() };
        if n_threads == 1 {
            let mut worker = self.worker_for(size);
            let mut encoded = Encoded { ids: output.ids, lengths: Vec::new() };
            for group in &groups {
                job.check()?;
                encode(&mut worker, group.items.clone(), &mut encoded)?;
                job.advance(group.size as u64);
            }
            self.give_back(worker);
            output.ids = encoded.ids;
            output.add_lengths(&encoded.lengths);
            return Ok(output.finish());
        }
        let next = AtomicUsize::new(0);
        let output = Mutex::new(output);
        let locked = || output.lock().unwrap_or_else(PoisonError::into_inner);
        let mut workers: Vec<Worker> = (0..n_threads).map(|_| self.worker_for(size)).collect();
        threads::for_each(&mut workers, |worker, failed| {
            let _job = job.on_this_thread();
            while !failed.load(Relaxed) {
                let number = next.fetch_add(1, Relaxed);
                let Some(group) = groups.get(number) else { break };
                job.check()?;
                let mut encoded = locked().spare.pop().unwrap_or_default();
                encode(worker, group.items.clone(), &mut encoded)?;
                job.advance(group.size as u64);
                let placed = locked().put(number, encoded);
                for Placed { mut group, to } in placed {
                    // SAFETY: `put` reserved this part of the result for this group alone.
                    unsafe { to.copy_from_nonoverlapping(group.ids.as_ptr(), group.ids.len()) };
                    group.ids.clear();
                    group.lengths.clear();
                    locked().spare.push(group);
                }
            }
            Ok(())
        })?;
        workers.into_iter().for_each(|worker| self.give_back(worker));
        let mut output = output.into_inner().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all groups have been copied to their places.
        unsafe { output.ids.set_len(output.len) };
        Ok(output.finish())
    }
}

/// A stretch of a text.
enum Stretch<'t> {
    Plain(&'t [u8]),
    /// The id, and the length of its text.
    Special(u32, usize),
}

impl Output {
    fn finish(mut self) -> (Vec<u32>, Vec<u64>) {
        self.ids.shrink_to_fit();
        (self.ids, self.offsets)
    }
}

/// The items that a thread takes at a time.
struct TextGroup {
    items: Range<usize>,
    size: usize,
}

/// Groups of about [`GROUP_BYTES`] bytes each.
fn groups_of(sizes: impl Iterator<Item = usize>) -> Vec<TextGroup> {
    let mut groups = vec![TextGroup { items: 0..0, size: 0 }];
    let mut weight = 0;
    for (i, size) in sizes.enumerate() {
        // An empty text costs some work, too.
        if weight >= GROUP_BYTES {
            groups.push(TextGroup { items: i..i, size: 0 });
            weight = 0;
        }
        weight += size + 64;
        if let Some(last) = groups.last_mut() {
            last.items.end = i + 1;
            last.size += size;
        }
    }
    groups
}
