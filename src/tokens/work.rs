//! The work itself: encoding, shuffling where asked for, and a journal of how far it is.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Manner;
use super::documents::{self, Direct, Documents, Place, Sink};
use super::journal::{self, Entry, Journal, Keeper};
use super::manifest::{Manifest, Plan, Split};
use super::pipeline::{Target, for_each_chunk};
use super::shards::{SplitState, SplitWriter};
use super::shuffle::{self, Buckets};
use crate::base::error::{Error, Result};
use crate::base::job::{Job, Phase};
use crate::corpus::{Context, InOrder, Input, Inputs, Position, Skipped, Source};
use crate::tokenizer::encode::Tokenizer;

/// However little is written, the journal follows after this time.
const JOURNAL_AFTER: Duration = Duration::from_secs(5);

/// Everything that the work needs.
pub struct Work<'a> {
    /// What encodes.
    pub tokenizer: &'a Tokenizer,
    /// The sources.
    pub inputs: &'a Inputs,
    /// What is to be written.
    pub plan: &'a Plan,
    /// Where unfinished files are.
    pub partial: &'a Path,
    /// How to go about it.
    pub manner: &'a Manner,
    /// Who asks how far it is.
    pub job: &'a Job,
}

impl<'a> Work<'a> {
    /// Does what is left to do after `state`; all files are on disk then.
    pub fn run(&self, journal: Journal<'a>, state: Option<Entry>) -> Result<Manifest> {
        if let Some(state) = &state {
            self.check(state)?;
        }
        let place = state.as_ref().map_or(Place::default(), |state| state.place);
        let skipped = state.as_ref().map(|state| state.skipped.clone()).unwrap_or_default();
        let mut documents = Documents { place, is_open: false, skipped };
        let splits = if self.plan.shuffle {
            let lengths = state.as_ref().map(|state| &state.buckets[..]);
            let mut buckets = Buckets::new(self.plan, self.partial, lengths, self.job)?;
            let journal = self.encode(journal, &mut documents, &mut buckets)?;
            drop(buckets);
            let states = state.map(|state| state.splits).filter(|splits| !splits.is_empty());
            self.gather(journal, states, documents.place)?
        } else {
            let states = state.map(|state| state.splits);
            let mut direct = Direct::new(self.plan, self.partial, states, self.job)?;
            self.encode(journal, &mut documents, &mut direct)?;
            direct.into_splits()
        };
        self.finish(splits, documents)
    }

    /// Ends the files of all splits.
    fn finish(&self, splits: Vec<SplitWriter<'a>>, documents: Documents) -> Result<Manifest> {
        let mut finished = Vec::new();
        for split in splits {
            let (split, files) = split.finish(self.job)?;
            for file in files {
                file.sync_all().map_err(|e| Error::io(self.partial, e))?;
            }
            finished.push(split);
        }
        let Documents { place, skipped, .. } = documents;
        Ok(Manifest::new(self.plan.clone(), place.text_bytes, skipped, finished))
    }

    /// A journal that does not go with the plan must not be followed.
    fn check(&self, state: &Entry) -> Result<()> {
        let Plan { sources, shuffle, .. } = self.plan;
        let n_splits = self.plan.splits().len();
        // Of what lies on disk as it is read, the end is known.
        let end = sources
            .get(state.place.source)
            .map_or(0, |source| if source.is_divisible() { source.size } else { u64::MAX });
        let sunk = if *shuffle { state.buckets.len() } else { state.splits.len() };
        let gathering = !*shuffle || !state.splits.is_empty();
        let splits: Option<Vec<Split>> = state
            .splits
            .iter()
            .enumerate()
            .map(|(number, split)| split.as_split(self.plan, number))
            .collect();
        let documents = |splits: &[Split]| {
            splits.iter().try_fold(0u64, |sum, split| sum.checked_add(split.documents))
        };
        let possible = splits.is_some_and(|splits| {
            let fits = *shuffle || documents(&splits) == Some(state.place.document);
            let manifest = Manifest::new(
                self.plan.clone(),
                state.place.text_bytes,
                Skipped::default(),
                splits,
            );
            !gathering || (fits && manifest.contradiction().is_none())
        });
        if possible
            && sunk == n_splits
            && state.place.source <= sources.len()
            && state.place.at.offset <= end
        {
            return Ok(());
        }
        Err(journal::damaged(self.partial, "an entry cannot be"))
    }

