//! Pieces → counts.
//!
//! Every worker counts into a table of its own; the tables are added up at the end, so the result
//! does not depend on who counted what. Counts are 64-bit.

mod counter;
mod list;

pub use list::PieceList;

use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use crate::corpus::{Cutter, Reader};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::pieces::PieceMap;
use counter::Counter;

/// Files are counted in chunks of about this many bytes: small enough for the second-level cache
/// and for an even spread over threads, large enough for the costs of a chunk not to show.
pub const CHUNK_SIZE: usize = 1 << 20;

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

    /// How many threads count.
    pub fn threads(&self) -> usize {
        self.tables.len()
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

#[cfg(test)]
mod tests;
