//! Short pieces that were encoded before, with their ids.
//!
//! A hash table with two entries per cache line, like [`crate::base::table`]: a piece is in its line
//! or, if that is full, in one of the next few. The cache starts small and grows while most pieces are
//! found. At its limit a new piece replaces another one, so it is never cleared and its memory is
//! bounded.

use crate::base::memory::{filled, reserve};
use crate::base::pages::{Pages, Zeroable, prefetch_line};
use crate::base::table::{Key, TOO_LONG, hash};

/// Memory that the caches of a worker may take by default.
pub const DEFAULT_BYTES: usize = 64 << 20;
/// The same for streams, which promise to need little memory.
pub const STREAM_BYTES: usize = 128 << 10;

/// Encodings of up to this many ids are stored in the entry itself.
const MAX_INLINE_IDS: usize = 5;
/// Ids in an entry have three bytes each, so they are below this.
const INLINE_ID_LIMIT: u32 = 1 << 24;
/// Longer encodings are in a list of their own; a short piece has at most 15 ids.
pub const MAX_IDS: usize = 16;
/// The ids of single tokens are copied in blocks of this many.
pub const SINGLES_BLOCK: usize = 8;
/// In place of the number of ids: they are in the list of long encodings, at the index that is stored
/// in place of the first id.
const ELSEWHERE: u8 = MAX_INLINE_IDS as u8 + 1;
/// In place of the number of ids: the piece is still to be merged, and its number among the pending
/// ones is stored in place of the first id.
const PENDING: u8 = u8::MAX;
/// Entries in a cache line.
const LINE: usize = 2;
/// The most lines from a piece's own line to its entry; while the table grows, hardly ever are all of
/// them full.
const MAX_REACH: u8 = 7;
/// Size of a new cache.
const INITIAL_ENTRIES: usize = 1 << 10;
/// Up to this size the cache grows whatever its hit rate.
const MIN_TRIED_ENTRIES: usize = 1 << 14;
/// A cache for a text of known length starts with one entry per this many bytes.
const BYTES_PER_ENTRY: usize = 256;
/// In text that hardly repeats itself, one new piece in this many is cached.
const KEEP_ONE_IN: usize = 8;
/// After this many misses, the counts of hits and misses are halved.
const MISSES_REMEMBERED: usize = 1 << 16;

#[repr(C, align(32))]
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// 0 if the entry is free.
    key: Key,
    /// Of three bytes each.
    ids: [[u8; 3]; MAX_INLINE_IDS],
    n: u8,
}

// SAFETY: all fields are numbers and arrays of numbers, of which zero bytes are valid values.
unsafe impl Zeroable for Entry {}

impl Entry {
    /// An entry with one number in the place of ids.
    fn with_number(key: Key, number: u32, n: u8) -> Self {
        let mut ids = [[0; 3]; MAX_INLINE_IDS];
        ids[0] = three_bytes(number);
        Entry { key, ids, n }
    }

    /// The first id, or the number in its place.
    fn first(&self) -> u32 {
        let [a, b, c] = self.ids[0];
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Writes [`MAX_INLINE_IDS`] ids: those of the entry, then zeros.
    ///
    /// # Safety
    /// `out` must be valid for writing them.
    #[inline(always)]
    unsafe fn write_ids(&self, out: *mut u32) {
        let ids = (&raw const self.ids).cast::<u8>();
        for i in 0..MAX_INLINE_IDS {
            // SAFETY: four bytes from each id on are within the entry, which is laid out in C order: the
            // count follows the last id.
            unsafe {
                let four = ids.add(3 * i).cast::<[u8; 4]>().read();
                out.add(i).write(u32::from_le_bytes(four) & (INLINE_ID_LIMIT - 1));
            }
        }
    }
}

fn three_bytes(id: u32) -> [u8; 3] {
    let [a, b, c, _] = id.to_le_bytes();
    [a, b, c]
}

/// Pieces that wait to be merged.
#[derive(Debug, Default)]
pub struct Pending {
    pub pieces: Vec<PendingPiece>,
    /// The numbers of those that are too long for the cache.
    pub long: Vec<usize>,
    /// The number of known ids before the first of them.
    pub origin: usize,
}

/// A piece to be looked up.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    pub key: Key,
    pub hash: u64,
    /// The number of ids of single tokens before it.
    pub after: u32,
}

