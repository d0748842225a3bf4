//! The journal of unfinished work, and the thread that keeps it.
//!
//! The first line is the plan; each further one says how far the corpus was read and how long the
//! files were then. A line is written when all that it says is on disk, by a thread of its own:
//! the work goes on meanwhile. Whatever ends the process, the last whole line is a state from which
//! the work goes on to the same bytes; what the files hold beyond it is cut off.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use serde::{Deserialize, Serialize};

use super::append::sync_directory;
use super::documents::Place;
use super::manifest::Plan;
use super::shards::SplitState;
use crate::corpus::Skipped;
use crate::error::{Error, Result};
use crate::memory::{error_of, spawn};

/// The name of the file.
pub const NAME: &str = "journal.jsonl";
const VERSION: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    plan: Plan,
}

/// How far the work is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Entry {
    /// In the corpus.
    pub place: Place,
    /// Of each split, if its files are being written: what is new since the entry before.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub splits: Vec<SplitState>,
    /// Of each split, the lengths of its buckets, if documents are being shuffled.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub buckets: Vec<Vec<u64>>,
    /// All records that were left out so far.
    #[serde(skip_serializing_if = "Skipped::is_empty", default)]
    pub skipped: Skipped,
}

impl Entry {
    /// Takes the next entry in: what is new is added.
    fn add(&mut self, next: Entry) {
        self.place = next.place;
        if !next.skipped.is_empty() {
            self.skipped = next.skipped;
        }
        if !next.buckets.is_empty() {
            self.buckets = next.buckets;
        }
        if self.splits.is_empty() {
            self.splits = next.splits;
            return;
        }
        for (sum, mut new) in self.splits.iter_mut().zip(next.splits) {
            sum.closed.append(&mut new.closed);
            sum.appended.append(&mut new.appended);
            (sum.tokens, sum.documents) = (new.tokens, new.documents);
        }
    }
}

/// The journal of a directory.
#[derive(Debug)]
pub struct Journal<'a> {
    directory: &'a Path,
    file: File,
}

impl<'a> Journal<'a> {
    /// A new one.
    pub fn create(directory: &'a Path, plan: &Plan) -> Result<Self> {
        let path = directory.join(NAME);
        let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
        let mut journal = Journal { directory, file };
        journal.write(&Head { version: VERSION, plan: plan.clone() })?;
        sync_directory(directory);
        Ok(journal)
    }

    /// The plan of the journal in a directory; None if there is none or it was not yet whole.
    pub fn plan(directory: &Path) -> Result<Option<Plan>> {
        let data = read(directory)?;
        let Some(head) =
            data.split(|&byte| byte == b'\n').next().filter(|head| head.len() < data.len())
        else {
            return Ok(None);
        };
        match serde_json::from_slice::<Head>(head) {
            Ok(head) if head.version == VERSION => Ok(Some(head.plan)),
            Ok(head) => Err(damaged(directory, &format!("its version is {}", head.version))),
            Err(error) => Err(damaged(directory, &error.to_string())),
        }
    }

    /// Goes on with the journal in a directory: how far the work had come, if anywhere.
    pub fn resume(directory: &'a Path) -> Result<(Self, Option<Entry>)> {
        let path = directory.join(NAME);
        let data = read(directory)?;
        let whole = data.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let mut state: Option<Entry> = None;
        for line in data[..whole].split(|&byte| byte == b'\n').skip(1).filter(|l| !l.is_empty()) {
            let entry: Entry = serde_json::from_slice(line)
                .map_err(|error| damaged(directory, &error.to_string()))?;
            match &mut state {
                Some(state) => state.add(entry),
                None => state = Some(entry),
            }
        }
        let failed = |e| Error::io(&path, e);
        let mut file = File::options().write(true).open(&path).map_err(failed)?;
        // A line that was being written when the end came.
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Journal { directory, file }, state))
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        // Plans and entries always have a JSON form.
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        self.file
            .write_all(&text)
            .and_then(|()| self.file.sync_data())
            .map_err(|e| Error::io(&self.directory.join(NAME), e))
    }

    fn keep(&mut self, note: &Note) -> Result<()> {
        for file in &note.files {
            file.sync_data().map_err(|e| Error::io(self.directory, e))?;
        }
        sync_directory(self.directory);
        self.write(&note.entry)
    }
}

fn read(directory: &Path) -> Result<Vec<u8>> {
    let path = directory.join(NAME);
    match fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(|e| Error::io(&path, e)),
    }
}

fn damaged(directory: &Path, what: &str) -> Error {
    Error::tokens(format!("{}: damaged: {what}", directory.join(NAME).display()))
        .with_hint("begin anew: overwrite=True (--overwrite)")
}

struct Note {
    entry: Entry,
    files: Vec<Arc<File>>,
}

/// Keeps a journal on a thread of its own.
pub struct Keeper<'scope, 'a> {
    notes: SyncSender<Note>,
    busy: Arc<AtomicBool>,
    thread: ScopedJoinHandle<'scope, (Journal<'a>, Result<()>)>,
}

impl<'scope, 'a: 'scope> Keeper<'scope, 'a> {
    /// Begins to keep.
    pub fn new<'env>(scope: &'scope Scope<'scope, 'env>, journal: Journal<'a>) -> Result<Self> {
        let (notes, received) = sync_channel::<Note>(1);
        let busy = Arc::new(AtomicBool::new(false));
        let busy_there = Arc::clone(&busy);
        let thread = spawn(scope, move || keep(journal, &received, &busy_there))?;
        Ok(Keeper { notes, busy, thread })
    }

    /// Whether an entry would be written at once.
    pub fn is_idle(&self) -> bool {
        !self.busy.load(Relaxed)
    }

    /// Gives an entry to be written once the files are synced. False if the keeper has failed,
    /// which [`Keeper::finish`] explains.
    pub fn put(&self, entry: Entry, files: Vec<Arc<File>>) -> bool {
        self.busy.store(true, Relaxed);
        self.notes.send(Note { entry, files }).is_ok()
    }

    /// Waits until all entries are written.
    pub fn finish(self) -> Result<Journal<'a>> {
        drop(self.notes);
        let (journal, result) = self.thread.join().map_err(|cause| error_of(cause.as_ref()))?;
        result.map(|()| journal)
    }
}

fn keep<'a>(
    mut journal: Journal<'a>,
    notes: &Receiver<Note>,
    busy: &AtomicBool,
) -> (Journal<'a>, Result<()>) {
    for note in notes {
        if let Err(error) = journal.keep(&note) {
            return (journal, Err(error));
        }
        busy.store(false, Relaxed);
    }
    (journal, Ok(()))
}
