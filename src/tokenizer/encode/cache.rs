//! Short pieces that were encoded before, with their ids.
//!
//! As in [`crate::base::table`], two entries to a cache line, and a piece stands in its line or, if that
//! is full, in one of the next few. The cache starts small and grows while growing pays: while most
//! pieces are found. At its limit a new piece takes the place of another, so nothing ever has to be
//! cleared and memory stays where it is.

use std::ops::Range;

use crate::base::pages::{Pages, Plain, prefetch_line};
use crate::base::table::{Key, hash};
use crate::text::keys::Record;

/// How much memory the cache of a worker may take, if nothing else is said.
pub const USUAL: usize = 64 << 20;
/// For streams, which promise to need little memory.
pub const SMALL: usize = 128 << 10;

/// Encodings of up to this many ids stand in the entry.
const KEPT: usize = 3;
/// Longer ones elsewhere; a short piece has at most 15.
pub const MOST: usize = 16;
/// So many ids has a piece whose ids are not known yet; the first is the number of an unseen piece.
const EXPECTED: u32 = u32::MAX;
/// Entries in a cache line.
const LINE: usize = 2;
/// Lines that a piece may stand in: so many that hardly ever all are full while the table grows.
const LINES: usize = 8;
/// Entries at first.
const FIRST: usize = 1 << 10;
/// Entries up to which growing needs no reason.
const TRIAL: usize = 1 << 14;
/// Of pieces in text that does not repeat itself, one in so many is kept.
const SOME: usize = 8;
/// Pieces not found after which what was before counts half.
const LATELY: usize = 1 << 16;

#[repr(C, align(32))]
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// 0: nothing here.
    key: Key,
    /// The ids; of more than [`KEPT`], the first is where they stand in `more`.
    ids: [u32; KEPT],
    n: u32,
}

// SAFETY: numbers.
unsafe impl Plain for Entry {}

/// Pieces that were looked up.
#[derive(Debug, Default)]
pub struct Looked {
    /// The ids of those that were there.
    pub known: Vec<u32>,
    /// Those that were not.
    pub unseen: Vec<Unseen>,
    /// Of these, those that are too long for the cache: which, and where in the text.
    pub long: Vec<(usize, Range<usize>)>,
}

/// A piece that was not in the cache.
#[derive(Debug, Clone, Copy)]
pub struct Unseen {
    pub key: Key,
    pub hash: u64,
    /// The number of the first one like it.
    pub same: u32,
    /// Whether the cache expects its ids.
    pub expected: bool,
    /// How many known ids come before it.
    pub at: u32,
    /// Its ids, once they are found: where, and how many. 0: not yet.
    pub start: usize,
    pub n: usize,
}

/// Where the lines of a cache are.
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

    /// Brings the place of a piece closer before it is asked for.
    #[inline(always)]
    pub fn prefetch(self, hash: u64) {
        prefetch_line(self.of(hash));
    }
}

/// A cache of pieces.
#[derive(Debug)]
pub struct Cache {
    entries: Pages<Entry>,
    more: Vec<[u32; MOST]>,
    /// Places in `more` that are free again.
    free: Vec<u32>,
    len: usize,
    /// Found, and not found, since the size last changed.
    hits: usize,
    misses: usize,
    limit: usize,
}

