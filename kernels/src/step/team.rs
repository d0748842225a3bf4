//! Threads that do the phases of a step together.
//!
//! A phase is cut into chunks; whoever is free takes the next, and the phase is over when all are
//! done. Nobody waits for a thread that has not come: one that sleeps still, or that the system has
//! put aside, takes no chunks, and the caller does them. All that is shared is one number, the
//! ticket, that says which phase it is, how many chunks it has and which comes next; taking a chunk
//! is adding one to it.
//!
//! Helpers spin for a while when there is nothing to do, as the next phase comes within
//! microseconds, and then sleep.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a helper with nothing to do spins before it sleeps: long enough for the Python between
/// two steps of a small model.
const PATIENCE: Duration = Duration::from_micros(200);
/// Spins between two looks at the clock.
const SPINS: u32 = 32;
/// Bits of the numbers of chunks in a ticket.
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;
/// The most chunks of a phase: every helper may add one too many.
pub const MAX_CHUNKS: usize = 1 << (BITS - 1);

/// What is done together.
pub trait Work: Sync {
    /// What one thread must do before the phase.
    fn prepare(&self, phase: usize);
    /// How many chunks the phase has.
    fn n_chunks(&self, phase: usize) -> usize;
    /// Does a chunk; at the same time as others of its phase.
    fn chunk(&self, phase: usize, chunk: usize);
}

/// The caller's thread and its helpers.
#[derive(Debug)]
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    process: u32,
}

/// On a line of its own, so that who writes it does not slow down readers of the next.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Debug)]
struct Shared {
    /// From the top: the phase, how many chunks it has, how many are taken.
    ticket: Line<AtomicU64>,
    done: Line<AtomicUsize>,
    /// Whose chunks they are; valid while not all of a phase are done.
    work: UnsafeCell<Option<*const (dyn Work + 'static)>>,
    failed: AtomicBool,
    closing: AtomicBool,
    /// By helper.
    asleep: Vec<Line<AtomicBool>>,
}

// SAFETY: `work` is written by the caller's thread alone, between phases, and read only by who has
// taken a chunk; what it points to is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Some chunk panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panicked;

impl Team {
    /// A team of `n` threads, the caller's among them; of fewer if the system gives no more.
    pub fn new(n: usize) -> Self {
        let n_helpers = n.saturating_sub(1);
        let shared = Arc::new(Shared {
            ticket: Line::default(),
            done: Line::default(),
            work: UnsafeCell::new(None),
            failed: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            asleep: (0..n_helpers).map(|_| Line::default()).collect(),
        });
        let spawn = |number| {
            let shared = Arc::clone(&shared);
            let name = format!("bytemill-step-{number}");
            thread::Builder::new().name(name).spawn(move || shared.help(number)).ok()
        };
        let helpers = (0..n_helpers).map_while(spawn).collect();
        Team { shared, helpers, process: std::process::id() }
    }

    /// Does all phases, one after the other.
    pub fn run(&mut self, work: &dyn Work, n_phases: usize) -> Result<(), Panicked> {
        if self.process != std::process::id() {
            // A fork took the caller's thread along and no other.
            *self = Team::new(self.shared.asleep.len() + 1);
        }
        // SAFETY: only the lifetime changes; nobody looks at it behind the last phase.
        let work_for_all = unsafe {
            std::mem::transmute::<*const (dyn Work + '_), *const (dyn Work + 'static)>(work)
        };
        let shared = &*self.shared;
        shared.failed.store(false, Ordering::Relaxed);
        // SAFETY: all chunks that ever were are done, so nobody reads this now.
        unsafe { *shared.work.get() = Some(work_for_all) };
        for phase in 0..n_phases {
            work.prepare(phase);
            let n_chunks = work.n_chunks(phase).min(MAX_CHUNKS);
            shared.done.0.store(0, Ordering::Relaxed);
            let ticket = (phase as u64) << (2 * BITS) | (n_chunks as u64) << BITS;
            // In one order with `asleep`: either a helper that goes to sleep sees the ticket, or it
            // is seen sleeping here.
            shared.ticket.0.store(ticket, Ordering::SeqCst);
            self.wake();
            while let Some((phase, chunk)) = shared.take() {
                shared.perform(phase, chunk);
            }
            let mut spins = 0;
            while shared.done.0.load(Ordering::Acquire) < n_chunks {
                spins += 1;
                // Perhaps the helper with the last chunk waits for this very processor.
                if spins % 1024 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
            }
            if shared.failed.load(Ordering::Relaxed) {
                return Err(Panicked);
            }
        }
        Ok(())
    }

