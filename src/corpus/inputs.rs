//! The sources of a corpus, in order.
//!
//! A source offers bytes by position ([`Storage`]), bytes as they arrive ([`Pipe`]) or rows
//! ([`RowSource`]). Python implements all three for the sources that it reads.

use std::fmt;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;

use super::kind::FileKind;
use super::reading::Reading;
use crate::base::error::{Error, Result};

/// A source as it was when it was listed, to notice later that it changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Source {
    /// The path or URL as the user wrote it.
    pub path: String,
    /// In bytes, as stored.
    pub size: u64,
    /// Last change, in nanoseconds since 1970; 0 if unknown.
    pub mtime_ns: i64,
    /// Another identifier of its version, such as an ETag.
    #[serde(default)]
    pub version: String,
    /// What it was read as, unless plain text.
    #[serde(default)]
    pub format: String,
    #[serde(default)]
    pub range: Option<(u64, u64)>,
}

impl Source {
    /// A file as it is now.
    pub fn of_file(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
        if metadata.is_dir() {
            return Err(Error::io(path, std::io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // It has no size, and opening it may block.
            return Err(Error::corpus(format!("{}: not a regular file", path.display()))
                .with_hint("on the command line, - stands for stdin"));
        }
        Ok(Source {
            path: path.to_string_lossy().into_owned(),
            size: metadata.len(),
            mtime_ns: mtime_ns(&metadata),
            version: String::new(),
            format: String::new(),
            range: None,
        })
    }

    /// Whether positions in its text are positions in the file, so that it can be read in ranges.
    pub fn is_divisible(&self) -> bool {
        matches!(self.format.as_str(), "" | "jsonl")
    }

    /// Stored bytes to read: its size, or that of its range.
    pub fn weight(&self) -> u64 {
        let (start, end) = self.range.unwrap_or((0, self.size));
        end.min(self.size).saturating_sub(start)
    }

    /// The approximate share of the weight before `offset`.
    pub fn weight_upto(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.range.map_or(0, |(start, _)| start)).min(self.weight())
    }

    /// An error if the file changed.
    pub fn check(&self, metadata: &Metadata) -> Result<()> {
        if metadata.len() == self.size && mtime_ns(metadata) == self.mtime_ns {
            return Ok(());
        }
        let what = if metadata.len() == self.size {
            "it was modified".to_owned()
        } else {
            format!("its size was {} bytes and is {}", self.size, metadata.len())
        };
        Err(self.changed(&what))
    }

    /// The error for a source that changed.
    pub fn changed(&self, what: &str) -> Error {
        Error::corpus(format!("{}: changed since the run started: {what}", self.path))
            .with_hint("start over: overwrite=True")
    }
}

fn mtime_ns(metadata: &Metadata) -> i64 {
    // On a system without modification times, only sizes are compared.
    let Ok(modified) = metadata.modified() else { return 0 };
    let ns = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => ns(after),
        Err(before) => -ns(before.duration()),
    }
}

/// Bytes by position. Many threads read at once.
pub trait Storage: Send + Sync + fmt::Debug {
    fn size(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on; an error if there are fewer.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// An error if the bytes changed since `source` was taken.
    fn check(&self, source: &Source) -> Result<()>;

    /// How many bytes one request should ask for.
    fn stride(&self) -> usize;
}

/// Bytes that arrive once, from front to back, at any pace and in unknown number.
pub trait Pipe: Send + Sync + fmt::Debug {
    /// Called before the first read; an error if the pipe was read before.
    fn begin(&self) -> Result<()>;

    /// The next bytes: None if none arrived within `timeout`, an empty list at the end.
    fn next(&self, timeout: Duration) -> Result<Option<Vec<u8>>>;
}

/// Rows in batches: columns of Parquet or Arrow, a dataset, an iterator.
pub trait RowSource: Send + Sync + fmt::Debug {
    /// The batches from a position on, at which an earlier block ended.
    fn open(&self, from: SourcePosition) -> Result<RowBatches>;
}

pub type RowBatches = Box<dyn Iterator<Item = Result<GivenRows>> + Send>;

/// A batch and its place in the source.
#[derive(Debug)]
pub struct GivenRows {
    pub batch: Arc<dyn RowBatch>,
    /// The number of its row group.
    pub row_group: u64,
    /// How many rows of the row group come before the batch.
    pub first: u64,
    /// Whether the row group ends with it.
    pub ends_row_group: bool,
    /// The number of stored bytes of the source that it represents.
    pub weight: u64,
    /// If the row group or the source cannot be read: the reason, and the number of records lost.
    pub fault: Option<(String, u64)>,
}

/// Texts in memory.
pub trait RowBatch: Send + Sync + fmt::Debug {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of a row, or None if it is null.
    fn get(&self, row: usize) -> Option<&[u8]>;

    /// Whether the caller passed the texts, which may then be any bytes, of any length.
    fn is_callers_own(&self) -> bool {
        false
    }
}

/// A position in a source, at the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourcePosition {
    /// The member of an archive, or the row group.
    pub section: u64,
    /// The byte in it, decompressed.
    pub offset: u64,
    /// Lines or rows before it, where they are counted.
    pub records: u64,
}

/// Where a source is; for those that Python reads, with the source as it was listed.
#[derive(Debug, Clone)]
pub enum Location {
    File(PathBuf),
    Storage(Arc<dyn Storage>, Source),
    Rows(Arc<dyn RowSource>, Source),
    Pipe(Arc<dyn Pipe>, Source),
}

#[derive(Debug, Clone)]
pub struct Input {
    /// The path or URL as the user wrote it.
    pub name: String,
    pub location: Location,
    pub kind: FileKind,
    /// The approximate byte range, if work is divided among machines: a record or piece belongs to the
    /// range that it begins in.
    pub range: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Default)]
pub struct Inputs {
    pub list: Vec<Input>,
    pub reading: Reading,
}

impl Inputs {
    /// Files, whose names determine their kinds.
    pub fn of_files<P: AsRef<Path>>(paths: &[P]) -> Self {
        let list = paths.iter().map(|path| Input::of_file(path.as_ref())).collect();
        Inputs { list, reading: Reading::default() }
    }

    /// The sources as they are now.
    pub fn sources(&self) -> Result<Vec<Source>> {
        self.list.iter().map(Input::source).collect()
    }
}

impl Input {
    pub fn of_file(path: &Path) -> Self {
        let name = path.to_string_lossy().into_owned();
        let kind = FileKind::of_name(&name);
        Input { name, location: Location::File(path.to_owned()), kind, range: None }
    }

    /// The source as it is now.
    pub fn source(&self) -> Result<Source> {
        let source = match &self.location {
            Location::File(path) => Source::of_file(path)?,
            Location::Storage(_, source)
            | Location::Rows(_, source)
            | Location::Pipe(_, source) => source.clone(),
        };
        let format =
            if self.kind == FileKind::TEXT { String::new() } else { self.kind.to_string() };
        Ok(Source { path: self.name.clone(), format, range: self.range, ..source })
    }

    /// Stored bytes to read.
    pub fn size(&self) -> Result<u64> {
        let whole = match &self.location {
            Location::File(path) => std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len(),
            Location::Storage(storage, _) => storage.size(),
            Location::Rows(_, source) | Location::Pipe(_, source) => source.size,
        };
        Ok(self.range.map_or(whole, |(start, end)| end.min(whole).saturating_sub(start)))
    }

    /// Whether its size is the size of its text, so that the number of blocks is known.
    pub fn is_measured(&self) -> bool {
        self.kind.is_plain() && !matches!(self.location, Location::Pipe(..))
    }
}
