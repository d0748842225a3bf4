//! Many sorted sources → one, adding up the counts of what is in several.

use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::table::SortedRun;

/// Records between two looks at whether to go on: far below a tenth of a second.
const CHECK_EVERY: u64 = 1 << 14;

/// Pieces in byte order with their counts.
pub trait Source {
    /// Goes to the next piece, the first one to begin with; false if there is none.
    fn advance(&mut self) -> Result<bool>;
    /// The present piece.
    fn piece(&self) -> &[u8];
    /// Its count.
    fn count(&self) -> u64;
}

impl<S: Source + ?Sized> Source for Box<S> {
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

impl Source for SortedRun<'_, u64> {
    fn advance(&mut self) -> Result<bool> {
        Ok(SortedRun::advance(self))
    }

    fn piece(&self) -> &[u8] {
        SortedRun::piece(self)
    }

    fn count(&self) -> u64 {
        self.value()
    }
}

/// Several sources as one.
#[derive(Debug)]
pub struct Merged<S> {
    /// A heap: each is not greater than its two children, at 2 i + 1 and 2 i + 2.
    sources: Vec<S>,
    piece: Vec<u8>,
    count: u64,
}

impl<S: Source> Merged<S> {
    /// The pieces of all of these.
    pub fn new(sources: impl IntoIterator<Item = S>) -> Result<Self> {
        let mut begun = Vec::new();
        for mut source in sources {
            if source.advance()? {
                begun.push(source);
            }
        }
        // Sorted is a heap.
        begun.sort_by(|a, b| a.piece().cmp(b.piece()));
        Ok(Merged { sources: begun, piece: Vec::new(), count: 0 })
    }

    /// Moves the first source on, and to its place.
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

impl<S: Source> Source for Merged<S> {
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

/// The error of counts beyond what numbers hold, which only made-up files reach.
pub fn too_many() -> Error {
    Error::corpus("the counts add up to more than 2^63").with_hint(super::file::MAKE_AGAIN)
}

/// Calls `visit` with all that a source gives.
pub fn for_each(
    source: &mut impl Source,
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
