//! One worker's loop: chunk → table.

use crate::corpus::Cutter;
use crate::error::Result;
use crate::job::Job;
use crate::pieces::{self, Key, PieceMap, SHORT};
use crate::specials::Segment;

/// Pieces whose keys are made before the first is looked up, so that its cache line is on the way.
const BATCH: usize = 256;

/// One worker: its table and what it reuses from chunk to chunk.
pub struct Counter<'a> {
    table: &'a mut PieceMap<u64>,
    ends: Vec<usize>,
    keys: Vec<(Key, u64)>,
}

impl<'a> Counter<'a> {
    /// A worker that counts into `table`.
    pub fn new(table: &'a mut PieceMap<u64>) -> Self {
        Counter { table, ends: Vec::new(), keys: Vec::new() }
    }

    /// Counts the pieces of a chunk.
    pub fn add(&mut self, cutter: &Cutter, text: &[u8], job: &Job) -> Result<()> {
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
            let mut n_keys = 0;
            if self.keys.len() < self.ends.len() {
                self.keys.resize(self.ends.len(), (0, 0));
            }
            for &end in &self.ends {
                if end - start <= SHORT {
                    let key = pieces::key(text, start, end);
                    let hash = pieces::hash(key);
                    self.table.prefetch(hash);
                    self.keys[n_keys] = (key, hash);
                    n_keys += 1;
                } else {
                    *self.table.long_entry(&text[start..end]) += 1;
                }
                start = end;
            }
            for &(key, hash) in &self.keys[..n_keys] {
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
