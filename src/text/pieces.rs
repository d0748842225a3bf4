//! The table that maps pieces to something: counts while learning, ids while encoding.
//!
//! Nearly all pieces of real text are short (99.9 % of English is within 15 bytes), so a short
//! piece *is* its key: up to 15 bytes and their number packed into 128 bits, made with one
//! unaligned load and a mask. Key and value lie side by side in one 32-byte entry, two to a cache
//! line, and a piece may stand in either, so a look-up nearly always touches one line. Longer pieces lie in an arena
//! behind a second table of the same kind.

mod sorted;

pub use sorted::{Block, SortedPieces};

use std::sync::LazyLock;

use crate::base::error::Result;
use crate::base::memory::{filled, reserve};
use crate::base::pages::{Pages, Plain, prefetch};
use crate::base::seed::seed;
use crate::text::pattern::Pattern;

/// Pieces of up to this many bytes are packed into their key.
pub const SHORT: usize = 15;

/// Entries in a cache line.
const LINE: usize = 2;

/// A short piece: its bytes from the low end up, its length in the top byte, and [`mix`] on top.
/// Never 0. The keys of another process are others.
pub type Key = u128;

/// In the top byte of every key, with its length: so that none is 0 or [`TOO_LONG`].
const MARK: u128 = 0xd6 << 120;

/// How a key is made of sixteen bytes.
#[derive(Clone, Copy)]
struct Shape {
    /// The bits of the bytes that count.
    mask: u128,
    /// What the others become.
    rest: u128,
}

/// By length; the last is for pieces that are too long.
type Shapes = [Shape; SHORT + 2];

/// What every key is mixed with: its halves, multiplied, are a hash of it, and no file or text can
/// be made whose pieces all have the same.
static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let mix = seed() >> 8 | MARK;
    let mut shapes = [Shape { mask: 0, rest: TOO_LONG }; SHORT + 2];
    for (length, shape) in shapes[..=SHORT].iter_mut().enumerate() {
        let mask = if length == 0 { 0 } else { u128::MAX >> (128 - 8 * length) };
        *shape = Shape { mask, rest: (length as u128) << 120 ^ mix };
    }
    shapes
});

/// What every key is mixed with.
#[inline]
fn mix() -> u128 {
    SHAPES[0].rest
}

/// Stands for a piece that is too long for a key; no key is like it.
const TOO_LONG: Key = !MARK;

/// The key of `text[start..end]`, or [`TOO_LONG`].
#[inline(always)]
fn key_or_too_long(text: &[u8], start: usize, end: usize) -> Key {
    let shapes = &*SHAPES;
    if start + 16 <= text.len() {
        // SAFETY: just so.
        return unsafe { key_inside(shapes, text, start, end) };
    }
    let mut sixteen = [0; 16];
    let length = (end - start).min(SHORT + 1);
    let n = length % (SHORT + 1);
    sixteen[..n].copy_from_slice(&text[start..start + n]);
    let Shape { mask, rest } = shapes[length];
    u128::from_le_bytes(sixteen) & mask ^ rest
}

/// The same where the text goes on for a while.
///
/// # Safety
/// `text` must have at least sixteen bytes from `start` on.
#[inline(always)]
unsafe fn key_inside(shapes: &Shapes, text: &[u8], start: usize, end: usize) -> Key {
    debug_assert!(start + 16 <= text.len());
    let Shape { mask, rest } = shapes[(end - start).min(SHORT + 1)];
    // One load past the piece, then cut to its length.
    // SAFETY: as the caller promises.
    let sixteen = unsafe { text.as_ptr().add(start).cast::<[u8; 16]>().read() };
    u128::from_le_bytes(sixteen) & mask ^ rest
}

/// The key of `text[start..end]`, which must be 1 to 15 bytes long.
#[inline(always)]
pub fn key(text: &[u8], start: usize, end: usize) -> Key {
    debug_assert!(start < end && end - start <= SHORT);
    key_or_too_long(text, start, end)
}

/// A piece as it is looked up.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// What it is looked up by.
    pub key: Key,
    /// Where.
    pub hash: u64,
    /// Where it ends in the text.
    pub end: usize,
}

impl Record {
    /// Whether the piece is too long for a key.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.key == TOO_LONG
    }
}

