//! Sources that are read from front to back: one stream, or the members of an archive in turn.
//!
//! Nothing is written to disk, so the paths of members are harmless; they only determine its kind.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::bytes::{ByteStream, Member};
use super::choice::{Chosen, is_about};
use super::csv::CsvStream;
use super::decompress::{MemberTotal, decompress_member};
use super::inputs::{Source, SourcePosition, Storage};
use super::kind::{FileFormat, FileKind};
use super::reading::{Context, Fault, ReadFailure, STRAY, Skipped};
use super::records::{BlockContent, Cut};
use super::tar::Tar;
use super::text_stream::TextStream;
use super::zip::Zip;
use crate::base::error::Result;

/// A stream of text or records.
enum RecordStream {
    TextStream(TextStream),
    Csv(CsvStream),
}

impl RecordStream {
    fn new(name: String, format: FileFormat, input: ByteStream) -> Self {
        let stream = TextStream::new(name, format, input);
        match format {
            FileFormat::Separated(separator) => {
                RecordStream::Csv(CsvStream::new(stream, separator))
            }
            _ => RecordStream::TextStream(stream),
        }
    }

    fn stream(&mut self) -> &mut TextStream {
        match self {
            RecordStream::TextStream(stream) => stream,
            RecordStream::Csv(csv) => csv.stream(),
        }
    }

    fn seek(&mut self, to: SourcePosition, context: &Context<'_>) -> Result<()> {
        match self {
            _ if to.offset == 0 => Ok(()),
            RecordStream::TextStream(stream) => stream.seek(to, context),
            RecordStream::Csv(csv) => csv.seek(to, context),
        }
    }

    fn next<'a>(&mut self, context: &Context<'_>) -> Result<(BlockContent<'a>, Skipped)> {
        let content = match self {
            RecordStream::TextStream(stream) => stream.next(context)?,
            RecordStream::Csv(csv) => csv.next(context)?,
        };
        Ok((content, std::mem::take(&mut self.stream().skipped)))
    }
}

/// How much of a source was read.
pub(super) struct SourceProgress<'a> {
    /// Where it is stored; None for a pipe.
    pub storage: Option<Arc<dyn Storage>>,
    pub source: Option<&'a Source>,
    /// Stored bytes that were read, and how many of them the weights of blocks include.
    pub passed: Arc<AtomicU64>,
    weighed: u64,
}

impl<'a> SourceProgress<'a> {
    pub fn new(storage: Option<Arc<dyn Storage>>, source: Option<&'a Source>) -> Self {
        SourceProgress { storage, source, passed: Arc::default(), weighed: 0 }
    }

    /// Bytes read since the last call.
    fn weight(&mut self) -> u64 {
        let size = self.storage.as_ref().map_or(u64::MAX, |storage| storage.size());
        let weight = self.passed.load(Relaxed).min(size).saturating_sub(self.weighed);
        self.weighed += weight;
        weight
    }

    /// The last block of the source, which must not have changed.
    fn last(&mut self, content: BlockContent<'a>, skipped: Skipped) -> Result<Cut<'a>> {
        let weight = match &self.storage {
            Some(storage) => {
                self.source.map_or(Ok(()), |source| storage.check(source))?;
                storage.size().saturating_sub(self.weighed)
            }
            None => self.weight(),
        };
        Ok(Cut { content, after: SourcePosition::default(), ends_source: true, weight, skipped })
    }
}

pub(super) struct OneStream<'a> {
    records: RecordStream,
    progress: SourceProgress<'a>,
    /// The position to start at, until it is reached.
    from: Option<SourcePosition>,
}

impl<'a> OneStream<'a> {
    pub fn new(
        name: &str,
        format: FileFormat,
        input: ByteStream,
        progress: SourceProgress<'a>,
        from: SourcePosition,
    ) -> Self {
        OneStream {
            records: RecordStream::new(name.to_owned(), format, input),
            progress,
            from: Some(from),
        }
    }

    /// The next block, or None after the one that ends the source.
    pub fn next(&mut self, context: &Context<'_>) -> Result<Option<Cut<'a>>> {
        if self.records.stream().over {
            return Ok(None);
        }
        if let Some(from) = self.from.take() {
            self.records.seek(from, context)?;
        }
        let (content, skipped) = self.records.next(context)?;
        let stream = self.records.stream();
        if stream.over {
            return self.progress.last(content, skipped).map(Some);
        }
        let (after, weight) = (stream.at, self.progress.weight());
        Ok(Some(Cut { content, after, ends_source: false, weight, skipped }))
    }
}

pub(super) enum Archive {
    Tar(Tar),
    Zip(Zip),
    /// An archive that could not be opened; the error is reported with the first member.
    Failed(Option<io::Error>),
}

impl Archive {
    fn next(&mut self) -> io::Result<Option<Member>> {
        match self {
            Archive::Tar(tar) => tar.next(),
            Archive::Zip(zip) => zip.next(),
            Archive::Failed(error) => error.take().map_or(Ok(None), Err),
        }
    }
}

/// The members of an archive.
pub(super) struct ArchiveMembers<'a> {
    name: &'a str,
    archive: Archive,
    progress: SourceProgress<'a>,
    /// The position to start at, until it is reached.
    from: Option<SourcePosition>,
    /// The number of the current or next member.
    section: u64,
    open: Option<RecordStream>,
    /// Whether the open member is itself compressed.
    is_compressed: bool,
    compressed: MemberTotal,
    over: bool,
}

