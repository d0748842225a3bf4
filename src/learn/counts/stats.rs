//! What is known of counts as a whole, and what merging them will need.
//!
//! Merging needs memory in proportion to the pieces that go into it, and there is no doing it on
//! disk. So the need is added up while counts are gathered, by how often pieces occur: if it is
//! too much, the least `min_piece_count` with which it would fit is known at once.

use super::sorted::too_many;
use crate::base::error::{Error, Result};

/// Bytes of memory that merging takes for every byte of every piece: slots, positions, pair
/// tables, the list of pieces.
pub const MERGE_BYTES_PER_BYTE: u64 = 12;
/// And for every piece.
pub const MERGE_BYTES_PER_PIECE: u64 = 28;
/// Pieces longer than this count twice: only in these can a pair stand nearly everywhere, and what
/// is found beside it takes room too.
const LONG: usize = 256;
/// And in any case.
pub const MERGE_BYTES: u64 = 4 << 20;

/// Counts up to this have a bin of their own, those above share one with their power of two.
const EXACT: u64 = 1 << 10;

/// Totals of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// How many different pieces there are.
    pub n_pieces: u64,
    /// Their lengths together.
    pub n_bytes: u64,
    /// Their counts together.
    pub total: u64,
    /// (pieces, bytes, those of long ones twice) by how often they occur.
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
    /// Takes up a piece.
    pub fn add(&mut self, piece: &[u8], count: u64) -> Result<()> {
        self.n_pieces += 1;
        self.n_bytes += piece.len() as u64;
        // Sums of counts are signed in places.
        let total = self.total.checked_add(count).filter(|&total| total <= i64::MAX as u64);
        self.total = total.ok_or_else(too_many)?;
        let (pieces, bytes) = &mut self.bins[bin(count)];
        *pieces += 1;
        *bytes += piece.len() as u64 * if piece.len() > LONG { 2 } else { 1 };
        Ok(())
    }

    /// Takes up what other counts hold, of other pieces.
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

    /// An estimate of the memory that merging pieces of at least this count needs. In a bin of
    /// several counts all are taken to be in.
    pub fn merge_need(&self, min_piece_count: u64) -> u64 {
        let (pieces, bytes) = self.at_least(min_piece_count);
        need(pieces, bytes)
    }

    /// How many pieces of at least this count there are, and their bytes, those of long ones twice;
    /// with counts of a shared bin, at most.
    pub fn at_least(&self, count: u64) -> (u64, u64) {
        let bins = &self.bins[bin(count)..];
        bins.iter().fold((0, 0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1))
    }

    /// The least `min_piece_count` with which merging fits into `limit`, if there is one.
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

    /// Refuses what cannot be merged in `available` bytes; `limit` is what the user knows of.
    pub fn check(&self, min_piece_count: u64, available: u64, limit: u64) -> Result<()> {
        let need = self.merge_need(min_piece_count);
        if need <= available {
            return Ok(());
        }
        let used = limit.saturating_sub(available);
        let error = Error::config(format!(
            "merging needs about {} of memory, {} with what is in use already; the limit is {}",
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

/// A size for people, as the Python side writes it.
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
    fn counts_beyond_all_bounds_are_refused() {
        let mut stats = stats(&[(1, i64::MAX as u64)]);
        assert!(stats.add(b"a", 1).is_err());
    }
}
