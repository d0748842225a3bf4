//! Parts → a shard.
//!
//! Where a shard begins depends on the number of ids before it, which is known once all parts are
//! encoded. Each shard is then copied from the parts that contain its ids, independently of the
//! others: unshuffled ids in their order, shuffled ones bucket by bucket, each sorted in memory.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::parts::{self, DocumentSlice, Part, Share};
use super::plan::{NPY_HEADER_SIZE, Plan};
use super::writer::{OpenShard, Split, SplitWriter};
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// Buckets up to this size are read at once. Larger ones have documents of many megabytes, which
/// are copied one by one.
const MAX_BUCKET_BYTES: u64 = 128 << 20;

/// The inputs of a shard.
#[derive(Debug)]
pub struct Recipe {
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
    /// The buckets `first` to `last` of dealt parts.
    Buckets { dealt: Vec<PathBuf>, bits: u32, first: usize, last: usize },
}

/// Writes a shard into `directory`; no file is synced.
pub fn assemble(plan: &Plan, recipe: &Recipe, directory: &Path, job: &Job) -> Result<Split> {
    let Recipe { split, number, before, .. } = *recipe;
    let open = OpenShard { number, ..OpenShard::default() };
    let writer = SplitWriter::new(plan, split, directory, open)?;
    let mut window = ShardWindow::new(writer, plan, number, before);
    match &recipe.content {
        Content::Parts(parts) => copy_parts(plan, split, parts, &mut window, job)?,
        Content::Buckets { dealt, bits, first, last } => {
            for bucket in *first..=*last {
                merge_bucket(plan, dealt, bucket, *bits, &mut window, job)?;
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
                parts::copy_bytes(&mut ids, &part.ids, take * width, job, |some| {
                    job.advance(some.len() as u64);
                    window.writer.append(some)
                })?;
                at = slice.at + skip + take;
            }
            window.pass(&slice)
        })?;
    }
    Ok(())
}

/// Writes the documents of a bucket in the order of their keys.
fn merge_bucket(
    plan: &Plan,
    dealt: &[PathBuf],
    bucket: usize,
    bits: u32,
    window: &mut ShardWindow<'_>,
    job: &Job,
) -> Result<()> {
    let (order, width) = (plan.order(), plan.dtype.width() as u64);
    let (mut buckets, mut slices, mut size) = (Vec::new(), Vec::new(), 0);
    for (number, path) in dealt.iter().enumerate() {
        job.check()?;
        let bucket = parts::read_bucket(path, bucket, bits, width)?;
        slices.extend(bucket.slices.iter().map(|s| (order.key(s.number), number, *s)));
        // The offset of the ids in the file, and in memory.
        buckets.push((path, bucket.start, size, bucket.tokens * width));
        size += bucket.tokens * width;
    }
    // The slices of a document in several parts stay in the order of the parts.
    slices.sort_by_key(|(key, _, slice)| (*key, slice.number));
    let in_memory = size <= MAX_BUCKET_BYTES;
    let mut ids = vec![0; if in_memory { size as usize } else { 0 }];
    for &(path, start, at, size) in buckets.iter().filter(|_| in_memory) {
        job.check()?;
        let here = &mut ids[at as usize..(at + size) as usize];
        parts::reader(path, start)?.read_exact(here).map_err(|e| Error::io(path, e))?;
    }
    for (_, number, slice) in &slices {
        let (skip, take) = window.wanted(slice.tokens);
        let (path, start, base, _) = buckets[*number];
        let from = (slice.at + skip) * width;
        if in_memory {
            let from = (base + from) as usize;
            job.check()?;
            job.advance(take * width);
            window.writer.append(&ids[from..from + (take * width) as usize])?;
        } else {
            let mut input = parts::reader(path, 0)?;
            input.seek(SeekFrom::Start(start + from)).map_err(|e| Error::io(path, e))?;
            parts::copy_bytes(&mut input, path, take * width, job, |some| {
                job.advance(some.len() as u64);
                window.writer.append(some)
            })?;
        }
        window.pass(slice)?;
    }
    Ok(())
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
