//! Hands out the chunks of many files to many workers.
//!
//! A small file is one chunk, opened by whoever took its number. A large file is shared: its
//! reader's cursor moves from cut to cut under a lock, so the search for cuts is linear in the
//! file even where there are hardly any, and the workers read what they were given outside.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Cutter, text};
use crate::error::{Error, Result};

/// What is read at a time when looking for a cut.
const WINDOW: usize = 16 << 10;

/// A chunk of a file.
#[derive(Debug)]
pub struct Chunk {
    file: Arc<Opened>,
    start: u64,
    end: u64,
}

#[derive(Debug)]
pub(super) struct Opened {
    path: PathBuf,
    file: File,
    pub(super) size: u64,
}

/// The files of a corpus, to be read chunk by chunk by any number of threads.
#[derive(Debug)]
pub struct Reader<'a> {
    paths: &'a [PathBuf],
    cutter: &'a Cutter,
    chunk_size: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: usize,
    /// Large files that are not handed out entirely yet, and how far they are.
    large: Vec<(Arc<Opened>, u64)>,
}

impl<'a> Reader<'a> {
    /// A reader of these files in chunks of about `chunk_size` bytes.
    pub fn new(paths: &'a [PathBuf], cutter: &'a Cutter, chunk_size: usize) -> Self {
        let chunk_size = chunk_size.max(1) as u64;
        Reader { paths, cutter, chunk_size, state: Mutex::new(State::default()) }
    }

    /// The sizes of all files together.
    pub fn total(&self) -> Result<u64> {
        let mut total = 0;
        for path in self.paths {
            total += std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len();
        }
        Ok(total)
    }

    /// The next chunk, or None when all are handed out. Which worker gets which is left open.
    pub fn next(&self) -> Result<Option<Chunk>> {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((file, start)) = state.large.pop() {
                let end = file.end_of_chunk(self.cutter, start, self.chunk_size)?;
                if end < file.size {
                    state.large.push((Arc::clone(&file), end));
                }
                return Ok(Some(Chunk { file, start, end }));
            }
            let Some(path) = self.paths.get(state.next) else { return Ok(None) };
            state.next += 1;
            drop(state);
            let opened = Arc::new(Opened::new(path)?);
            if opened.size == 0 {
                continue;
            }
            if opened.size <= self.chunk_size {
                let end = opened.size;
                return Ok(Some(Chunk { file: opened, start: 0, end }));
            }
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.large.push((opened, 0));
        }
    }
}

impl Opened {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io(path, e))?;
        if metadata.is_dir() {
            return Err(Error::io(path, std::io::ErrorKind::IsADirectory.into()));
        }
        let opened = Opened { path: path.to_owned(), file, size: metadata.len() };
        let mut sample = Vec::new();
        opened.read(0, opened.size.min(text::SAMPLE as u64), &mut sample)?;
        match text::refusal(&sample) {
            None => Ok(opened),
            Some((what, hint)) => {
                Err(Error::corpus(format!("{}: {what}", path.display())).with_hint(hint))
            }
        }
    }

    /// Where a chunk that starts at `start` ends: at the first cut after its nominal size.
    pub(super) fn end_of_chunk(&self, cutter: &Cutter, start: u64, chunk_size: u64) -> Result<u64> {
        // Enough in front to see the character and any special token before the cut.
        let before = cutter.specials.longest().max(8) as u64;
        let mut nominal = start + chunk_size;
        let mut window = Vec::new();
        let mut width = WINDOW.max(4 * before as usize) as u64;
        while nominal < self.size {
            let from = nominal.saturating_sub(before).max(start);
            let upto = (nominal + width).min(self.size);
            self.read(from, upto, &mut window)?;
            let whole = upto == self.size;
            if let Some(at) = cutter.cut_after(&window, (nominal - from) as usize, whole) {
                return Ok(from + at as u64);
            }
            // What was seen has no cut; only its last few bytes may yet be one.
            nominal = upto.saturating_sub(before).max(nominal + 1);
            if whole {
                break;
            }
            width = (width * 2).min(8 << 20);
        }
        Ok(self.size)
    }

    /// Size and time of change, as they are now.
    pub(super) fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().map_err(|e| Error::io(&self.path, e))
    }

    fn read(&self, start: u64, end: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let length = (end - start) as usize;
        // No shrinking and zeroing again: a worker's buffer is the same size nearly every time.
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer.truncate(length);
        read_exact_at(&self.file, buffer, start).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::corpus(format!(
                "{}: ended early, within bytes {start} to {end}",
                self.path.display()
            ))
            .with_hint("the file was cut short while it was read; run again"),
            _ => Error::io(&self.path, e),
        })
    }
}

impl Chunk {
    pub(super) fn new(file: Arc<Opened>, start: u64, end: u64) -> Self {
        Chunk { file, start, end }
    }

    pub(super) fn opened(&self) -> &Opened {
        &self.file
    }

    /// Reads the chunk into `buffer`.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Result<()> {
        self.file.read(self.start, self.end, buffer)
    }

    /// The file it is from.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Where in the file it ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !buffer.is_empty() {
        match file.seek_read(buffer, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => {
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}
