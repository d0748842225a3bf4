//! Where bytes come from: local files, ranges of storage, pipes.
//!
//! Files are read by position into a buffer of each worker, not through a memory map: with a map, a
//! file that shrinks while it is read would kill the process; this way it is an error.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::inputs::{Pipe, Source, Storage};
use super::reading::ReadFailure;
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::memory::reserve;

/// Bytes from front to back.
pub type ByteStream = Box<dyn Read + Send>;

/// How long a pipe may be silent before the job is checked for cancellation.
const PIPE_TIMEOUT: Duration = Duration::from_millis(50);

/// A file in an archive.
pub struct Member {
    /// Its path in the archive.
    pub name: String,
    pub is_empty: bool,
    pub content: ByteStream,
}

#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl LocalFile {
    pub fn open(path: &Path) -> Result<Self> {
        // Refuses anything but regular files first: opening others may block.
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
        files::read_exact_at(&self.file, buffer, offset).map_err(|e| match e.kind() {
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

/// The error for a source that shrank.
pub fn ended_early(name: &dyn fmt::Display, start: u64, length: usize) -> Error {
    let end = start + length as u64;
    Error::corpus(format!("{name}: unexpected end of file within bytes {start} to {end}"))
        .with_hint("the file was truncated while it was read; run again")
}

/// Reads the bytes from `start` to `end` into `buffer` and sets its length.
pub fn read_range(storage: &dyn Storage, start: u64, end: u64, buffer: &mut Vec<u8>) -> Result<()> {
    let length = (end - start) as usize;
    // Never shrunk and zeroed again: a worker's buffer has the same size nearly every time.
    if let Some(more) = length.checked_sub(buffer.len()) {
        reserve(buffer, more);
        buffer.resize(length, 0);
    }
    buffer.truncate(length);
    storage.read_at(buffer, start)
}

/// Reads a range of storage from front to back.
#[derive(Debug)]
pub struct StorageReader {
    storage: Arc<dyn Storage>,
    at: u64,
    end: u64,
    /// Bytes read so far; shared with the progress of the source.
    passed: Arc<AtomicU64>,
}

impl StorageReader {
    pub fn new(storage: Arc<dyn Storage>, start: u64, end: u64, passed: Arc<AtomicU64>) -> Self {
        StorageReader { storage, at: start, end, passed }
    }
}

impl Read for StorageReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = (self.end.saturating_sub(self.at)).min(buffer.len() as u64) as usize;
        self.storage
            .read_at(&mut buffer[..n], self.at)
            .map_err(|error| ReadFailure::Stop(error).into_io())?;
        self.at += n as u64;
        self.passed.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

/// Reads a pipe; an error once `stopped` is set.
pub struct PipeReader {
    pipe: Arc<dyn Pipe>,
    stopped: Arc<AtomicBool>,
    passed: Arc<AtomicU64>,
    /// The bytes that arrived last, of which `at` were read.
    given: Vec<u8>,
    at: usize,
    ended: bool,
}

impl PipeReader {
    pub fn open(
        pipe: Arc<dyn Pipe>,
        stopped: Arc<AtomicBool>,
        passed: Arc<AtomicU64>,
    ) -> Result<Self> {
        pipe.begin()?;
        Ok(PipeReader { pipe, stopped, passed, given: Vec::new(), at: 0, ended: false })
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.given.len() && !self.ended {
            if self.stopped.load(Relaxed) {
                return Err(ReadFailure::Stop(Error::Interrupted).into_io());
            }
            let next = self.pipe.next(PIPE_TIMEOUT).map_err(|e| ReadFailure::Stop(e).into_io())?;
            if let Some(bytes) = next {
                self.ended = bytes.is_empty();
                (self.given, self.at) = (bytes, 0);
            }
        }
        let n = buffer.len().min(self.given.len() - self.at);
        buffer[..n].copy_from_slice(&self.given[self.at..self.at + n]);
        self.at += n;
        self.passed.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}
