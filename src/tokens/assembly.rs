//! Parts that were encoded apart → the shards of the whole, each made by whoever has time.
//!
//! Where a shard begins depends on the ids of all that comes before, which nobody knows before all
//! of it is encoded. So work that is divided among machines has two rounds: parts are encoded; then,
//! as their sizes are known, every shard is copied together from the parts that its ids lie in.
//! Whoever directs the work sees numbers only.
//!
//! ```text
//! .partial/journal.jsonl      the plan
//! .partial/parts-…/            see `parts`
//! .partial/shard-00000.npy    as it will be, once shard-00000.json says what is in it
//! ```
//!
//! What is made of one shard is put in place by renaming, so however often that is done, by however
//! many, it is there once. The result is that of [`encode_files`](super::encode_files), to the byte.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::append::sync_directory;
use super::directory::{Directory, Existing, Task};
use super::journal::Journal;
use super::manifest::{Manifest, Plan, Split};
use super::order::Order;
use super::parts::{self, BLOCK, Share, Stretch};
use super::shards::SplitWriter;
use super::{Options, plan};
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::corpus::{Inputs, Skipped};
use crate::tokenizer::encode::Tokenizer;

/// A directory of tokens in the making, for whoever directs the work.
#[derive(Debug)]
pub struct Assembly {
    directory: Directory,
    plan: Plan,
    tokenizer_file: Option<Vec<u8>>,
}

impl Assembly {
    /// Takes a directory, which no other work may be done in meanwhile; None if what is asked for is there already.
    pub fn begin(
        tokenizer: &Tokenizer,
        inputs: &Inputs,
        out: &Path,
        options: &Options,
        existing: Existing,
    ) -> Result<Option<Self>> {
        let plan = plan(tokenizer, inputs, options)?;
        let (directory, task) = Directory::take(out, &plan, existing)?;
        match task {
            Task::Nothing => return Ok(None),
            Task::Begin => drop(Journal::create(&directory.partial, &plan)?),
            Task::GoOn => {}
        }
        let tokenizer_file = options.tokenizer_file.clone();
        Ok(Some(Assembly { directory, plan, tokenizer_file }))
    }

    /// Where unfinished files are.
    pub fn partial(&self) -> &Path {
        &self.directory.partial
    }

    /// What tells this work from other in the same place.
    pub fn id(&self) -> String {
        parts::plan_id(&self.plan)
    }

    /// Writes the manifest of so many shards of each split, which are all there, and moves
    /// everything to its place.
    pub fn commit(&self, n_shards: &[usize], text_bytes: u64, skipped: Skipped) -> Result<()> {
        let mut splits = Vec::new();
        for (number, (&name, &n)) in self.plan.splits().iter().zip(n_shards).enumerate() {
            let mut sum = Split {
                name: name.to_owned(),
                tokens: 0,
                documents: 0,
                appended: Vec::new(),
                shards: Vec::with_capacity(n),
            };
            for shard in 0..n {
                let mut part =
                    whole(self.partial(), &self.plan, number, shard).ok_or_else(|| {
                        let stem = self.plan.stem(number, shard);
                        Error::tokens(format!("{}: {stem} is missing", self.partial().display()))
                    })?;
                sum.tokens += part.tokens;
                sum.documents += part.documents;
                sum.appended.append(&mut part.appended);
                sum.shards.append(&mut part.shards);
            }
            splits.push(sum);
        }
        let manifest = Manifest::new(self.plan.clone(), text_bytes, skipped, splits);
        self.directory.finish(manifest, self.tokenizer_file.as_deref())
    }
}

/// What makes up a shard.
#[derive(Debug)]
pub struct Recipe {
    /// Which split it is of.
    pub split: usize,
    /// Its number in that.
    pub number: usize,
    /// Parts in order, and how many documents end before each.
    pub parts: Vec<(PathBuf, u64)>,
    /// If documents are shuffled, the bits that make a bucket, the first and the last bucket.
    pub buckets: Option<(u32, usize, usize)>,
    /// How much of the split comes before the first part or bucket.
    pub before: Share,
}

/// Makes a shard, unless it is there; `id` is that of the work.
pub fn assemble(partial: &Path, id: &str, recipe: &Recipe, job: &Job) -> Result<()> {
    let plan = parts::planned(partial, id)?;
    let Recipe { split, number, before, .. } = *recipe;
    if whole(partial, &plan, split, number).is_some() {
        return Ok(());
    }
    let sidecar = sidecar(partial, &plan, split, number);
    let folder = parts::unused_beside(&sidecar);
    fs::create_dir(&folder).map_err(|e| Error::io(&folder, e))?;
    let result = (|| {
        let writer = SplitWriter::for_shard(&plan, split, number, &folder)?;
        let mut window = Window::new(writer, &plan, number, before);
        match recipe.buckets {
            None => copy(&plan, recipe, &mut window, job)?,
            Some(buckets) => gather(&plan, recipe, buckets, &mut window, job)?,
        }
        let (made, files) = window.finish(job)?;
        for file in files {
            file.sync_all().map_err(|e| Error::io(&folder, e))?;
        }
        for name in made.shards.iter().flat_map(|shard| shard.files().map(|(name, _)| name)) {
            fs::rename(folder.join(name), partial.join(name)).map_err(|e| Error::io(&folder, e))?;
        }
        sync_directory(partial);
        // Names and numbers always have a JSON form.
        parts::write_whole(&sidecar, &serde_json::to_vec(&made).unwrap_or_default())
    })();
    // Empty, or of no use.
    let _ = fs::remove_dir_all(&folder);
    result
}

