//! An open source, cut into blocks.
//!
//! A block of text ends where no piece and no special token can span the cut, so the pieces of the
//! blocks are the pieces of the whole; a block of records ends with a record.

use std::io;
use std::sync::Arc;

use super::bytes::{ByteStream, LocalFile, PipeReader, StorageReader};
use super::decompress::decompress;
use super::inputs::{GivenRows, Input, Location, RowBatches, Source, SourcePosition, Storage};
use super::kind::FileFormat;
use super::ranges::Ranges;
use super::reading::{Context, Skipped};
use super::records::{BlockBuffers, BlockContent, BlockText, Cut};
use super::sequential::{Archive, ArchiveMembers, OneStream, SourceProgress};
use super::tar::Tar;
use super::zip::Zip;
use crate::base::error::{Error, Result};

/// Bytes of a pipe that are read at a time.
const PIPE_STRIDE: usize = 256 << 10;

/// A stretch of a source that one worker processes by itself.
#[derive(Debug)]
pub struct Block<'a> {
    /// The index of its source.
    pub number: usize,
    /// Where the next one begins.
    pub after: SourcePosition,
    pub ends_source: bool,
    /// The number of stored bytes of the source that were read for it.
    pub weight: u64,
    held: Held<'a>,
    /// What was skipped while it was found.
    skipped: Skipped,
}

#[derive(Debug)]
enum Held<'a> {
    Content(BlockContent<'a>),
    /// A whole source that the worker opens.
    Unopened {
        input: &'a Input,
        source: &'a Source,
    },
}

impl<'a> Block<'a> {
    /// A whole source as one block, which the worker opens: with many small sources, opening them is
    /// much of the work.
    pub(super) fn unopened(number: usize, input: &'a Input, source: &'a Source) -> Self {
        Block {
            number,
            after: SourcePosition::default(),
            ends_source: true,
            weight: source.size,
            held: Held::Unopened { input, source },
            skipped: Skipped::default(),
        }
    }

    /// Reads the block, passes its texts to `each` in order, and adds skipped records to `skipped`.
    pub fn read(
        &mut self,
        context: &Context<'_>,
        buffers: &mut BlockBuffers,
        skipped: &mut Skipped,
        each: &mut dyn FnMut(BlockText<'_>) -> Result<()>,
    ) -> Result<()> {
        skipped.take(&mut self.skipped);
        match &self.held {
            Held::Content(content) => content.read(context, buffers, skipped, each),
            Held::Unopened { input, source } => {
                let start = SourcePosition::default();
                let mut blocks = Blocks::open(input, self.number, Some(source), start, context)?;
                while let Some(mut block) = blocks.next(context)? {
                    block.read(context, buffers, skipped, each)?;
                }
                Ok(())
            }
        }
    }

    /// Whether it ends inside a piece, which the next block continues.
    pub fn is_open(&self) -> bool {
        matches!(&self.held, Held::Content(content) if content.is_open())
    }

    /// The number of bytes in memory when it is read.
    pub fn size(&self) -> u64 {
        match &self.held {
            Held::Content(BlockContent::Nothing) | Held::Unopened { .. } => self.weight,
            Held::Content(content) => content.size(),
        }
    }
}

/// An open source. Finding a block is fast; one worker at a time holds the source.
pub(super) struct Blocks<'a> {
    number: usize,
    open: OpenSource<'a>,
}