/// A piece that was not in the cache and has to be merged.
#[derive(Debug, Clone, Copy)]
pub struct PendingPiece {
    pub key: Key,
    pub hash: u64,
    /// The number of the first equal pending piece, itself if there is none.
    pub same: u32,
    /// Whether an entry waits for its ids.
    pub expected: bool,
    /// The number of known ids between the first pending piece and this one.
    pub at: u32,
    /// Its ids, once merged: their start, and their number, which is 0 before.
    pub start: usize,
    pub n: usize,
}

/// The location of a cache's lines.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    entries: *const Entry,
    mask: usize,
}

impl Lines {
    /// The first entry of the line of a piece.
    #[inline(always)]
    fn of(self, hash: u64) -> *const Entry {
        self.entries.wrapping_add(hash as usize & self.mask)
    }

    /// Prefetches the line of a piece.
    #[inline(always)]
    pub fn prefetch(self, hash: u64) {
        prefetch_line(self.of(hash));
    }
}

/// Ids that do not fit into an entry.
#[derive(Debug, Clone, Copy)]
struct LongIds {
    ids: [u32; MAX_IDS],
    n: usize,
}

/// A cache of pieces.
#[derive(Debug)]
pub struct Cache {
    entries: Pages<Entry>,
    /// By line: how many lines after it may contain its pieces. Without this, a lookup of a new piece
    /// would search [`MAX_REACH`] lines.
    reach: Vec<u8>,
    more: Vec<LongIds>,
    /// Free places in `more`.
    free: Vec<u32>,
    len: usize,
    /// Lookups with and without success since the size last changed.
    hits: usize,
    misses: usize,
    limit: usize,
}

