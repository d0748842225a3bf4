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
use crate::base::error::Result;
use crate::base::job::Job;
use crate::corpus::{Position, Skipped};

/// Where documents go.
pub trait Sink {
    /// Appends ids to a document.
    fn append(&mut self, number: u64, ids: &[u8]) -> Result<()>;

    /// Ends a document, whose last id was `appended` or not.
    fn end(&mut self, number: u64, appended: bool) -> Result<()>;

    /// What an entry of the journal says of the sink, and the files that must be synced before.
    fn state(&mut self) -> Result<(Entry, Vec<Arc<File>>)>;
}

/// How far the corpus has been read: always to the end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// The source.
    pub source: usize,
    /// The place in it.
    #[serde(flatten)]
    pub at: Position,
    /// The number of the document there.
    pub document: u64,
    /// Bytes of text before it.
    #[serde(default)]
    pub text_bytes: u64,
}

/// Gives the documents of blocks to a sink.
pub struct Documents {
    /// How far the corpus has been read.
    pub place: Place,
    /// Whether that is inside a piece.
    pub is_open: bool,
    /// What was left out so far.
    pub skipped: Skipped,
}

impl Documents {
    /// Takes the next block.
    pub fn take(&mut self, block: &Encoded, sink: &mut dyn Sink) -> Result<()> {
        let place = &mut self.place;
        let mut start = 0;
        for end in &block.ends {
            sink.append(place.document, &block.ids[start..end.at])?;
            sink.end(place.document, end.appended)?;
            place.document += 1;
            start = end.at;
        }
        if start < block.ids.len() {
            sink.append(place.document, &block.ids[start..])?;
        }
        (place.source, place.at) = block.next;
        place.text_bytes += block.text;
        self.is_open = block.is_open;
        for (kind, n) in &block.skipped.0 {
            self.skipped.add(kind, *n);
        }
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
