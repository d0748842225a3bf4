//! Zip: members, and a directory at the end, which is authoritative.
//!
//! Members may be stored, deflated, or compressed with bzip2, LZMA, xz or Zstandard; archives may be
//! larger than 4 GB. Encrypted members are refused.
//!
//! Why not in Python: `zipfile` needs 40,000 instructions to list a member, this file 760; counting
//! a member of 3 kB takes 520,000 (docs/performance.md), so listing there would cost 8 % where
//! members are small. `rc-zip` needs 2,830 and does not limit memory while decompressing.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crc32fast::Hasher;

use super::bytes::{ByteStream, Member, StorageReader};
use super::choice::is_hidden;
use super::decompress::{decompress, decompress_lzma, inflate, within_ratio};
use super::inputs::Storage;
use super::kind::Compression;
use super::reading::{ReadFailure, Reading, damaged};

/// The size of the last record without the comment after it, and of the longest comment.
const END_SIZE: u64 = 22;
const MAX_COMMENT_SIZE: u64 = 0xffff;
const MAX_DIRECTORY_SIZE: u64 = 4 << 30;
const STRIDE: usize = 64 << 10;

pub struct Zip {
    storage: Arc<dyn Storage>,
    listed: std::vec::IntoIter<DirectoryEntry>,
    passed: Arc<AtomicU64>,
    reading: Reading,
}

/// A member as the directory lists it.
struct DirectoryEntry {
    name: String,
    method: u16,
    encrypted: bool,
    /// For LZMA: whether an end marker terminates the data.
    marked: bool,
    crc32: u32,
    compressed_size: u64,
    size: u64,
    /// Where its local header is.
    offset: u64,
}

impl Zip {
    pub fn open(
        storage: Arc<dyn Storage>,
        passed: Arc<AtomicU64>,
        reading: &Reading,
    ) -> io::Result<Self> {
        let mut listed = directory(storage.as_ref())?;
        listed.retain(|member| !member.name.ends_with('/') && !is_hidden(&member.name));
        // Members may overlap, so that a few bytes make many of them.
        let size = listed.iter().fold(0u64, |sum, member| sum.saturating_add(member.size));
        within_ratio(size, storage.size(), reading.max_ratio)?;
        Ok(Zip { storage, listed: listed.into_iter(), passed, reading: reading.clone() })
    }

    fn content(&self, member: &DirectoryEntry) -> io::Result<ByteStream> {
        if member.encrypted {
            return Err(damaged(format!("{} is encrypted", member.name)));
        }
        let head = read(self.storage.as_ref(), member.offset, 30)?;
        if head[..4] != *b"PK\x03\x04" {
            return Err(damaged(format!("{}: no local header at its offset", member.name)));
        }
        let names = u64::from(short(&head, 26)) + u64::from(short(&head, 28));
        let start = member.offset + 30 + names;
        let end = start.saturating_add(member.compressed_size);
        if end > self.storage.size() {
            return Err(damaged(format!("truncated in {}", member.name)));
        }
        let passed = || Arc::clone(&self.passed);
        let from = |start| StorageReader::new(Arc::clone(&self.storage), start, end, passed());
        let through = |compression| {
            decompress(Box::new(from(start)), compression, passed(), STRIDE, &self.reading)
        };
        let content = match member.method {
            0 => through(Compression::Plain)?,
            8 => inflate(Box::new(from(start)), passed(), &self.reading),
            12 => through(Compression::Bzip2)?,
            14 => {
                // Two bytes of version, two with the length of the properties, the properties.
                let own = read(self.storage.as_ref(), start, 9)?;
                if short(&own, 2) != 5 || end - start < 9 {
                    return Err(damaged(format!("{}: invalid LZMA properties", member.name)));
                }
                let size = if member.marked { u64::MAX } else { member.size };
                let header = [&own[4..], &size.to_le_bytes()].concat();
                let input = Box::new(io::Cursor::new(header).chain(from(start + 9)));
                decompress_lzma(input, passed(), &self.reading)?
            }
            93 => through(Compression::Zstd)?,
            95 => through(Compression::Xz)?,
            other => {
                return Err(damaged(format!(
                    "{}: unsupported compression method {other}",
                    member.name
                )));
            }
        };
        let (crc32, left) = (member.crc32, member.size);
        Ok(Box::new(CheckedMember { content, hasher: Hasher::new(), crc32, left }))
    }