    fn wake(&self) {
        for (helper, asleep) in self.helpers.iter().zip(&self.shared.asleep) {
            if asleep.0.load(Ordering::SeqCst) {
                asleep.0.store(false, Ordering::SeqCst);
                helper.thread().unpark();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // After a fork there is nobody to join; the handles are of the other process.
            std::mem::take(&mut self.helpers).into_iter().for_each(std::mem::forget);
            return;
        }
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        for helper in self.helpers.drain(..) {
            // It cannot have panicked, and if so there is nobody to tell.
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// The next chunk, if there is one.
    #[inline]
    fn take(&self) -> Option<(usize, usize)> {
        let left = |ticket: u64| ticket & MASK < ticket >> BITS & MASK;
        // Looking first: only then is the number of those who come too late bounded.
        if !left(self.ticket.0.load(Ordering::Relaxed)) {
            return None;
        }
        let ticket = self.ticket.0.fetch_add(1, Ordering::AcqRel);
        left(ticket).then_some(((ticket >> (2 * BITS)) as usize, (ticket & MASK) as usize))
    }

    /// Does a chunk that was taken.
    fn perform(&self, phase: usize, chunk: usize) {
        // SAFETY: `work` was set before the ticket that was taken, and is there until this chunk is
        // counted as done.
        let work = unsafe { (*self.work.get()).map(|work| &*work) };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if let Some(work) = work {
                work.chunk(phase, chunk);
            }
        }));
        if outcome.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.done.0.fetch_add(1, Ordering::Release);
    }

    /// The life of a helper.
    fn help(&self, number: usize) {
        let asleep = &self.asleep[number].0;
        let mut idle: Option<Instant> = None;
        while !self.closing.load(Ordering::Relaxed) {
            if let Some((phase, chunk)) = self.take() {
                self.perform(phase, chunk);
                idle = None;
                continue;
            }
            for _ in 0..SPINS {
                std::hint::spin_loop();
                let ticket = self.ticket.0.load(Ordering::Relaxed);
                if ticket & MASK < ticket >> BITS & MASK {
                    break;
                }
            }
            if idle.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
                continue;
            }
            asleep.store(true, Ordering::SeqCst);
            let ticket = self.ticket.0.load(Ordering::SeqCst);
            let nothing = ticket & MASK >= ticket >> BITS & MASK;
            if nothing && !self.closing.load(Ordering::SeqCst) {
                // May return for no reason, so it is asked again.
                while asleep.load(Ordering::SeqCst) {
                    thread::park();
                }
            }
            asleep.store(false, Ordering::SeqCst);
            idle = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often each chunk is done, and checks that phases do not overlap.
    struct Counting {
        counts: Vec<Vec<AtomicUsize>>,
        prepared: AtomicUsize,
        panics_at: Option<usize>,
    }

    impl Counting {
        fn new(sizes: &[usize]) -> Self {
            let counts =
                sizes.iter().map(|&n| (0..n).map(|_| AtomicUsize::new(0)).collect()).collect();
            Counting { counts, prepared: AtomicUsize::new(0), panics_at: None }
        }
    }

    impl Work for Counting {
        fn prepare(&self, phase: usize) {
            assert_eq!(self.prepared.fetch_add(1, Ordering::SeqCst), phase);
            for before in &self.counts[..phase] {
                assert!(before.iter().all(|n| n.load(Ordering::SeqCst) == 1));
            }
        }

        fn n_chunks(&self, phase: usize) -> usize {
            self.counts[phase].len()
        }

        fn chunk(&self, phase: usize, chunk: usize) {
            assert_eq!(self.prepared.load(Ordering::SeqCst), phase + 1);
            assert_ne!(self.panics_at, Some(chunk), "as it was told to");
            self.counts[phase][chunk].fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn every_chunk_is_done_once() {
        for n in [1, 2, 5] {
            let mut team = Team::new(n);
            for round in 0..300 {
                let work = Counting::new(&[round % 7, 40, 1, 0, 3]);
                assert_eq!(team.run(&work, 5), Ok(()));
                let all = work.counts.iter().flatten();
                assert!(all.into_iter().all(|n| n.load(Ordering::SeqCst) == 1));
                // Now and then the helpers are asleep when work comes.
                if round % 100 == 0 {
                    thread::sleep(3 * PATIENCE);
                }
            }
        }
    }

    #[test]
    fn a_panic_ends_the_run_and_not_the_team() {
        let mut team = Team::new(3);
        let mut work = Counting::new(&[9, 9]);
        work.panics_at = Some(4);
        assert_eq!(team.run(&work, 2), Err(Panicked));
        assert_eq!(team.run(&Counting::new(&[9, 9]), 2), Ok(()));
    }
}
