//! Progress and cancellation of a long call.
//!
//! Workers add to counters; the caller's thread polls them for a progress line and may request a
//! stop. Nothing here blocks.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::base::error::{Error, Result};

/// What a long job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Counting pieces; progress is in bytes of text.
    Count,
    /// Learning merges; progress is in merges.
    Merge,
    /// Encoding; progress is in bytes of text.
    Encode,
    /// Merging sorted runs of counts from disk; progress is in bytes of runs.
    Gather,
    /// Writing documents in shuffled order; progress is in bytes of ids.
    Shuffle,
    /// Checking tokens on disk; progress is in bytes of tokens.
    Verify,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Count => "count",
            Phase::Merge => "merge",
            Phase::Encode => "encode",
            Phase::Gather => "gather",
            Phase::Shuffle => "shuffle",
            Phase::Verify => "verify",
        }
    }
}

/// The shared state of a long job.
#[derive(Debug)]
pub struct Job {
    stop: Arc<AtomicBool>,
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    /// Bytes of text, in phases that read a corpus; there `done` and `total` are bytes of files.
    text: AtomicU64,
    /// Phases that have ended since [`Job::take_ended`].
    ended: Mutex<Vec<Progress>>,
}

/// A phase, the amount done, and the total if known.
pub type Progress = (Phase, u64, Option<u64>);

impl Job {
    /// A job that starts with `phase`; a `total` of 0 is unknown.
    pub fn new(phase: Phase, total: u64) -> Self {
        Job {
            stop: Arc::new(AtomicBool::new(false)),
            phase: AtomicU8::new(phase as u8),
            done: AtomicU64::new(0),
            total: AtomicU64::new(total),
            text: AtomicU64::new(0),
            ended: Mutex::default(),
        }
    }

    /// Starts another phase and returns the previous one; a `total` of 0 is unknown.
    pub fn enter(&self, phase: Phase, total: u64) -> Phase {
        let before = self.progress();
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(before);
        self.done.store(0, Relaxed);
        self.text.store(0, Relaxed);
        self.total.store(total, Relaxed);
        self.phase.store(phase as u8, Relaxed);
        before.0
    }

    /// The final progress of the phases that have ended since the last call.
    pub fn take_ended(&self) -> Vec<Progress> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_total(&self, total: u64) {
        self.total.store(total, Relaxed);
    }

    pub fn add_total(&self, n: u64) {
        self.total.fetch_add(n, Relaxed);
    }

    /// Adds `n` to the amount done.
    pub fn advance(&self, n: u64) {
        self.done.fetch_add(n, Relaxed);
    }

    /// Adds `file` bytes of files that were read and contained `text` bytes of text.
    pub fn read(&self, file: u64, text: u64) {
        self.text.fetch_add(text, Relaxed);
        self.done.fetch_add(file, Relaxed);
    }

    /// Sets the total to the amount done: the corpus was read to its end.
    pub fn read_all(&self) {
        if self.total.load(Relaxed) > 0 {
            self.total.store(self.done.load(Relaxed), Relaxed);
        }
    }

    /// Asks the workers to stop.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// An error once [`Job::stop`] was called; workers call this every few milliseconds.
    pub fn check(&self) -> Result<()> {
        if self.stop.load(Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// A flag that is true once [`Job::stop`] was called, for threads that outlive the job.
    pub fn stopped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Makes this the job of the current thread, for [`check_thread`], until the guard is dropped.
    pub fn on_this_thread(&self) -> OnThread {
        OnThread(CURRENT.replace(Some(self.stopped())))
    }

    /// The total of a phase that reads a corpus is in bytes of text, estimated from the bytes of text
    /// per byte of file so far.
    pub fn progress(&self) -> Progress {
        let phase = match self.phase.load(Relaxed) {
            0 => Phase::Count,
            1 => Phase::Merge,
            2 => Phase::Encode,
            3 => Phase::Gather,
            4 => Phase::Shuffle,
            _ => Phase::Verify,
        };
        let (done, total) = (self.done.load(Relaxed), self.total.load(Relaxed));
        if !matches!(phase, Phase::Count | Phase::Encode) {
            return (phase, done, (total > 0).then_some(total));
        }
        let text = self.text.load(Relaxed);
        let estimate = || (text as u128 * total as u128).div_ceil(done as u128) as u64;
        // Loaded one after another, the numbers may be off by a block.
        let known = total > 0 && done > 0 && text > 0;
        (phase, text, known.then(|| estimate().max(text)))
    }
}

thread_local! {
    /// Whether the job that this thread works for should stop.
    static CURRENT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Called for a thread without a job: it is the caller's, who may have been interrupted.
static CALLER: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// Restores the previous job of the thread when dropped.
#[derive(Debug)]
pub struct OnThread(Option<Arc<AtomicBool>>);

impl Drop for OnThread {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Sets what [`check_thread`] calls for a thread without a job. Only the first call has an effect.
pub fn set_caller_check(check: fn() -> Result<()>) {
    CALLER.set(check).ok();
}

/// An error once the work of this thread should stop: for long loops that are too deep inside to be
/// passed the job. Takes a few dozen nanoseconds; call it about every millisecond.
pub fn check_thread() -> Result<()> {
    let stopped = CURRENT.with_borrow(|job| job.as_ref().map(|stop| stop.load(Relaxed)));
    match stopped {
        Some(true) => Err(Error::Interrupted),
        Some(false) => Ok(()),
        None => CALLER.get().map_or(Ok(()), |check| check()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_compressed_files_is_estimated() {
        let job = Job::new(Phase::Count, 1000);
        assert_eq!(job.progress(), (Phase::Count, 0, None));
        job.read(250, 1000);
        assert_eq!(job.progress(), (Phase::Count, 1000, Some(4000)));
        job.read(750, 2000);
        assert_eq!(job.progress(), (Phase::Count, 3000, Some(3000)));
        job.enter(Phase::Gather, 10);
        assert_eq!(job.take_ended(), [(Phase::Count, 3000, Some(3000))]);
        assert!(job.take_ended().is_empty());
        job.advance(5);
        assert_eq!(job.progress(), (Phase::Gather, 5, Some(10)));
    }

    #[test]
    fn without_a_size_there_is_no_estimate() {
        let job = Job::new(Phase::Encode, 0);
        job.read(100, 300);
        assert_eq!(job.progress(), (Phase::Encode, 300, None));
    }
}
