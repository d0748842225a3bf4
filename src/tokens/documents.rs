//! Encoded chunks → documents, numbered through the corpus.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::journal::Entry;
use super::manifest::Plan;
use super::order::Order;
use super::pipeline::Encoded;
use super::shards::{SplitState, SplitWriter};
use crate::error::Result;
use crate::job::Job;

/// Where documents go.
pub trait Sink {
    /// Appends ids to a document.
    fn append(&mut self, number: u64, ids: &[u8]) -> Result<()>;

    /// Ends a document, whose last id was `appended` or not.
    fn end(&mut self, number: u64, appended: bool) -> Result<()>;

    /// What an entry of the journal says of the sink, and the files that must be synced before.
    fn state(&mut self) -> Result<(Entry, Vec<Arc<File>>)>;
}

/// How far the corpus has been read: always to the end of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// The source.
    pub source: usize,
    /// The byte in it.
    pub offset: u64,
    /// The number of the document there.
    pub document: u64,
    /// Whether some of it has been read.
    pub open: bool,
}

/// Gives the documents of chunks to a sink.
pub struct Documents<'a> {
    plan: &'a Plan,
    /// Bytes of an end-of-text, where one is appended.
    end_of_text: Option<Vec<u8>>,
    /// How far the corpus has been read.
    pub place: Place,
}

impl<'a> Documents<'a> {
    /// The documents from `place` on.
    pub fn new(plan: &'a Plan, place: Place) -> Self {
        let width = plan.dtype.width();
        let end_of_text = plan.end_of_text.filter(|_| plan.append_eot);
        let end_of_text = end_of_text.map(|id| id.to_le_bytes()[..width].to_vec());
        Documents { plan, end_of_text, place }
    }

    /// Takes the next chunk.
    pub fn take(&mut self, chunk: &Encoded, sink: &mut dyn Sink) -> Result<()> {
        let place = &mut self.place;
        let mut start = 0;
        for &end in &chunk.ends {
            sink.append(place.document, &chunk.ids[start..end])?;
            sink.end(place.document, false)?;
            (place.document, place.open, start) = (place.document + 1, false, end);
        }
        if start < chunk.ids.len() {
            sink.append(place.document, &chunk.ids[start..])?;
            place.open = true;
        }
        if !chunk.last {
            (place.source, place.offset) = (chunk.source, chunk.offset);
            return Ok(());
        }
        // An empty source is a document, too, or those behind it would move up.
        let empty = self.plan.sources.get(chunk.source).is_some_and(|source| source.size == 0);
        if place.open || empty {
            if let Some(id) = &self.end_of_text {
                sink.append(place.document, id)?;
            }
            sink.end(place.document, self.end_of_text.is_some())?;
            place.document += 1;
        }
        (place.source, place.offset, place.open) = (chunk.source + 1, 0, false);
        Ok(())
    }
}

/// Writes documents into the files of their splits as they come.
pub struct Direct<'a> {
    order: Order,
    splits: Vec<SplitWriter<'a>>,
}

impl<'a> Direct<'a> {
    /// Files that are new, or as `states` says they were.
    pub fn new(
        plan: &'a Plan,
        directory: &'a Path,
        states: Option<Vec<SplitState>>,
        job: &Job,
    ) -> Result<Self> {
        let order = Order::new(plan.seed, plan.val_fraction);
        Ok(Direct { order, splits: split_writers(plan, directory, states, job)? })
    }

    /// The files.
    pub fn into_splits(self) -> Vec<SplitWriter<'a>> {
        self.splits
    }
}

/// A writer for each split, new or as it was.
pub fn split_writers<'a>(
    plan: &'a Plan,
    directory: &'a Path,
    states: Option<Vec<SplitState>>,
    job: &Job,
) -> Result<Vec<SplitWriter<'a>>> {
    let n_splits = plan.splits().len();
    match states {
        None => (0..n_splits).map(|split| SplitWriter::new(plan, split, directory)).collect(),
        Some(states) => (0..n_splits)
            .zip(states)
            .map(|(split, state)| SplitWriter::restore(plan, split, directory, state, job))
            .collect(),
    }
}

/// The state of several splits as one.
pub fn states(splits: &mut [SplitWriter<'_>]) -> Result<(Entry, Vec<Arc<File>>)> {
    let (mut entry, mut files) = (Entry::default(), Vec::new());
    for split in splits {
        let (state, mut of_split) = split.state()?;
        entry.splits.push(state);
        files.append(&mut of_split);
    }
    Ok((entry, files))
}

impl Sink for Direct<'_> {
    fn append(&mut self, number: u64, ids: &[u8]) -> Result<()> {
        self.splits[self.order.split(number)].append(ids)
    }

    fn end(&mut self, number: u64, appended: bool) -> Result<()> {
        self.splits[self.order.split(number)].end_document(appended)
    }

    fn state(&mut self) -> Result<(Entry, Vec<Arc<File>>)> {
        states(&mut self.splits)
    }
}