/// Pieces of a text, some at a time: first all keys are made and their places asked for, then they
/// are looked up, by when what was asked for has come.
#[derive(Debug, Default)]
pub struct Records {
    ends: Vec<usize>,
    records: Vec<Record>,
    n: usize,
    any_long: bool,
    /// The end of the long piece that the last records ended in, of which there is more.
    inside: Option<usize>,
}

/// Pieces at a time.
pub const BATCH: usize = 256;

impl Records {
    /// Cuts about [`BATCH`] pieces off `text` from `from` on; returns where they end. `prefetch` is
    /// told every hash.
    #[inline(always)]
    pub fn next(
        &mut self,
        pattern: &Pattern,
        text: &[u8],
        from: usize,
        prefetch: impl Fn(u64),
    ) -> Result<usize> {
        self.ends.clear();
        let upto = pattern.scan(text, from, BATCH, &mut self.ends)?;
        if self.records.len() < self.ends.len() {
            self.records.resize(self.ends.len(), Record { key: 0, hash: 0, end: 0 });
        }
        let mut start = from;
        // Whether any is longer than 15 is seen in the bits of all lengths together.
        let mut lengths = 0;
        let mut pairs = self.records.iter_mut().zip(&self.ends);
        // All but the last few of the text, apart: the loop has to fit into the registers.
        let inside = text.len().saturating_sub(16);
        let mut next = pairs.next();
        let shapes = &*SHAPES;
        while start < inside
            && let Some((record, &end)) = next
        {
            // SAFETY: sixteen bytes from `start` on are inside.
            let key = unsafe { key_inside(shapes, text, start, end) };
            let hash = hash(key);
            prefetch(hash);
            *record = Record { key, hash, end };
            lengths |= end - start;
            start = end;
            next = pairs.next();
        }
        while let Some((record, &end)) = next {
            let key = key_or_too_long(text, start, end);
            let hash = hash(key);
            *record = Record { key, hash, end };
            lengths |= end - start;
            start = end;
            next = pairs.next();
        }
        self.n = self.ends.len();
        self.any_long = lengths > SHORT;
        Ok(upto)
    }

    /// The same, but long pieces in parts: `cut` says where the first part of `text[start..end]`
    /// ends, if it is not all of it. The text must be gone through from its beginning to its end.
    #[inline(always)]
    pub fn next_parts(
        &mut self,
        pattern: &Pattern,
        text: &[u8],
        from: usize,
        cut: impl Fn(usize, usize) -> Option<usize>,
        prefetch: impl Fn(u64),
    ) -> Result<usize> {
        if from > 0
            && let Some(end) = self.inside.take()
        {
            self.n = 0;
            return Ok(self.cut_long(text, from, end, &cut, &prefetch));
        }
        self.inside = None;
        let upto = self.next(pattern, text, from, &prefetch)?;
        if self.any_long { Ok(self.cut_all(text, from, upto, &cut, &prefetch)) } else { Ok(upto) }
    }

    /// Cuts the long ones among the records; returns where the last record ends.
    #[cold]
    #[inline(never)]
    fn cut_all(
        &mut self,
        text: &[u8],
        from: usize,
        upto: usize,
        cut: &impl Fn(usize, usize) -> Option<usize>,
        prefetch: &impl Fn(u64),
    ) -> usize {
        let whole = self.records[..self.n].to_vec();
        self.n = 0;
        let mut start = from;
        for record in whole {
            if record.is_long() {
                start = self.cut_long(text, start, record.end, cut, prefetch);
                if self.inside.is_some() {
                    return start;
                }
            } else {
                self.push(record);
                start = record.end;
            }
        }
        upto
    }

    /// Appends the parts of a long piece, or some of them if there are many; returns where the last
    /// one ends.
    fn cut_long(
        &mut self,
        text: &[u8],
        mut start: usize,
        end: usize,
        cut: &impl Fn(usize, usize) -> Option<usize>,
        prefetch: &impl Fn(u64),
    ) -> usize {
        while start < end {
            let part = cut(start, end).unwrap_or(end);
            let key = key_or_too_long(text, start, part);
            let hash = hash(key);
            prefetch(hash);
            self.push(Record { key, hash, end: part });
            start = part;
            if self.n >= 2 * BATCH && start < end {
                self.inside = Some(end);
                break;
            }
        }
        start
    }

