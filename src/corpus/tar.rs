//! Tar: records of 512 bytes, a header before every member, read from front to back.
//!
//! Reads the old format, `ustar`, and the long names of GNU and of POSIX (`pax`). Only regular files
//! are read; directories, links and devices are skipped.
//!
//! Why not in Python: a compressed archive, or one from a pipe, has no positions to list, so its
//! headers must be read where its bytes are. Listing uncompressed archives with `tarfile` would be a
//! second reader, and costs 66 % of the work of counting members of 3 kB (docs/performance.md).
//! The `tar` crate takes four times the instructions of this file, and accepts other archives.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bytes::{ByteStream, Member};
use super::choice::is_hidden;
use super::reading::damaged;

const RECORD_SIZE: usize = 512;
/// A damaged length must not exhaust memory.
const MAX_NAME_SIZE: u64 = 1 << 20;
/// Small enough that adding to it cannot overflow.
const MAX_MEMBER_SIZE: u64 = 1 << 60;

pub struct Tar {
    /// Shared with the content of the current member.
    input: Arc<Mutex<TarInput>>,
}

struct TarInput {
    input: ByteStream,
    /// Unread bytes of the current member, and the padding of its last record.
    left: u64,
    padding: u64,
    /// Whether reading a member failed: the failure was reported, and nothing follows.
    failed: bool,
}

impl Tar {
    pub fn new(input: ByteStream) -> Self {
        let input = TarInput { input, left: 0, padding: 0, failed: false };
        Tar { input: Arc::new(Mutex::new(input)) }
    }

    /// The next file, or None at the end. The previous one need not have been read to its end.
    pub fn next(&mut self) -> io::Result<Option<Member>> {
        let mut state = lock(&self.input);
        let mut extended = ExtendedHeader::default();
        if state.failed {
            return Ok(None);
        }
        loop {
            state.pass()?;
            let Some(head) = state.head()? else { return Ok(None) };
            let size = extended.size.take().map_or_else(|| number(&head[124..136]), Ok)?;
            if size > MAX_MEMBER_SIZE {
                return Err(damaged("impossible member size"));
            }
            state.left = size;
            state.padding = (RECORD_SIZE as u64 - size % RECORD_SIZE as u64) % RECORD_SIZE as u64;
            match head[156] {
                b'L' => extended.name = Some(until_zero(&state.text()?)),
                b'x' => read_extended(&state.text()?, &mut extended)?,
                b'0' | 0 | b'7' => {
                    let name = extended.name.take().unwrap_or_else(|| name_of(&head));
                    // In the old format, directories are files whose names end in a slash.
                    if !is_hidden(&name) && !name.ends_with('/') {
                        let content = Box::new(MemberReader(Arc::clone(&self.input)));
                        return Ok(Some(Member { name, is_empty: size == 0, content }));
                    }
                }
                b'S' => return Err(damaged("contains a sparse file, which is not supported")),
                b'g' | b'K' => {}
                _ => extended = ExtendedHeader::default(),
            }
        }
    }
}

fn lock(input: &Mutex<TarInput>) -> MutexGuard<'_, TarInput> {
    input.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values for the next member, from headers before its own.
#[derive(Default)]
struct ExtendedHeader {
    name: Option<String>,
    size: Option<u64>,
}

impl TarInput {
    /// Skips what is left of the current member.
    fn pass(&mut self) -> io::Result<()> {
        let n = self.left + self.padding;
        let passed = io::copy(&mut (&mut self.input).take(n), &mut io::sink())?;
        // The last record need not be padded.
        if passed < self.left {
            return Err(damaged("truncated in a member"));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// The next header; None at the end.
    fn head(&mut self) -> io::Result<Option<[u8; RECORD_SIZE]>> {
        let mut head = [0; RECORD_SIZE];
        let mut filled = 0;
        while filled < RECORD_SIZE {
            match self.input.read(&mut head[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(damaged("truncated in a member header")),
                n => filled += n,
            }
        }
        if head.iter().all(|&byte| byte == 0) {
            // The rest is padding, but reading it lets a decompressor verify its checksum.
            io::copy(&mut self.input, &mut io::sink())?;
            return Ok(None);
        }
        let sum: u64 = head
            .iter()
            .enumerate()
            .map(|(i, &byte)| if (148..156).contains(&i) { 32 } else { u64::from(byte) })
            .sum();
        if number(&head[148..156]).ok() != Some(sum) {
            return Err(damaged("not a tar archive, or damaged: header checksum mismatch"));
        }
        Ok(Some(head))
    }

    /// The content of an extended header.
    fn text(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_NAME_SIZE {
            return Err(damaged("impossible name length"));
        }
        let mut text = vec![0; self.left as usize];
        self.input.read_exact(&mut text).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => damaged("truncated in a member"),
            _ => e,
        })?;
        self.left = 0;
        Ok(text)
    }
}

/// A number in octal digits, or in binary if its first bit is set.
fn number(field: &[u8]) -> io::Result<u64> {
    let wrong = || damaged("invalid number in a member header");
    if field[0] & 0x80 != 0 {
        let bytes = field.iter().enumerate().map(|(i, &b)| if i == 0 { b & 0x7f } else { b });
        return bytes
            .into_iter()
            .try_fold(0u64, |value, byte| value.checked_mul(256)?.checked_add(byte.into()))
            .ok_or_else(wrong);
    }
    let text = until_zero(field);
    let digits = text.trim();
    if digits.is_empty() { Ok(0) } else { u64::from_str_radix(digits, 8).map_err(|_| wrong()) }
}

fn until_zero(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn name_of(head: &[u8; RECORD_SIZE]) -> String {
    let name = until_zero(&head[..100]);
    let prefix = until_zero(&head[345..500]);
    let posix = &head[257..263] == b"ustar\0";
    if posix && !prefix.is_empty() { format!("{prefix}/{name}") } else { name }
}

/// Reads `LENGTH NAME=VALUE` lines (pax).
fn read_extended(mut text: &[u8], extended: &mut ExtendedHeader) -> io::Result<()> {
    let wrong = || damaged("invalid extended header");
    while !text.is_empty() {
        let space = text.iter().position(|&byte| byte == b' ').ok_or_else(wrong)?;
        let length: usize = until_zero(&text[..space]).parse().map_err(|_| wrong())?;
        let line = text.get(space + 1..length.saturating_sub(1)).ok_or_else(wrong)?;
        text = text.get(length..).ok_or_else(wrong)?;
        let line = String::from_utf8_lossy(line);
        match line.split_once('=') {
            Some(("path", value)) => extended.name = Some(value.to_owned()),
            Some(("size", value)) => extended.size = Some(value.parse().map_err(|_| wrong())?),
            Some(_) => {}
            None => return Err(wrong()),
        }
    }
    Ok(())
}

/// Reads the current member.
struct MemberReader(Arc<Mutex<TarInput>>);

impl Read for MemberReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = lock(&self.0);
        let most = state.left.min(buffer.len() as u64) as usize;
        match state.input.read(&mut buffer[..most]) {
            Ok(n) if n > 0 || most == 0 => {
                state.left -= n as u64;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            other => {
                state.failed = true;
                Err(other.err().unwrap_or_else(|| damaged("truncated in a member")))
            }
        }
    }
}
