//! Parts → a shard.
//!
//! Where a shard begins depends on the number of ids before it, which is known once all parts are
//! encoded. Each shard is then copied from the parts that contain its ids, independently of the
//! others: unshuffled ids in their order, shuffled documents bucket by bucket, each sorted by key. Memory
//! is constant for unshuffled ids. Shuffled documents take 48 bytes each of one bucket, whose ids are in
//! memory as well if the parts were dealt.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::parts::{self, Bucket, DocumentSlice, Part, Share};
use super::plan::{NPY_HEADER_SIZE, Plan};
use super::writer::{OpenShard, Split, SplitWriter};
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::job::Job;

/// Buckets up to this size are read at once. Larger ones have documents of many megabytes, which
/// are copied one by one.
const MAX_BUCKET_BYTES: u64 = 128 << 20;

/// The inputs of a shard.
#[derive(Debug)]
pub struct ShardSource {
    pub split: usize,
    /// The number of the shard in its split.
    pub number: u64,
    pub content: Content,
    /// The amount of the split before the content.
    pub before: Share,
}

#[derive(Debug)]
pub enum Content {
    /// Parts in order.
    Parts(Vec<Part>),
    /// The buckets `first` to `last` of all parts.
    Buckets { parts: ShuffledParts, bits: u32, first: usize, last: usize },
}

#[derive(Debug)]
pub enum ShuffledParts {
    /// Parts as they are, all of which are open at once.
    Whole(Vec<Part>),
    /// Files of dealt parts.
    Dealt(Vec<PathBuf>),
}

/// Writes a shard into `directory`; no file is synced.
pub fn assemble(plan: &Plan, source: &ShardSource, directory: &Path, job: &Job) -> Result<Split> {
    let ShardSource { split, number, before, .. } = *source;
    let width = plan.dtype.width() as u64;
    let open = OpenShard { number, ..OpenShard::default() };
    let writer = SplitWriter::new(plan, split, directory, open)?;
    let mut window = ShardWindow::new(writer, plan, number, before);
    match &source.content {
        Content::Parts(parts) => copy_parts(plan, split, parts, &mut window, job)?,
        Content::Buckets { parts: ShuffledParts::Whole(parts), bits, first, last } => {
            let open = |part: &Part| File::open(&part.ids).map_err(|e| Error::io(&part.ids, e));
            let files = parts.iter().map(open).collect::<Result<Vec<_>>>()?;
            for bucket in *first..=*last {
                let mut merge = BucketMerge::new(plan, job);
                for (part, file) in parts.iter().zip(&files) {
                    let of_part = part.bucket(&plan.order(), split, bucket, *bits)?;
                    merge.add(&part.ids, Some(file), of_part)?;
                }
                merge.write(false, &mut window)?;
            }
        }
        Content::Buckets { parts: ShuffledParts::Dealt(paths), bits, first, last } => {
            for bucket in *first..=*last {
                let mut merge = BucketMerge::new(plan, job);
                for path in paths {
                    merge.add(path, None, parts::read_bucket(path, bucket, *bits, width)?)?;
                }
                let in_memory = merge.size <= MAX_BUCKET_BYTES;
                merge.write(in_memory, &mut window)?;
            }
        }
    }
    window.finish(job)
}

fn copy_parts(
    plan: &Plan,
    split: usize,
    parts: &[Part],
    window: &mut ShardWindow<'_>,
    job: &Job,
) -> Result<()> {
    let (order, width) = (plan.order(), plan.dtype.width() as u64);
    let mut buffer = Vec::new();
    for part in parts {
        let (mut ids, mut at) = (parts::reader(&part.ids, NPY_HEADER_SIZE as u64)?, 0);
        part.for_each_slice(|slice| {
            if order.split(slice.number) != split {
                return Ok(());
            }
            let (skip, take) = window.wanted(slice.tokens);
            if take > 0 {
                let ahead = (slice.at + skip - at) * width;
                ids.seek_relative(ahead as i64).map_err(|e| Error::io(&part.ids, e))?;
                let read = |into: &mut [u8], _| ids.read_exact(into);
                parts::copy_bytes(read, &part.ids, take * width, &mut buffer, job, |some| {
                    window.writer.append(some)
                })?;
                at = slice.at + skip + take;
            }
            window.pass(&slice)
        })?;
    }
    Ok(())
}

/// The documents of one bucket of all parts, to be written in the order of their keys.
struct BucketMerge<'a> {
    plan: &'a Plan,
    job: &'a Job,
    sources: Vec<BucketSource<'a>>,
    /// The key of a document, the number of its source and its ids there.
    slices: Vec<(u64, usize, DocumentSlice)>,
    /// Bytes of ids.
    size: u64,
}

