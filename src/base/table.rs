//! The one general hash table: byte strings → values.
//!
//! Nearly all byte strings that bytemill looks up are short: 99.9 % of the pieces of English text,
//! and nearly all tokens, have at most 15 bytes. A string that short *is* its key: its bytes and its
//! length packed into 128 bits, made with one unaligned load and a mask. Key and value lie side by
//! side in a 32-byte entry, two to a cache line, and a string may be in either, so a lookup nearly
//! always touches one line. Longer strings are in an arena, indexed by a second table that stores their
//! full hash. Both tables use linear probing and are at most three quarters (short) or half (long)
//! full, so lookups take expected constant time.
//!
//! Keys are mixed with a seed drawn once per process, so no input can be made whose strings all collide.
//! Nothing that is written or returned may depend on the seed, or on the order of a table.
//!
//! Memory: 32 bytes per slot for values of up to 16 bytes, that is 43 to 85 bytes per short string.

mod key;
mod sorted_entries;

pub use key::{
    Key, SHORT, TOO_LONG, hash, key, key_bytes, key_inside, key_or_too_long, key_shapes, seed,
};
pub use sorted_entries::TableRun;

use key::hash_bytes;

use crate::base::memory::{filled, reserve};
use crate::base::pages::{Pages, Zeroable, prefetch};

/// Entries in a cache line.
const ENTRIES_PER_LINE: usize = 2;

#[repr(align(32))]
#[derive(Debug, Clone, Copy)]
struct ShortEntry<V> {
    /// 0 if the entry is free.
    key: Key,
    value: V,
}

// SAFETY: zeroed memory is key 0, a free entry, and a valid value, as `V` is `Zeroable`. An entry needs
// no drop, as it is `Copy`, and its alignment is 32 or that of `V`, which is at most 4096.
unsafe impl<V: Zeroable> Zeroable for ShortEntry<V> {}

/// Entries of a table of `n` short strings: at most three quarters full. A larger table would find
/// rare strings faster, but takes longer to allocate and fits the cache worse.
fn table_size(n: usize) -> usize {
    (n * 4 / 3 + 1).next_power_of_two()
}

/// Short strings and their values.
#[derive(Debug)]
struct ShortTable<V> {
    entries: Pages<ShortEntry<V>>,
    len: usize,
}

/// A longer string: its full hash, its bytes in the arena, its value. Free if `length` is 0.
#[derive(Debug, Clone, Copy, Default)]
struct LongEntry<V> {
    hash: u64,
    start: usize,
    length: usize,
    value: V,
}

/// Longer strings and their values.
#[derive(Debug)]
struct LongTable<V> {
    entries: Vec<LongEntry<V>>,
    len: usize,
    arena: Vec<u8>,
}

/// A map from byte strings to values.
#[derive(Debug)]
pub struct Table<V> {
    short: ShortTable<V>,
    long: LongTable<V>,
}

impl<V: Zeroable> ShortTable<V> {
    fn new(capacity: usize) -> Self {
        ShortTable { entries: Pages::new(capacity), len: 0 }
    }

    /// The first entry of the cache line that a hash belongs to.
    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.entries.len() - ENTRIES_PER_LINE)
    }

    /// The entry of a key, or the free entry where it would be inserted.
    fn slot(&self, key: Key, hash: u64) -> usize {
        let mut line = self.line(hash);
        // Terminates because the table is never full.
        loop {
            for at in line..line + ENTRIES_PER_LINE {
                if self.entries[at].key == key || self.entries[at].key == 0 {
                    return at;
                }
            }
            line = (line + ENTRIES_PER_LINE) & (self.entries.len() - 1);
        }
    }

    fn grow(&mut self) {
        let mut larger = ShortTable::new(self.entries.len() * 2);
        for entry in self.entries.iter().filter(|entry| entry.key != 0) {
            let at = larger.slot(entry.key, hash(entry.key));
            larger.entries[at] = *entry;
        }
        larger.len = self.len;
        *self = larger;
    }
}

impl<V: Zeroable + Default> LongTable<V> {
    fn new(capacity: usize) -> Self {
        LongTable { entries: filled(LongEntry::default(), capacity), len: 0, arena: Vec::new() }
    }

    fn bytes(&self, entry: &LongEntry<V>) -> &[u8] {
        &self.arena[entry.start..entry.start + entry.length]
    }

