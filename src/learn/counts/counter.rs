//! A worker: block → table, within its share of the memory limit.
//!
//! Time is linear in the text. A table that outgrows its share is written to disk as a sorted run.

use std::sync::{Arc, Mutex, PoisonError};

use super::spill::{self, DiskRun, SpillDir};
use super::stats::megabytes;
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::table::Table;
use crate::corpus::{Block, Inputs};
use crate::text::cutter::Cutter;
use crate::text::keys::PieceBatch;
use crate::text::specials::Segment;

/// The approximate size of a block in bytes: small enough for the second-level cache and for an even
/// load on threads, large enough that the cost per block does not matter.
pub const BLOCK_SIZE: usize = 1 << 20;

/// The share of a memory limit reserved for anything but tables: stacks, buffers of runs.
const RESERVED_BYTES: u64 = 8 << 20;

/// A limit on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes that may be used beyond what the process already uses.
    pub available: u64,
    /// The limit that the user set, for messages.
    pub total: u64,
}

/// Counts pieces into the table of one worker.
pub struct Counter<'a> {
    table: &'a mut Table<u64>,
    pieces: PieceBatch,
}

impl<'a> Counter<'a> {
    pub fn new(table: &'a mut Table<u64>) -> Self {
        Counter { table, pieces: PieceBatch::default() }
    }

    pub fn add(&mut self, cutter: &Cutter, text: &[u8], job: &Job) -> Result<()> {
        cutter.specials.segments(text, |segment| match segment {
            Segment::Plain(_, plain) => self.add_plain(cutter, plain, job),
            Segment::Special(_) => Ok(()),
        })
    }

    fn add_plain(&mut self, cutter: &Cutter, text: &[u8], job: &Job) -> Result<()> {
        let Counter { table, pieces } = self;
        let mut from = 0;
        let mut batches = 0u32;
        while from < text.len() {
            let mut start = from;
            from = pieces.next(&cutter.pattern, text, from, |hash| table.prefetch(hash))?;
            for piece in pieces.all() {
                if piece.is_long() {
                    *table.long_entry(&text[start..piece.end]) += 1;
                } else {
                    *table.entry(piece.key, piece.hash) += 1;
                }
                start = piece.end;
            }
            // A text that cannot be cut may be one block of gigabytes.
            batches += 1;
            if batches.is_multiple_of(1024) {
                job.check()?;
            }
        }
        Ok(())
    }
}

/// The memory of the workers, and where they spill.
pub struct WorkerMemory<'a> {
    /// The limit of each worker's table, in bytes.
    share: usize,
    pub block_size: usize,
    dir: &'a Arc<SpillDir>,
    runs: Mutex<Vec<DiskRun>>,
}

impl<'a> WorkerMemory<'a> {
    pub fn new(limit: Option<Limit>, threads: usize, dir: &'a Arc<SpillDir>) -> Self {
        let (share, block_size) = match limit {
            None => (usize::MAX, BLOCK_SIZE),
            Some(limit) => {
                let each = limit.available.saturating_sub(RESERVED_BYTES) / threads as u64;
                // A block is read whole, and the size of the table is checked only between blocks.
                let block_size = (each / 64).clamp(64 << 10, BLOCK_SIZE as u64);
                (each.saturating_sub(2 * block_size) as usize, block_size as usize)
            }
        };
        WorkerMemory { share, block_size, dir, runs: Mutex::new(Vec::new()) }
    }

    /// Spills the table if the pieces of a text of this size might not fit into it.
    pub fn make_room(&self, table: &mut Table<u64>, text_size: usize, job: &Job) -> Result<()> {
        if table.heap_bytes_after(text_size) <= self.share {
            return Ok(());
        }
        if !table.is_empty() {
            let run = spill::spill(table, self.dir, job)?;
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        }
        // An emptied table keeps its memory, unless that alone is too much.
        if table.heap_bytes_after(text_size) > self.share {
            *table = Table::default();
        }
        Ok(())
    }

    /// An error if a block is too large to be read.
    pub fn check(&self, block: &Block<'_>, inputs: &Inputs) -> Result<()> {
        let most = (self.share / 2).max(4 * self.block_size) as u64;
        if block.size() <= most {
            return Ok(());
        }
        let name = inputs.list.get(block.number).map_or("", |input| &input.name);
        Err(Error::config(format!(
            "{name}: {} without a position at which the split pattern allows a cut, too much for \
             the memory limit",
            megabytes(block.size())
        ))
        .with_hint(
            "raise the memory limit, split the file, or use a named pattern (gpt2, cl100k, o200k): \
             with a regular expression, text is only cut at special tokens",
        ))
    }

    pub fn into_runs(self) -> Vec<DiskRun> {
        self.runs.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
