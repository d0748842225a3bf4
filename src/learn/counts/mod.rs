//! Pieces → counts.
//!
//! Every worker counts into a table of its own; the tables are added up at the end, so the result
//! does not depend on who counted what. Counts are 64-bit.
//!
//! Under a memory limit each worker has a share. A table that would outgrow it is written to disk
//! as a sorted run and emptied; in the end the runs are merged, in a stream, into one. The pieces
//! and their counts are the same either way.
//!
//! - `counter`: a worker's loop
//! - `sorted`, `record`, `spill`: counts in byte order, in memory and on disk
//! - `file`: counts files
//! - `results`: what counts are for
//! - `stats`: totals, and what merging will need

mod counter;
mod file;
mod list;
mod record;
mod results;
mod sorted;
mod spill;
mod stats;

pub use list::PieceList;
pub use results::Cursor;
pub use sorted::{SortedCounts, for_each};
pub use stats::{Stats, megabytes};

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::table::Table;
use crate::base::threads;
use crate::corpus::{AnyOrder, Block, BlockBuffers, BlockText, Context, Input, Inputs, Skipped};
use crate::text::cutter::Cutter;
use counter::Counter;
use spill::{DiskRun, SpillDir, sweep};

/// Files are counted in chunks of about this many bytes: small enough for the second-level cache
/// and for an even spread over threads, large enough for the costs of a chunk not to show.
pub const BLOCK_SIZE: usize = 1 << 20;

/// Set aside of a memory limit for what is not tables: stacks, buffers of runs being merged.
const ASIDE: u64 = 8 << 20;

/// A limit on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What may be used beyond what the process holds already.
    pub available: u64,
    /// The limit as the user knows it, for messages.
    pub total: u64,
}

/// How often each piece occurs in a corpus.
#[derive(Debug)]
pub struct Counts {
    cutter: Cutter,
    /// One table per worker; the first holds the sum of what was counted before.
    tables: Vec<Table<u64>>,
    /// What went to disk, and counts files that were added.
    runs: Vec<DiskRun>,
    dir: Arc<SpillDir>,
    limit: Option<Limit>,
    /// Known if nothing was added since it was asked for.
    stats: Option<Stats>,
    /// Whether learning may free the counts.
    used_once: bool,
    bytes_read: u64,
    skipped: Skipped,
}

impl Counts {
    /// Empty counts, to be filled by `threads` workers.
    pub fn new(cutter: Cutter, threads: usize) -> Self {
        let tables = (0..threads.max(1)).map(|_| Table::default()).collect();
        Counts {
            cutter,
            tables,
            runs: Vec::new(),
            dir: Arc::new(SpillDir::new(std::env::temp_dir())),
            limit: None,
            stats: None,
            used_once: false,
            bytes_read: 0,
            skipped: Skipped::default(),
        }
    }

