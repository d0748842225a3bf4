//! Parts → a shard.
//!
//! Where a shard begins depends on the number of ids before it, which is known once all parts are
//! encoded. Every shard is then copied from the parts that its ids lie in, independently of the
//! others: without shuffling as they stand, with it bucket by bucket, each sorted in memory.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::npy;
use super::parts::{self, Part, Share, Stretch};
use super::plan::Plan;
use super::writer::{OpenShard, Split, SplitWriter};
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// Buckets up to this size are read at once. Larger ones have documents of many megabytes, which
/// are copied one by one.
const MAX_BUCKET_BYTES: u64 = 128 << 20;

/// What a shard is made of.
#[derive(Debug)]
pub struct Recipe {
    pub split: usize,
    /// The number of the shard in its split.
    pub number: u64,
    pub content: Content,
    /// How much of the split comes before the content.
    pub before: Share,
}

#[derive(Debug)]
pub enum Content {
    /// Parts in order.
    Parts(Vec<Part>),
    /// The buckets `first` to `last` of dealt parts.
    Buckets { dealt: Vec<PathBuf>, bits: u32, first: usize, last: usize },
}

/// Makes a shard in `directory`; no file is synced.
pub fn assemble(plan: &Plan, recipe: &Recipe, directory: &Path, job: &Job) -> Result<Split> {
    let Recipe { split, number, before, .. } = *recipe;
    let open = OpenShard { number, ..OpenShard::default() };
    let writer = SplitWriter::new(plan, split, directory, open)?;
    let mut window = Window::new(writer, plan, number, before);
    match &recipe.content {
        Content::Parts(parts) => copy(plan, split, parts, &mut window, job)?,
        Content::Buckets { dealt, bits, first, last } => {
            for bucket in *first..=*last {
                gather(plan, dealt, bucket, *bits, &mut window, job)?;
            }
        }
    }
    window.finish(job)
}

/// Copies from parts as they are.
fn copy(
    plan: &Plan,
    split: usize,
    parts: &[Part],
    window: &mut Window<'_>,
    job: &Job,
) -> Result<()> {
    let (order, width) = (plan.order(), plan.dtype.width() as u64);
    for part in parts {
        let (mut ids, mut at) = (parts::reader(&part.ids, npy::HEADER as u64)?, 0);
        part.for_each_stretch(|stretch| {
            if order.split(stretch.number) != split {
                return Ok(());
            }
            let (skip, take) = window.wanted(stretch.tokens);
            if take > 0 {
                let ahead = (stretch.at + skip - at) * width;
                ids.seek_relative(ahead as i64).map_err(|e| Error::io(&part.ids, e))?;
                parts::copy(&mut ids, &part.ids, take * width, job, |some| {
                    job.advance(some.len() as u64);
                    window.writer.append(some)
                })?;
                at = stretch.at + skip + take;
            }
            window.pass(&stretch)
        })?;
    }
    Ok(())
}

/// Puts the documents of a bucket into their order.
fn gather(
    plan: &Plan,
    dealt: &[PathBuf],
    bucket: usize,
    bits: u32,
    window: &mut Window<'_>,
    job: &Job,
) -> Result<()> {
    let (order, width) = (plan.order(), plan.dtype.width() as u64);
    let (mut buckets, mut stretches, mut size) = (Vec::new(), Vec::new(), 0);
    for (number, path) in dealt.iter().enumerate() {
        job.check()?;
        let bucket = parts::read_bucket(path, bucket, bits, width)?;
        stretches.extend(bucket.stretches.iter().map(|s| (order.key(s.number), number, *s)));
        // Where the ids are in the file, and where in memory.
        buckets.push((path, bucket.start, size, bucket.tokens * width));
        size += bucket.tokens * width;
    }
    // The stretches of a document in several parts stay in the order of the parts.
    stretches.sort_by_key(|(key, _, stretch)| (*key, stretch.number));
    let in_memory = size <= MAX_BUCKET_BYTES;
    let mut ids = vec![0; if in_memory { size as usize } else { 0 }];
    for &(path, start, at, size) in buckets.iter().filter(|_| in_memory) {
        job.check()?;
        let here = &mut ids[at as usize..(at + size) as usize];
        parts::reader(path, start)?.read_exact(here).map_err(|e| Error::io(path, e))?;
    }
    for (_, number, stretch) in &stretches {
        let (skip, take) = window.wanted(stretch.tokens);
        let (path, start, base, _) = buckets[*number];
        let from = (stretch.at + skip) * width;
        if in_memory {
            let from = (base + from) as usize;
            job.check()?;
            job.advance(take * width);
            window.writer.append(&ids[from..from + (take * width) as usize])?;
        } else {
            let mut input = parts::reader(path, 0)?;
            input.seek(SeekFrom::Start(start + from)).map_err(|e| Error::io(path, e))?;
            parts::copy(&mut input, path, take * width, job, |some| {
                job.advance(some.len() as u64);
                window.writer.append(some)
            })?;
        }
        window.pass(stretch)?;
    }
    Ok(())
}

/// Takes, of all that passes of a split, what belongs to one shard.
///
/// As in [`SplitWriter`], a shard is full when the next id comes: the end of a document belongs to
/// the shard of the last id before it, and to the first if there is none.
struct Window<'a> {
    writer: SplitWriter<'a>,
    start: u64,
    end: u64,
    passed: Share,
    /// Documents that had passed when the first came that ends here.
    first: Option<u64>,
}

impl<'a> Window<'a> {
    fn new(writer: SplitWriter<'a>, plan: &Plan, number: u64, before: Share) -> Self {
        let room = plan.shard_tokens.unwrap_or(u64::MAX);
        let start = room.saturating_mul(number);
        let end = start.saturating_add(room);
        Window { writer, start, end, passed: before, first: None }
    }

    /// Of the next ids, how many come before the shard, and how many are in it.
    fn wanted(&self, tokens: u64) -> (u64, u64) {
        let (at, after) = (self.passed.tokens, self.passed.tokens + tokens);
        let from = self.start.clamp(at, after);
        (from - at, self.end.clamp(from, after) - from)
    }

    fn pass(&mut self, stretch: &Stretch) -> Result<()> {
        self.passed.tokens += stretch.tokens;
        let Some(appended) = stretch.end else { return Ok(()) };
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
