//! The directory that tokens are written into: what is there, and how it becomes what it is to be.
//!
//! ```text
//! tokens/.lock                  held while a process writes; taken by the caller
//! tokens/.partial/              all that is unfinished: the journal, the files so far
//! tokens/.partial/manifest.json the files are whole: only the moving is left
//! tokens/.partial/replaced.json the manifest of the tokens that are being replaced
//! tokens/manifest.json          finished
//! ```
//!
//! The old content of a directory that is overwritten is untouched until the new is whole. Then the
//! old manifest is put aside, the new files are moved over the old, the other files that the old
//! manifest names are deleted, and the new manifest comes last. Each step can be done again, so a
//! process that is killed on the way leaves a directory without a manifest, in which the next one
//! goes on. A file that no manifest of ours names is never replaced or deleted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::append::sync_directory;
use super::journal::{self, Journal};
use super::manifest::{self, Companion, Manifest, Plan};
use crate::base::error::{Error, Result};

const LOCK: &str = ".lock";
/// Where unfinished files are.
pub const PARTIAL: &str = ".partial";
const REPLACED: &str = "replaced.json";
/// What the names of temporary files end in, whatever part of bytemill made them.
const TEMPORARY: &str = ".bytemill";
/// So often, and so long apart, it is tried to remove a directory that others may write into.
const PATIENCE: u32 = 40;
const BEAT: Duration = Duration::from_millis(50);
const CHOICE: &str = "resume=True continues with them, overwrite=True begins anew";

/// What to do with what is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is an error.
    Refuse,
    /// Go on with it; whole, it is left as it is.
    Resume,
    /// Replace it.
    Overwrite,
}

/// A directory that this process alone writes into: the caller sees to that.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Where unfinished files are.
    pub partial: PathBuf,
}

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Everything.
    Begin,
    /// What the journal says is left.
    GoOn,
    /// Nothing: all is there.
    Nothing,
}

