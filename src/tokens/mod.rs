//! Files → ids on disk: shards, where documents end, and a manifest.
//!
//! ```text
//! sources ─► chunks ─► ids ─► documents ─► shards ─► manifest
//!            in order  several              (by way of buckets, if they are shuffled)
//!                      threads
//! ```
//!
//! The ids are those of each source encoded as one text, with special tokens where they stand; a
//! document ends behind every end-of-text and with its source. What is written depends on the
//! sources, the tokenizer and the options that a [`Plan`] holds, and on nothing else: not on
//! threads, chunks, or how often the work was interrupted. Memory is constant.
//!
//! Where records take the place of files one day, they come in as chunks that end a document:
//! everything behind `pipeline` is about documents already.
//!
//! - `pipeline`, `documents`: chunks → ids → documents
//! - `order`, `shuffle`: which split, and which order
//! - `shards`, `append`, `npy`, `megatron`: the files
//! - `journal`, `directory`: surviving anything
//! - `manifest`: what is there
//! - `verify`: whether it is so

mod append;
mod directory;
mod documents;
mod journal;
mod manifest;
mod megatron;
mod npy;
mod order;
mod pipeline;
mod shards;
mod shuffle;
mod sources;
mod verify;

pub use directory::Existing;
pub use manifest::{Dtype, Format, Manifest, Plan};
pub use megatron::SMALL_VOCAB;
pub use verify::verify;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::corpus::{InOrder, Source};
use crate::encode::Tokenizer;
use crate::error::{Error, Result};
use crate::job::{Job, Phase};
use directory::{Directory, Task};
use documents::{Direct, Documents, Place, Sink};
use journal::{Entry, Journal, Keeper};
use manifest::TokenizerMark;
use pipeline::{Target, for_each_chunk};
use shards::SplitWriter;
use shuffle::Buckets;

/// What to write.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the files are laid out.
    pub format: Format,
    /// The type of an id; None for the smallest that holds all of the tokenizer's.
    pub dtype: Option<Dtype>,
    /// Ids of a shard, where there are shards.
    pub shard_tokens: u64,
    /// The special token that ends documents.
    pub end_of_text: Option<String>,
    /// Whether a source that does not end in it gets one.
    pub append_eot: bool,
    /// The share of documents for validation.
    pub val_fraction: Option<f64>,
    /// Whether to shuffle documents.
    pub shuffle: bool,
    /// What the order and the split depend on.
    pub seed: u64,
}

/// How to go about it: nothing that shows in what is written.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// How many threads encode.
    pub threads: usize,
    /// What to do with what is there already.
    pub existing: Existing,
    /// Text that is encoded at a time.
    pub chunk_size: usize,
    /// The journal is written no more often than every so many bytes.
    pub journal_every: u64,
    /// Bytes of documents that are sorted at once.
    pub sort_bytes: u64,
}

impl Default for Manner {
    fn default() -> Self {
        Manner {
            threads: 1,
            existing: Existing::Refuse,
            chunk_size: pipeline::CHUNK_SIZE,
            journal_every: 16 << 20,
            sort_bytes: shuffle::MOST,
        }
    }
}

/// However little is written, the journal follows after this time.
const JOURNAL_AFTER: Duration = Duration::from_secs(5);

/// Encodes files into a directory of tokens.
pub fn encode_files(
    tokenizer: &Tokenizer,
    paths: &[PathBuf],
    out: &Path,
    options: &Options,
    manner: &Manner,
    job: &Job,
) -> Result<()> {
    let plan = plan(tokenizer, paths, options)?;
    let (directory, task) = Directory::take(out, &plan, manner.existing)?;
    let (journal, state) = match task {
        Task::Nothing => return Ok(()),
        Task::Begin => (Journal::create(&directory.partial, &plan)?, None),
        Task::GoOn => Journal::resume(&directory.partial)?,
    };
    let work = Work { tokenizer, paths, plan: &plan, partial: &directory.partial, manner, job };
    let manifest = work.run(journal, state)?;
    job.check()?;
    directory.finish(&manifest)
}

