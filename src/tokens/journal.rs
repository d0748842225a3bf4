//! The journal of unfinished work, and the thread that keeps it.
//!
//! Each line is a JSON array: a checksum, and the plan (in the first line) or how far the corpus was
//! read and how long the files were then. The checksum is the CRC-32 of the second elements of all
//! lines so far, so a line that was changed, removed or put elsewhere is found. A line is written
//! when all that it says is on disk, by a thread of its own: the work goes on meanwhile. Whatever
//! ends the process, the last whole line is a state from which the work goes on to the same bytes;
//! what the files hold beyond it is cut off.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use crc32fast::Hasher;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::append::{hex, sync_directory};
use super::documents::Place;
use super::manifest::Plan;
use super::shards::SplitState;
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::threads::{error_of, spawn};
use crate::corpus::Skipped;

/// The name of the file.
pub const NAME: &str = "journal.jsonl";
const VERSION: u32 = 3;
/// Of the array around an entry, what comes before it: `["01234567",`.
const PREFIX: usize = 12;

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
    /// Of all entries so far.
    hasher: Hasher,
}

impl<'a> Journal<'a> {
    /// A new one.
    pub fn create(directory: &'a Path, plan: &Plan) -> Result<Self> {
        let path = directory.join(NAME);
        let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
        let mut journal = Journal { directory, file, hasher: Hasher::new() };
        journal.write(&Head { version: VERSION, plan: plan.clone() })?;
        sync_directory(directory);
        Ok(journal)
    }

    /// The plan of the journal in a directory; None if there is none or it was not yet whole.
    pub fn plan(directory: &Path) -> Result<Option<Plan>> {
        let data = read(directory)?;
        let line = whole_lines(&data).next();
        line.map(|line| head(line, &mut Hasher::new(), directory)).transpose()
    }

    /// Goes on with the journal in a directory: how far the work had come, if anywhere.
    pub fn resume(directory: &'a Path) -> Result<(Self, Option<Entry>)> {
        let path = directory.join(NAME);
        let data = read(directory)?;
        let (mut hasher, mut whole) = (Hasher::new(), 0);
        let mut state: Option<Entry> = None;
        for (number, line) in whole_lines(&data).enumerate() {
            whole += line.len() + 1;
            if number == 0 {
                head(line, &mut hasher, directory)?;
                continue;
            }
            let entry: Entry = checked(line, &mut hasher, directory)?;
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
        Ok((Journal { directory, file, hasher }, state))
    }

    fn write(&mut self, entry: &impl Serialize) -> Result<()> {
        // Plans and entries always have a JSON form.
        let text = serde_json::to_vec(entry).unwrap_or_default();
        self.hasher.update(&text);
        let before = format!("[\"{}\",", hex(self.hasher.clone()));
        self.file
            .write_all(&[before.as_bytes(), &text, b"]\n"].concat())
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
    let mut data = Vec::new();
    match files::open(&path, Error::tokens) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
        other => drop(other?.read_to_end(&mut data).map_err(|e| Error::io(&path, e))?),
    }
    Ok(data)
}

/// All lines but one that was being written when the end came.
fn whole_lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = data.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    data[..whole].split(|&byte| byte == b'\n').filter(move |_| whole > 0)
}

fn head(line: &[u8], hasher: &mut Hasher, directory: &Path) -> Result<Plan> {
    // As far as version 2, a line was the plan itself.
    if line.starts_with(b"{") {
        return Err(damaged(directory, "written by an earlier version of bytemill"));
    }
    let head: Head = checked(line, hasher, directory)?;
    match head.version {
        VERSION => Ok(head.plan),
        other => Err(damaged(directory, &format!("its version is {other}"))),
    }
}

/// What a line says, if its checksum is right.
fn checked<T: DeserializeOwned>(line: &[u8], hasher: &mut Hasher, directory: &Path) -> Result<T> {
    let text = line.get(PREFIX..line.len().max(PREFIX + 1) - 1).unwrap_or_default();
    hasher.update(text);
    if line != [format!("[\"{}\",", hex(hasher.clone())).as_bytes(), text, b"]"].concat() {
        return Err(damaged(directory, "the checksum of a line does not match"));
    }
    serde_json::from_slice(text).map_err(|error| damaged(directory, &error.to_string()))
}

/// A journal that cannot be followed.
pub fn damaged(directory: &Path, what: &str) -> Error {
    Error::tokens(format!("{}: damaged: {what}", directory.join(NAME).display()))
        .with_hint("begin anew: overwrite=True")
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