impl Cache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let entries = Pages::new(INITIAL_ENTRIES);
        let reach = vec![0; entries.len() / LINE];
        let (more, free) = (Vec::new(), Vec::new());
        Cache { entries, reach, more, free, len: 0, hits: 0, misses: 0, limit }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.entries.len() - LINE)
    }

    /// The location of its lines, valid until the next insertion.
    #[inline(always)]
    pub fn lines(&self) -> Lines {
        Lines { entries: self.entries.start(), mask: self.entries.len() - LINE }
    }

    /// Grows to the size that a text of this length is likely to need.
    pub fn expect_text(&mut self, n_bytes: usize) {
        let n_entries = (n_bytes / BYTES_PER_ENTRY).next_power_of_two();
        let most = self.limit / 2 / size_of::<Entry>();
        if self.len == 0
            && n_entries > self.entries.len()
            && let Some(entries) = Pages::try_new(n_entries.min((most + 1).next_power_of_two() / 2))
            && entries.len() > self.entries.len()
        {
            self.reach = filled(0, entries.len() / LINE);
            self.entries = entries;
        }
    }

    /// Looks pieces up. Writes their ids to `out`, each piece's after the number of `single_ids` that it
    /// states; `n_copied` is how many of these were copied. Missing pieces become pending: until the
    /// ids are [filled](Cache::fill) in, a later lookup of the same piece reports it as pending, too,
    /// with the number of the first.
    ///
    /// # Safety
    /// The list of single ids must have room for [`SINGLES_BLOCK`] more at its end, and no piece may state
    /// a number greater than its length.
    // Not inlined: its loop needs all registers.
    #[inline(never)]
    #[expect(clippy::ptr_arg, reason = "the room at the end of the list is read too")]
    pub unsafe fn look_up(
        &mut self,
        pieces: &[Keyed],
        single_ids: &Vec<u32>,
        n_copied: &mut usize,
        out: &mut Vec<u32>,
        pending: &mut Pending,
    ) {
        let mut len = out.len();
        reserve(out, single_ids.len() + SINGLES_BLOCK + pieces.len() * MAX_IDS);
        let mut lines = self.lines();
        let (start, mut hits) = (out.as_mut_ptr(), 0);
        let mut copied = *n_copied;
        for piece in pieces {
            // All parts of a long piece have the same number of ids before them.
            let n_single = (piece.after as usize).saturating_sub(copied);
            // One block is nearly always enough. It is copied even if there is no id before: that branch
            // could not be predicted.
            for i in (0..n_single.max(1)).step_by(SINGLES_BLOCK) {
                // SAFETY: there is room for all single ids, and for the ids of this piece and of all
                // that follow; what is copied beyond is overwritten or ignored. The caller promises a
                // block after the last single id.
                unsafe {
                    let from = single_ids.as_ptr().add(copied + i);
                    start.add(len + i).copy_from_nonoverlapping(from, SINGLES_BLOCK);
                }
            }
            len += n_single;
            copied = piece.after as usize + 1;
            // SAFETY: `len` ids of the room reserved above are used, so this is within it or at its end.
            let to = unsafe { start.add(len) };
            // SAFETY: a line has two entries, and lives as long as `self` is not changed.
            let (one, other) = unsafe {
                let line = lines.of(piece.hash);
                (&*line, &*line.add(1))
            };
            // Selected without a branch, which could not be predicted.
            let entry = if other.key == piece.key { other } else { one };
            if entry.key == piece.key && entry.n as usize <= MAX_INLINE_IDS {
                // SAFETY: MAX_IDS were reserved for each piece; those that are not there are
                // overwritten or ignored.
                unsafe { entry.write_ids(to) };
                len += entry.n as usize;
                hits += 1;
            } else {
                // SAFETY: room for MAX_IDS was reserved for each piece, this one included.
                len += unsafe { self.look_closer(piece, len, to, pending) };
                lines = self.lines();
            }
        }
        // SAFETY: the first `len` ids were written above.
        unsafe { out.set_len(len) };
        *n_copied = copied;
        self.hits += hits;
    }

    /// Looks up a piece that has many ids, is outside its line or is missing. If found, its entry swaps
    /// places with one in its line, because it is likely to be the more common one. Returns the number
    /// of ids written to `out`, before which there are `len` ids.
    ///
    /// # Safety
    /// `out` must be valid for writing [`MAX_IDS`] ids.
    #[cold]
    #[inline(never)]
    unsafe fn look_closer(
        &mut self,
        piece: &Keyed,
        len: usize,
        out: *mut u32,
        pending: &mut Pending,
    ) -> usize {
        let Keyed { key, hash, .. } = *piece;
        let number = pending.pieces.len() as u32;
        if number == 0 {
            pending.origin = len;
        }
        let at = (len - pending.origin) as u32;
        let mut new = PendingPiece { key, hash, same: number, expected: false, at, start: 0, n: 0 };
        if key == TOO_LONG {
            pending.long.push(number as usize);
            pending.pieces.push(new);
            return 0;
        }
        for at in self.places(hash) {
            let entry = self.entries[at];
            if entry.key == key {
                if entry.n == PENDING {
                    new.same = entry.first();
                    pending.pieces.push(new);
                    return 0;
                }
                let home = self.line(hash) + LINE - 1;
                // An entry that belongs to another line could no longer be found.
                if self.line(crate::base::table::hash(self.entries[home].key)) == self.line(hash) {
                    self.entries.swap(at, home);
                }
                self.hits += 1;
                if entry.n != ELSEWHERE {
                    // SAFETY: the caller promises room for MAX_IDS, which is more.
                    unsafe { entry.write_ids(out) };
                    return entry.n as usize;
                }
                let LongIds { ids, n } = &self.more[entry.first() as usize];
                // SAFETY: the caller promises room for MAX_IDS, as many as `ids` has, in a list of its own.
                unsafe { std::ptr::copy_nonoverlapping(ids.as_ptr(), out, ids.len()) };
                return *n;
            }
            if entry.key == 0 {
                break;
            }
        }
        new.expected = self.expect(key, hash, number);
        pending.pieces.push(new);
        0
    }

    /// The places where a piece may be, best first.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let line = self.line(hash);
        self.places_within(line, self.reach[line / LINE])
    }

    /// The places in a line and in this many lines after it.
    fn places_within(&self, line: usize, reach: u8) -> impl Iterator<Item = usize> + use<> {
        let mask = self.entries.len() - 1;
        (0..(usize::from(reach) + 1) * LINE).map(move |i| (line + i) & mask)
    }

    /// A free place for a piece, at most `reach` lines after its own.
    fn free_place(&mut self, hash: u64, reach: u8) -> Option<usize> {
        let line = self.line(hash);
        let mut places = self.places_within(line, reach).enumerate();
        let (i, at) = places.find(|&(_, at)| self.entries[at].key == 0)?;
        let reach = &mut self.reach[line / LINE];
        *reach = (*reach).max((i / LINE) as u8);
        Some(at)
    }

    /// Adds an entry for a missing piece, the pending piece with this number, if that is worth it.
    fn expect(&mut self, key: Key, hash: u64, number: u32) -> bool {
        self.misses += 1;
        // In a fuller table, pieces would be far from their lines and misses would be slow.
        let mut reach = MAX_REACH;
        if self.len * 8 >= self.entries.len() * 5 {
            // Caching text that does not repeat itself gains nothing; some of it is cached, so that a
            // change to repetitive text is noticed.
            if !self.pays() && !self.misses.is_multiple_of(KEEP_ONE_IN) {
                return false;
            }
            if !self.grow() {
                reach = 0;
            }
        }
        let free = self.free_place(hash, reach);
        // In a full line, the two entries are replaced alternately.
        let at = free.unwrap_or_else(|| self.line(hash) + self.misses % LINE);
        self.len += usize::from(free.is_some());
        let old = self.entries[at];
        if old.n == ELSEWHERE {
            self.free.push(old.first());
        }
        self.entries[at] = Entry::with_number(key, number, PENDING);
        true
    }

    /// Stores the ids of a pending piece, if there is room for them.
    pub fn fill(&mut self, key: Key, hash: u64, ids: &[u32]) {
        let Some(at) = self.places(hash).find(|&at| self.entries[at].key == key) else { return };
        let inline = ids.len() <= MAX_INLINE_IDS && ids.iter().all(|&id| id < INLINE_ID_LIMIT);
        self.entries[at] = if inline {
            let mut entry = Entry::with_number(key, 0, ids.len() as u8);
            for (to, &id) in entry.ids.iter_mut().zip(ids) {
                *to = three_bytes(id);
            }
            entry
        } else if let Some(place) = self.place_for(ids) {
            Entry::with_number(key, place, ELSEWHERE)
        } else {
            self.len -= 1;
            Entry::with_number(0, 0, 0)
        };
    }

    /// Empties the cache.
    pub fn clear(&mut self) {
        *self = Cache::new(self.limit);
    }

    /// Puts ids into the list of long encodings.
    fn place_for(&mut self, ids: &[u32]) -> Option<u32> {
        let mut all = LongIds { ids: [0; MAX_IDS], n: ids.len() };
        all.ids[..ids.len()].copy_from_slice(ids);
        if let Some(place) = self.free.pop() {
            self.more[place as usize] = all;
            return Some(place);
        }
        // The place is stored in three bytes.
        let is_full = self.more.len() == INLINE_ID_LIMIT as usize;
        if is_full || self.heap_bytes() + size_of_val(&all) > self.limit {
            return None;
        }
        self.more.push(all);
        Some(self.more.len() as u32 - 1)
    }

    fn heap_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>() + self.more.len() * size_of::<LongIds>()
    }

    /// Whether most pieces were found recently.
    fn pays(&mut self) -> bool {
        if self.misses > MISSES_REMEMBERED {
            self.hits /= 2;
            self.misses /= 2;
        }
        self.hits >= self.misses || self.entries.len() < MIN_TRIED_ENTRIES
    }

    /// Doubles the table if that is worth it and within the limit.
    fn grow(&mut self) -> bool {
        let more = self.entries.len() * size_of::<Entry>();
        if !self.pays() || self.heap_bytes() + more > self.limit {
            return false;
        }
        let Some(larger) = Pages::try_new(self.entries.len() * 2) else { return false };
        self.reach = filled(0, larger.len() / LINE);
        let old = std::mem::replace(&mut self.entries, larger);
        (self.len, self.hits, self.misses) = (0, 0, 0);
        for entry in old.iter().filter(|entry| entry.key != 0) {
            if let Some(at) = self.free_place(hash(entry.key), MAX_REACH) {
                self.entries[at] = *entry;
                self.len += 1;
            }
        }
        true
    }
}
