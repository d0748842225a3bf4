//! Documents → the files of a split.
//!
//! A shard is full after exactly `shard_tokens` ids, wherever the documents end: then the shard of
//! any id is a division, every shard but the last is alike, and a document longer than a shard is
//! no special case. A full shard is closed when the next id comes, so that the end of an empty
//! document behind its last id is still in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::append::Append;
use super::manifest::{Companion, Format, Plan, Shard, Split};
use super::{megatron, npy};
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// Closed files that may wait to be synced.
const MOST_UNSYNCED: usize = 32;

/// Writes the files of a split.
#[derive(Debug)]
pub struct SplitWriter<'a> {
    plan: &'a Plan,
    split: usize,
    directory: &'a Path,
    /// Ids that a shard has room for.
    room: u64,
    /// The number of the first shard.
    first: usize,
    closed: Vec<Shard>,
    open: Open,
    /// Numbers of documents whose end-of-text was appended.
    appended: Vec<u64>,
    documents: u64,
    /// How much of `closed` and `appended` the last state had.
    told: (usize, usize),
    /// Files that were closed since.
    unsynced: Vec<Arc<File>>,
}

#[derive(Debug)]
struct Open {
    ids: Append,
    docs: Append,
    tokens: u64,
    documents: u64,
}

/// How far a split has come: what is open, and what is new since the state before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SplitState {
    /// Shards that were closed.
    pub closed: Vec<Shard>,
    /// Documents whose end-of-text was appended.
    pub appended: Vec<u64>,
    /// Ids in the open shard.
    pub tokens: u64,
    /// Documents that end in the open shard.
    pub documents: u64,
}

impl SplitState {
    /// The split as it would be if it ended here, without checksums; None if there is more of it
    /// than there can be.
    pub fn as_split(&self, plan: &Plan, split: usize) -> Option<Split> {
        let number = self.closed.len();
        let stem = plan.stem(split, number);
        let beside = |end: &str, bytes: u64| Companion {
            file: format!("{stem}.{end}"),
            bytes,
            crc32: String::new(),
        };
        let size =
            |n: u64, width: u64, header: usize| n.checked_mul(width)?.checked_add(header as u64);
        let open = Shard {
            file: plan.ids_name(split, number),
            tokens: self.tokens,
            documents: self.documents,
            bytes: size(self.tokens, plan.dtype.width() as u64, plan.header())?,
            crc32: String::new(),
            docs: beside("docs.npy", size(self.documents, 8, npy::HEADER)?),
            index: (plan.format == Format::Megatron).then(|| beside("idx", 0)),
        };
        let shards: Vec<Shard> = self.closed.iter().cloned().chain([open]).collect();
        let sum = |of: fn(&Shard) -> u64| {
            shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(of(shard)))
        };
        Some(Split {
            name: plan.splits().get(split)?.to_string(),
            tokens: sum(|shard| shard.tokens)?,
            documents: sum(|shard| shard.documents)?,
            appended: self.appended.clone(),
            shards,
        })
    }
}

impl<'a> SplitWriter<'a> {
    /// An empty split.
    pub fn new(plan: &'a Plan, split: usize, directory: &'a Path) -> Result<Self> {
        SplitWriter::for_shard(plan, split, 0, directory)
    }

    /// An empty split whose first shard has another number: for whoever makes that one alone.
    pub fn for_shard(
        plan: &'a Plan,
        split: usize,
        first: usize,
        directory: &'a Path,
    ) -> Result<Self> {
        let open = Open::create(plan, split, first, directory)?;
        Ok(SplitWriter {
            plan,
            split,
            directory,
            room: plan.shard_tokens.unwrap_or(u64::MAX),
            first,
            closed: Vec::new(),
            open,
            appended: Vec::new(),
            documents: 0,
            told: (0, 0),
            unsynced: Vec::new(),
        })
    }

    /// A split as it was; `state` is all states that were told, added up.
    pub fn restore(
        plan: &'a Plan,
        split: usize,
        directory: &'a Path,
        state: SplitState,
        job: &Job,
    ) -> Result<Self> {
        let SplitState { closed, appended, tokens, documents } = state;
        for (name, size) in closed.iter().flat_map(Shard::files) {
            let path = directory.join(name);
            let there = std::fs::metadata(&path).map_err(|e| Error::io(&path, e))?.len();
            if there != size {
                let what = format!("{}: {there} bytes, not {size}", path.display());
                return Err(Error::tokens(what).with_hint("begin anew: overwrite=True"));
            }
        }
        let open = Open::restore(plan, split, closed.len(), directory, tokens, documents, job)?;
        Ok(SplitWriter {
            plan,
            split,
            directory,
            room: plan.shard_tokens.unwrap_or(u64::MAX),
            first: 0,
            documents: closed.iter().map(|shard| shard.documents).sum::<u64>() + documents,
            told: (closed.len(), appended.len()),
            closed,
            open,
            appended,
            unsynced: Vec::new(),
        })
    }

