//! Opening files that a directory or a user names, and the temporary ones that become files or hold
//! what does not fit into memory.
//!
//! The process that writes a temporary file or directory holds a lock on it, so others can tell
//! those of killed processes. `bytemill/_files.py` does the same and removes the files.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use crate::base::error::{Error, Result};

/// Opens a regular file. Anything else is refused by an error of the kind that `refuse` makes:
/// opening a pipe waits for its writer, and a device may never end.
pub fn open(path: &Path, refuse: fn(String) -> Error) -> Result<File> {
    let failed = |e| Error::io(path, e);
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refuse(format!("{}: not a regular file", path.display())));
    }
    File::open(path).map_err(failed)
}

/// Locks a temporary file or directory that this process made. False if another process found it
/// before it was locked, and may have removed it.
pub fn claim(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => false,
        // A file system without locks; then nothing is removed there either.
        Ok(()) | Err(TryLockError::Error(_)) => is_at(file, path),
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

/// Removes the directories in `base` whose names begin with `prefix`, of processes that are dead.
pub fn sweep_directories(base: &Path, prefix: &str) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(prefix);
        // Windows does not let directories be opened: there they stay.
        if ours
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && File::open(entry.path()).is_ok_and(|directory| directory.try_lock().is_ok())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        for path in [&pipe, folder.path(), Path::new("/dev/zero")] {
            let error = open(path, Error::tokens).unwrap_err();
            assert!(matches!(&error, Error::Tokens(_)), "{error}");
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
        let missing = open(&folder.path().join("missing"), Error::tokens);
        assert!(matches!(missing, Err(Error::Io { .. })));
    }
}
