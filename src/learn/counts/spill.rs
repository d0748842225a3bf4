//! Sorted runs: counts on disk when memory is short.
//!
//! Runs are in a directory of their own, named after the process. It is created with the first run
//! and removed with its last owner, whether the work succeeded, failed or was interrupted; only a
//! killed process leaves it, and the next one that spills to the same directory removes it.
//!
//! Merging takes O(log n) comparisons per record for n runs, and one buffer per run.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::file::FileSource;
use super::record::{BUFFER, Metered, RecordDecoder, RecordEncoder};
use super::sorted::{self, Merged, SortedCounts};
use super::stats::Stats;
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::job::{Job, Phase};
use crate::base::memory;
use crate::base::table::Table;

/// Runs that are merged at a time; each is an open file with a buffer.
const FAN_IN: usize = 64;
/// The prefix of the names of spill directories.
pub const PREFIX: &str = "bytemill-spill-";

/// The directory of the runs.
#[derive(Debug)]
pub struct SpillDir {
    base: PathBuf,
    /// Its path, and the handle that holds its lock, once created.
    made: Mutex<Option<(PathBuf, Option<File>)>>,
    next: AtomicU64,
}

impl SpillDir {
    /// A directory inside `base`, created when it is needed.
    pub fn new(base: PathBuf) -> Self {
        SpillDir { base, made: Mutex::new(None), next: AtomicU64::new(0) }
    }

    fn path(&self) -> Result<PathBuf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, _)) = &*made {
            return Ok(path.clone());
        }
        sweep(&self.base);
        for number in 0u32.. {
            let path = self.base.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match make_private(&path) {
                Ok(()) => {
                    let lock = match File::open(&path) {
                        // Removed by another process before it was locked.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        // Windows cannot open directories.
                        opened => opened.ok(),
                    };
                    if lock.as_ref().is_none_or(|lock| files::claim(lock, &path)) {
                        *made = Some((path.clone(), lock));
                        return Ok(path);
                    }
                }
                // The name is taken by this process, or by one with the same id on another machine.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(&self.base, error)),
            }
        }
        Err(Error::io(&self.base, io::ErrorKind::AlreadyExists.into()))
    }

    /// The path of the next run.
    fn next_path(&self) -> Result<PathBuf> {
        Ok(self.path()?.join(format!("run-{}", self.next.fetch_add(1, Relaxed))))
    }

    /// Deletes the directory if it contains no run; the next run creates it again.
    pub fn clear(&self) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, _)) = &*made
            && fs::remove_dir(path).is_ok()
        {
            *made = None;
        }
    }
}

