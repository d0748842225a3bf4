//! The chunks of many files one after the other, for whoever has to keep their order.
//!
//! Unlike [`Reader`](super::Reader) this can begin anywhere, gives empty files too, and notices a
//! file that is not what it was when the work began.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::Cutter;
use super::reader::{Chunk, Opened};
use crate::error::{Error, Result};

/// A file of a corpus as it was at some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Where it is, as the user said it.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

impl Source {
    /// The file as it is now.
    pub fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
        if metadata.is_dir() {
            return Err(Error::io(path, std::io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // It has no size, and opening it may wait for ever.
            return Err(Error::corpus(format!("{}: not a regular file", path.display()))
                .with_hint("on the command line, - stands for stdin"));
        }
        Ok(Source {
            path: path.to_string_lossy().into_owned(),
            size: metadata.len(),
            mtime_ns: mtime_ns(&metadata),
        })
    }

    fn check(&self, metadata: &Metadata) -> Result<()> {
        if metadata.len() == self.size && mtime_ns(metadata) == self.mtime_ns {
            return Ok(());
        }
        let what = if metadata.len() == self.size {
            "it was written to".to_owned()
        } else {
            format!("it had {} bytes and has {}", self.size, metadata.len())
        };
        Err(Error::corpus(format!("{}: changed since the work on it began: {what}", self.path))
            .with_hint("begin anew: overwrite=True (--overwrite)"))
    }
}

fn mtime_ns(metadata: &Metadata) -> i64 {
    // A system without times of change has only sizes to go by.
    let Ok(modified) = metadata.modified() else { return 0 };
    let ns = |span: std::time::Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => ns(after),
        Err(before) => -ns(before.duration()),
    }
}

/// The files of a corpus, chunk by chunk in order.
#[derive(Debug)]
pub struct InOrder<'a> {
    paths: &'a [PathBuf],
    sources: &'a [Source],
    cutter: &'a Cutter,
    chunk_size: u64,
    next: usize,
    offset: u64,
    open: Option<Arc<Opened>>,
}

/// A chunk and its place in the corpus.
#[derive(Debug)]
pub struct Part<'a> {
    /// The text; may be empty, if its source is.
    pub chunk: Chunk,
    /// The number of its source.
    pub number: usize,
    /// Whether its source ends with it.
    pub last: bool,
    source: &'a Source,
}

impl<'a> InOrder<'a> {
    /// The chunks, of about `chunk_size` bytes, of these files, which are expected to be as
    /// `sources` says. The first is at byte `offset` of file `first`, where a chunk once ended.
    pub fn new(
        paths: &'a [PathBuf],
        sources: &'a [Source],
        cutter: &'a Cutter,
        chunk_size: usize,
        (first, offset): (usize, u64),
    ) -> Self {
        let chunk_size = chunk_size.max(1) as u64;
        InOrder { paths, sources, cutter, chunk_size, next: first, offset, open: None }
    }

    /// The next chunk.
    pub fn next_part(&mut self) -> Result<Option<Part<'a>>> {
        let (Some(path), Some(source)) = (self.paths.get(self.next), self.sources.get(self.next))
        else {
            return Ok(None);
        };
        let file = match &self.open {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(Opened::new(path)?);
                source.check(&file.metadata()?)?;
                Arc::clone(self.open.insert(file))
            }
        };
        let end = file.end_of_chunk(self.cutter, self.offset, self.chunk_size)?;
        let last = end >= file.size;
        let chunk = Chunk::new(file, self.offset, end);
        let part = Part { chunk, number: self.next, last, source };
        if last {
            (self.next, self.offset, self.open) = (self.next + 1, 0, None);
        } else {
            self.offset = end;
        }
        Ok(Some(part))
    }
}

impl Part<'_> {
    /// Reads the chunk into `buffer`. With the last chunk of a file, the file must still be what
    /// it was before the first.
    pub fn read(&self, buffer: &mut Vec<u8>) -> Result<()> {
        self.chunk.read(buffer)?;
        if self.last { self.source.check(&self.chunk.opened().metadata()?) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(paths: &[PathBuf]) -> Vec<Source> {
        paths.iter().map(|path| Source::of(path).unwrap()).collect()
    }

    #[test]
    fn chunks_are_the_files_from_any_of_them_on() {
        let folder = tempfile::tempdir().unwrap();
        let texts = ["some words to be cut, here or there", "", "x", "more of them, and more"];
        let paths: Vec<PathBuf> = (0..4).map(|i| folder.path().join(i.to_string())).collect();
        for (path, text) in paths.iter().zip(texts) {
            std::fs::write(path, text).unwrap();
        }
        let cutter = Cutter::new(&["gpt2"], &["<|end|>"]).unwrap();
        let sources = sources(&paths);
        let read = |start| {
            let mut chunks = InOrder::new(&paths, &sources, &cutter, 5, start);
            let (mut parts, mut buffer) = (Vec::new(), Vec::new());
            while let Some(part) = chunks.next_part().unwrap() {
                part.read(&mut buffer).unwrap();
                parts.push((part.number, part.chunk.end(), part.last, buffer.clone()));
            }
            parts
        };
        let all = read((0, 0));
        for (number, text) in texts.iter().enumerate() {
            let of_this = all.iter().filter(|part| part.0 == number);
            let whole: Vec<u8> = of_this.clone().flat_map(|part| part.3.clone()).collect();
            assert_eq!(whole, text.as_bytes());
            assert_eq!(of_this.filter(|part| part.2).count(), 1);
        }
        assert!(all.len() > 6);
        for (i, (number, end, last, _)) in all.iter().enumerate() {
            let start = if *last { (number + 1, 0) } else { (*number, *end) };
            assert_eq!(read(start), all[i + 1..]);
        }
    }

    #[test]
    fn a_file_that_changed_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a")];
        std::fs::write(&paths[0], "some text, here").unwrap();
        let cutter = Cutter::new::<_, &str>(&["gpt2"], &[]).unwrap();
        let sources = sources(&paths);
        let mut chunks = InOrder::new(&paths, &sources, &cutter, 8, (0, 0));
        let part = chunks.next_part().unwrap().unwrap();
        std::fs::write(&paths[0], "some longer text, here").unwrap();
        let last = chunks.next_part().unwrap().unwrap();
        assert!((part.last, last.last) == (false, true));
        let error = last.read(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("it had 15 bytes and has 22"), "{error}");
        let error = InOrder::new(&paths, &sources, &cutter, 5, (0, 0)).next_part().unwrap_err();
        assert!(error.to_string().contains("changed since"), "{error}");
    }
}