enum OpenSource<'a> {
    Ranges(Ranges<'a>),
    TextStream(OneStream<'a>),
    ArchiveMembers(Box<ArchiveMembers<'a>>),
    Rows(RowBlocks<'a>),
}

impl<'a> Blocks<'a> {
    /// Opens a source at a position at which an earlier block ended; an error if it changed since
    /// `source` was taken.
    pub fn open(
        input: &'a Input,
        number: usize,
        source: Option<&'a Source>,
        from: SourcePosition,
        context: &Context<'_>,
    ) -> Result<Self> {
        let open = match &input.location {
            Location::File(path) => {
                open_storage(input, Arc::new(LocalFile::open(path)?), source, from, context)?
            }
            Location::Storage(storage, _) => {
                open_storage(input, Arc::clone(storage), source, from, context)?
            }
            Location::Rows(rows, _) => {
                let (batches, name) = (rows.open(from)?, input.name.as_str());
                OpenSource::Rows(RowBlocks { name, batches, open: None, at: from, over: false })
            }
            Location::Pipe(pipe, _) => {
                let progress = SourceProgress::new(None, None);
                let (stopped, passed) = (context.job.stopped(), Arc::clone(&progress.passed));
                let raw = Box::new(PipeReader::open(Arc::clone(pipe), stopped, passed)?);
                open_stream(input, raw, PIPE_STRIDE, progress, SourcePosition::default(), context)?
            }
        };
        Ok(Blocks { number, open })
    }

    /// The next block, or None after the one that ends the source.
    pub fn next(&mut self, context: &Context<'_>) -> Result<Option<Block<'a>>> {
        let cut = match &mut self.open {
            OpenSource::Ranges(ranges) => ranges.next(context)?,
            OpenSource::TextStream(stream) => stream.next(context)?,
            OpenSource::ArchiveMembers(members) => members.next(context)?,
            OpenSource::Rows(rows) => rows.next(context)?,
        };
        let number = self.number;
        Ok(cut.map(|Cut { content, after, ends_source, weight, skipped }| Block {
            number,
            after,
            ends_source,
            weight,
            held: Held::Content(content),
            skipped,
        }))
    }
}

fn open_storage<'a>(
    input: &'a Input,
    storage: Arc<dyn Storage>,
    source: Option<&'a Source>,
    from: SourcePosition,
    context: &Context<'_>,
) -> Result<OpenSource<'a>> {
    if let Some(source) = source {
        storage.check(source)?;
    }
    if input.kind.is_plain() && matches!(input.kind.format, FileFormat::Text | FileFormat::Jsonl) {
        return Ranges::open(input, storage, source, from, context).map(OpenSource::Ranges);
    }
    if input.range.is_some() {
        return Err(Error::config(format!("{}: cannot be read in ranges", input.name)));
    }
    let progress = SourceProgress::new(Some(Arc::clone(&storage)), source);
    let passed = Arc::clone(&progress.passed);
    match input.kind.format {
        FileFormat::Parquet | FileFormat::Arrow => {
            Err(Error::corpus(format!("{}: {} is not supported", input.name, input.kind))
                .with_hint("decompress it first; its columns are compressed inside"))
        }
        FileFormat::Zip if !input.kind.is_plain() => {
            Err(Error::config(format!("{}: compressed zip archives are not supported", input.name)))
        }
        FileFormat::Zip => {
            let archive = Zip::open(storage, passed, context.reading).map(Archive::Zip);
            Ok(members(input, archive, progress, from))
        }
        _ => {
            let (size, stride) = (storage.size(), storage.stride());
            let raw = Box::new(StorageReader::new(storage, 0, size, passed));
            open_stream(input, raw, stride, progress, from, context)
        }
    }
}

/// Opens bytes that are read from front to back, `stride` at a time.
fn open_stream<'a>(
    input: &'a Input,
    raw: ByteStream,
    stride: usize,
    progress: SourceProgress<'a>,
    from: SourcePosition,
    context: &Context<'_>,
) -> Result<OpenSource<'a>> {
    let passed = Arc::clone(&progress.passed);
    let content = decompress(raw, input.kind.compression, passed, stride, context.reading);
    match input.kind.format {
        FileFormat::Tar => {
            let archive = content.map(|content| Archive::Tar(Tar::new(content)));
            Ok(members(input, archive, progress, from))
        }
        FileFormat::Text | FileFormat::Jsonl | FileFormat::Separated(_) => {
            let content = content.map_err(|e| Error::corpus(format!("{}: {e}", input.name)))?;
            let format = input.kind.format;
            Ok(OpenSource::TextStream(OneStream::new(&input.name, format, content, progress, from)))
        }
        FileFormat::Zip | FileFormat::Parquet | FileFormat::Arrow => Err(Error::corpus(format!(
            "{}: {} cannot be read from a pipe, because its directory is at its end",
            input.name, input.kind
        ))
        .with_hint("write it to a file first")),
    }
}

fn members<'a>(
    input: &'a Input,
    archive: io::Result<Archive>,
    progress: SourceProgress<'a>,
    from: SourcePosition,
) -> OpenSource<'a> {
    let archive = archive.unwrap_or_else(|error| Archive::Failed(Some(error)));
    OpenSource::ArchiveMembers(Box::new(ArchiveMembers::new(&input.name, archive, progress, from)))
}

/// The blocks of a source of rows.
struct RowBlocks<'a> {
    name: &'a str,
    batches: RowBatches,
    /// The current batch, and the number of its rows in earlier blocks.
    open: Option<(GivenRows, usize)>,
    at: SourcePosition,
    over: bool,
}

impl<'a> RowBlocks<'a> {
    fn next(&mut self, context: &Context<'_>) -> Result<Option<Cut<'a>>> {
        if self.over {
            return Ok(None);
        }
        let mut skipped = Skipped::default();
        let open = match self.open.take() {
            Some(open) => Some(open),
            None => self.batches.next().transpose()?.map(|given| (given, 0)),
        };
        let Some((given, mut first)) = open else {
            self.over = true;
            let (content, after) = (BlockContent::Nothing, self.at);
            return Ok(Some(Cut { content, after, ends_source: true, weight: 0, skipped }));
        };
        if let Some((kind, n)) = &given.fault {
            skipped.add(kind, *n);
        }
        // A source that resumes within a row group may return it from its start.
        if given.row_group == self.at.section && self.at.records > given.first {
            first = first.max((self.at.records - given.first) as usize);
        }
        let (n, mut end, mut size) = (given.batch.len(), first, 0);
        while end < n && size < context.block_size {
            size += given.batch.get(end).map_or(0, <[u8]>::len) + 1;
            end += 1;
        }
        let whole = end >= n;
        self.at = if whole && given.ends_row_group {
            SourcePosition { section: given.row_group + 1, ..SourcePosition::default() }
        } else {
            SourcePosition {
                section: given.row_group,
                offset: 0,
                records: given.first + end as u64,
            }
        };
        let weight =
            (given.weight as u128 * (end - first.min(end)) as u128 / n.max(1) as u128) as u64;
        let place = format!("{}: row group {}", self.name, given.row_group);
        let (batch, before) = (Arc::clone(&given.batch), given.first);
        let content = BlockContent::Rows { batch, first: first.min(end), end, place, before };
        if !whole {
            self.open = Some((given, end));
        }
        Ok(Some(Cut { content, after: self.at, ends_source: false, weight, skipped }))
    }
}
