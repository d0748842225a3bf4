//! The loop of a worker: block → table.

use crate::base::error::Result;
use crate::base::job::Job;
use crate::base::table::Table;
use crate::text::cutter::Cutter;
use crate::text::keys::PieceBatch;
use crate::text::specials::Segment;

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