impl Cache {
    /// A cache of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let entries = Pages::new(FIRST);
        Cache { entries, more: Vec::new(), free: Vec::new(), len: 0, hits: 0, misses: 0, limit }
    }

    /// What it may take.
    pub fn limit(&self) -> usize {
        self.limit
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> usize {
        hash as usize & (self.entries.len() - LINE)
    }

    /// Where its lines are, until the next piece is put in.
    #[inline(always)]
    pub fn lines(&self) -> Lines {
        Lines { entries: self.entries.start(), mask: self.entries.len() - LINE }
    }

    /// Looks pieces up, the first of which starts at `start` in its text. Those that are not here
    /// are expected from now on: who asks for such a piece again is told that it is unseen too, and
    /// like which one, until it is [filled](Cache::fill) in.
    #[inline(always)]
    pub fn look_up(&mut self, records: &[Record], start: usize, looked: &mut Looked) {
        let mut len = looked.known.len();
        looked.known.reserve(records.len() * MOST);
        let mut lines = self.lines();
        let (out, mut start, mut hits) = (looked.known.as_mut_ptr(), start, 0);
        for record in records {
            // SAFETY: there is room for the ids of this piece and of all that follow.
            let out = unsafe { out.add(len) };
            // SAFETY: a line has two entries, and lives as long as `self` is not changed.
            let (one, other) = unsafe {
                let line = lines.of(record.hash);
                (&*line, &*line.add(1))
            };
            // Which of the two is no branch, for it could not be predicted.
            let entry = if other.key == record.key { other } else { one };
            if entry.key == record.key && entry.n as usize <= KEPT {
                // Always all of them and the number behind, sixteen bytes: what is too much is
                // written over by the next.
                // SAFETY: the number is behind the ids, and there is room for more than that.
                unsafe {
                    std::ptr::copy_nonoverlapping((&raw const entry.ids).cast(), out, KEPT + 1)
                };
                len += entry.n as usize;
                hits += 1;
            } else {
                // SAFETY: there is room for so many.
                len += unsafe { self.look_closer(record, start, len, out, looked) };
                lines = self.lines();
            }
            start = record.end;
        }
        // SAFETY: so many were written.
        unsafe { looked.known.set_len(len) };
        self.hits += hits;
    }

    /// Looks for a piece that has many ids, stands beyond its line or is not here. What is found
    /// changes places with what stands in the line: it is likely to be the more common one. Returns
    /// how many ids were written to `out`.
    ///
    /// # Safety
    /// `out` must be valid for writing [`MOST`] ids.
    #[cold]
    #[inline(never)]
    unsafe fn look_closer(
        &mut self,
        record: &Record,
        start: usize,
        at: usize,
        out: *mut u32,
        looked: &mut Looked,
    ) -> usize {
        let Record { key, hash, end } = *record;
        let number = looked.unseen.len() as u32;
        let mut unseen =
            Unseen { key, hash, same: number, expected: false, at: at as u32, start: 0, n: 0 };
        if record.is_long() {
            looked.long.push((number as usize, start..end));
            looked.unseen.push(unseen);
            return 0;
        }
        for at in self.places(hash) {
            let entry = self.entries[at];
            if entry.key == key {
                if entry.n == EXPECTED {
                    unseen.same = entry.ids[0];
                    looked.unseen.push(unseen);
                    return 0;
                }
                let home = self.line(hash) + LINE - 1;
                // One that is itself not at home might not be found any more.
                if self.line(crate::base::table::hash(self.entries[home].key)) == self.line(hash) {
                    self.entries.swap(at, home);
                }
                let n = entry.n as usize;
                let ids =
                    if n <= KEPT { &entry.ids } else { &self.more[entry.ids[0] as usize][..] };
                self.hits += 1;
                // SAFETY: as the caller promises.
                unsafe { std::ptr::copy_nonoverlapping(ids.as_ptr(), out, n) };
                return n;
            }
            if entry.key == 0 {
                break;
            }
        }
        unseen.expected = self.expect(key, hash, number);
        looked.unseen.push(unseen);
        0
    }

    /// Where a piece may stand, the best place first.
    fn places(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let (line, mask) = (self.line(hash), self.entries.len() - 1);
        (0..LINES * LINE).map(move |i| (line + i) & mask)
    }

    /// Makes room for a piece that is not here, the unseen one of this number, unless it does not
    /// pay.
    fn expect(&mut self, key: Key, hash: u64, number: u32) -> bool {
        self.misses += 1;
        // Fuller, pieces would be far from their lines, and what is not here long looked for.
        let mut reach = LINES * LINE;
        if self.len * 8 >= self.entries.len() * 5 {
            // Text that does not repeat itself gains nothing by being remembered; but some of it
            // is, or nobody would notice when it begins to.
            if !self.pays() && !self.misses.is_multiple_of(SOME) {
                return false;
            }
            if !self.grow() {
                reach = LINE;
            }
        }
        let free = self.places(hash).take(reach).find(|&at| self.entries[at].key == 0);
        // Of a full line, another one goes each time.
        let at = free.unwrap_or_else(|| self.line(hash) + self.misses % LINE);
        self.len += usize::from(free.is_some());
        let old = self.entries[at];
        if old.n as usize > KEPT && old.n != EXPECTED {
            self.free.push(old.ids[0]);
        }
        self.entries[at] = Entry { key, ids: [number, 0, 0], n: EXPECTED };
        true
    }

    /// Keeps the ids of a piece that was expected, if there is still room for them.
    pub fn fill(&mut self, key: Key, hash: u64, ids: &[u32]) {
        let Some(at) = self.places(hash).find(|&at| self.entries[at].key == key) else { return };
        let mut entry = Entry { key, ids: [0; KEPT], n: ids.len() as u32 };
        if ids.len() <= KEPT {
            entry.ids[..ids.len()].copy_from_slice(ids);
        } else if let Some(place) = self.place_for(ids) {
            entry.ids[0] = place;
        } else {
            entry = Entry { key: 0, ids: [0; KEPT], n: 0 };
            self.len -= 1;
        }
        self.entries[at] = entry;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Cache::new(self.limit);
    }

    /// Puts ids where there is room for many.
    fn place_for(&mut self, ids: &[u32]) -> Option<u32> {
        let mut all = [0; MOST];
        all[..ids.len()].copy_from_slice(ids);
        if let Some(place) = self.free.pop() {
            self.more[place as usize] = all;
            return Some(place);
        }
        if self.heap_bytes() + size_of_val(&all) > self.limit {
            return None;
        }
        self.more.push(all);
        Some(self.more.len() as u32 - 1)
    }

    fn heap_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>() + self.more.len() * size_of::<[u32; MOST]>()
    }

    /// Whether most pieces are found, of late.
    fn pays(&mut self) -> bool {
        if self.misses > LATELY {
            self.hits /= 2;
            self.misses /= 2;
        }
        self.hits >= self.misses || self.entries.len() < TRIAL
    }

    /// Makes the table twice as large, if that is allowed and of use.
    fn grow(&mut self) -> bool {
        let more = self.entries.len() * size_of::<Entry>();
        if !self.pays() || self.heap_bytes() + more > self.limit {
            return false;
        }
        let Some(larger) = Pages::try_new(self.entries.len() * 2) else { return false };
        let old = std::mem::replace(&mut self.entries, larger);
        (self.len, self.hits, self.misses) = (0, 0, 0);
        for entry in old.iter().filter(|entry| entry.key != 0) {
            let mut places = self.places(hash(entry.key));
            if let Some(at) = places.find(|&at| self.entries[at].key == 0) {
                self.entries[at] = *entry;
                self.len += 1;
            }
        }
        true
    }
}