/// What is to be written, checked.
fn plan(tokenizer: &Tokenizer, paths: &[PathBuf], options: &Options) -> Result<Plan> {
    let vocab = tokenizer.vocab();
    let end_of_text = match &options.end_of_text {
        None if options.append_eot => {
            return Err(Error::config("append_eot needs a special token that ends documents"));
        }
        None => None,
        Some(text) => {
            let found = vocab.specials().iter().find(|special| special.text == *text);
            Some(found.map(|special| special.id).ok_or_else(|| {
                Error::config(format!("{text:?} is not a special token of the tokenizer"))
            })?)
        }
    };
    let mark = TokenizerMark {
        fingerprint: tokenizer.fingerprint().to_owned(),
        vocab_size: vocab.len() as u64,
        max_id: vocab.max_id(),
    };
    let dtype = dtype(options, &mark)?;
    if options.val_fraction.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(Error::config("val_fraction is not between 0 and 1"));
    }
    if options.shard_tokens == 0 {
        return Err(Error::config("shard_tokens=0 cannot be").with_hint("use 1 or more"));
    }
    let by_seed = options.shuffle || options.val_fraction.is_some();
    Ok(Plan {
        format: options.format,
        dtype,
        tokenizer: mark,
        end_of_text,
        append_eot: options.append_eot,
        shard_tokens: (options.format == Format::Shards).then_some(options.shard_tokens),
        val_fraction: options.val_fraction,
        shuffle: options.shuffle,
        seed: if by_seed { options.seed } else { 0 },
        sources: paths.iter().map(|path| Source::of(path)).collect::<Result<_>>()?,
    })
}

fn dtype(options: &Options, mark: &TokenizerMark) -> Result<Dtype> {
    let megatron = options.format == Format::Megatron;
    // Megatron-LM chooses by the size of the vocabulary, and has no unsigned type of four bytes.
    let small = if megatron {
        u64::from(mark.max_id) + 1 < SMALL_VOCAB
    } else {
        mark.max_id <= Dtype::Uint16.max_id()
    };
    let large = if megatron { Dtype::Int32 } else { Dtype::Uint32 };
    let dtype = options.dtype.unwrap_or(if small { Dtype::Uint16 } else { large });
    if dtype != Dtype::Uint16 && dtype != large {
        let (given, known) = if megatron { ("uint32", "int32") } else { ("int32", "uint32") };
        return Err(Error::config(format!("dtype={given:?} does not go with this format"))
            .with_hint(format!("use \"uint16\" or \"{known}\"")));
    }
    if mark.max_id > dtype.max_id() {
        return Err(Error::config(format!(
            "ids up to {} do not fit in dtype={:?}",
            mark.max_id,
            if dtype == Dtype::Uint16 { "uint16" } else { "int32" }
        ))
        .with_hint("leave dtype out, and the smallest that fits is taken"));
    }
    Ok(dtype)
}

/// Everything that the work needs.
struct Work<'a> {
    tokenizer: &'a Tokenizer,
    paths: &'a [PathBuf],
    plan: &'a Plan,
    partial: &'a Path,
    manner: &'a Manner,
    job: &'a Job,
}

impl<'a> Work<'a> {
    fn run(&self, journal: Journal<'a>, state: Option<Entry>) -> Result<Manifest> {
        if let Some(state) = &state {
            self.check(state)?;
        }
        let place = state.as_ref().map_or(Place::default(), |state| state.place);
        let splits = if self.plan.shuffle {
            let lengths = state.as_ref().map(|state| &state.buckets[..]);
            let mut buckets = Buckets::new(self.plan, self.partial, lengths, self.job)?;
            let journal = self.encode(journal, place, &mut buckets)?;
            drop(buckets);
            let states = state.map(|state| state.splits).filter(|splits| !splits.is_empty());
            self.gather(journal, states)?
        } else {
            let states = state.map(|state| state.splits);
            let mut direct = Direct::new(self.plan, self.partial, states, self.job)?;
            self.encode(journal, place, &mut direct)?;
            direct.into_splits()
        };
        let mut finished = Vec::new();
        for split in splits {
            let (split, files) = split.finish(self.job)?;
            for file in files {
                file.sync_all().map_err(|e| Error::io(self.partial, e))?;
            }
            finished.push(split);
        }
        Ok(Manifest::new(self.plan.clone(), finished))
    }

    /// A journal that does not go with the plan must not be followed.
    fn check(&self, state: &Entry) -> Result<()> {
        let n_splits = self.plan.splits().len();
        let fits = |len: usize| len == n_splits;
        let source = self.plan.sources.get(state.place.source).map_or(0, |source| source.size);
        let known = if self.plan.shuffle {
            fits(state.buckets.len()) && (fits(state.splits.len()) || state.splits.is_empty())
        } else {
            fits(state.splits.len())
        };
        if known && state.place.offset <= source {
            return Ok(());
        }
        Err(Error::tokens(format!(
            "{}: damaged: an entry cannot be",
            self.partial.join(journal::NAME).display()
        ))
        .with_hint("begin anew: overwrite=True (--overwrite)"))
    }

