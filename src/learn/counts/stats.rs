//! Totals of counts, and an estimate of the memory that merging them will need.
//!
//! Merging needs memory in proportion to its pieces, and cannot be done on disk. So the need is added
//! up by how often pieces occur while counts are merged: if it exceeds the limit, the smallest
//! `min_piece_count` that would fit is known at once. An earlier estimate of 24 bytes per byte was more
//! than twice too high (docs/performance.md).

use super::sorted::too_many;
use crate::base::error::{Error, Result};

/// Bytes of memory that merging takes per byte of each piece: slots, positions, pair tables, the list
/// of pieces.
pub const MERGE_BYTES_PER_BYTE: u64 = 12;
/// Further bytes per piece.
pub const MERGE_BYTES_PER_PIECE: u64 = 28;
/// Bytes of longer pieces count twice: only in these can a pair occur nearly everywhere, and its
/// neighbors take memory too.
const MAX_SINGLE_LENGTH: usize = 256;
/// Bytes in any case.
pub const MERGE_BYTES: u64 = 4 << 20;

/// Counts below this have bins of their own; those above share one per power of two.
const EXACT: u64 = 1 << 10;

/// Totals of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The number of distinct pieces.
    pub n_pieces: u64,
    /// The sum of their lengths.
    pub n_bytes: u64,
    /// The sum of their counts.
    pub total: u64,
    /// By count: (pieces, bytes), with the bytes of long pieces counted twice.
    bins: Vec<(u64, u64)>,
}

impl Default for Stats {
    fn default() -> Self {
        let bins = vec![(0, 0); bin(u64::MAX) + 1];
        Stats { n_pieces: 0, n_bytes: 0, total: 0, bins }
    }
}

fn bin(count: u64) -> usize {
    if count < EXACT { count as usize } else { (EXACT + u64::from(count.ilog2()) - 10) as usize }
}

/// The least count of a bin.
fn least_count(bin: usize) -> u64 {
    if (bin as u64) < EXACT { bin as u64 } else { 1 << (bin as u64 - EXACT + 10) }
}

fn need(n_pieces: u64, n_bytes: u64) -> u64 {
    let pieces = n_pieces.saturating_mul(MERGE_BYTES_PER_PIECE);
    let bytes = n_bytes.saturating_mul(MERGE_BYTES_PER_BYTE);
    pieces.saturating_add(bytes).saturating_add(MERGE_BYTES)
}

impl Stats {
    pub fn add(&mut self, piece: &[u8], count: u64) -> Result<()> {
        self.n_pieces += 1;
        self.n_bytes += piece.len() as u64;
        // Sums of counts are signed in places.
        let total = self.total.checked_add(count).filter(|&total| total <= i64::MAX as u64);
        self.total = total.ok_or_else(too_many)?;
        let (pieces, bytes) = &mut self.bins[bin(count)];
        *pieces += 1;
        *bytes += piece.len() as u64 * if piece.len() > MAX_SINGLE_LENGTH { 2 } else { 1 };
        Ok(())
    }

    /// Adds the totals of other pieces.
    pub fn join(&mut self, other: &Stats) -> Result<()> {
        self.n_pieces += other.n_pieces;
        self.n_bytes += other.n_bytes;
        let total = self.total.checked_add(other.total).filter(|&total| total <= i64::MAX as u64);
        self.total = total.ok_or_else(too_many)?;
        for (ours, theirs) in self.bins.iter_mut().zip(&other.bins) {
            ours.0 += theirs.0;
            ours.1 += theirs.1;
        }
        Ok(())
    }

    /// An estimate of the memory that merging pieces of at least this count needs, in bytes. Includes
    /// all pieces of a shared bin.
    pub fn merge_need(&self, min_piece_count: u64) -> u64 {
        let (pieces, bytes) = self.at_least(min_piece_count);
        need(pieces, bytes)
    }

    /// The number of pieces of at least this count, and their bytes, with those of long pieces counted
    /// twice; upper bounds in a shared bin.
    pub fn at_least(&self, count: u64) -> (u64, u64) {
        let bins = &self.bins[bin(count)..];
        bins.iter().fold((0, 0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1))
    }

    /// The smallest `min_piece_count` with which merging fits into `limit` bytes, if there is one.
    pub fn fitting_count(&self, limit: u64) -> Option<u64> {
        let (mut pieces, mut bytes) = (0, 0);
        let mut fitting = None;
        for (bin, &(n, length)) in self.bins.iter().enumerate().rev() {
            pieces += n;
            bytes += length;
            if need(pieces, bytes) > limit {
                break;
            }
            if pieces > 0 {
                fitting = Some(least_count(bin).max(1));
            }
        }
        fitting
    }

    /// An error if merging does not fit into `available` bytes; `limit` is the limit that the user set.
    pub fn check(&self, min_piece_count: u64, available: u64, limit: u64) -> Result<()> {
        let need = self.merge_need(min_piece_count);
        if need <= available {
            return Ok(());
        }
        let used = limit.saturating_sub(available);
        let error = Error::config(format!(
            "merging needs about {} of memory, {} including what is already in use; the limit is {}",
            megabytes(need),
            megabytes(need.saturating_add(used)),
            megabytes(limit)
        ));
        Err(match self.fitting_count(available) {
            Some(count) => error.with_hint(format!(
                "min_piece_count={count} drops rarer pieces and fits; or raise the memory limit"
            )),
            None => error.with_hint("raise the memory limit"),
        })
    }
}

/// A size as Python formats it.
pub fn megabytes(n: u64) -> String {
    let megabytes = n as f64 / 1e6;
    if megabytes < 999.5 {
        format!("{megabytes:.0} MB")
    } else {
        format!("{:.2} GB", megabytes / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(pieces: &[(usize, u64)]) -> Stats {
        let mut stats = Stats::default();
        for &(length, count) in pieces {
            stats.add(&vec![b'x'; length], count).unwrap();
        }
        stats
    }

    #[test]
    fn rarer_pieces_are_dropped_until_it_fits() {
        let stats = stats(&[(100_000, 1), (50_000, 3), (10, 7), (10, 5000), (10, 70_000)]);
        assert_eq!(stats.merge_need(1), need(5, 300_030));
        assert_eq!(stats.merge_need(2), need(4, 100_030));
        assert_eq!(stats.merge_need(8), need(2, 20));
        let fitting = |pieces, bytes| stats.fitting_count(need(pieces, bytes));
        assert_eq!(fitting(5, 300_030), Some(1));
        assert_eq!(fitting(5, 300_029), Some(2));
        assert_eq!(fitting(4, 100_029), Some(4));
        assert_eq!(fitting(2, 20), Some(8));
        // 70,000 is among those from 2^16 on.
        assert_eq!(fitting(1, 10), Some(8192));
        assert_eq!(fitting(0, 0), None);
        for least in [1, 2, 4, 8, 8192] {
            let limit = stats.merge_need(least);
            assert!(stats.fitting_count(limit).unwrap() <= least);
            stats.check(least, limit, limit).unwrap();
        }
        let error = stats.check(1, need(4, 100_030), 20_000_000).unwrap_err().to_string();
        assert!(error.contains("limit is 20 MB") && error.contains("min_piece_count=2"), "{error}");
    }

    #[test]
    fn sums_beyond_63_bits_are_refused() {
        let mut stats = stats(&[(1, i64::MAX as u64)]);
        assert!(stats.add(b"a", 1).is_err());
    }
}
