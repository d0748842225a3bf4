//! Zip: members, and a directory of them at the end, which is what counts.
//!
//! Members may be stored as they are, deflated, or packed with bzip2, LZMA, xz or Zstandard; archives
//! may be larger than 4 GB. What is encrypted is refused.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crc32fast::Hasher;

use super::{Archive, Member, damaged, is_hidden};
use crate::corpus::kind::Packing;
use crate::corpus::reading::{Reading, Trouble};
use crate::corpus::storage::{Sequential, Storage};
use crate::corpus::unpack::{Input, inflate, unpack, unpack_lzma, within_ratio};

/// The last record, without the comment behind it, and the longest comment.
const END: u64 = 22;
const LONGEST_COMMENT: u64 = 0xffff;
/// More than any directory of members.
const LARGEST_DIRECTORY: u64 = 4 << 30;

/// A zip archive.
pub struct Zip {
    storage: Arc<dyn Storage>,
    entries: std::vec::IntoIter<Entry>,
    passed: Arc<AtomicU64>,
    reading: Reading,
}

struct Entry {
    name: String,
    method: u16,
    encrypted: bool,
    /// Of LZMA, whether its end is marked.
    marked: bool,
    crc32: u32,
    packed: u64,
    size: u64,
    offset: u64,
}

impl Zip {
    /// The members of an archive.
    pub fn open(
        storage: Arc<dyn Storage>,
        passed: Arc<AtomicU64>,
        reading: &Reading,
    ) -> io::Result<Self> {
        let mut entries = directory(storage.as_ref())?;
        entries.retain(|entry| !entry.name.ends_with('/') && !is_hidden(&entry.name));
        // Members may lie over each other, so that few bytes make many of them.
        let size = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.size));
        within_ratio(size, storage.size(), reading.max_ratio)?;
        Ok(Zip { storage, entries: entries.into_iter(), passed, reading: reading.clone() })
    }

    fn content(&self, entry: &Entry) -> io::Result<Input> {
        if entry.encrypted {
            return Err(damaged(format!("{} is encrypted", entry.name)));
        }
        let head = read(self.storage.as_ref(), entry.offset, 30)?;
        if head[..4] != *b"PK\x03\x04" {
            return Err(damaged(format!("{}: its head is not where it should be", entry.name)));
        }
        let names = u64::from(short(&head, 26)) + u64::from(short(&head, 28));
        let start = entry.offset + 30 + names;
        let end = start.saturating_add(entry.packed);
        if end > self.storage.size() {
            return Err(damaged(format!("ends within {}", entry.name)));
        }
        let passed = Arc::clone(&self.passed);
        let raw = Sequential::new(Arc::clone(&self.storage), start, end, Arc::clone(&passed));
        let packed =
            |packing| unpack(Box::new(raw), packing, Arc::clone(&passed), 64 << 10, &self.reading);
        let input = match entry.method {
            0 => packed(Packing::Plain)?,
            8 => {
                let raw =
                    Sequential::new(Arc::clone(&self.storage), start, end, Arc::clone(&passed));
                inflate(Box::new(raw), passed, &self.reading)
            }
            12 => packed(Packing::Bzip2)?,
            14 => {
                // Two bytes of version, two that tell the length of what follows, the settings.
                let own = read(self.storage.as_ref(), start, 9)?;
                if short(&own, 2) != 5 || end - start < 9 {
                    return Err(damaged(format!("{}: its settings make no sense", entry.name)));
                }
                // Whether the end is marked, or known by the size, is a flag.
                let size = if entry.marked { u64::MAX } else { entry.size };
                let head = [&own[4..], &size.to_le_bytes()].concat();
                let rest =
                    Sequential::new(Arc::clone(&self.storage), start + 9, end, Arc::clone(&passed));
                let input = Box::new(io::Cursor::new(head).chain(rest));
                unpack_lzma(input, passed, &self.reading)?
            }
            93 => packed(Packing::Zstd)?,
            95 => packed(Packing::Xz)?,
            other => {
                return Err(damaged(format!("{}: packed in the unknown way {other}", entry.name)));
            }
        };
        let (crc32, left) = (entry.crc32, entry.size);
        Ok(Box::new(Checked { input, hasher: Hasher::new(), crc32, left }))
    }
}