    /// Encodes what is left of the sources into a sink.
    fn encode(
        &self,
        journal: Journal<'a>,
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<Journal<'a>> {
        let Plan { sources, dtype, end_of_text, .. } = self.plan;
        let target = Target { tokenizer: self.tokenizer, dtype: *dtype, end_of_text: *end_of_text };
        let total = sources.iter().map(|source| source.size).sum::<u64>();
        self.job.set_total(total);
        // A thread that gets no chunk is not worth its start.
        let chunks = total / self.manner.chunk_size.max(1) as u64 + sources.len() as u64;
        let threads = self.manner.threads.min(chunks.max(1) as usize);
        let before = sources.iter().take(place.source).map(|source| source.size).sum::<u64>();
        self.job.advance(before + place.offset);
        let chunks = InOrder::new(
            self.paths,
            sources,
            self.tokenizer.cutter(),
            self.manner.chunk_size,
            (place.source, place.offset),
        );
        let mut documents = Documents::new(self.plan, place);
        thread::scope(|scope| {
            let mut notes = Notes::new(Keeper::new(scope, journal), self.manner);
            let mut broken = false;
            let result = for_each_chunk(chunks, target, threads, self.job, |chunk| {
                broken = true;
                documents.take(chunk, sink)?;
                if notes.are_due(chunk.ids.len() as u64) {
                    notes.put(documents.place, sink.state()?)?;
                }
                broken = false;
                self.job.advance(chunk.size);
                Ok(())
            });
            // Whatever is wrong with a source, what was read of it so far is kept; but who wants
            // to stop should not have to wait, and where a file could not be written, how long it
            // is is not certain.
            let keep = match &result {
                // The next step begins with what this one ends with.
                Ok(()) => self.plan.shuffle,
                Err(Error::Interrupted) => false,
                Err(_) => !broken,
            };
            let kept = if keep {
                sink.state().and_then(|state| notes.put(documents.place, state))
            } else {
                Ok(())
            };
            // Why the journal could not be written, only the keeper knows.
            let journal = notes.keeper.finish()?;
            result.and(kept).map(|()| journal)
        })
    }

    /// Writes shuffled documents in their order.
    fn gather(
        &self,
        journal: Journal<'a>,
        states: Option<Vec<shards::SplitState>>,
    ) -> Result<Vec<SplitWriter<'a>>> {
        let mut splits = documents::split_writers(self.plan, self.partial, states, self.job)?;
        let place = Place { source: self.plan.sources.len(), ..Place::default() };
        thread::scope(|scope| {
            let notes = Notes::new(Keeper::new(scope, journal), self.manner);
            let mut gathering = Gathering { splits: &mut splits, current: 0, notes, place };
            let total = self.plan.splits().len();
            self.job.enter(Phase::Shuffle, shuffle::size(self.plan, self.partial)?);
            let result = (0..total).try_for_each(|split| {
                gathering.current = split;
                let skip = gathering.splits[split].documents();
                let most = self.manner.sort_bytes;
                shuffle::gather(
                    self.plan,
                    self.partial,
                    split,
                    skip,
                    most,
                    &mut gathering,
                    self.job,
                )
            });
            gathering.notes.keeper.finish()?;
            result
        })?;
        Ok(splits)
    }
}

/// When the journal is written.
struct Notes<'scope, 'a> {
    keeper: Keeper<'scope, 'a>,
    every: u64,
    since: u64,
    last: Instant,
}

impl<'scope, 'a: 'scope> Notes<'scope, 'a> {
    fn new(keeper: Keeper<'scope, 'a>, manner: &Manner) -> Self {
        Notes { keeper, every: manner.journal_every, since: 0, last: Instant::now() }
    }

    /// Whether it is time for an entry, after so many more bytes.
    fn are_due(&mut self, written: u64) -> bool {
        self.since += written;
        (self.since >= self.every || self.last.elapsed() >= JOURNAL_AFTER) && self.keeper.is_idle()
    }

    fn put(&mut self, place: Place, (entry, files): (Entry, Vec<Arc<File>>)) -> Result<()> {
        (self.since, self.last) = (0, Instant::now());
        if self.keeper.put(Entry { place, ..entry }, files) {
            return Ok(());
        }
        // What went wrong is known when the keeper has finished.
        Err(Error::tokens("the journal could not be written"))
    }
}

/// Takes shuffled documents into the files of a split.
struct Gathering<'w, 'scope, 'a> {
    splits: &'w mut [SplitWriter<'a>],
    current: usize,
    notes: Notes<'scope, 'a>,
    place: Place,
}

impl<'scope, 'a: 'scope> shuffle::Receiver for Gathering<'_, 'scope, 'a> {
    fn ids(&mut self, ids: &[u8]) -> Result<()> {
        self.notes.since += ids.len() as u64;
        self.splits[self.current].append(ids)
    }

    fn end(&mut self, appended: bool) -> Result<()> {
        self.splits[self.current].end_document(appended)?;
        if self.notes.are_due(0) {
            self.notes.put(self.place, documents::states(self.splits)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