/// The file of a part's share of a bucket.
struct BucketSource<'a> {
    path: &'a Path,
    /// None if it is opened when it is read.
    file: Option<&'a File>,
    /// Where in the file the place 0 of its slices is.
    start: u64,
    /// Bytes of ids of the bucket in the sources before this one.
    before: u64,
}

impl<'a> BucketMerge<'a> {
    fn new(plan: &'a Plan, job: &'a Job) -> Self {
        BucketMerge { plan, job, sources: Vec::new(), slices: Vec::new(), size: 0 }
    }

    /// Adds the documents of the next part.
    fn add(&mut self, path: &'a Path, file: Option<&'a File>, bucket: Bucket) -> Result<()> {
        self.job.check()?;
        let (order, number) = (self.plan.order(), self.sources.len());
        self.slices.extend(bucket.slices.iter().map(|s| (order.key(s.number), number, *s)));
        let (start, before) = (bucket.start, self.size);
        self.sources.push(BucketSource { path, file, start, before });
        self.size += bucket.tokens * self.plan.dtype.width() as u64;
        Ok(())
    }

    /// Writes the documents. If `in_memory`, the ids of every source, which must be adjacent in its file,
    /// are read at once; otherwise those of each document.
    fn write(mut self, in_memory: bool, window: &mut ShardWindow<'_>) -> Result<()> {
        let (job, width) = (self.job, self.plan.dtype.width() as u64);
        // The slices of a document in several parts stay in the order of the parts.
        self.slices.sort_by_key(|(key, _, slice)| (*key, slice.number));
        let ids = if in_memory { self.read_all()? } else { Vec::new() };
        let mut buffer = Vec::new();
        for (_, number, slice) in &self.slices {
            let (skip, take) = window.wanted(slice.tokens);
            let source = &self.sources[*number];
            let (from, size) = ((slice.at + skip) * width, take * width);
            if in_memory {
                job.check()?;
                job.advance(size);
                let from = source.before + from;
                window.writer.append(&ids[from as usize..(from + size) as usize])?;
            } else if size > 0 {
                let opened;
                let file = match source.file {
                    Some(file) => file,
                    None => {
                        opened = File::open(source.path).map_err(|e| Error::io(source.path, e))?;
                        &opened
                    }
                };
                let from = source.start + from;
                let read = |into: &mut [u8], done| files::read_exact_at(file, into, from + done);
                parts::copy_bytes(read, source.path, size, &mut buffer, job, |some| {
                    window.writer.append(some)
                })?;
            }
            window.pass(slice)?;
        }
        Ok(())
    }

    fn read_all(&self) -> Result<Vec<u8>> {
        let mut ids = vec![0; self.size as usize];
        let mut rest = &mut ids[..];
        let ends = self.sources.iter().skip(1).map(|source| source.before).chain([self.size]);
        for (source, end) in self.sources.iter().zip(ends) {
            self.job.check()?;
            let here = rest.split_off_mut(..(end - source.before) as usize).unwrap_or_default();
            parts::reader(source.path, source.start)?
                .read_exact(here)
                .map_err(|e| Error::io(source.path, e))?;
        }
        Ok(ids)
    }
}

/// Selects the part of a split that belongs to one shard.
///
/// As in [`SplitWriter`], a full shard is closed by the next id: the end of a document belongs to the
/// shard of the last id before it, and to the first shard if there is none.
struct ShardWindow<'a> {
    writer: SplitWriter<'a>,
    start: u64,
    end: u64,
    passed: Share,
    /// The number of documents before the first that ends in the shard.
    first: Option<u64>,
}

impl<'a> ShardWindow<'a> {
    fn new(writer: SplitWriter<'a>, plan: &Plan, number: u64, before: Share) -> Self {
        let room = plan.shard_tokens.unwrap_or(u64::MAX);
        let start = room.saturating_mul(number);
        let end = start.saturating_add(room);
        ShardWindow { writer, start, end, passed: before, first: None }
    }

    /// Of the next `tokens` ids, the number before the shard and the number in it.
    fn wanted(&self, tokens: u64) -> (u64, u64) {
        let (at, after) = (self.passed.tokens, self.passed.tokens + tokens);
        let from = self.start.clamp(at, after);
        (from - at, self.end.clamp(from, after) - from)
    }

    fn pass(&mut self, slice: &DocumentSlice) -> Result<()> {
        self.passed.tokens += slice.tokens;
        let Some(appended) = slice.end else { return Ok(()) };
        let at = self.passed.tokens;
        if at <= self.end && (at > self.start || self.start == 0) {
            self.first.get_or_insert(self.passed.documents);
            self.writer.end_document(appended)?;
        }
        self.passed.documents += 1;
        Ok(())
    }

    fn finish(self, job: &Job) -> Result<Split> {
        let mut split = self.writer.finish(job)?;
        let before = self.first.unwrap_or(0);
        split.appended.iter_mut().for_each(|number| *number += before);
        Ok(split)
    }
}
