//! A long piece of work as seen from outside: how far it is, and whether it should stop.
//!
//! Workers add to counters, the caller's thread reads them now and then (for a progress line) and
//! may ask for an end; nothing here blocks.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

/// What a long job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Counting pieces; progress is in bytes.
    Count,
    /// Learning merges; progress is in merges.
    Merge,
    /// Encoding; progress is in bytes.
    Encode,
    /// Merging sorted runs of counts from disk; progress is in bytes of them.
    Gather,
    /// Putting documents into their order; progress is in bytes of ids.
    Shuffle,
    /// Checking tokens on disk; progress is in bytes of them.
    Verify,
}

impl Phase {
    /// Its name for people.
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
}

impl Job {
    /// A job that begins with `phase`, of which `total` is to be done (0: not known).
    pub fn new(phase: Phase, total: u64) -> Self {
        Job {
            stop: Arc::new(AtomicBool::new(false)),
            phase: AtomicU8::new(phase as u8),
            done: AtomicU64::new(0),
            total: AtomicU64::new(total),
        }
    }

    /// Begins another phase, of which `total` is to be done, and gives the one before.
    pub fn enter(&self, phase: Phase, total: u64) -> Phase {
        let before = self.progress().0;
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
        self.phase.store(phase as u8, Relaxed);
        before
    }

    /// Sets how much there is to do.
    pub fn set_total(&self, total: u64) {
        self.total.store(total, Relaxed);
    }

    /// Notes that there is more to do than was thought.
    pub fn add_total(&self, n: u64) {
        self.total.fetch_add(n, Relaxed);
    }

    /// Notes that `n` more are done.
    pub fn advance(&self, n: u64) {
        self.done.fetch_add(n, Relaxed);
    }

    /// Asks the workers to stop.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// An error once [`Job::stop`] was called; workers call this every few milliseconds.
    pub fn check(&self) -> Result<()> {
        if self.stop.load(Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// True once [`Job::stop`] was called, for whoever outlives the job.
    pub fn stopped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Makes this the job of the present thread, for [`check_thread`], until the guard is dropped.
    pub fn on_this_thread(&self) -> OnThread {
        OnThread(CURRENT.replace(Some(self.stopped())))
    }

    /// The phase, what is done of it, and of how much (None: not known).
    pub fn progress(&self) -> (Phase, u64, Option<u64>) {
        let phase = match self.phase.load(Relaxed) {
            0 => Phase::Count,
            1 => Phase::Merge,
            2 => Phase::Encode,
            3 => Phase::Gather,
            4 => Phase::Shuffle,
            _ => Phase::Verify,
        };
        let total = self.total.load(Relaxed);
        (phase, self.done.load(Relaxed), (total > 0).then_some(total))
    }
}

thread_local! {
    /// Whether the job that this thread works for should stop.
    static CURRENT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Asked where a thread has no job: it belongs to the caller, who may have been interrupted.
static CALLER: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// Ends what [`Job::on_this_thread`] began.
#[derive(Debug)]
pub struct OnThread(Option<Arc<AtomicBool>>);

impl Drop for OnThread {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Sets what [`check_thread`] asks where a thread has no job. Only the first call counts.
pub fn set_caller_check(check: fn() -> Result<()>) {
    CALLER.set(check).ok();
}

/// An error once the work of this thread should stop: for what may take long, but is too deep
/// inside to be given the job. A few dozen nanoseconds; call it every millisecond or so.
pub fn check_thread() -> Result<()> {
    let stopped = CURRENT.with_borrow(|job| job.as_ref().map(|stop| stop.load(Relaxed)));
    match stopped {
        Some(true) => Err(Error::Interrupted),
        Some(false) => Ok(()),
        None => CALLER.get().map_or(Ok(()), |check| check()),
    }
}