    fn push(&mut self, record: Record) {
        if self.n < self.records.len() {
            self.records[self.n] = record;
        } else {
            self.records.push(record);
        }
        self.n += 1;
    }

    /// The records.
    #[inline(always)]
    pub fn all(&self) -> &[Record] {
        &self.records[..self.n]
    }
}

/// The bytes of a key.
pub fn key_bytes(key: Key) -> ([u8; 16], usize) {
    let key = key ^ mix();
    (key.to_le_bytes(), (key >> 120) as usize)
}

/// Keys in this order are pieces in the order of their bytes.
fn order(key: Key) -> u128 {
    (key ^ mix()).swap_bytes()
}

/// The hash of a key: one multiplication of its halves, folded, which is all that such a table
/// needs. As the key, it is another in every process.
#[inline(always)]
pub fn hash(key: Key) -> u64 {
    let product = u128::from(key as u64) * (key >> 64);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a longer piece, 16 bytes at a time.
pub fn hash_bytes(piece: &[u8]) -> u64 {
    let (mut state, mix) = (piece.len() as u64, mix());
    let mut blocks = piece.chunks_exact(16);
    for block in &mut blocks {
        let mut sixteen = [0; 16];
        sixteen.copy_from_slice(block);
        state =
            hash(u128::from_le_bytes(sixteen) ^ mix ^ u128::from(state) << 32 ^ u128::from(state));
    }
    let rest = blocks.remainder();
    if !rest.is_empty() {
        state = hash(key(rest, 0, rest.len()) ^ u128::from(state) << 32 ^ u128::from(state));
    }
    state
}

#[repr(align(32))]
#[derive(Debug, Clone, Copy)]
struct Entry<V> {
    /// 0: the entry is free.
    key: Key,
    value: V,
}

// SAFETY: a key of zero is one, and so are the values.
unsafe impl<V: Plain> Plain for Entry<V> {}

/// The size of a table of `n` short pieces: it is never quite three quarters full. A smaller one
/// is slower to find the rare pieces in, but there is less of it to be had and to be in the cache.
fn table_size(n: usize) -> usize {
    (n * 4 / 3 + 1).next_power_of_two()
}

/// Short pieces and their values.
#[derive(Debug)]
struct ShortTable<V> {
    entries: Pages<Entry<V>>,
    len: usize,
}

/// A longer piece: its full hash, where its bytes lie, its value. A `length` of 0: free.
#[derive(Debug, Clone, Copy, Default)]
struct LongEntry<V> {
    hash: u64,
    start: usize,
    length: usize,
    value: V,
}

/// Longer pieces and their values.
#[derive(Debug)]
struct LongTable<V> {
    entries: Vec<LongEntry<V>>,
    len: usize,
    arena: Vec<u8>,
}

/// A map from pieces to values.
#[derive(Debug)]
pub struct PieceMap<V> {
    short: ShortTable<V>,
    long: LongTable<V>,
}

impl<V: Plain> ShortTable<V> {
    fn new(capacity: usize) -> Self {
        ShortTable { entries: Pages::new(capacity), len: 0 }
    }

    /// The first entry of the line where a piece wants to stand.
    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.entries.len() - LINE)
    }

    /// Where a piece stands, or else the free entry where it is to stand.
    fn slot(&self, key: Key, hash: u64) -> usize {
        let mut line = self.line(hash);
        // The table is never full, so this ends.
        loop {
            for at in line..line + LINE {
                if self.entries[at].key == key || self.entries[at].key == 0 {
                    return at;
                }
            }
            line = (line + LINE) & (self.entries.len() - 1);
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

impl<V: Plain + Default> LongTable<V> {
    fn new(capacity: usize) -> Self {
        LongTable { entries: filled(LongEntry::default(), capacity), len: 0, arena: Vec::new() }
    }

    fn bytes(&self, entry: &LongEntry<V>) -> &[u8] {
        &self.arena[entry.start..entry.start + entry.length]
    }

    fn slot(&self, piece: &[u8], hash: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let entry = &self.entries[at];
            if entry.length == 0 || (entry.hash == hash && self.bytes(entry) == piece) {
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

impl<V: Plain + Default> Default for PieceMap<V> {
    fn default() -> Self {
        PieceMap { short: ShortTable::new(1 << 10), long: LongTable::new(1 << 6) }
    }
}

impl<V: Plain + Default> PieceMap<V> {
    /// A map with room for `n` short pieces.
    pub fn with_room(n: usize) -> Self {
        PieceMap { short: ShortTable::new(table_size(n).max(1 << 10)), ..PieceMap::default() }
    }

    /// How many pieces there are.
    pub fn len(&self) -> usize {
        self.short.len + self.long.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Brings the entry of a short piece closer before it is asked for.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.short.entries, self.short.line(hash));
    }

    /// The value of a piece, if there is one.
    pub fn get(&self, piece: &[u8]) -> Option<V> {
        if piece.is_empty() {
            return None;
        }
        if piece.len() <= SHORT {
            let key = key(piece, 0, piece.len());
            let entry = &self.short.entries[self.short.slot(key, hash(key))];
            (entry.key == key).then_some(entry.value)
        } else {
            let entry = &self.long.entries[self.long.slot(piece, hash_bytes(piece))];
            (entry.length > 0).then_some(entry.value)
        }
    }

    /// The value of a short piece, made if there is none yet.
    #[inline(always)]
    pub fn entry(&mut self, key: Key, hash: u64) -> &mut V {
        let line = self.short.line(hash);
        // Nearly always the piece is known and stands in its line, in one place or the other: which
        // one is no branch, for it could not be predicted.
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

    /// The value of a longer piece, made if there is none yet.
    pub fn long_entry(&mut self, piece: &[u8]) -> &mut V {
        debug_assert!(piece.len() > SHORT);
        let hash = hash_bytes(piece);
        let mut at = self.long.slot(piece, hash);
        if self.long.entries[at].length == 0 {
            if self.long.len * 2 >= self.long.entries.len() {
                self.long.grow();
                at = self.long.slot(piece, hash);
            }
            let start = self.long.arena.len();
            reserve(&mut self.long.arena, piece.len());
            self.long.arena.extend_from_slice(piece);
            self.long.entries[at] =
                LongEntry { hash, start, length: piece.len(), value: V::default() };
            self.long.len += 1;
        }
        &mut self.long.entries[at].value
    }

    /// The value of any piece, made if there is none yet. The empty piece is not a piece.
    pub fn value_mut(&mut self, piece: &[u8]) -> &mut V {
        if piece.len() <= SHORT {
            let key = key(piece, 0, piece.len());
            self.entry(key, hash(key))
        } else {
            self.long_entry(piece)
        }
    }

    /// Every piece with its value, in no particular order.
    pub fn for_each(&self, visit: impl FnMut(&[u8], V)) {
        self.for_each_of(0, 1, visit);
    }

    /// The same for one of `n_parts` parts of the table, which together are the whole.
    pub fn for_each_of(&self, part: usize, n_parts: usize, mut visit: impl FnMut(&[u8], V)) {
        let range = |len: usize| len * part / n_parts..len * (part + 1) / n_parts;
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

    /// The values of all pieces, to be changed.
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
    fn keys_hold_what_they_were_made_of() {
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

    /// Entries that stand between where pieces are and where they would like to be, in all.
    fn steps(map: &PieceMap<u32>) -> usize {
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

    /// A factor of the hash was zero for all pieces that begin with these bytes, when what keys are
    /// mixed with was in the source: each had to pass all the others.
    #[test]
    fn a_hostile_vocabulary_takes_no_quadratic_time() {
        const BYTES: [u8; 8] = [0x15, 0x7c, 0x4a, 0x7f, 0xb9, 0x79, 0x37, 0x9e];
        let n = 20_000;
        let mut map = PieceMap::<u32>::with_room(n);
        for i in 0..n as u32 {
            *map.value_mut(&[&BYTES[..], &i.to_le_bytes()].concat()) = i;
            // What a long piece begins with is mixed with its length, too.
            let mut long = [&BYTES[..], &i.to_le_bytes(), &[0; 20]].concat();
            long[0] ^= 32;
            long[4] ^= 32;
            *map.value_mut(&long) = i;
        }
        assert_eq!(map.len(), 2 * n);
        assert!(steps(&map) < 8 * n, "{}", steps(&map));
        assert_ne!(mix() as u64, u64::from_le_bytes(BYTES));
    }

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(pieces in prop::collection::vec(
            prop_oneof![prop::collection::vec(0u8..3, 1..6), prop::collection::vec(0u8..2, 14..40)],
            0..4000,
        )) {
            let mut map = PieceMap::<u64>::default();
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