impl<'a> ArchiveMembers<'a> {
    pub fn new(
        name: &'a str,
        archive: Archive,
        progress: SourceProgress<'a>,
        from: SourcePosition,
    ) -> Self {
        let size = progress.storage.as_ref().map(|storage| storage.size());
        let compressed = MemberTotal::new(Arc::clone(&progress.passed), size);
        ArchiveMembers {
            name,
            archive,
            progress,
            from: Some(from),
            section: 0,
            open: None,
            is_compressed: false,
            compressed,
            over: false,
        }
    }

    /// Opens the next member, or skips it if it is not part of the corpus; false at the end.
    fn open_next(&mut self, context: &Context<'_>, skipped: &mut Skipped) -> Result<bool> {
        let reading = context.reading;
        let Member { name, is_empty, content } = match self.archive.next() {
            Ok(Some(member)) => member,
            Ok(None) => return Ok(false),
            Err(error) => {
                let failure = ReadFailure::of_io(error);
                failure.skip_or_fail(reading, skipped, || self.name.to_owned())?;
                return Ok(false);
            }
        };
        match reading.choice.of(&name) {
            Chosen::Included => {}
            Chosen::Open
                if !(is_about(&name) || (is_empty && FileKind::named(&name).is_none())) => {}
            chosen => {
                // Members that a glob of the caller excludes are not reported.
                if chosen == Chosen::Open {
                    skipped.add(STRAY, 1);
                }
                self.section += 1;
                return Ok(true);
            }
        }
        let kind = FileKind::of_name(&name);
        let name = format!("{}: {name}", self.name);
        if !matches!(kind.format, FileFormat::Text | FileFormat::Jsonl | FileFormat::Separated(_)) {
            self.section += 1;
            let report = || {
                (
                    format!("{name}: {kind} inside an archive is not supported"),
                    "extract the outer archive",
                )
            };
            reading.skip_or_fail(Fault::NotText, skipped, report)?;
            return Ok(true);
        }
        self.is_compressed = !kind.is_plain();
        let content = if self.is_compressed {
            let content = decompress_member(content, kind.compression, reading);
            self.compressed.guard(content, reading)
        } else {
            content
        };
        self.open = Some(RecordStream::new(name, kind.format, content));
        Ok(true)
    }

    /// Skips to a position at which an earlier block ended.
    fn seek(&mut self, to: SourcePosition, context: &Context<'_>) -> Result<()> {
        // Faults before this position were counted when it was first read.
        let mut counted = Skipped::default();
        while self.section < to.section {
            if !self.open_next(context, &mut counted)? {
                self.over = true;
                return Ok(());
            }
            if let Some(mut records) = self.open.take() {
                if self.is_compressed {
                    // Its bytes count toward the total, as they did the first time.
                    records.stream().drain();
                }
                self.section += 1;
            }
        }
        if to.offset > 0
            && self.open_next(context, &mut counted)?
            && let Some(records) = &mut self.open
        {
            records.seek(to, context)?;
        }
        Ok(())
    }

    /// The next block, or None after the one that ends the source.
    pub fn next(&mut self, context: &Context<'_>) -> Result<Option<Cut<'a>>> {
        if let Some(from) = self.from.take() {
            self.seek(from, context)?;
        }
        if self.over {
            return Ok(None);
        }
        let mut skipped = Skipped::default();
        loop {
            let Some(records) = &mut self.open else {
                if self.open_next(context, &mut skipped)? {
                    continue;
                }
                self.over = true;
                return self.progress.last(BlockContent::Nothing, skipped).map(Some);
            };
            let (content, mut more) = records.next(context)?;
            skipped.take(&mut more);
            let mut after = SourcePosition { section: self.section, ..records.stream().at };
            if records.stream().over {
                self.section += 1;
                self.open = None;
                after = SourcePosition { section: self.section, ..SourcePosition::default() };
            }
            if matches!(content, BlockContent::Nothing) && skipped.is_empty() {
                continue;
            }
            let weight = self.progress.weight();
            return Ok(Some(Cut { content, after, ends_source: false, weight, skipped }));
        }
    }
}
