//! Pieces → counts.
//!
//! Every worker counts into a table of its own; the tables are added up at the end, so the result
//! does not depend on which worker counted what. Counts are 64-bit. Time is linear in the text; each
//! table holds the distinct pieces that its worker has seen.
//!
//! Under a memory limit each worker has a share. A table that would outgrow it is written to disk
//! as a sorted run and emptied; at the end the runs are merged, as streams, into one. The pieces and
//! their counts are the same either way.
//!
//! - `counter`: the loop of a worker, and its share of the memory
//! - `sorted`, `record`, `spill`: counts in byte order, in memory and on disk
//! - `file`: counts files
//! - `results`: totals, sums, files, and the list that merging starts from
//! - `stats`: totals, and the memory that merging will need

mod counter;
mod file;
mod record;
mod results;
mod sorted;
mod spill;
mod stats;

pub use counter::{BLOCK_SIZE, Limit};
pub use results::Cursor;
pub use sorted::{PieceList, SortedCounts, for_each};
pub use stats::Stats;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::error::Result;
use crate::base::job::Job;
use crate::base::table::Table;
use crate::base::threads;
use crate::corpus::{AnyOrder, BlockBuffers, BlockText, Context, Input, Inputs, Skipped};
use crate::text::cutter::Cutter;
use counter::{Counter, WorkerMemory};
use spill::{DiskRun, SpillDir, sweep};

/// How often each piece occurs in a corpus.
#[derive(Debug)]
pub struct Counts {
    cutter: Cutter,
    /// One table per worker; the first holds the sum of earlier counts.
    tables: Vec<Table<u64>>,
    /// Spilled tables, and counts files that were added.
    runs: Vec<DiskRun>,
    dir: Arc<SpillDir>,
    limit: Option<Limit>,
    /// None if something was added since they were computed.
    stats: Option<Stats>,
    bytes_read: u64,
    skipped: Skipped,
}

impl Counts {
    /// Empty counts for `threads` workers.
    pub fn new(cutter: Cutter, threads: usize) -> Self {
        let tables = (0..threads.max(1)).map(|_| Table::default()).collect();
        Counts {
            cutter,
            tables,
            runs: Vec::new(),
            dir: Arc::new(SpillDir::new(std::env::temp_dir())),
            limit: None,
            stats: None,
            bytes_read: 0,
            skipped: Skipped::default(),
        }
    }

    /// Sets the memory limit from now on.
    pub fn set_limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
    }

    /// Sets the directory in which the directory of runs is created.
    pub fn set_spill_dir(&mut self, directory: PathBuf) {
        sweep(&directory);
        // Existing runs keep theirs.
        self.dir = Arc::new(SpillDir::new(directory));
    }

    /// Bytes of text counted, special tokens included.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Skipped records, by reason.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

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

    /// Only counts with the same fingerprint can be added up.
    pub fn fingerprint(&self) -> String {
        file::fingerprint(&self.pattern(), &self.special_tokens())
    }

    /// Counts a corpus. After an error the counts are incomplete and must be dropped.
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
        // A corpus of one block is not worth a thread; but the size of compressed text is unknown.
        let known = inputs.list.iter().all(Input::is_measured);
        let n_blocks = (total / block_size as u64 + 1).max(inputs.list.len() as u64) as usize;
        let workers = if known { tables.len().min(n_blocks) } else { tables.len() };
        let (counted, all_skipped) = (AtomicU64::new(0), Mutex::new(Skipped::default()));
        threads::for_each(&mut tables[..workers], |table, failed| {
            let _job = job.on_this_thread();
            let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
            while !failed.load(Relaxed)
                && let Some(mut block) = reader.next()?
            {
                job.check()?;
                memory.check(&block, inputs)?;
                memory.make_room(table, block.size() as usize, job)?;
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
            all_skipped.lock().unwrap_or_else(PoisonError::into_inner).take(&mut skipped);
            Ok(())
        })?;
        job.read_all();
        runs.append(&mut memory.into_runs());
        *bytes_read += counted.into_inner();
        skipped.take(&mut all_skipped.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }

    /// Counts texts; no piece spans two of them.
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
                && let Some(block) = next_text_block(texts, &queue, cutter, memory.block_size)
            {
                job.check()?;
                memory.make_room(table, block.len(), job)?;
                Counter::new(table).add(cutter, block, job)?;
                job.read(block.len() as u64, block.len() as u64);
            }
            Ok(())
        })?;
        runs.append(&mut memory.into_runs());
        *bytes_read += total as u64;
        Ok(())
    }
}

/// The next block of the texts: a whole text, or a range of a long one.
fn next_text_block<'t>(
    texts: &[&'t [u8]],
    queue: &Mutex<(usize, usize)>,
    cutter: &Cutter,
    block_size: usize,
) -> Option<&'t [u8]> {
    let mut next = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, start) = *next;
    let text = *texts.get(index)?;
    let rest = &text[start..];
    // Each call searches from where the last one ended, so texts without cuts cost one pass.
    let end = if rest.len() <= block_size {
        rest.len()
    } else {
        cutter.cut_after(rest, block_size, true).unwrap_or(rest.len())
    };
    *next = if end == rest.len() { (index + 1, 0) } else { (index, start + end) };
    Some(&rest[..end])
}

#[cfg(test)]
mod tests;