impl Archive for Zip {
    fn next(&mut self) -> io::Result<Option<Member>> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let input = self.content(&entry)?;
        Ok(Some(Member { name: entry.name, is_empty: entry.size == 0, input }))
    }
}

/// Compares what a member holds with what the directory says of it.
struct Checked {
    input: Input,
    hasher: Hasher,
    crc32: u32,
    left: u64,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        if n as u64 > self.left {
            return Err(damaged("a member is longer than the directory says"));
        }
        self.left -= n as u64;
        if n == 0 && !buffer.is_empty() {
            if self.left > 0 {
                return Err(damaged("ends within a member"));
            }
            if self.hasher.clone().finalize() != self.crc32 {
                return Err(damaged("the checksum of a member does not match"));
            }
        }
        Ok(n)
    }
}

fn read(storage: &dyn Storage, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    if offset.checked_add(length).is_none_or(|end| end > storage.size()) {
        return Err(damaged("ends early"));
    }
    let mut bytes = vec![0; length as usize];
    storage.read_at(&mut bytes, offset).map_err(|error| Trouble::Stop(error).into_io())?;
    Ok(bytes)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) | u32::from(short(bytes, at + 2)) << 16
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from(long(bytes, at)) | u64::from(long(bytes, at + 4)) << 32
}

/// Where the directory is, and its members.
fn directory(storage: &dyn Storage) -> io::Result<Vec<Entry>> {
    let tail_size = storage.size().min(END + LONGEST_COMMENT);
    let tail_start = storage.size() - tail_size;
    let tail = read(storage, tail_start, tail_size)?;
    let end = (0..tail.len().saturating_sub(END as usize - 1))
        .rev()
        .find(|&at| tail[at..].starts_with(b"PK\x05\x06"))
        .ok_or_else(|| damaged("not a zip archive: it has no directory at its end"))?;
    let mut size = u64::from(long(&tail, end + 12));
    let mut start = u64::from(long(&tail, end + 16));
    // Sizes beyond 32 bits are in a record of their own, which another one before the last names.
    let locator = (tail_start + end as u64).checked_sub(20);
    if let Some(at) = locator.filter(|_| start == 0xffff_ffff || size == 0xffff_ffff) {
        let locator = read(storage, at, 20)?;
        if locator.starts_with(b"PK\x06\x07") {
            let record = read(storage, wide(&locator, 8), 56)?;
            if !record.starts_with(b"PK\x06\x06") {
                return Err(damaged("the place of its directory makes no sense"));
            }
            (size, start) = (wide(&record, 40), wide(&record, 48));
        }
    }
    if size > LARGEST_DIRECTORY {
        return Err(damaged("an impossible size of its directory"));
    }
    let listing = read(storage, start, size)?;
    let (mut entries, mut at) = (Vec::new(), 0);
    while at < listing.len() {
        let record = &listing[at..];
        if record.len() < 46 || !record.starts_with(b"PK\x01\x02") {
            return Err(damaged("its directory makes no sense"));
        }
        let name_end = 46 + usize::from(short(record, 28));
        let extra_end = name_end + usize::from(short(record, 30));
        let (Some(name), Some(extra)) = (record.get(46..name_end), record.get(name_end..extra_end))
        else {
            return Err(damaged("its directory makes no sense"));
        };
        let mut entry = Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: short(record, 10),
            encrypted: short(record, 8) & 1 != 0,
            crc32: long(record, 16),
            packed: u64::from(long(record, 20)),
            size: u64::from(long(record, 24)),
            offset: u64::from(long(record, 42)),
            marked: short(record, 8) & 2 != 0,
        };
        widen(&mut entry, extra);
        entries.push(entry);
        at += extra_end + usize::from(short(record, 32));
    }
    Ok(entries)
}

/// Takes numbers that did not fit from the extra field that is for them.
fn widen(entry: &mut Entry, mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (id, length) = (short(extra, 0), usize::from(short(extra, 2)));
        let field = extra.get(4..4 + length).unwrap_or_default();
        if id == 1 {
            let mut at = 0;
            for number in [&mut entry.size, &mut entry.packed, &mut entry.offset] {
                if *number == 0xffff_ffff && at + 8 <= field.len() {
                    *number = wide(field, at);
                    at += 8;
                }
            }
        }
        extra = extra.get(4 + length..).unwrap_or_default();
    }
}
