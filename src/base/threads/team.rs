//! Threads that share one short loop after another.
//!
//! [`Team::each`] is a loop of calls; every free thread, the caller included, takes the next call, and
//! the loop ends when all calls are done. Nothing waits for a helper that is still asleep or
//! descheduled: it takes no calls, and the caller makes them. The shared state is one number, the
//! ticket: how many calls the loop has and how many are taken. Taking a call is one atomic addition,
//! so calls of a few microseconds are worth it.
//!
//! rayon did this before. Its global pool ignores the requested number of threads and does not survive
//! a fork; a pool per call needs extra tasks that keep its threads awake.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error_of;
use crate::base::error::Result;

/// Spins between two readings of the clock.
const SPINS: u32 = 32;
/// Bits of each of the two numbers in a ticket.
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;
/// The most calls of a loop; each helper may count one past the end.
const MAX_CALLS: usize = 1 << (BITS - 1);

/// What a helper does when there is no call to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Sleep at once: the team runs one long loop.
    Sleep,
    /// Spin for 200 µs, then sleep: long enough for the Python between two decoding steps.
    Linger,
    /// Spin until the team is dropped: the next loop follows within microseconds, and waking a sleeping
    /// thread takes longer than most loops.
    Spin,
}

impl Idle {
    fn patience(self) -> Duration {
        match self {
            Idle::Sleep => Duration::ZERO,
            Idle::Linger => Duration::from_micros(200),
            Idle::Spin => Duration::MAX,
        }
    }
}

/// The caller's thread and its helpers.
#[derive(Debug)]
pub struct Team {
    n: usize,
    idle: Idle,
    threads: Mutex<TeamThreads>,
}

#[derive(Debug)]
struct TeamThreads {
    shared: Arc<TeamState>,
    helpers: Vec<JoinHandle<()>>,
    /// The id of the process that started the helpers.
    process: u32,
}

/// On a cache line of its own, so that a write does not slow down readers of its neighbors.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

type LoopCall<'a> = dyn Fn(usize) + Sync + 'a;

#[derive(Debug)]
struct TeamState {
    /// From the top: how many calls the loop has, how many are taken.
    ticket: Line<AtomicU64>,
    done: Line<AtomicUsize>,
    /// The body of the loop; valid until all calls are done.
    work: UnsafeCell<Option<LoopBody>>,
    /// The payload of the first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    closing: AtomicBool,
    /// By helper.
    asleep: Vec<Line<AtomicBool>>,
    idle: Idle,
}

#[derive(Clone, Copy)]
struct LoopBody(*const LoopCall<'static>);

impl std::fmt::Debug for LoopBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoopBody")
    }
}

// SAFETY: `work` is written only by the thread that holds the lock on `TeamThreads`, between loops, and
// read only by a thread that has taken a call of the current loop; what it points to is `Sync`.
unsafe impl Send for TeamState {}
// SAFETY: threads that share the state use atomics and locks, except for `work`: it is written only by
// the thread that holds the lock on `TeamThreads`, between loops, and read only by a thread that has
// taken a call of the current loop, so no read is concurrent with a write.
unsafe impl Sync for TeamState {}

impl Team {
    /// A team of `n` threads including the caller's, or fewer if the system refuses more.
    pub fn new(n: usize, idle: Idle) -> Self {
        Team { n: n.max(1), idle, threads: Mutex::new(TeamThreads::new(n, idle)) }
    }

    /// The number of threads requested.
    pub fn size(&self) -> usize {
        self.n
    }

    /// Calls `work` once for each of `0..n`, on all threads; returns when all calls are done. A nested
    /// loop, or one of another thread at the same time, runs on its caller's thread alone.
    pub fn each(&self, n: usize, work: &LoopCall<'_>) -> Result<()> {
        match self.threads.try_lock() {
            Ok(mut threads) if n > 1 && self.n > 1 => {
                if threads.process != std::process::id() {
                    // A fork copied only the caller's thread.
                    *threads = TeamThreads::new(self.n, self.idle);
                }
                (0..n).step_by(MAX_CALLS).try_for_each(|first| {
                    threads.each((n - first).min(MAX_CALLS), &|i| work(first + i))
                })
            }
            _ => {
                let all = catch_unwind(AssertUnwindSafe(|| (0..n).for_each(work)));
                all.map_err(|cause| error_of(cause.as_ref()))
            }
        }
    }
}

impl TeamThreads {
    fn new(n: usize, idle: Idle) -> Self {
        let n_helpers = n.saturating_sub(1);
        let shared = Arc::new(TeamState {
            ticket: Line::default(),
            done: Line::default(),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
            closing: AtomicBool::new(false),
            asleep: (0..n_helpers).map(|_| Line::default()).collect(),
            idle,
        });
        let start = |number| {
            let shared = Arc::clone(&shared);
            let name = format!("bytemill-{number}");
            thread::Builder::new().name(name).spawn(move || shared.help(number)).ok()
        };
        let helpers = (0..n_helpers).map_while(start).collect();
        TeamThreads { shared, helpers, process: std::process::id() }
    }

