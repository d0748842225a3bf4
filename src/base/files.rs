//! Atomic writes, locks, safe opening, hexadecimal and little-endian numbers.
//!
//! A process holds a lock on each temporary file or directory that it writes, so that others can
//! recognize those of killed processes. `bytemill/_files.py` uses the same names and locks, and
//! removes the files.

use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::base::error::{Error, Result};

/// Opens a regular file. Anything else is refused with the error that `refuse` makes: opening a pipe
/// waits for its writer, and a device may never end.
pub fn open(path: &Path, refuse: fn(String) -> Error) -> Result<File> {
    let failed = |e| Error::io(path, e);
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refuse(format!("{}: not a regular file", path.display())));
    }
    File::open(path).map_err(failed)
}

/// Fills the buffer from an offset on, wherever the file is read otherwise.
#[cfg(unix)]
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Fills the buffer from an offset on, and moves the position of the file.
#[cfg(windows)]
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !buffer.is_empty() {
        match file.seek_read(buffer, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}

/// A file under a temporary name: renamed by [`Temporary::commit`], or deleted when dropped.
pub struct Temporary {
    target: PathBuf,
    path: PathBuf,
    pub file: File,
    committed: bool,
}

impl Temporary {
    /// A new file in the directory of `target`.
    pub fn beside(target: &Path) -> Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        loop {
            // `bytemill/_files.py` looks for names of this form.
            let chance = RandomState::new().hash_one(std::process::id()) as u32;
            let path = target.with_file_name(format!(".{name}.{chance:08x}.bytemill"));
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) if claim(&file, &path) => {
                    return Ok(Temporary {
                        target: target.to_owned(),
                        path,
                        file,
                        committed: false,
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(target, error)),
            }
        }
    }

    /// Flushes the file to disk and renames it to the target.
    pub fn commit(mut self) -> Result<()> {
        let failed = |error| Error::io(&self.target, error);
        self.file.sync_all().map_err(failed)?;
        fs::rename(&self.path, &self.target).map_err(failed)?;
        self.committed = true;
        sync_directory(&self.target);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.committed {
            // The original error is reported instead.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Asks the system to start writing the content of a file to disk, without waiting for it; does nothing
/// where that is not supported. Only flushing the file guarantees anything.
pub fn start_writeback(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open as long as the file is borrowed; the call changes no content, and
        // its failure means that nothing was begun.
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Flushes the directory of a new file. Systems that do not allow this need no flush.
fn sync_directory(path: &Path) {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
        let _ = directory.sync_all();
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A little-endian number of up to eight bytes.
pub fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Locks a temporary file or directory that this process created. False if another process found it
/// unlocked and may have removed it.
pub fn claim(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => false,
        // Without locks in the file system, nothing is removed there either.
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

/// Removes the directories in `base` whose names begin with `prefix` and whose processes are dead.
pub fn sweep_directories(base: &Path, prefix: &str) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(prefix);
        // Windows cannot open directories, so they stay there.
        if ours
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            // The lock is held until the directory is removed: its creator may be about to claim it,
            // or may have removed it and created another of the same name.
            && let Ok(directory) = File::open(entry.path())
            && directory.try_lock().is_ok()
            && is_at(&directory, &entry.path())
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
