//! The ends of records in bytes: newlines in JSON lines, any string in text.
//!
//! Separators are those of a scan from the front, in which none overlaps the one before: `aaa` contains
//! one `aa`. A position in the middle of a source has the same separators around it, because the scan is
//! started where no occurrence can reach across: nearly always just before the position. Only in a run
//! of overlapping occurrences (empty lines, if the separator is an empty line) it is started at the
//! beginning of the run. Time is linear in the distance to the next separator, and to that beginning.

use memchr::memmem::Finder;
use memchr::{memchr_iter, memrchr};

use super::bytes::read_range;
use super::inputs::Storage;
use super::kind::FileFormat;
use super::reading::Reading;
use crate::base::error::Result;

/// Bytes that are read first when searching a separator; doubled until one is found.
const FIRST_WINDOW: u64 = 16 << 10;
/// The most bytes that are read at a time.
const MAX_WINDOW: u64 = 8 << 20;

#[derive(Debug)]
pub(super) struct Separator<'s> {
    finder: Finder<'s>,
}

impl<'s> Separator<'s> {
    pub const NEWLINE: &'static [u8] = b"\n";

    /// `text` must not be empty.
    pub fn new(text: &'s [u8]) -> Self {
        Separator { finder: Finder::new(text) }
    }

    /// What ends the records of a file; None if it is running text, or its records have another form.
    pub fn of(format: FileFormat, reading: &'s Reading) -> Option<Self> {
        match format {
            FileFormat::Jsonl => Some(Separator::new(Self::NEWLINE)),
            FileFormat::Text => reading.separator.as_deref().map(Separator::new),
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        self.finder.needle().len()
    }

    /// The ends of the separators in text at whose start a record begins.
    pub fn ends<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = usize> + 't {
        self.finder.find_iter(text).map(|start| start + self.len())
    }

    /// The end of the first separator in such text.
    pub fn first_end(&self, text: &[u8]) -> Option<usize> {
        self.ends(text).next()
    }

    /// The end of the last separator in such text.
    pub fn last_end(&self, text: &[u8]) -> Option<usize> {
        match self.finder.needle() {
            [byte] => memrchr(*byte, text).map(|at| at + 1),
            _ => self.ends(text).last(),
        }
    }

    /// The number of separators in such text.
    pub fn count(&self, text: &[u8]) -> u64 {
        match self.finder.needle() {
            [byte] => memchr_iter(*byte, text).count() as u64,
            _ => self.ends(text).count() as u64,
        }
    }

    /// The end of the first separator that ends at or after `from`, if a record begins at `start`. If
    /// there is none up to `limit`, that or the end of the storage, and whether it is the latter.
    pub fn end_from(
        &self,
        storage: &dyn Storage,
        start: u64,
        from: u64,
        limit: u64,
    ) -> Result<(u64, bool)> {
        let (length, size) = (self.len() as u64, storage.size());
        let mut at = self.scan_start(storage, start, from.saturating_sub(length).max(start))?;
        let (mut window, mut width) = (Vec::new(), FIRST_WINDOW.max(4 * length));
        loop {
            let upto = at.saturating_add(width).min(size).min(limit);
            if at >= upto {
                return Ok((upto, upto == size));
            }
            read_range(storage, at, upto, &mut window)?;
            let mut passed = 0;
            for end in self.ends(&window) {
                if at + end as u64 >= from {
                    return Ok((at + end as u64, true));
                }
                passed = end as u64;
            }
            if upto == size.min(limit) {
                return Ok((upto, upto == size));
            }
            // The window may end inside a separator.
            at = (at + passed).max(upto - (length - 1));
            width = (width * 2).min(MAX_WINDOW.max(4 * length));
        }
    }

    /// The last position ≤ `at` that no occurrence spans, or `start`: from there on, the separators are
    /// those of a scan from `start`.
    fn scan_start(&self, storage: &dyn Storage, start: u64, mut at: u64) -> Result<u64> {
        let reach = self.len() as u64 - 1;
        let (mut window, mut width) = (Vec::new(), (4 * reach).max(64));
        while reach > 0 && at > start {
            let first = at.saturating_sub(width).max(start);
            read_range(storage, first, (at + reach).min(storage.size()), &mut window)?;
            // As far back as the window has every occurrence that may span the position.
            while at > start && (at - first >= reach || first == start) {
                let from = at.saturating_sub(reach).max(first);
                let upto = ((at + reach - first) as usize).min(window.len());
                match self.finder.find(&window[(from - first) as usize..upto]) {
                    Some(n) => at = from + n as u64,
                    None => return Ok(at),
                }
            }
            width = (width * 2).min(MAX_WINDOW.max(4 * reach));
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::bytes::LocalFile;
    use super::*;

    /// A search from any position finds the separators of a scan from the front, also in runs longer than
    /// a window.
    #[test]
    fn any_position_has_the_separators_of_the_whole() {
        let part = prop_oneof![
            4 => "[ab]{0,6}",
            1 => (60usize..200).prop_map(|n| "a".repeat(n)),
            1 => (60usize..200).prop_map(|n| "ab".repeat(n)),
        ];
        let text = prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat());
        let separator = prop_oneof!["[ab]{1,5}", (20usize..80).prop_map(|n| "a".repeat(n))];
        let file = tempfile::NamedTempFile::new().unwrap();
        proptest!(|(text in text, separator in separator, limit in any::<Option<u8>>())| {
            std::fs::write(file.path(), &text).unwrap();
            let storage = LocalFile::open(file.path()).unwrap();
            let separator = separator.as_bytes();
            let (mut ends, mut at) = (Vec::new(), 0);
            while at < text.len() {
                if text.as_bytes()[at..].starts_with(separator) {
                    at += separator.len();
                    ends.push(at as u64);
                } else {
                    at += 1;
                }
            }
            let found = Separator::new(separator);
            let size = text.len() as u64;
            for from in 0..=size {
                let next = ends.iter().copied().find(|&end| end >= from);
                let limit = limit.map_or(u64::MAX, |more| from + u64::from(more));
                let expected = match next.filter(|&end| end <= limit) {
                    Some(end) => (end, true),
                    None => (size.min(limit), size <= limit),
                };
                for &start in [0].iter().chain(&ends).filter(|&&start| start <= from) {
                    // The separator that ends at `start` is not after it.
                    if start == from && start > 0 {
                        continue;
                    }
                    let got = found.end_from(&storage, start, from, limit).unwrap();
                    prop_assert_eq!(got, expected, "from {} of {}", from, start);
                }
            }
            let all: Vec<u64> = found.ends(text.as_bytes()).map(|end| end as u64).collect();
            prop_assert_eq!(found.count(text.as_bytes()), ends.len() as u64);
            prop_assert_eq!(found.last_end(text.as_bytes()).map(|end| end as u64), ends.last().copied());
            prop_assert_eq!(all, ends);
        });
    }
}