    fn each(&mut self, n_calls: usize, work: &LoopCall<'_>) -> Result<()> {
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and no thread uses it after the last call, for which this
        // function waits.
        let work =
            unsafe { std::mem::transmute::<*const LoopCall<'_>, *const LoopCall<'static>>(work) };
        // SAFETY: all calls of earlier loops are done, so no other thread reads this now.
        unsafe { *shared.work.get() = Some(LoopBody(work)) };
        shared.done.0.store(0, Ordering::Relaxed);
        // Sequentially consistent with `asleep`: either a helper that is about to sleep sees the
        // ticket, or `wake` sees it sleeping.
        shared.ticket.0.store((n_calls as u64) << BITS, Ordering::SeqCst);
        self.wake();
        while let Some(call) = shared.take() {
            shared.run(call);
        }
        let mut spins = 0u32;
        while shared.done.0.load(Ordering::Acquire) < n_calls {
            spins = spins.wrapping_add(1);
            // The helper with the last call may be waiting for this core.
            if spins.is_multiple_of(1024) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        panic.map_or(Ok(()), |cause| Err(error_of(cause.as_ref())))
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

impl Drop for TeamThreads {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // After a fork there are no threads to join; the handles belong to the parent process.
            std::mem::take(&mut self.helpers).into_iter().for_each(std::mem::forget);
            return;
        }
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        for helper in self.helpers.drain(..) {
            // A helper catches every panic.
            let _ = helper.join();
        }
    }
}

impl TeamState {
    fn has_calls(ticket: u64) -> bool {
        ticket & MASK < ticket >> BITS & MASK
    }

    /// The number of the next call, if one is left.
    #[inline]
    fn take(&self) -> Option<usize> {
        // Loading first bounds how far the number of taken calls can run past the end.
        if !TeamState::has_calls(self.ticket.0.load(Ordering::Relaxed)) {
            return None;
        }
        let ticket = self.ticket.0.fetch_add(1, Ordering::AcqRel);
        TeamState::has_calls(ticket).then_some((ticket & MASK) as usize)
    }

    fn run(&self, call: usize) {
        // SAFETY: `work` was written before the ticket that this call was taken from, and what it points
        // to lives until the call is counted as done.
        let work = unsafe { (*self.work.get()).map(|work| &*work.0) };
        let outcome = catch_unwind(AssertUnwindSafe(|| work.map_or((), |work| work(call))));
        if let Err(cause) = outcome {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        }
        self.done.0.fetch_add(1, Ordering::Release);
    }

    fn help(&self, number: usize) {
        let asleep = &self.asleep[number].0;
        let patience = self.idle.patience();
        let mut idle_since: Option<Instant> = None;
        while !self.closing.load(Ordering::Relaxed) {
            if let Some(call) = self.take() {
                self.run(call);
                idle_since = None;
                continue;
            }
            for _ in 0..SPINS {
                std::hint::spin_loop();
                if TeamState::has_calls(self.ticket.0.load(Ordering::Relaxed)) {
                    break;
                }
            }
            if patience == Duration::MAX
                || idle_since.get_or_insert_with(Instant::now).elapsed() < patience
            {
                continue;
            }
            asleep.store(true, Ordering::SeqCst);
            let nothing = !TeamState::has_calls(self.ticket.0.load(Ordering::SeqCst));
            if nothing && !self.closing.load(Ordering::SeqCst) {
                // `park` may return spuriously.
                while asleep.load(Ordering::SeqCst) {
                    thread::park();
                }
            }
            asleep.store(false, Ordering::SeqCst);
            idle_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;

    #[test]
    fn every_call_is_made_once() {
        for idle in [Idle::Sleep, Idle::Linger, Idle::Spin] {
            for n in [1, 2, 5] {
                let team = Team::new(n, idle);
                for round in 0..200 {
                    let counts: Vec<AtomicUsize> =
                        (0..round % 41).map(|_| AtomicUsize::new(0)).collect();
                    team.each(counts.len(), &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    })
                    .unwrap();
                    assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) == 1));
                    // Sometimes the helpers are asleep when a loop starts.
                    if round % 100 == 0 {
                        thread::sleep(Duration::from_micros(600));
                    }
                }
            }
        }
    }

    #[test]
    fn a_panic_ends_the_loop_but_not_the_team() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let team = Team::new(3, Idle::Linger);
        let failed = team.each(9, &|i| assert_ne!(i, 4));
        let alone = Team::new(1, Idle::Sleep).each(9, &|i| assert_ne!(i, 4));
        std::panic::set_hook(hook);
        for result in [failed, alone] {
            assert!(matches!(result, Err(Error::Bug(_))));
        }
        team.each(9, &|_| {}).unwrap();
    }

    #[test]
    fn a_loop_within_a_loop_is_done_by_its_caller() {
        let team = Team::new(3, Idle::Linger);
        let n = AtomicUsize::new(0);
        team.each(5, &|_| {
            team.each(7, &|_| {
                n.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        })
        .unwrap();
        assert_eq!(n.into_inner(), 35);
    }
}
