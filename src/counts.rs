//! Pieces → counts.
//!
//! Every worker counts into a table of its own; the tables are added up at the end, so the result
//! does not depend on who counted what. Counts are 64-bit.

use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use crate::corpus::{Cutter, Reader};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::pieces::{self, Key, PieceMap, SHORT};
use crate::specials::Segment;

/// Files are counted in chunks of about this many bytes: small enough for the second-level cache
/// and for an even spread over threads, large enough for the costs of a chunk not to show.
pub const CHUNK_SIZE: usize = 1 << 20;

/// Pieces whose keys are made before the first is looked up, so that its cache line is on the way.
const BATCH: usize = 256;

/// How often each piece occurs in a corpus.
#[derive(Debug)]
pub struct Counts {
    cutter: Cutter,
    /// One table per worker; the first holds the sum of what was counted before.
    tables: Vec<PieceMap<u64>>,
    bytes_read: u64,
}

impl Counts {
    /// Empty counts, to be filled by `threads` workers.
    pub fn new(cutter: Cutter, threads: usize) -> Self {
        let tables = (0..threads.max(1)).map(|_| PieceMap::default()).collect();
        Counts { cutter, tables, bytes_read: 0 }
    }

    /// Bytes of text counted, special tokens included.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The stages of the pattern that the pieces were cut by.
    pub fn pattern(&self) -> Vec<String> {
        self.cutter.pattern.stages().to_vec()
    }

    /// Counts files. On an error nothing of them is kept apart: the counts are to be dropped.
    pub fn add_files(&mut self, paths: &[PathBuf], chunk_size: usize, job: &Job) -> Result<()> {
        let Counts { cutter, tables, bytes_read } = self;
        let reader = Reader::new(paths, cutter, chunk_size);
        let total = reader.total()?;
        job.set_total(total);
        // A corpus of one chunk is not worth a thread.
        let workers =
            tables.len().min((total / chunk_size as u64 + 1).max(paths.len() as u64) as usize);
        on_each(&mut tables[..workers], |table| {
            let mut buffer = Vec::new();
            let mut counter = Counter::new(table);
            while let Some(chunk) = reader.next()? {
                job.check()?;
                chunk.read(&mut buffer)?;
                counter.add(cutter, &buffer, job)?;
                job.advance(chunk.size());
            }
            Ok(())
        })?;
        *bytes_read += total;
        Ok(())
    }

    /// Counts texts, each a corpus of its own: no piece spans two.
    pub fn add_texts(&mut self, texts: &[&[u8]], job: &Job) -> Result<()> {
        let Counts { cutter, tables, bytes_read } = self;
        let total: usize = texts.iter().map(|text| text.len()).sum();
        let workers = tables.len().min(total / CHUNK_SIZE + 1);
        let queue = Mutex::new((0, 0));
        on_each(&mut tables[..workers], |table| {
            let mut counter = Counter::new(table);
            while let Some(chunk) = next_of_texts(texts, &queue, cutter) {
                job.check()?;
                counter.add(cutter, chunk, job)?;
                job.advance(chunk.len() as u64);
            }
            Ok(())
        })?;
        *bytes_read += total as u64;
        Ok(())
    }

    /// Adds up what the workers have; afterwards the first table has everything.
    fn gather(&mut self) -> &PieceMap<u64> {
        if let Some((sum, others)) = self.tables.split_first_mut() {
            for other in others {
                other.for_each(|piece, n| *sum.value_mut(piece) += n);
                *other = PieceMap::default();
            }
        }
        &self.tables[0]
    }

    /// How many different pieces there are.
    pub fn n_pieces(&mut self) -> usize {
        self.gather().len()
    }

    /// Every piece with its count, in byte order.
    pub fn sorted(&mut self) -> PieceList {
        let table = self.gather();
        let mut list = PieceList::default();
        table.for_each(|piece, n| list.push(piece, n));
        list.sort();
        list
    }
}