impl Drop for SpillDir {
    fn drop(&mut self) {
        let made = self.made.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, _)) = made {
            // A failure cannot be reported here; a later process finds the directory by its name.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Removes the directories in `base` that killed processes left.
pub fn sweep(base: &Path) {
    files::sweep_directories(base, PREFIX);
}

/// Creates a directory that only its owner may read, because it contains text.
fn make_private(path: &Path) -> io::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has a mode"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// A file in a spill directory, deleted when dropped.
#[derive(Debug)]
struct Spilled {
    path: PathBuf,
    // The directory must outlive the file.
    dir: Arc<SpillDir>,
}

impl Drop for Spilled {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Sorted counts on disk.
#[derive(Debug, Clone)]
pub struct DiskRun {
    file: RunFile,
    n_records: u64,
    size: u64,
}

#[derive(Debug, Clone)]
enum RunFile {
    Spilled(Arc<Spilled>),
    /// A counts file of the user.
    Counts(PathBuf),
    /// A counts file in a spill directory.
    Taken(Arc<Spilled>),
}

impl DiskRun {
    /// A counts file as a run.
    pub fn of_file(path: PathBuf, n_records: u64, size: u64) -> Self {
        DiskRun { file: RunFile::Counts(path), n_records, size }
    }

    /// Moves the file of a counts file's run into a spill directory, to be deleted with the run.
    pub fn take(self, dir: &Arc<SpillDir>) -> Result<Self> {
        let RunFile::Counts(from) = &self.file else { return Ok(self) };
        let path = dir.next_path()?;
        fs::rename(from, &path).map_err(|error| Error::io(from, error))?;
        let file = RunFile::Taken(Arc::new(Spilled { path, dir: Arc::clone(dir) }));
        Ok(DiskRun { file, ..self })
    }

    /// Writes a run and returns its totals.
    pub fn write(
        source: &mut impl SortedCounts,
        dir: &Arc<SpillDir>,
        job: &Job,
    ) -> Result<(DiskRun, Stats)> {
        let path = dir.next_path()?;
        // Created before the file, so that a failure deletes it.
        let spilled = Arc::new(Spilled { path, dir: Arc::clone(dir) });
        // The error names the directory, which is what the user can change.
        let failed = |error| Error::io(&spilled.dir.base, error);
        let file = File::create(&spilled.path).map_err(failed)?;
        let mut out = BufWriter::with_capacity(4 * BUFFER, file);
        let mut encoder = RecordEncoder::default();
        let mut stats = Stats::default();
        let mut size = 0;
        sorted::for_each(source, job, |piece, count| {
            stats.add(piece, count)?;
            size += encoder.write(&mut out, piece, count).map_err(failed)?;
            Ok(())
        })?;
        out.flush().map_err(failed)?;
        let run = DiskRun {
            file: RunFile::Spilled(Arc::clone(&spilled)),
            n_records: stats.n_pieces,
            size,
        };
        Ok((run, stats))
    }

    /// A cursor over the run; the bytes that it reads are progress of `job`.
    pub fn open<'a>(
        &self,
        job: Option<&'a Job>,
    ) -> Result<Box<dyn SortedCounts + Send + Sync + 'a>> {
        match &self.file {
            RunFile::Counts(path) => Ok(Box::new(FileSource::open(path, job)?)),
            RunFile::Taken(spilled) => {
                let decoder = FileSource::open(&spilled.path, job)?;
                Ok(Box::new(OpenRun { decoder, _spilled: Arc::clone(spilled) }))
            }
            RunFile::Spilled(spilled) => {
                let file = File::open(&spilled.path).map_err(|e| Error::io(&spilled.path, e))?;
                let input = BufReader::with_capacity(BUFFER, Metered { input: file, job });
                let name = spilled.path.display().to_string();
                let decoder = RecordDecoder::new(input, name, self.n_records);
                Ok(Box::new(OpenRun { decoder, _spilled: Arc::clone(spilled) }))
            }
        }
    }
}

/// A cursor over a run that keeps its file from being deleted.
struct OpenRun<S> {
    decoder: S,
    _spilled: Arc<Spilled>,
}

impl<S: SortedCounts> SortedCounts for OpenRun<S> {
    fn advance(&mut self) -> Result<bool> {
        self.decoder.advance()
    }

    fn piece(&self) -> &[u8] {
        self.decoder.piece()
    }

    fn count(&self) -> u64 {
        self.decoder.count()
    }
}

/// Writes a table as a run and empties it.
pub fn spill(table: &mut Table<u64>, dir: &Arc<SpillDir>, job: &Job) -> Result<DiskRun> {
    let sorted = std::mem::take(table).into_sorted(|| job.check())?;
    let (run, _) = DiskRun::write(&mut Merged::new(sorted.runs())?, dir, job)?;
    *table = sorted.into_empty();
    memory::release_freed();
    Ok(run)
}

/// Merges runs into one, in several passes if there are many.
pub fn gather(runs: Vec<DiskRun>, dir: &Arc<SpillDir>, job: &Job) -> Result<(DiskRun, Stats)> {
    let mut runs = VecDeque::from(runs);
    let total = runs.iter().map(|run| run.size).sum();
    let before = job.enter(Phase::Gather, total);
    loop {
        // The oldest first, and the result last, so that every run is read about equally often. Only as
        // many as needed for the last pass to take all.
        let surplus = runs.len().saturating_sub(FAN_IN);
        let batch = if surplus > 0 { (surplus + 1).min(FAN_IN) } else { runs.len() };
        let batch: Vec<DiskRun> = runs.drain(..batch).collect();
        let mut sources = Vec::with_capacity(batch.len());
        for run in &batch {
            sources.push(run.open(Some(job))?);
        }
        let (run, stats) = DiskRun::write(&mut Merged::new(sources)?, dir, job)?;
        if runs.is_empty() {
            if before != Phase::Gather {
                job.enter(before, 0);
            }
            return Ok((run, stats));
        }
        job.add_total(run.size);
        runs.push_back(run);
    }
}