    /// Encodes what is left of the sources into a sink.
    fn encode(
        &self,
        journal: Journal<'a>,
        documents: &mut Documents,
        sink: &mut dyn Sink,
    ) -> Result<Journal<'a>> {
        let Plan { sources, dtype, end_of_text, append_eot, .. } = self.plan;
        let target = Target {
            tokenizer: self.tokenizer,
            dtype: *dtype,
            end_of_text: *end_of_text,
            append: *append_eot,
        };
        let place = documents.place;
        let total = sources.iter().map(Source::weight).sum::<u64>();
        self.job.set_total(total);
        // A thread that gets no chunk is not worth its start.
        let chunks = total / self.manner.chunk_size.max(1) as u64 + sources.len() as u64;
        let known = sources.iter().all(Source::is_divisible)
            && self.inputs.list.iter().all(Input::is_measured);
        let most = if known { chunks.max(1) as usize } else { usize::MAX };
        let threads = self.manner.threads.min(most);
        let before = sources.iter().take(place.source).map(Source::weight).sum::<u64>();
        // What cannot be divided is read again from its start, and counts then.
        let within = sources
            .get(place.source)
            .filter(|source| source.is_divisible())
            .map_or(0, |source| source.weight_upto(place.at.offset));
        self.job.read(before + within, place.text_bytes);
        let context = Context {
            cutter: self.tokenizer.cutter(),
            reading: &self.inputs.reading,
            chunk_size: self.manner.chunk_size.max(1),
            open_pieces: true,
            job: self.job,
        };
        let chunks = InOrder::new(self.inputs, sources, context, (place.source, place.at));
        thread::scope(|scope| {
            let mut notes = Notes::new(Keeper::new(scope, journal)?, self.manner);
            let mut broken = false;
            let result = for_each_chunk(chunks, target, threads, self.job, |chunk| {
                broken = true;
                documents.take(chunk, sink)?;
                // Work cannot be taken up again inside a piece.
                if notes.are_due(chunk.ids.len() as u64) && !documents.is_open {
                    notes.put(documents.place, &documents.skipped, sink.state()?)?;
                }
                broken = false;
                self.job.read(chunk.weight, chunk.text);
                Ok(())
            });
            // Whatever is wrong with a source, what was read of it so far is kept; but who wants
            // to stop should not have to wait, and where a file could not be written, how long it
            // is is not certain.
            let keep = match &result {
                // The next step begins with what this one ends with.
                Ok(()) => self.plan.shuffle,
                Err(Error::Interrupted) => false,
                Err(_) => !broken && !documents.is_open,
            };
            let kept = if keep {
                sink.state().and_then(|state| notes.put(documents.place, &documents.skipped, state))
            } else {
                Ok(())
            };
            if result.is_ok() {
                self.job.read_all();
            }
            // Why the journal could not be written, only the keeper knows.
            let journal = notes.keeper.finish()?;
            result.and(kept).map(|()| journal)
        })
    }

    /// Writes shuffled documents in their order.
    fn gather(
        &self,
        journal: Journal<'a>,
        states: Option<Vec<SplitState>>,
        end: Place,
    ) -> Result<Vec<SplitWriter<'a>>> {
        let mut splits = documents::split_writers(self.plan, self.partial, states, self.job)?;
        let place = Place { source: self.plan.sources.len(), at: Position::default(), ..end };
        thread::scope(|scope| {
            let notes = Notes::new(Keeper::new(scope, journal)?, self.manner);
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

    fn put(
        &mut self,
        place: Place,
        skipped: &Skipped,
        (entry, files): (Entry, Vec<Arc<File>>),
    ) -> Result<()> {
        (self.since, self.last) = (0, Instant::now());
        if self.keeper.put(Entry { place, skipped: skipped.clone(), ..entry }, files) {
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
            // What was left out is in the entries before.
            let nothing = Skipped::default();
            self.notes.put(self.place, &nothing, documents::states(self.splits)?)?;
        }
        Ok(())
    }
}