impl Directory {
    /// Takes a directory for writing what `plan` says, and tells what there is to do.
    pub fn take(path: &Path, plan: &Plan, existing: Existing) -> Result<(Self, Task)> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            other => other.map_err(|e| Error::io(path, e))?,
        }
        let directory = Directory { path: path.to_owned(), partial: path.join(PARTIAL) };
        let task = directory.task(plan, existing)?;
        if task == Task::Begin {
            fs::create_dir(&directory.partial).map_err(|e| Error::io(&directory.partial, e))?;
        }
        Ok((directory, task))
    }

    fn task(&self, plan: &Plan, existing: Existing) -> Result<Task> {
        let whole = self.partial.join(manifest::NAME).exists();
        let begun = if whole { None } else { Journal::plan(&self.partial).transpose() };
        if !whole && begun.is_none() {
            // What a process left that was killed before it began, or after it had finished.
            self.drop_partial()?;
            return self.task_without_partial(plan, existing);
        }
        match existing {
            Existing::Refuse => Err(Error::config(format!(
                "{}: an interrupted run left its files here",
                self.path.display()
            ))
            .with_hint(CHOICE)),
            Existing::Overwrite => {
                // Some of the files may have been moved already.
                if whole {
                    self.publish()?;
                } else {
                    self.drop_partial()?;
                }
                self.task_without_partial(plan, existing)
            }
            Existing::Resume if whole => {
                check_same(&Manifest::read(&self.partial)?.plan, plan, &self.path)?;
                self.publish()?;
                Ok(Task::Nothing)
            }
            Existing::Resume => {
                if let Some(before) = begun {
                    check_same(&before?, plan, &self.path)?;
                }
                Ok(Task::GoOn)
            }
        }
    }

    fn task_without_partial(&self, plan: &Plan, existing: Existing) -> Result<Task> {
        let names = self.names()?;
        if names.is_empty() {
            return Ok(Task::Begin);
        }
        let whole = names.iter().any(|name| name == manifest::NAME);
        match existing {
            Existing::Resume if whole => {
                check_same(&Manifest::read(&self.path)?.plan, plan, &self.path)?;
                Ok(Task::Nothing)
            }
            Existing::Overwrite => {
                let ours = match whole {
                    false => BTreeSet::new(),
                    true => match manifest::named(&self.path.join(manifest::NAME)) {
                        Err(Error::Tokens(_)) => return Err(not_ours(&self.path, manifest::NAME)),
                        other => other?,
                    },
                };
                // Beside tokens, what cannot be in their way may stay.
                let foreign = |name: &&String| {
                    name.as_str() != manifest::NAME
                        && !ours.contains(*name)
                        && (!whole || manifest::is_possible(name))
                };
                match names.iter().find(foreign) {
                    Some(name) => Err(not_ours(&self.path, name)),
                    None => Ok(Task::Begin),
                }
            }
            _ => Err(Error::io(
                &self.path,
                io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "exists already (overwrite=True replaces it)",
                ),
            )),
        }
    }

    /// The names in the directory but for those of unfinished work and of temporary files.
    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|e| Error::io(&self.path, e))? {
            let name = entry.map_err(|e| Error::io(&self.path, e))?.file_name();
            let name = name.to_string_lossy().into_owned();
            let temporary = name.starts_with('.') && name.ends_with(TEMPORARY);
            if name != LOCK && name != PARTIAL && !temporary {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn drop_partial(&self) -> Result<()> {
        for entry in fs::read_dir(&self.partial).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_work(&name) {
                return Err(not_ours(&self.partial, &name));
            }
        }
        for _ in 0..PATIENCE {
            match fs::remove_dir_all(&self.partial) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                // Whoever was told to stop may still have put something there.
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => thread::sleep(BEAT),
                other => return other.map_err(|e| Error::io(&self.partial, e)),
            }
        }
        fs::remove_dir_all(&self.partial).map_err(|e| Error::io(&self.partial, e))
    }

    /// Moves what is whole to where it belongs, with the file of the tokenizer if there is one. All
    /// other files are synced.
    pub fn finish(&self, mut manifest: Manifest, tokenizer: Option<&[u8]>) -> Result<()> {
        if let Some(data) = tokenizer {
            self.write(manifest::TOKENIZER, data)?;
            manifest.tokenizer_file = Some(Companion::of(manifest::TOKENIZER, data));
        }
        let temporary = "manifest.tmp";
        self.write(temporary, &manifest.to_json())?;
        let path = self.partial.join(manifest::NAME);
        fs::rename(self.partial.join(temporary), &path).map_err(|e| Error::io(&path, e))?;
        sync_directory(&self.partial);
        self.publish()
    }

    fn write(&self, name: &str, data: &[u8]) -> Result<()> {
        let path = self.partial.join(name);
        File::create(&path)
            .and_then(|mut file| file.write_all(data).and_then(|()| file.sync_all()))
            .map_err(|e| Error::io(&path, e))
    }

    fn publish(&self) -> Result<()> {
        let failed = |e| Error::io(&self.path, e);
        let new = Manifest::read(&self.partial)?;
        let gone = |result: io::Result<()>| match result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        // With neither journal nor manifest, what is left of the work is known to be done with.
        gone(fs::remove_file(self.partial.join(journal::NAME))).map_err(failed)?;
        sync_directory(&self.partial);
        let replaced = self.partial.join(REPLACED);
        gone(fs::rename(self.path.join(manifest::NAME), &replaced)).map_err(failed)?;
        sync_directory(&self.path);
        let mut old = if replaced.exists() { manifest::named(&replaced)? } else { BTreeSet::new() };
        for (name, size) in new.files() {
            let (from, to) = (self.partial.join(name), self.path.join(name));
            match fs::rename(&from, &to) {
                // Moved by a process that was killed after that.
                Err(e)
                    if e.kind() == io::ErrorKind::NotFound
                        && fs::metadata(&to).is_ok_and(|metadata| metadata.len() == size) => {}
                other => other.map_err(|e| Error::io(&to, e))?,
            }
            old.remove(name);
        }
        for name in old {
            gone(fs::remove_file(self.path.join(&name))).map_err(failed)?;
        }
        sync_directory(&self.path);
        fs::rename(self.partial.join(manifest::NAME), self.path.join(manifest::NAME))
            .map_err(failed)?;
        sync_directory(&self.path);
        self.drop_partial()
    }
}

/// Whether a name may be that of unfinished work.
fn is_work(name: &str) -> bool {
    let sidecar = name
        .strip_suffix(".json")
        .is_some_and(|stem| manifest::is_possible(&format!("{stem}.npy")));
    let begins = ["bucket-", "parts-"].iter().any(|start| name.starts_with(start));
    manifest::is_possible(name)
        || sidecar
        || begins
        || name.ends_with(".tmp")
        || matches!(name, manifest::NAME | REPLACED | journal::NAME)
}

fn not_ours(place: &Path, name: &str) -> Error {
    Error::config(format!(
        "{}: holds other files than tokens, such as {name}, which will not be overwritten",
        place.display()
    ))
    .with_hint("name a directory that is new, empty or of tokens, or move the file away")
}

/// Refuses to go on with work that was begun otherwise.
fn check_same(before: &Plan, plan: &Plan, path: &Path) -> Result<()> {
    before.check_tokenizer(&plan.tokenizer.fingerprint, path)?;
    let other = |what: String| {
        Err(Error::config(format!("{}: {what}", path.display()))
            .with_hint("resume with the same sources and options, or begin anew: overwrite=True"))
    };
    for (old, new) in before.sources.iter().zip(&plan.sources) {
        if old.path != new.path {
            return other(format!("was begun with the source {}, not {}", old.path, new.path));
        }
        if old != new {
            return other(format!("the source {} has changed since it was begun", old.path));
        }
    }
    if before.sources.len() != plan.sources.len() {
        let (old, new) = (before.sources.len(), plan.sources.len());
        return other(format!("was begun with {old} sources, not {new}"));
    }
    if before != plan {
        return other("was begun with other options".into());
    }
    Ok(())
}