    /// Sets how much memory may be used from now on.
    pub fn set_limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
    }

    /// Sets the directory in which runs are put, in one of their own.
    pub fn set_spill_dir(&mut self, directory: PathBuf) {
        sweep(&directory);
        // Runs that are there already hold on to theirs.
        self.dir = Arc::new(SpillDir::new(directory));
    }

    /// Says that the counts are for learning once, which may then free them before it merges.
    pub fn use_once(&mut self) {
        self.used_once = true;
    }

    /// Bytes of text counted, special tokens included.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Skipped records, by reason.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// How many threads count.
    pub fn threads(&self) -> usize {
        self.tables.len()
    }

    /// The stages of the pattern that the pieces were cut by.
    pub fn pattern(&self) -> Vec<String> {
        self.cutter.pattern.stages().to_vec()
    }

    /// The special tokens that separated documents, in byte order.
    pub fn special_tokens(&self) -> Vec<String> {
        let mut texts = self.cutter.specials.texts().to_vec();
        texts.sort_unstable();
        texts
    }

    /// What other counts must have in common with these to be added to them.
    pub fn fingerprint(&self) -> String {
        file::fingerprint(&self.pattern(), &self.special_tokens())
    }

    /// Counts a corpus. On an error nothing of it is kept apart: the counts are to be dropped.
    pub fn add_corpus(&mut self, inputs: &Inputs, block_size: usize, job: &Job) -> Result<()> {
        self.stats = None;
        let memory = WorkerMemory::new(self.limit, self.tables.len(), &self.dir);
        let block_size = block_size.min(memory.block_size);
        let Counts { cutter, tables, runs, bytes_read, skipped, .. } = self;
        let cutter = &*cutter;
        let reader = AnyOrder::new(
            inputs,
            Context { cutter, reading: &inputs.reading, block_size, open_pieces: false, job },
        );
        let total = reader.total()?;
        job.set_total(total);
        // A corpus of one chunk is not worth a thread; but the size of compressed text is not known.
        let known = inputs.list.iter().all(Input::is_measured);
        let chunks = (total / block_size as u64 + 1).max(inputs.list.len() as u64) as usize;
        let workers = if known { tables.len().min(chunks) } else { tables.len() };
        let (counted, left_out) = (AtomicU64::new(0), Mutex::new(Skipped::default()));
        threads::for_each(&mut tables[..workers], |table, failed| {
            let _job = job.on_this_thread();
            let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
            while !failed.load(Relaxed)
                && let Some(mut block) = reader.next()?
            {
                job.check()?;
                memory.check(&block, inputs)?;
                memory.make(table, block.size() as usize, job)?;
                let mut counter = Counter::new(table);
                let mut n_bytes = 0;
                block.read(reader.context(), &mut buffers, &mut skipped, &mut |text| {
                    let size = match text {
                        BlockText::Running { text, .. } => {
                            counter.add(cutter, text, job)?;
                            text.len()
                        }
                        BlockText::Documents(documents) => {
                            for text in &documents {
                                counter.add(cutter, text, job)?;
                            }
                            documents.iter().map(|text| text.len()).sum()
                        }
                    };
                    n_bytes += size as u64;
                    Ok(())
                })?;
                counted.fetch_add(n_bytes, Relaxed);
                job.read(block.weight, n_bytes);
            }
            left_out.lock().unwrap_or_else(PoisonError::into_inner).take(&mut skipped);
            Ok(())
        })?;
        job.read_all();
        runs.append(&mut memory.into_runs());
        *bytes_read += counted.into_inner();
        skipped.take(&mut left_out.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// Counts texts, each a corpus of its own: no piece spans two.
    pub fn add_texts(&mut self, texts: &[&[u8]], job: &Job) -> Result<()> {
        self.stats = None;
        let memory = WorkerMemory::new(self.limit, self.tables.len(), &self.dir);
        let Counts { cutter, tables, runs, bytes_read, .. } = self;
        let total: usize = texts.iter().map(|text| text.len()).sum();
        let workers = tables.len().min(total / memory.block_size + 1);
        let queue = Mutex::new((0, 0));
        threads::for_each(&mut tables[..workers], |table, failed| {
            let _job = job.on_this_thread();
            while !failed.load(Relaxed)
                && let Some(chunk) = next_of_texts(texts, &queue, cutter, memory.block_size)
            {
                job.check()?;
                memory.make(table, chunk.len(), job)?;
                Counter::new(table).add(cutter, chunk, job)?;
                job.read(chunk.len() as u64, chunk.len() as u64);
            }
            Ok(())
        })?;
        runs.append(&mut memory.into_runs());
        *bytes_read += total as u64;
        Ok(())
    }
}

/// The memory that workers have, and where they put what does not fit.
struct WorkerMemory<'a> {
    /// Of one worker's table.
    share: usize,
    block_size: usize,
    dir: &'a Arc<SpillDir>,
    runs: Mutex<Vec<DiskRun>>,
}

impl<'a> WorkerMemory<'a> {
    fn new(limit: Option<Limit>, threads: usize, dir: &'a Arc<SpillDir>) -> Self {
        let (share, block_size) = match limit {
            None => (usize::MAX, BLOCK_SIZE),
            Some(limit) => {
                let each = limit.available.saturating_sub(ASIDE) / threads as u64;
                // A chunk is read whole, and the size of the table is checked only between chunks.
                let block_size = (each / 64).clamp(64 << 10, BLOCK_SIZE as u64);
                (each.saturating_sub(2 * block_size) as usize, block_size as usize)
            }
        };
        WorkerMemory { share, block_size, dir, runs: Mutex::new(Vec::new()) }
    }

    /// Sees to it that the pieces of a text of this size fit into the table.
    fn make(&self, table: &mut Table<u64>, text_size: usize, job: &Job) -> Result<()> {
        if table.heap_bytes_after(text_size) <= self.share {
            return Ok(());
        }
        if !table.is_empty() {
            let run = spill::spill(table, self.dir, job)?;
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        }
        // Emptied, it keeps its memory; unless that itself is too much.
        if table.heap_bytes_after(text_size) > self.share {
            *table = Table::default();
        }
        Ok(())
    }

    /// Refuses a block that cannot even be read.
    fn check(&self, block: &Block<'_>, inputs: &Inputs) -> Result<()> {
        let most = (self.share / 2).max(4 * self.block_size) as u64;
        if block.size() <= most {
            return Ok(());
        }
        let name = inputs.list.get(block.number).map_or("", |input| &input.name);
        Err(Error::config(format!(
            "{name}: {} in a row that the pattern does not let be cut, too much for the memory \
             limit",
            megabytes(block.size())
        ))
        .with_hint(
            "raise the memory limit, or split the file; a regular expression can only be cut at \
             special tokens, a named pattern (gpt2, cl100k, o200k) at most places",
        ))
    }

    fn into_runs(self) -> Vec<DiskRun> {
        self.runs.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next stretch of the texts: a whole text, or part of a long one.
fn next_of_texts<'t>(
    texts: &[&'t [u8]],
    queue: &Mutex<(usize, usize)>,
    cutter: &Cutter,
    block_size: usize,
) -> Option<&'t [u8]> {
    let mut place = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, start) = *place;
    let text = *texts.get(index)?;
    let rest = &text[start..];
    // Each claim searches on from where the last one ended, so texts without cuts cost one pass.
    let end = if rest.len() <= block_size {
        rest.len()
    } else {
        cutter.cut_after(rest, block_size, true).unwrap_or(rest.len())
    };
    *place = if end == rest.len() { (index + 1, 0) } else { (index, start + end) };
    Some(&rest[..end])
}

#[cfg(test)]
mod tests;