fn sidecar(partial: &Path, plan: &Plan, split: usize, number: usize) -> PathBuf {
    partial.join(format!("{}.json", plan.stem(split, number)))
}

/// What is in a shard, if it is there.
fn whole(partial: &Path, plan: &Plan, split: usize, number: usize) -> Option<Split> {
    let data = fs::read(sidecar(partial, plan, split, number)).ok()?;
    let made: Split = serde_json::from_slice(&data).ok()?;
    let there = |(name, size): (&str, u64)| {
        fs::metadata(partial.join(name)).is_ok_and(|metadata| metadata.len() == size)
    };
    let all = made.shards.iter().flat_map(|shard| shard.files()).all(there);
    all.then_some(made)
}

/// Copies from parts as they are.
fn copy(plan: &Plan, recipe: &Recipe, window: &mut Window<'_>, job: &Job) -> Result<()> {
    let order = Order::new(plan.seed, plan.val_fraction);
    let width = plan.dtype.width() as u64;
    let mut block = Vec::new();
    for (part, first) in &recipe.parts {
        let manifest = parts::opened(part, plan)?;
        let (path, header) = parts::ids_of(part, &manifest);
        let failed = |e| Error::io(&path, e);
        let (mut ids, mut at) = (parts::reader(&path, header)?, 0);
        parts::for_each_stretch(part, &manifest, *first, |stretch| {
            if order.split(stretch.number) != recipe.split {
                return Ok(());
            }
            let (skip, take) = window.wanted(stretch.tokens);
            if take > 0 {
                let ahead = (stretch.at + skip - at) * width;
                ids.seek_relative(ahead as i64).map_err(failed)?;
                let mut left = take * width;
                while left > 0 {
                    job.check()?;
                    block.resize(left.min(BLOCK) as usize, 0);
                    ids.read_exact(&mut block).map_err(failed)?;
                    window.writer.append(&block)?;
                    left -= block.len() as u64;
                }
                at = stretch.at + skip + take;
            }
            window.pass(&stretch)
        })?;
    }
    Ok(())
}

/// Puts the documents of buckets into their order.
fn gather(
    plan: &Plan,
    recipe: &Recipe,
    (bits, first, last): (u32, usize, usize),
    window: &mut Window<'_>,
    job: &Job,
) -> Result<()> {
    let order = Order::new(plan.seed, plan.val_fraction);
    let width = plan.dtype.width();
    let (mut ids, mut stretches) = (Vec::new(), Vec::new());
    for bucket in first..=last {
        ids.clear();
        stretches.clear();
        for (part, _) in &recipe.parts {
            job.check()?;
            let split = recipe.split;
            let read = parts::read_bucket(part, split, bucket, bits, width as u64, &mut ids)?;
            stretches.extend(read.into_iter().map(|s| (order.key(s.number), s)));
        }
        // What a document has in several parts stays in the order of the parts.
        stretches.sort_by_key(|(key, stretch)| (*key, stretch.number));
        for (_, stretch) in &stretches {
            let (skip, take) = window.wanted(stretch.tokens);
            let start = (stretch.at + skip) as usize * width;
            window.writer.append(&ids[start..start + take as usize * width])?;
            window.pass(stretch)?;
        }
    }
    Ok(())
}

/// Takes, of all that passes of a split, what belongs to one shard.
///
/// As [`SplitWriter`] has it, a shard is full when the next id comes: the end of a document belongs
/// to the shard of the last id before it, and to the first if there is none.
struct Window<'a> {
    writer: SplitWriter<'a>,
    start: u64,
    end: u64,
    /// What has passed.
    passed: Share,
    /// Documents that had passed when the first came that ends here.
    first: Option<u64>,
}

impl<'a> Window<'a> {
    fn new(writer: SplitWriter<'a>, plan: &Plan, number: usize, before: Share) -> Self {
        let room = plan.shard_tokens.unwrap_or(u64::MAX);
        let start = room.saturating_mul(number as u64);
        let end = start.saturating_add(room);
        Window { writer, start, end, passed: before, first: None }
    }

    /// Of the next ids, how many come before the shard, and how many are in it.
    fn wanted(&self, tokens: u64) -> (u64, u64) {
        let (at, behind) = (self.passed.tokens, self.passed.tokens + tokens);
        let from = self.start.clamp(at, behind);
        (from - at, self.end.clamp(from, behind) - from)
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

    fn finish(self, job: &Job) -> Result<(Split, Vec<std::sync::Arc<fs::File>>)> {
        let (mut split, files) = self.writer.finish(job)?;
        let before = self.first.unwrap_or(0);
        split.appended.iter_mut().for_each(|number| *number += before);
        Ok((split, files))
    }
}
