//! The sources of a corpus, in order, and how each is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};

use super::archive::{Tar, Zip};
use super::blocks::{Blocks, Context};
use super::kind::{Format, Kind};
use super::members::Members;
use super::pipe::Pipe;
use super::ranges::Ranges;
use super::reading::Reading;
use super::records::{Records, RowBlocks};
use super::source::Source;
use super::storage::{LocalFile, Sequential, Storage};
use super::stream::{Closing, Stream};
use super::unpack::unpack;
use crate::base::error::{Error, Result};

/// What is read of a pipe at a time.
const PIPE_STRIDE: usize = 256 << 10;

/// Where the bytes or the records of a source are.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file of this machine.
    File(PathBuf),
    /// Elsewhere, to be read in ranges; as it is when the work begins.
    Storage(Arc<dyn Storage>, Source),
    /// With somebody who gives records.
    Records(Arc<dyn Records>, Source),
    /// In a pipe: they come once, and nobody knows how many.
    Pipe(Arc<dyn Pipe>, Source),
}

/// A source.
#[derive(Debug, Clone)]
pub struct Input {
    /// Where it is, as the user said it.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// What it holds.
    pub kind: Kind,
    /// Which bytes of it, about, if not all: work that is divided among machines. A record or
    /// piece is of the range that it begins in.
    pub range: Option<(u64, u64)>,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The sources in order.
    pub list: Vec<Input>,
    /// How they are read.
    pub reading: Reading,
}

/// A place in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// The member of an archive, or the row group.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub part: u64,
    /// The byte in it, unpacked.
    pub offset: u64,
    /// Lines or rows before that, where they are counted.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub records: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Inputs {
    /// Files, read as their names say.
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
    /// A file, read as its name says.
    pub fn of_file(path: &Path) -> Self {
        let name = path.to_string_lossy().into_owned();
        let kind = Kind::of_name(&name);
        Input { name, place: Place::File(path.to_owned()), kind, range: None }
    }

    /// What it is now.
    pub fn source(&self) -> Result<Source> {
        let source = match &self.place {
            Place::File(path) => Source::of_file(path)?,
            Place::Storage(_, source) | Place::Records(_, source) | Place::Pipe(_, source) => {
                source.clone()
            }
        };
        let format = if self.kind == Kind::TEXT { String::new() } else { self.kind.to_string() };
        Ok(Source { path: self.name.clone(), format, range: self.range, ..source })
    }

    /// How much there is to read of it.
    pub fn size(&self) -> Result<u64> {
        let whole = match &self.place {
            Place::File(path) => std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len(),
            Place::Storage(storage, _) => storage.size(),
            Place::Records(_, source) | Place::Pipe(_, source) => source.size,
        };
        Ok(self.range.map_or(whole, |(start, end)| end.min(whole).saturating_sub(start)))
    }

    /// Whether its size tells how many blocks there will be: it lies as it is read.
    pub fn is_measured(&self) -> bool {
        self.kind.is_plain() && !matches!(self.place, Place::Pipe(..))
    }

    /// The blocks of the source from a place on at which one once ended. It is expected to be as
    /// `source` says.
    pub(super) fn open<'a>(
        &'a self,
        number: usize,
        source: Option<&'a Source>,
        from: Position,
        context: &Context<'_>,
    ) -> Result<Box<dyn Blocks<'a> + 'a>> {
        let storage: Arc<dyn Storage> = match &self.place {
            Place::File(path) => Arc::new(LocalFile::open(path)?),
            Place::Storage(storage, _) => Arc::clone(storage),
            Place::Records(records, _) => {
                let batches = records.open(from)?;
                return Ok(Box::new(RowBlocks::new(number, &self.name, batches, from)));
            }
            Place::Pipe(pipe, _) => return self.open_pipe(pipe.as_ref(), number, context),
        };
        if let Some(source) = source {
            storage.check(source)?;
        }
        let divisible =
            self.kind.is_plain() && matches!(self.kind.format, Format::Text | Format::Jsonl);
        if divisible {
            let ranges = Ranges::open(self, number, storage, source, from, context)?;
            return Ok(Box::new(ranges));
        }
        if self.range.is_some() {
            return Err(Error::config(format!("{}: cannot be read in ranges", self.name)));
        }
        let passed = Arc::new(AtomicU64::new(0));
        let closing =
            Closing { number, storage: Some(Arc::clone(&storage)), source, told: 0, passed };
        let passed = Arc::clone(&closing.passed);
        let raw = || {
            let (all, passed) = (storage.size(), Arc::clone(&passed));
            let raw = Sequential::new(Arc::clone(&storage), 0, all, Arc::clone(&passed));
            unpack(Box::new(raw), self.kind.packing, passed, storage.stride(), context.reading)
        };
        let failed = |e: std::io::Error| Error::corpus(format!("{}: {e}", self.name));
        match self.kind.format {
            Format::Parquet | Format::Arrow => {
                Err(Error::corpus(format!("{}: {} is not read", self.name, self.kind))
                    .with_hint("unpack it first; what it holds is packed inside, column by column"))
            }
            Format::Zip if !self.kind.is_plain() => {
                Err(Error::config(format!("{}: a zip archive cannot be packed again", self.name)))
            }
            Format::Zip => {
                let passed = Arc::clone(&closing.passed);
                let archive = Zip::open(Arc::clone(&storage), passed, context.reading);
                let archive = archive.map(|zip| Box::new(zip) as _);
                Ok(Box::new(Members::new(&self.name, archive, closing, from)))
            }
            Format::Tar => {
                let archive = raw().map(|input| Box::new(Tar::new(input)) as _);
                Ok(Box::new(Members::new(&self.name, archive, closing, from)))
            }
            Format::Text | Format::Jsonl | Format::Separated(_) => {
                let stream =
                    Stream::new(self.name.clone(), self.kind.format, raw().map_err(failed)?);
                Ok(Box::new(closing.of(stream, from)))
            }
        }
    }

    /// The blocks of what comes by a pipe.
    fn open_pipe<'a>(
        &'a self,
        pipe: &dyn Pipe,
        number: usize,
        context: &Context<'_>,
    ) -> Result<Box<dyn Blocks<'a> + 'a>> {
        let passed = Arc::new(AtomicU64::new(0));
        let raw = pipe.open(context.job.stopped(), Arc::clone(&passed))?;
        let unpacked =
            unpack(raw, self.kind.packing, Arc::clone(&passed), PIPE_STRIDE, context.reading);
        let closing = Closing { number, storage: None, source: None, told: 0, passed };
        let start = Position::default();
        match self.kind.format {
            Format::Tar => {
                let archive = unpacked.map(|input| Box::new(Tar::new(input)) as _);
                Ok(Box::new(Members::new(&self.name, archive, closing, start)))
            }
            Format::Text | Format::Jsonl | Format::Separated(_) => {
                let unpacked =
                    unpacked.map_err(|e| Error::corpus(format!("{}: {e}", self.name)))?;
                let stream = Stream::new(self.name.clone(), self.kind.format, unpacked);
                Ok(Box::new(closing.of(stream, start)))
            }
            Format::Zip | Format::Parquet | Format::Arrow => Err(Error::corpus(format!(
                "{}: {} is read from its end, which a pipe does not let one do",
                self.name, self.kind
            ))
            .with_hint("write it to a file first")),
        }
    }
}
