//! Results of counting: totals, pieces in order, files, sums, and the list that merging starts from.
//!
//! Before any of these, counts are *consolidated*: all in the first table, or all in one sorted run.
//! The list for merging skips that if possible, because looking a piece up in the other tables is
//! cheaper than adding tables up (docs/performance.md).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

use super::file::{self, FileSource, Header};
use super::sorted::{self, MAKE_AGAIN, SortedCounts};
use super::spill::{self, DiskRun};
use super::{Counts, PieceList, Stats};
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::memory;
use crate::base::table::Table;
use crate::base::threads;
use crate::text::cutter::Cutter;

/// The memory that adding up tables needs, in multiples of their size: the tables, their growing sum,
/// and a list of the pieces.
const SUM_MEMORY_FACTOR: u64 = 4;

/// With more tables, looking every piece up in all others costs more than adding them up.
const MAX_LOOKUP_TABLES: usize = 2;

impl Counts {
    /// Opens a counts file, which stays on disk and is read again when needed. It is read once here,
    /// so that damage is found now.
    pub fn open(path: &Path, threads: usize, job: &Job) -> Result<Self> {
        let mut source = FileSource::open(path, Some(job))?;
        let name = path.display().to_string();
        let size = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len();
        job.set_total(size);
        let header = source.header().clone();
        let mut stats = Stats::default();
        sorted::for_each(&mut source, job, |piece, count| {
            stats.add(piece, count).map_err(|error| error.in_file(&name))
        })?;
        if stats.total != header.total {
            return Err(Error::corpus(format!("{name}: the counts do not add up to their total"))
                .with_hint(MAKE_AGAIN));
        }
        let cutter = Cutter::new(&header.pattern, &header.special_tokens)
            .map_err(|error| error.blaming_file(Error::Corpus).in_file(&name))?;
        let mut counts = Counts::new(cutter, threads);
        counts.runs.push(DiskRun::of_file(path.to_owned(), header.n_pieces, size));
        counts.bytes_read = header.bytes_read;
        counts.skipped = header.skipped;
        counts.stats = Some(stats);
        Ok(counts)
    }

    /// Writes a counts file.
    pub fn save(&mut self, path: &Path, job: &Job) -> Result<()> {
        let stats = self.consolidate(job)?;
        let (n_pieces, total) = (stats.n_pieces, stats.total);
        let header = Header {
            pattern: self.pattern(),
            special_tokens: self.special_tokens(),
            fingerprint: self.fingerprint(),
            bytes_read: self.bytes_read,
            skipped: self.skipped.clone(),
            n_pieces,
            total,
        };
        file::write(path, &header, &mut self.cursor(job)?, job)
    }

    /// Adds other counts, of the same pattern and special tokens, without changing them.
    pub fn merge(&mut self, other: &mut Counts, job: &Job) -> Result<()> {
        self.refuse_other(other)?;
        other.consolidate(job)?;
        if other.runs.is_empty() {
            let table = &other.tables[0];
            if let Some(limit) = self.limit {
                let both = (table.heap_bytes() + self.heap_bytes()) as u64;
                if both * 2 > limit.available {
                    self.spill_tables(job)?;
                }
            }
            let mut overflow = false;
            let sum = &mut self.tables[0];
            table.for_each(|piece, n| {
                let value = sum.value_mut(piece);
                match value.checked_add(n) {
                    Some(both) => *value = both,
                    None => overflow = true,
                }
            });
            if overflow {
                return Err(sorted::too_many());
            }
        } else {
            self.runs.extend(other.runs.iter().cloned());
        }
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.skipped.take(&mut other.skipped.clone());
        self.stats = None;
        Ok(())
    }

    /// Adds a counts file, which moves to the spill directory and is deleted with these counts. Both
    /// must be on one file system.
    pub fn take_file(&mut self, path: &Path, job: &Job) -> Result<()> {
        let mut other = Counts::open(path, 1, job)?;
        self.refuse_other(&other)?;
        let runs = std::mem::take(&mut other.runs).into_iter();
        other.runs = runs.map(|run| run.take(&self.dir)).collect::<Result<_>>()?;
        self.merge(&mut other, job)
    }

    fn refuse_other(&self, other: &Counts) -> Result<()> {
        if self.fingerprint() == other.fingerprint() {
            return Ok(());
        }
        Err(Error::config(format!(
            "counts of {} cannot be merged with counts of {}",
            other.described(),
            self.described()
        ))
        .with_hint("count both with the same pattern and special tokens"))
    }

    /// Pattern and special tokens, for a message.
    fn described(&self) -> String {
        let specials = match &self.special_tokens()[..] {
            [] => "no special tokens".to_owned(),
            some => format!("special tokens {}", some.join(" ")),
        };
        format!("pattern {} and {specials}", self.pattern().join(" "))
    }

