//! The memory of a table, and its entries in byte order without a second copy of them.
//!
//! Writing a table to disk because memory is short must not take more memory: its entries are moved to
//! the front and sorted in place, in O(n log n). They are sorted in runs of bounded length, so that a
//! canceled job stops in time; the reader merges the runs.

use super::key::{byte_order, key_bytes};
use super::{LongEntry, LongTable, ShortEntry, ShortTable, Table};
use crate::base::error::Result;
use crate::base::pages::{Pages, Zeroable};

/// Entries sorted between two checks for cancellation: about 50 ms.
const RUN_LENGTH: usize = 1 << 18;

/// The entries of a table, in runs, each in byte order.
#[derive(Debug)]
pub struct SortedEntries<V> {
    /// The first `n_short` are the short pieces, the others are free.
    short: Pages<ShortEntry<V>>,
    n_short: usize,
    long: Vec<LongEntry<V>>,
    arena: Vec<u8>,
}

/// A cursor over one run of [`SortedEntries`], in byte order.
#[derive(Debug)]
pub struct TableRun<'a, V> {
    entries: RunEntries<'a, V>,
    /// How many pieces were visited: the current one is the last of them.
    seen: usize,
    /// The current piece, if it is short.
    bytes: ([u8; 16], usize),
}

#[derive(Debug)]
enum RunEntries<'a, V> {
    Short(&'a [ShortEntry<V>]),
    Long(&'a [LongEntry<V>], &'a [u8]),
}

impl<V: Zeroable + Default> Table<V> {
    /// The memory that the table holds.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.short.entries)
            + size_of_val(&*self.long.entries)
            + self.long.arena.capacity()
    }

    /// The peak memory of the table while the pieces of a text of this size are added. Assumes that
    /// all pieces are new, and eight bytes long on average, or thirty-two if long: real text has far
    /// fewer new ones.
    pub fn heap_bytes_after(&self, text_size: usize) -> usize {
        // While a table moves into a larger one, both exist.
        let capacity = self.short.entries.len();
        let short = Some(super::table_size(self.short.len + text_size / 8 + 1))
            .filter(|&needed| needed > capacity)
            .map_or(capacity, |needed| needed + needed / 2);
        // The allocator may keep the smaller tables, which have no mapping of their own: together they
        // are as large as the last.
        let capacity = self.long.entries.len();
        let long = Some((2 * (self.long.len + text_size / 32) + 1).next_power_of_two())
            .filter(|&needed| needed > capacity)
            .map_or(capacity, |needed| 2 * needed);
        let arena = &self.long.arena;
        let arena = match arena.len() + text_size {
            needed if needed > arena.capacity() => arena.len() + needed.max(2 * arena.capacity()),
            _ => arena.capacity(),
        };
        short * size_of::<ShortEntry<V>>() + long * size_of::<LongEntry<V>>() + arena
    }

    /// The pieces in byte order, in the memory of the table. `check` is called after each run.
    pub fn into_sorted(self, check: impl Fn() -> Result<()>) -> Result<SortedEntries<V>> {
        let Table { short: ShortTable { entries: mut short, .. }, long } = self;
        let LongTable { entries: mut long, arena, .. } = long;
        let mut n_short = 0;
        for at in 0..short.len() {
            if short[at].key != 0 {
                short.swap(at, n_short);
                n_short += 1;
            }
        }
        check()?;
        long.retain(|entry| entry.length > 0);
        for run in short[..n_short].chunks_mut(RUN_LENGTH) {
            run.sort_unstable_by_key(|entry| byte_order(entry.key));
            check()?;
        }
        for run in long.chunks_mut(RUN_LENGTH) {
            let bytes = |entry: &LongEntry<V>| &arena[entry.start..entry.start + entry.length];
            run.sort_unstable_by(|a, b| bytes(a).cmp(bytes(b)));
            check()?;
        }
        Ok(SortedEntries { short, n_short, long, arena })
    }
}

impl<V: Zeroable + Default> SortedEntries<V> {
    pub fn runs(&self) -> Vec<TableRun<'_, V>> {
        let short = self.short[..self.n_short].chunks(RUN_LENGTH).map(RunEntries::Short);
        let long = self.long.chunks(RUN_LENGTH).map(|run| RunEntries::Long(run, &self.arena));
        short
            .chain(long)
            .map(|entries| TableRun { entries, seen: 0, bytes: ([0; 16], 0) })
            .collect()
    }

    /// An empty table in the same memory, so that it need not grow again.
    pub fn into_empty(self) -> Table<V> {
        let SortedEntries { mut short, n_short, mut long, mut arena } = self;
        short[..n_short].fill(ShortEntry { key: 0, value: V::default() });
        // A table's size is a power of two; the allocator may have given more.
        let capacity = floor_power_of_two(long.capacity());
        long.clear();
        long.resize(capacity, LongEntry::default());
        arena.clear();
        Table {
            short: ShortTable { entries: short, len: 0 },
            long: LongTable { entries: long, len: 0, arena },
        }
    }
}

fn floor_power_of_two(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

impl<V: Copy> TableRun<'_, V> {
    /// Moves to the next piece, at first to the first one; false if there is none.
    pub fn advance(&mut self) -> bool {
        let found = match self.entries {
            RunEntries::Short(entries) => match entries.get(self.seen) {
                Some(entry) => {
                    self.bytes = key_bytes(entry.key);
                    true
                }
                None => false,
            },
            RunEntries::Long(entries, _) => self.seen < entries.len(),
        };
        self.seen += usize::from(found);
        found
    }

    /// The current piece; [`TableRun::advance`] must have returned true.
    pub fn piece(&self) -> &[u8] {
        match self.entries {
            RunEntries::Short(_) => &self.bytes.0[..self.bytes.1],
            RunEntries::Long(entries, arena) => {
                let entry = &entries[self.seen - 1];
                &arena[entry.start..entry.start + entry.length]
            }
        }
    }

    /// The value of the current piece.
    pub fn value(&self) -> V {
        match self.entries {
            RunEntries::Short(entries) => entries[self.seen - 1].value,
            RunEntries::Long(entries, _) => entries[self.seen - 1].value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn sorted_in_place_and_empty_again(pieces in prop::collection::vec(
            prop_oneof![prop::collection::vec(0u8..3, 1..6), prop::collection::vec(0u8..2, 14..40)],
            0..3000,
        )) {
            let mut map = Table::<u64>::default();
            let mut expected = BTreeMap::<Vec<u8>, u64>::new();
            for _ in 0..2 {
                let mut most = 0;
                for piece in &pieces {
                    most = most.max(map.heap_bytes_after(8 * piece.len().max(8)));
                    *map.value_mut(piece) += 1;
                    prop_assert!(map.heap_bytes() <= most);
                    *expected.entry(piece.clone()).or_default() += 1;
                }
                let sorted = map.into_sorted(|| Ok(())).unwrap();
                let mut short = Vec::new();
                let mut long = Vec::new();
                for mut run in sorted.runs() {
                    while run.advance() {
                        let is_short = run.piece().len() <= super::super::SHORT;
                        let list = if is_short { &mut short } else { &mut long };
                        list.push((run.piece().to_vec(), run.value()));
                    }
                }
                prop_assert!(short.is_sorted() && long.is_sorted());
                short.append(&mut long);
                short.sort();
                prop_assert_eq!(short, expected.iter().map(|(p, &n)| (p.clone(), n)).collect::<Vec<_>>());
                map = sorted.into_empty();
                prop_assert!(map.is_empty());
                expected.clear();
            }
        }
    }
}