    /// Documents that have ended.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Appends ids, given in their final width, to the document that has not ended yet.
    pub fn append(&mut self, mut ids: &[u8]) -> Result<()> {
        let width = self.plan.dtype.width();
        while !ids.is_empty() {
            if self.open.tokens == self.room {
                self.close()?;
            }
            let n = (ids.len() / width).min((self.room - self.open.tokens) as usize);
            let (here, rest) = ids.split_at(n * width);
            self.open.ids.write(here)?;
            self.open.tokens += n as u64;
            ids = rest;
        }
        Ok(())
    }

    /// Ends the document, whose last id was `appended` or not.
    pub fn end_document(&mut self, appended: bool) -> Result<()> {
        self.open.docs.write(&self.open.tokens.to_le_bytes())?;
        self.open.documents += 1;
        if appended {
            self.appended.push(self.documents);
        }
        self.documents += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let number = self.first + self.closed.len() + 1;
        let next = Open::create(self.plan, self.split, number, self.directory)?;
        let open = std::mem::replace(&mut self.open, next);
        let shard = open.close(self.plan, &mut self.unsynced)?;
        self.closed.push(shard);
        // Very small shards must not run out of open files.
        if self.unsynced.len() >= MOST_UNSYNCED {
            for file in self.unsynced.drain(..) {
                file.sync_data().map_err(|e| Error::io(self.directory, e))?;
            }
        }
        Ok(())
    }

    /// How far it is, and the files that must be synced for that to be true on disk.
    pub fn state(&mut self) -> Result<(SplitState, Vec<Arc<File>>)> {
        let mut files = std::mem::take(&mut self.unsynced);
        files.push(self.open.ids.flush()?);
        files.push(self.open.docs.flush()?);
        let state = SplitState {
            closed: self.closed[self.told.0..].to_vec(),
            appended: self.appended[self.told.1..].to_vec(),
            tokens: self.open.tokens,
            documents: self.open.documents,
        };
        self.told = (self.closed.len(), self.appended.len());
        Ok((state, files))
    }

    /// Ends the split; the files are as they will be once they are synced.
    pub fn finish(mut self, job: &Job) -> Result<(Split, Vec<Arc<File>>)> {
        let (plan, tokens, documents) = (self.plan, self.open.tokens, self.documents);
        let docs = self.open.docs.path().to_owned();
        let mut last = self.open.close(plan, &mut self.unsynced)?;
        if plan.format == Format::Megatron {
            let name = format!("{}.idx", plan.stem(self.split, 0));
            let mut index = Append::create(self.directory.join(&name), 0)?;
            megatron::write_index(&mut index, &docs, documents, plan.dtype, job)?;
            let (file, written) = index.finish(&[])?;
            self.unsynced.push(file);
            last.index = Some(Companion { file: name, bytes: written.bytes, crc32: written.crc32 });
        }
        let tokens = tokens + self.closed.iter().map(|shard| shard.tokens).sum::<u64>();
        self.closed.push(last);
        let split = Split {
            name: plan.splits()[self.split].to_owned(),
            tokens,
            documents,
            appended: self.appended,
            shards: self.closed,
        };
        Ok((split, self.unsynced))
    }
}

impl Open {
    fn paths(plan: &Plan, split: usize, number: usize, directory: &Path) -> (PathBuf, PathBuf) {
        let docs = format!("{}.docs.npy", plan.stem(split, number));
        (directory.join(plan.ids_name(split, number)), directory.join(docs))
    }

    fn create(plan: &Plan, split: usize, number: usize, directory: &Path) -> Result<Self> {
        let (ids, docs) = Open::paths(plan, split, number, directory);
        let ids = Append::create(ids, plan.header())?;
        let docs = Append::create(docs, npy::HEADER)?;
        Ok(Open { ids, docs, tokens: 0, documents: 0 })
    }

    fn restore(
        plan: &Plan,
        split: usize,
        number: usize,
        directory: &Path,
        tokens: u64,
        documents: u64,
        job: &Job,
    ) -> Result<Self> {
        let (ids, docs) = Open::paths(plan, split, number, directory);
        let len = tokens.saturating_mul(plan.dtype.width() as u64);
        let ids = Append::restore(ids, plan.header(), len, job)?;
        let docs = Append::restore(docs, npy::HEADER, documents.saturating_mul(8), job)?;
        Ok(Open { ids, docs, tokens, documents })
    }

    fn close(self, plan: &Plan, unsynced: &mut Vec<Arc<File>>) -> Result<Shard> {
        let name = |path: &Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let (file, docs_file) = (name(self.ids.path()), name(self.docs.path()));
        let header = npy::header(plan.dtype.descr(), self.tokens);
        let (handle, ids) = self.ids.finish(&header[..plan.header()])?;
        unsynced.push(handle);
        let (handle, docs) = self.docs.finish(&npy::header("<u8", self.documents))?;
        unsynced.push(handle);
        Ok(Shard {
            file,
            tokens: self.tokens,
            documents: self.documents,
            bytes: ids.bytes,
            crc32: ids.crc32,
            docs: Companion { file: docs_file, bytes: docs.bytes, crc32: docs.crc32 },
            index: None,
        })
    }
}