/// The next stretch of the texts: a whole text, or part of a long one.
fn next_of_texts<'t>(
    texts: &[&'t [u8]],
    queue: &Mutex<(usize, usize)>,
    cutter: &Cutter,
) -> Option<&'t [u8]> {
    let mut place = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (index, start) = *place;
    let text = *texts.get(index)?;
    let rest = &text[start..];
    // Each claim searches on from where the last one ended, so texts without cuts cost one pass.
    let end = if rest.len() <= CHUNK_SIZE {
        rest.len()
    } else {
        cutter.cut_after(rest, CHUNK_SIZE, true).unwrap_or(rest.len())
    };
    *place = if end == rest.len() { (index + 1, 0) } else { (index, start + end) };
    Some(&rest[..end])
}

/// Runs `work` on each of the tables, on threads of their own unless there is only one.
fn on_each<T: Send>(tables: &mut [T], work: impl Fn(&mut T) -> Result<()> + Sync) -> Result<()> {
    if let [only] = tables {
        return work(only);
    }
    thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> =
            tables.iter_mut().map(|table| scope.spawn(move || work(table))).collect();
        let mut result = Ok(());
        for handle in handles {
            let one = handle.join().unwrap_or_else(|_| {
                Err(Error::corpus("a counting thread failed; this is a bug in bytemill"))
            });
            // The first error is the one to show; those of others are often its consequence.
            if result.is_ok() {
                result = one;
            }
        }
        result
    })
}

/// One worker: its table and what it reuses from chunk to chunk.
struct Counter<'a> {
    table: &'a mut PieceMap<u64>,
    ends: Vec<usize>,
    keys: Vec<(Key, u64)>,
}

impl<'a> Counter<'a> {
    fn new(table: &'a mut PieceMap<u64>) -> Self {
        Counter { table, ends: Vec::new(), keys: Vec::with_capacity(BATCH) }
    }

    fn add(&mut self, cutter: &Cutter, text: &[u8], job: &Job) -> Result<()> {
        cutter.specials.segments(text, |segment| match segment {
            Segment::Plain(_, plain) => self.add_plain(cutter, plain, job),
            Segment::Special(_) => Ok(()),
        })
    }

    fn add_plain(&mut self, cutter: &Cutter, text: &[u8], job: &Job) -> Result<()> {
        let mut from = 0;
        let mut batches = 0u32;
        while from < text.len() {
            let mut start = from;
            self.ends.clear();
            from = cutter.pattern.scan(text, from, BATCH, &mut self.ends)?;
            self.keys.clear();
            for &end in &self.ends {
                if end - start <= SHORT {
                    let key = pieces::key(text, start, end);
                    let hash = pieces::hash(key);
                    self.table.prefetch(hash);
                    self.keys.push((key, hash));
                } else {
                    *self.table.long_entry(&text[start..end]) += 1;
                }
                start = end;
            }
            for &(key, hash) in &self.keys {
                *self.table.entry(key, hash) += 1;
            }
            // A text may be one chunk of gigabytes, if nothing in it can be cut.
            batches += 1;
            if batches.is_multiple_of(1024) {
                job.check()?;
            }
        }
        Ok(())
    }
}

/// Pieces with their counts, end to end in one buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PieceList {
    bytes: Vec<u8>,
    /// (start, end in `bytes`, count)
    entries: Vec<(usize, usize, u64)>,
}

impl PieceList {
    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8], count: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        self.entries.push((start, self.bytes.len(), count));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All pieces with their counts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        self.entries.iter().map(|&(start, end, count)| (&self.bytes[start..end], count))
    }

    /// Drops pieces that occur less often than `least`.
    pub fn retain(&mut self, least: u64) {
        self.entries.retain(|&(_, _, count)| count >= least);
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| bytes[a.0..a.1].cmp(&bytes[b.0..b.1]));
    }
}

#[cfg(test)]
mod tests;