    /// Whether runs on disk must be merged to consolidate the counts.
    pub fn is_scattered(&self) -> bool {
        let in_memory = self.tables.iter().any(|table| !table.is_empty());
        self.runs.len() > 1 || (in_memory && (!self.runs.is_empty() || self.is_full()))
    }

    /// Whether the tables are too large to add up in memory.
    fn is_full(&self) -> bool {
        let held = self.heap_bytes() as u64;
        self.limit.is_some_and(|limit| held * SUM_MEMORY_FACTOR > limit.available)
    }

    pub fn stats(&mut self, job: &Job) -> Result<&Stats> {
        self.consolidate(job)
    }

    /// Every piece with its count, in byte order.
    pub fn sorted(&mut self, job: &Job) -> Result<PieceList> {
        self.consolidate(job)?;
        let mut list = self.list(1, job)?;
        list.sort();
        Ok(list)
    }

    /// The pieces with their counts, in byte order, one at a time.
    pub fn cursor(&mut self, job: &Job) -> Result<Cursor> {
        self.consolidate(job)?;
        if let [run, ..] = &self.runs[..] {
            return Ok(Cursor::Disk(run.open(None)?));
        }
        Ok(Cursor::Memory { list: self.sorted(job)?, seen: 0 })
    }

    /// The `n` most common pieces with their counts; of equal counts, the first in byte order.
    pub fn top(&mut self, n: usize, job: &Job) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut best = BinaryHeap::new();
        let mut cursor = self.cursor(job)?;
        sorted::for_each(&mut cursor, job, |piece, count| {
            let is_better = |worst: &Reverse<(u64, Reverse<Vec<u8>>)>| worst.0.0 < count;
            if best.len() < n || best.peek().is_some_and(is_better) {
                best.push(Reverse((count, Reverse(piece.to_vec()))));
                if best.len() > n {
                    best.pop();
                }
            }
            Ok(())
        })?;
        // Ascending in reversed counts: the most common first.
        let sorted = best.into_sorted_vec().into_iter();
        Ok(sorted.map(|Reverse((count, Reverse(piece)))| (piece, count)).collect())
    }

    /// The pieces to merge: those that occur at least `min_piece_count` times, in any order (byte order
    /// was not faster for merging than the order of the table). With `free`, the counts are dropped. An
    /// error if merging would not fit into the memory limit.
    pub fn pieces(&mut self, min_piece_count: u64, free: bool, job: &Job) -> Result<PieceList> {
        if free && self.runs.is_empty() && !self.is_scattered() {
            return self.take_pieces(min_piece_count);
        }
        let limit = self.limit;
        let stats = self.consolidate(job)?;
        if let Some(limit) = limit {
            stats.check(min_piece_count, limit.available, limit.total)?;
            let need = stats.merge_need(min_piece_count);
            if !free && need + self.heap_bytes() as u64 > limit.available {
                self.spill_tables(job)?;
                self.consolidate(job)?;
            }
        }
        let list = self.list(min_piece_count, job)?;
        if free {
            self.clear();
        }
        Ok(list)
    }

    /// The pieces of all tables, which are freed. The last few tables are not added up: looking a piece
    /// up in the others is cheaper than moving it there, and runs on all threads.
    fn take_pieces(&mut self, min_piece_count: u64) -> Result<PieceList> {
        let n_shares = self.tables.len();
        let n_tables = self.add_up()?;
        let tables = &self.tables[..n_tables];
        let mut shares: Vec<(usize, PieceList, Stats)> =
            (0..n_shares).map(|share| (share, PieceList::default(), Stats::default())).collect();
        threads::for_each(&mut shares, |(share, list, stats), _| {
            for (number, table) in tables.iter().enumerate() {
                let (before, after) = (&tables[..number], &tables[number + 1..]);
                let mut result = Ok(());
                table.for_each_of(*share, n_shares, |piece, count| {
                    // The first table that has a piece lists it.
                    if before.iter().any(|other| other.get(piece).is_some()) {
                        return;
                    }
                    let others = after.iter().filter_map(|other| other.get(piece));
                    let count = others.fold(count, u64::saturating_add);
                    if result.is_ok() {
                        result = stats.add(piece, count);
                    }
                    if count >= min_piece_count {
                        list.push(piece, count);
                    }
                });
                result?;
            }
            Ok(())
        })?;
        let mut shares = shares.into_iter();
        let Some((_, mut list, mut stats)) = shares.next() else { return Ok(PieceList::default()) };
        for (_, others, more) in shares {
            list.append(&others);
            stats.join(&more)?;
        }
        if let Some(limit) = self.limit {
            stats.check(min_piece_count, limit.available, limit.total)?;
        }
        self.clear();
        Ok(list)
    }

    /// Drops all counts, and frees memory and disk.
    pub fn clear(&mut self) {
        self.tables.iter_mut().for_each(|table| *table = Table::default());
        self.release_freed();
        self.runs.clear();
        self.dir.clear();
        self.stats = None;
    }

    fn heap_bytes(&self) -> usize {
        self.tables.iter().map(Table::heap_bytes).sum()
    }

    /// The consolidated counts as a list, in any order.
    fn list(&self, min_piece_count: u64, job: &Job) -> Result<PieceList> {
        if let [run, ..] = &self.runs[..] {
            let mut list = PieceList::default();
            if let Some(stats) = &self.stats {
                let (n_pieces, n_bytes) = stats.at_least(min_piece_count);
                list = PieceList::with_capacity(n_pieces as usize, n_bytes as usize);
            }
            sorted::for_each(&mut run.open(None)?, job, |piece, count| {
                if count >= min_piece_count {
                    list.push(piece, count);
                }
                Ok(())
            })?;
            return Ok(list);
        }
        let mut list = PieceList::default();
        self.tables[0].for_each(|piece, count| {
            if count >= min_piece_count {
                list.push(piece, count);
            }
        });
        Ok(list)
    }

    /// Moves all counts into the first table or one run, and returns their totals.
    fn consolidate(&mut self, job: &Job) -> Result<&Stats> {
        if self.is_scattered() {
            self.spill_tables(job)?;
        }
        if self.runs.len() > 1 {
            let (run, stats) = spill::gather(self.runs.clone(), &self.dir, job)?;
            self.runs = vec![run];
            self.stats = Some(stats);
        } else if self.runs.is_empty() {
            self.sum_tables();
        }
        let stats = match self.stats.take() {
            Some(stats) => stats,
            None => self.compute_stats(job)?,
        };
        Ok(self.stats.insert(stats))
    }

    fn compute_stats(&self, job: &Job) -> Result<Stats> {
        let mut stats = Stats::default();
        if let [run, ..] = &self.runs[..] {
            let mut source = run.open(None)?;
            sorted::for_each(&mut source, job, |piece, count| stats.add(piece, count))?;
            return Ok(stats);
        }
        let mut result = Ok(());
        self.tables[0].for_each(|piece, count| {
            if result.is_ok() {
                result = stats.add(piece, count);
            }
        });
        result.map(|()| stats)
    }

    /// Adds tables up in pairs, each on a thread, until the first few hold everything. Returns their
    /// number.
    fn add_up(&mut self) -> Result<usize> {
        let mut n_tables = self.tables.len();
        while n_tables > MAX_LOOKUP_TABLES {
            let half = n_tables.div_ceil(2);
            let (sums, others) = self.tables[..n_tables].split_at_mut(half);
            let mut pairs: Vec<_> = sums.iter_mut().zip(others).collect();
            threads::for_each(&mut pairs, |(sum, other), _| {
                other.for_each(|piece, n| *sum.value_mut(piece) += n);
                **other = Table::default();
                Ok(())
            })?;
            n_tables = half;
        }
        Ok(n_tables)
    }

    /// Adds all tables to the first.
    fn sum_tables(&mut self) {
        if let Some((sum, others)) = self.tables.split_first_mut() {
            for other in others {
                other.for_each(|piece, n| *sum.value_mut(piece) += n);
                *other = Table::default();
            }
        }
    }

    /// Writes all tables to disk and frees them.
    fn spill_tables(&mut self, job: &Job) -> Result<()> {
        let dir = Arc::clone(&self.dir);
        for table in &mut self.tables {
            if !table.is_empty() {
                self.runs.push(spill::spill(table, &dir, job)?);
            }
            *table = Table::default();
        }
        self.release_freed();
        Ok(())
    }

    fn release_freed(&self) {
        if self.limit.is_some() {
            memory::release_freed();
        }
    }
}

/// A cursor over counted pieces in byte order.
pub enum Cursor {
    Memory { list: PieceList, seen: usize },
    Disk(Box<dyn SortedCounts + Send + Sync>),
}

impl SortedCounts for Cursor {
    fn advance(&mut self) -> Result<bool> {
        match self {
            Cursor::Disk(source) => source.advance(),
            Cursor::Memory { list, seen } => {
                let found = *seen < list.len();
                *seen += usize::from(found);
                Ok(found)
            }
        }
    }

    fn piece(&self) -> &[u8] {
        match self {
            Cursor::Disk(source) => source.piece(),
            Cursor::Memory { list, seen } => list.entry(*seen - 1).0,
        }
    }

    fn count(&self) -> u64 {
        match self {
            Cursor::Disk(source) => source.count(),
            Cursor::Memory { list, seen } => list.entry(*seen - 1).1,
        }
    }
}
