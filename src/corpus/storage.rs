//! Bytes that are read by position: a file on this machine, or anything that can be asked for a
//! range.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::reading::Trouble;
use super::source::Source;
use crate::base::error::{Error, Result};
use crate::base::memory::reserve;

/// Bytes by position. Read by many threads at once.
pub trait Storage: Send + Sync + fmt::Debug {
    /// How many there are.
    fn size(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on; an error if there are fewer.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// An error if the bytes are not what `source` says they were.
    fn check(&self, source: &Source) -> Result<()>;

    /// How many bytes are worth asking for at a time.
    fn stride(&self) -> usize;
}

/// A file on this machine.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl LocalFile {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self> {
        // Looked at first: opening what is no file may wait for ever.
        Source::of_file(path)?;
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io(path, e))?;
        Ok(LocalFile { path: path.to_owned(), file, size: metadata.len() })
    }
}

impl Storage for LocalFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&self.file, buffer, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => ended_early(&self.path.display(), offset, buffer.len()),
            _ => Error::io(&self.path, e),
        })
    }

    fn check(&self, source: &Source) -> Result<()> {
        source.check(&self.file.metadata().map_err(|e| Error::io(&self.path, e))?)
    }

    fn stride(&self) -> usize {
        256 << 10
    }
}

/// What to say of something that has fewer bytes than it had.
pub fn ended_early(name: &dyn fmt::Display, start: u64, length: usize) -> Error {
    let end = start + length as u64;
    Error::corpus(format!("{name}: ended early, within bytes {start} to {end}"))
        .with_hint("the file was cut short while it was read; run again")
}

/// Reads into a buffer that is made as long as is needed.
pub fn read_range(storage: &dyn Storage, start: u64, end: u64, buffer: &mut Vec<u8>) -> Result<()> {
    let length = (end - start) as usize;
    // No shrinking and zeroing again: a worker's buffer is the same size nearly every time.
    if let Some(more) = length.checked_sub(buffer.len()) {
        reserve(buffer, more);
        buffer.resize(length, 0);
    }
    buffer.truncate(length);
    storage.read_at(buffer, start)
}

/// A stretch of storage from front to back.
#[derive(Debug)]
pub struct Sequential {
    storage: Arc<dyn Storage>,
    at: u64,
    end: u64,
    /// How much was read so far, for whoever wants to know.
    passed: Arc<AtomicU64>,
}

impl Sequential {
    /// The bytes from `start` to `end`.
    pub fn new(storage: Arc<dyn Storage>, start: u64, end: u64, passed: Arc<AtomicU64>) -> Self {
        Sequential { storage, at: start, end, passed }
    }
}

impl Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = (self.end.saturating_sub(self.at)).min(buffer.len() as u64) as usize;
        self.storage
            .read_at(&mut buffer[..n], self.at)
            .map_err(|error| Trouble::Stop(error).into_io())?;
        self.at += n as u64;
        self.passed.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !buffer.is_empty() {
        match file.seek_read(buffer, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}
