//! The directory that tokens are written into: who may, what is there, and how it becomes what it
//! is to be.
//!
//! ```text
//! tokens/.lock                  held while a process writes
//! tokens/.partial/              all that is unfinished: the journal, the files so far
//! tokens/.partial/manifest.json the files are whole: only the moving is left
//! tokens/manifest.json          finished
//! ```
//!
//! The old content of a directory that is overwritten is untouched until the new is whole. Then the
//! old manifest goes, the new files are moved over the old, the old files that are left go, and the
//! new manifest comes last. Each step can be done again, so a process that is killed on the way
//! leaves a directory without a manifest, in which the next one goes on.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::append::sync_directory;
use super::journal::{self, Journal};
use super::manifest::{self, Manifest, Plan};
use crate::error::{Error, Result};

const LOCK: &str = ".lock";
/// Where unfinished files are.
pub const PARTIAL: &str = ".partial";
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

/// A directory that this process alone writes into.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Where unfinished files are.
    pub partial: PathBuf,
    _lock: Lock,
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
        let directory = Directory {
            path: path.to_owned(),
            partial: path.join(PARTIAL),
            _lock: Lock::take(path)?,
        };
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
                self.drop_partial()?;
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
            Existing::Overwrite => match names.iter().find(|name| !is_ours(name)) {
                Some(other) if !whole => Err(Error::config(format!(
                    "{}: holds other files than tokens, such as {other}",
                    self.path.display()
                ))
                .with_hint("name a directory that is new, empty or of tokens")),
                _ => Ok(Task::Begin),
            },
            _ => Err(Error::io(
                &self.path,
                io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "exists already (overwrite=True replaces it)",
                ),
            )),
        }
    }

    /// The names in the directory but for those of unfinished work.
    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(|e| Error::io(&self.path, e))? {
            let name = entry.map_err(|e| Error::io(&self.path, e))?.file_name();
            let name = name.to_string_lossy().into_owned();
            if name != LOCK && name != PARTIAL {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn drop_partial(&self) -> Result<()> {
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

    /// Moves what is whole to where it belongs. All files are synced.
    pub fn finish(&self, manifest: &Manifest) -> Result<()> {
        let path = self.partial.join(manifest::NAME);
        let temporary = self.partial.join("manifest.tmp");
        let mut file = File::create(&temporary).map_err(|e| Error::io(&temporary, e))?;
        file.write_all(&manifest.to_json())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|e| Error::io(&path, e))?;
        sync_directory(&self.partial);
        self.publish()
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
        gone(fs::remove_file(self.path.join(manifest::NAME))).map_err(failed)?;
        sync_directory(&self.path);
        let mut names = std::collections::HashSet::new();
        for (name, size) in new.files() {
            let (from, to) = (self.partial.join(name), self.path.join(name));
            match fs::rename(&from, &to) {
                // Moved by a process that was killed after that.
                Err(e)
                    if e.kind() == io::ErrorKind::NotFound
                        && fs::metadata(&to).is_ok_and(|metadata| metadata.len() == size) => {}
                other => other.map_err(|e| Error::io(&to, e))?,
            }
            names.insert(name);
        }
        for name in self.names()? {
            if is_ours(&name) && !names.contains(name.as_str()) {
                gone(fs::remove_file(self.path.join(&name))).map_err(failed)?;
            }
        }
        sync_directory(&self.path);
        fs::rename(self.partial.join(manifest::NAME), self.path.join(manifest::NAME))
            .map_err(failed)?;
        sync_directory(&self.path);
        self.drop_partial()
    }
}

/// Whether a file is one that some manifest names, or a manifest.
fn is_ours(name: &str) -> bool {
    let stem = [".docs.npy", ".npy", ".bin", ".idx"].iter().find_map(|end| name.strip_suffix(end));
    let numbered = |stem: &str| {
        let number = ["shard-", "train-", "val-"].iter().find_map(|split| stem.strip_prefix(split));
        number.is_some_and(|n| n.len() >= 5 && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name == manifest::NAME
        || stem.is_some_and(|stem| matches!(stem, "tokens" | "train" | "val") || numbered(stem))
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

/// A lock that goes with its process, however that ends.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(LOCK);
        let failed = |e| Error::io(&path, e);
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    return Err(Error::tokens(format!(
                        "{}: process {} is writing there",
                        directory.display(),
                        holder.trim()
                    ))
                    .with_hint("wait until it has finished, or name another directory"));
                }
                // A file system without locks; then it is for the user to see to it.
                Err(TryLockError::Error(_)) => {}
            }
            // Whoever held it may have removed it between the opening and the locking.
            if is_at(&file, &path) {
                file.set_len(0)
                    .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))
                    .map_err(failed)?;
                return Ok(Lock { path, _file: file });
            }
        }
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock is released with the file.
        let _ = fs::remove_file(&self.path);
    }
}