    /// The next file, or None at the end.
    pub fn next(&mut self) -> io::Result<Option<Member>> {
        let Some(member) = self.listed.next() else { return Ok(None) };
        let content = self.content(&member)?;
        Ok(Some(Member { name: member.name, is_empty: member.size == 0, content }))
    }
}

/// Verifies the size and the checksum of a member against the directory.
struct CheckedMember {
    content: ByteStream,
    hasher: Hasher,
    crc32: u32,
    left: u64,
}

impl Read for CheckedMember {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        if n as u64 > self.left {
            return Err(damaged("a member is longer than the directory says"));
        }
        self.left -= n as u64;
        if n == 0 && !buffer.is_empty() {
            if self.left > 0 {
                return Err(damaged("truncated in a member"));
            }
            if self.hasher.clone().finalize() != self.crc32 {
                return Err(damaged("member checksum mismatch"));
            }
        }
        Ok(n)
    }
}

fn read(storage: &dyn Storage, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    if offset.checked_add(length).is_none_or(|end| end > storage.size()) {
        return Err(damaged("truncated"));
    }
    let mut bytes = vec![0; length as usize];
    storage.read_at(&mut bytes, offset).map_err(|error| ReadFailure::Stop(error).into_io())?;
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

/// Finds and reads the directory.
fn directory(storage: &dyn Storage) -> io::Result<Vec<DirectoryEntry>> {
    let tail_size = storage.size().min(END_SIZE + MAX_COMMENT_SIZE);
    let tail_start = storage.size() - tail_size;
    let tail = read(storage, tail_start, tail_size)?;
    let end = (0..tail.len().saturating_sub(END_SIZE as usize - 1))
        .rev()
        .find(|&at| tail[at..].starts_with(b"PK\x05\x06"))
        .ok_or_else(|| damaged("not a zip archive: no directory at its end"))?;
    let mut size = u64::from(long(&tail, end + 12));
    let mut start = u64::from(long(&tail, end + 16));
    // Sizes beyond 32 bits are in a record of their own; a locator before the last record points
    // to it.
    let locator = (tail_start + end as u64).checked_sub(20);
    if let Some(at) = locator.filter(|_| start == 0xffff_ffff || size == 0xffff_ffff) {
        let locator = read(storage, at, 20)?;
        if locator.starts_with(b"PK\x06\x07") {
            let record = read(storage, wide(&locator, 8), 56)?;
            if !record.starts_with(b"PK\x06\x06") {
                return Err(damaged("invalid directory offset"));
            }
            (size, start) = (wide(&record, 40), wide(&record, 48));
        }
    }
    if size > MAX_DIRECTORY_SIZE {
        return Err(damaged("impossible directory size"));
    }
    let listing = read(storage, start, size)?;
    let (mut listed, mut at) = (Vec::new(), 0);
    while at < listing.len() {
        let record = &listing[at..];
        if record.len() < 46 || !record.starts_with(b"PK\x01\x02") {
            return Err(damaged("invalid directory entry"));
        }
        let name_end = 46 + usize::from(short(record, 28));
        let extra_end = name_end + usize::from(short(record, 30));
        let (Some(name), Some(extra)) = (record.get(46..name_end), record.get(name_end..extra_end))
        else {
            return Err(damaged("invalid directory entry"));
        };
        let mut member = DirectoryEntry {
            name: String::from_utf8_lossy(name).into_owned(),
            method: short(record, 10),
            encrypted: short(record, 8) & 1 != 0,
            crc32: long(record, 16),
            compressed_size: u64::from(long(record, 20)),
            size: u64::from(long(record, 24)),
            offset: u64::from(long(record, 42)),
            marked: short(record, 8) & 2 != 0,
        };
        widen(&mut member, extra);
        listed.push(member);
        at += extra_end + usize::from(short(record, 32));
    }
    Ok(listed)
}

/// Reads numbers that do not fit into 32 bits from the extra field for them.
fn widen(member: &mut DirectoryEntry, mut extra: &[u8]) {
    while extra.len() >= 4 {
        let (id, length) = (short(extra, 0), usize::from(short(extra, 2)));
        let field = extra.get(4..4 + length).unwrap_or_default();
        if id == 1 {
            let mut at = 0;
            for number in [&mut member.size, &mut member.compressed_size, &mut member.offset] {
                if *number == 0xffff_ffff && at + 8 <= field.len() {
                    *number = wide(field, at);
                    at += 8;
                }
            }
        }
        extra = extra.get(4 + length..).unwrap_or_default();
    }
}
