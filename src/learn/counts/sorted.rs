//! Counted pieces: as a list, and as cursors in byte order that are merged into one.

use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::memory::reserve;
use crate::base::table::TableRun;

/// Pieces between two checks for cancellation: far less than a tenth of a second.
const CHECK_EVERY: u64 = 1 << 14;

/// A cursor over pieces in byte order with their counts.
pub trait SortedCounts {
    /// Moves to the next piece, at first to the first one; false at the end.
    fn advance(&mut self) -> Result<bool>;
    /// The current piece.
    fn piece(&self) -> &[u8];
    /// The count of the current piece.
    fn count(&self) -> u64;
}

impl<S: SortedCounts + ?Sized> SortedCounts for Box<S> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn piece(&self) -> &[u8] {
        (**self).piece()
    }

    fn count(&self) -> u64 {
        (**self).count()
    }
}

impl SortedCounts for TableRun<'_, u64> {
    fn advance(&mut self) -> Result<bool> {
        Ok(TableRun::advance(self))
    }

    fn piece(&self) -> &[u8] {
        TableRun::piece(self)
    }

    fn count(&self) -> u64 {
        self.value()
    }
}

/// The merge of several sources: counts of the same piece are added up. A binary heap of the sources
/// makes each step O(log n) comparisons.
#[derive(Debug)]
pub struct Merged<S> {
    /// A heap: no source is greater than its children, at 2 i + 1 and 2 i + 2.
    sources: Vec<S>,
    piece: Vec<u8>,
    count: u64,
}

impl<S: SortedCounts> Merged<S> {
    pub fn new(sources: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut begun = Vec::new();
        for mut source in sources {
            if source.advance()? {
                begun.push(source);
            }
        }
        // A sorted list is a heap.
        begun.sort_by(|a, b| a.piece().cmp(b.piece()));
        Ok(Merged { sources: begun, piece: Vec::new(), count: 0 })
    }

    /// Advances the first source and restores the heap.
    fn step(&mut self) -> Result<()> {
        if !self.sources[0].advance()? {
            self.sources.swap_remove(0);
        }
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.sources.len()
                    && self.sources[child].piece() < self.sources[least].piece()
                {
                    least = child;
                }
            }
            if least == at {
                return Ok(());
            }
            self.sources.swap(at, least);
            at = least;
        }
    }
}

impl<S: SortedCounts> SortedCounts for Merged<S> {
    fn advance(&mut self) -> Result<bool> {
        let Some(first) = self.sources.first() else { return Ok(false) };
        self.piece.clear();
        self.piece.extend_from_slice(first.piece());
        self.count = 0;
        while let Some(first) = self.sources.first() {
            if first.piece() != self.piece {
                break;
            }
            self.count = self.count.checked_add(first.count()).ok_or_else(too_many)?;
            self.step()?;
        }
        Ok(true)
    }

    fn piece(&self) -> &[u8] {
        &self.piece
    }

    fn count(&self) -> u64 {
        self.count
    }
}

/// The remedy for a damaged counts file.
pub const MAKE_AGAIN: &str =
    "the file is damaged or incomplete; create it again with bytemill count";

/// The error for a sum of counts beyond 63 bits, which only forged files reach.
pub fn too_many() -> Error {
    Error::corpus("the counts add up to more than 2^63").with_hint(MAKE_AGAIN)
}

/// Calls `visit` for every piece of a source.
pub fn for_each(
    source: &mut impl SortedCounts,
    job: &Job,
    mut visit: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut seen = 0u64;
    while source.advance()? {
        visit(source.piece(), source.count())?;
        seen += 1;
        if seen.is_multiple_of(CHECK_EVERY) {
            job.check()?;
        }
    }
    Ok(())
}

/// Pieces with their counts: all bytes in one buffer, and 24 bytes per piece.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PieceList {
    bytes: Vec<u8>,
    /// (start, end in `bytes`, count)
    entries: Vec<(usize, usize, u64)>,
}

impl PieceList {
    pub fn with_capacity(n_pieces: usize, n_bytes: usize) -> Self {
        let mut list = PieceList::default();
        reserve(&mut list.bytes, n_bytes);
        reserve(&mut list.entries, n_pieces);
        list
    }

    pub fn push(&mut self, piece: &[u8], count: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(piece);
        self.entries.push((start, self.bytes.len(), count));
    }

    pub fn append(&mut self, other: &PieceList) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let moved = other.entries.iter().map(|&(start, end, n)| (start + before, end + before, n));
        self.entries.extend(moved);
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A piece and its count.
    pub fn entry(&self, index: usize) -> (&[u8], u64) {
        let (start, end, count) = self.entries[index];
        (&self.bytes[start..end], count)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u64)> {
        self.entries.iter().map(|&(start, end, count)| (&self.bytes[start..end], count))
    }

    /// Sorts the pieces in byte order.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| bytes[a.0..a.1].cmp(&bytes[b.0..b.1]));
    }
}