    fn slot(&self, string: &[u8], hash: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = &self.entries[at];
            if entry.length == 0 || (entry.hash == hash && self.bytes(entry) == string) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let larger = filled(LongEntry::default(), self.entries.len() * 2);
        let mask = larger.len() - 1;
        for entry in std::mem::replace(&mut self.entries, larger) {
            if entry.length > 0 {
                let mut at = entry.hash as usize & mask;
                while self.entries[at].length > 0 {
                    at = (at + 1) & mask;
                }
                self.entries[at] = entry;
            }
        }
    }
}

impl<V: Zeroable + Default> Default for Table<V> {
    fn default() -> Self {
        Table { short: ShortTable::new(1 << 10), long: LongTable::new(1 << 6) }
    }
}

impl<V: Zeroable + Default> Table<V> {
    /// A map with room for `n` short strings.
    pub fn with_room(n: usize) -> Self {
        Table { short: ShortTable::new(table_size(n).max(1 << 10)), ..Table::default() }
    }

    pub fn len(&self) -> usize {
        self.short.len + self.long.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches the entry of a short string.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.short.entries, self.short.line(hash));
    }

    pub fn get(&self, string: &[u8]) -> Option<V> {
        self.get_within(string, 0, string.len())
    }

    /// The value of `text[start..end]`. If sixteen bytes of text follow `start`, its key is made without
    /// a branch on the length.
    #[inline]
    pub fn get_within(&self, text: &[u8], start: usize, end: usize) -> Option<V> {
        if start == end {
            return None;
        }
        if end - start <= SHORT {
            let key = key(text, start, end);
            self.get_short(key, hash(key))
        } else {
            let string = &text[start..end];
            let entry = &self.long.entries[self.long.slot(string, hash_bytes(string))];
            (entry.length > 0).then_some(entry.value)
        }
    }

    /// The value of a short string.
    #[inline]
    pub fn get_short(&self, key: Key, hash: u64) -> Option<V> {
        let entry = &self.short.entries[self.short.slot(key, hash)];
        (entry.key == key).then_some(entry.value)
    }

    /// The value of a short string, inserted if missing.
    #[inline(always)]
    pub fn entry(&mut self, key: Key, hash: u64) -> &mut V {
        let line = self.short.line(hash);
        // Nearly always the string is in the first or second entry of its line: that choice is made
        // without a branch, because it could not be predicted.
        let second = self.short.entries[line + 1].key == key;
        let at = if (self.short.entries[line].key == key) | second {
            line + usize::from(second)
        } else {
            self.find_or_add(key, hash)
        };
        &mut self.short.entries[at].value
    }

    #[inline(never)]
    fn find_or_add(&mut self, key: Key, hash: u64) -> usize {
        let mut at = self.short.slot(key, hash);
        if self.short.entries[at].key == 0 {
            if table_size(self.short.len + 1) > self.short.entries.len() {
                self.short.grow();
                at = self.short.slot(key, hash);
            }
            self.short.entries[at].key = key;
            self.short.len += 1;
        }
        at
    }

    /// The value of a longer string, inserted if missing.
    pub fn long_entry(&mut self, string: &[u8]) -> &mut V {
        debug_assert!(string.len() > SHORT);
        let hash = hash_bytes(string);
        let mut at = self.long.slot(string, hash);
        if self.long.entries[at].length == 0 {
            if self.long.len * 2 >= self.long.entries.len() {
                self.long.grow();
                at = self.long.slot(string, hash);
            }
            let start = self.long.arena.len();
            reserve(&mut self.long.arena, string.len());
            self.long.arena.extend_from_slice(string);
            self.long.entries[at] =
                LongEntry { hash, start, length: string.len(), value: V::default() };
            self.long.len += 1;
        }
        &mut self.long.entries[at].value
    }

    /// The value of a non-empty string, inserted if missing.
    pub fn value_mut(&mut self, string: &[u8]) -> &mut V {
        if string.len() <= SHORT {
            let key = key(string, 0, string.len());
            self.entry(key, hash(key))
        } else {
            self.long_entry(string)
        }
    }

    /// Visits every string with its value, in no particular order.
    pub fn for_each(&self, visit: impl FnMut(&[u8], V)) {
        self.for_each_of(0, 1, visit);
    }

    /// [`Table::for_each`] for share `share` of `n_shares` of the table.
    pub fn for_each_of(&self, share: usize, n_shares: usize, mut visit: impl FnMut(&[u8], V)) {
        let range = |len: usize| len * share / n_shares..len * (share + 1) / n_shares;
        let short = &self.short.entries[range(self.short.entries.len())];
        for entry in short.iter().filter(|entry| entry.key != 0) {
            let (bytes, length) = key_bytes(entry.key);
            visit(&bytes[..length], entry.value);
        }
        let long = &self.long.entries[range(self.long.entries.len())];
        for entry in long.iter().filter(|entry| entry.length > 0) {
            visit(self.long.bytes(entry), entry.value);
        }
    }

    /// Visits every value, mutably.
    pub fn for_each_value(&mut self, mut visit: impl FnMut(&mut V)) {
        for entry in self.short.entries.iter_mut().filter(|entry| entry.key != 0) {
            visit(&mut entry.value);
        }
        for entry in self.long.entries.iter_mut().filter(|entry| entry.length > 0) {
            visit(&mut entry.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn keys_restore_their_strings() {
        let text: Vec<u8> = (0..40).collect();
        for start in 0..30 {
            for length in 1..=SHORT.min(text.len() - start) {
                let key = key(&text, start, start + length);
                let (bytes, n) = key_bytes(key);
                assert_eq!(&bytes[..n], &text[start..start + length]);
            }
        }
        for start in 0..text.len() - SHORT {
            assert_eq!(key_or_too_long(&text, start, start + SHORT + 1), TOO_LONG);
            assert_eq!(key_or_too_long(&text, start, text.len()), TOO_LONG);
        }
        // A zero byte is not the absence of one.
        assert_ne!(key(b"a\0", 0, 2), key(b"a", 0, 1));
    }

    /// The sum of the distances of all strings from the entry of their hash.
    fn steps(map: &Table<u32>) -> usize {
        let short = map.short.entries.iter().enumerate().filter(|(_, entry)| entry.key != 0);
        let from = |home: usize, at: usize, n: usize| (at + n - home) % n;
        let short = short
            .map(|(at, entry)| from(map.short.line(hash(entry.key)), at, map.short.entries.len()));
        let long = map.long.entries.iter().enumerate().filter(|(_, entry)| entry.length > 0);
        let long = long.map(|(at, entry)| {
            let n = map.long.entries.len();
            from(entry.hash as usize & (n - 1), at, n)
        });
        short.chain(long).sum()
    }

    /// Before keys were seeded, a factor of the hash was zero for all pieces that begin with these
    /// bytes, so each lookup passed all the others.
    #[test]
    fn a_hostile_vocabulary_takes_linear_time() {
        const BYTES: [u8; 8] = [0x15, 0x7c, 0x4a, 0x7f, 0xb9, 0x79, 0x37, 0x9e];
        let n = 20_000;
        let mut map = Table::<u32>::with_room(n);
        for i in 0..n as u32 {
            *map.value_mut(&[&BYTES[..], &i.to_le_bytes()].concat()) = i;
            // The start of a long piece is mixed with its length, too.
            let mut long = [&BYTES[..], &i.to_le_bytes(), &[0; 20]].concat();
            long[0] ^= 32;
            long[4] ^= 32;
            *map.value_mut(&long) = i;
        }
        assert_eq!(map.len(), 2 * n);
        // Some seeds spread such regular strings worse than others: 32 n was seen once. Quadratic would
        // be n² / 2 for each kind.
        assert!(steps(&map) < 100 * n, "{}", steps(&map));
    }

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(pieces in prop::collection::vec(
            prop_oneof![prop::collection::vec(0u8..3, 1..6), prop::collection::vec(0u8..2, 14..40)],
            0..4000,
        )) {
            let mut map = Table::<u64>::default();
            let mut expected = HashMap::<Vec<u8>, u64>::new();
            for piece in &pieces {
                *map.value_mut(piece) += 1;
                *expected.entry(piece.clone()).or_default() += 1;
            }
            prop_assert_eq!(map.len(), expected.len());
            let mut got = HashMap::new();
            map.for_each(|piece, n| { got.insert(piece.to_vec(), n); });
            prop_assert_eq!(got, expected);
        }
    }
}
