//! The interface to the caller's threads.
//!
//! A kernel describes its work as tasks, each of which owns the part of the output that it writes
//! (`chunks_mut`, [`Columns`](crate::columns::Columns)), so that the compiler checks that no two
//! threads write the same number. Handing a task over costs one uncontended lock, some ten
//! nanoseconds; tasks take microseconds.

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Threads that belong to the caller.
pub trait Threads: Sync {
    /// The number of calls that can run at once.
    fn n(&self) -> usize;

    /// Calls `work` once for each of `0..n`, in any order and possibly at the same time. Returns when
    /// all calls are done; false if one panicked.
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> bool;
}

/// Numbers in a task of a loop over rows: enough to outweigh starting it, and few enough to stay in a
/// first- or second-level cache.
const TASK_NUMBERS: usize = 1 << 14;

/// Rows in a task; depends on their width alone, so that results do not depend on the threads.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (TASK_NUMBERS / width).max(1)
}

/// Calls `work` with each task. A thread takes `per_call` consecutive tasks at a time.
pub(crate) fn each_task<T: Send>(
    threads: &dyn Threads,
    tasks: impl Iterator<Item = T>,
    per_call: usize,
    work: impl Fn(T) + Sync,
) -> Result<()> {
    let slots: Vec<_> = tasks.map(|task| Mutex::new(Some(task))).collect();
    let run = |call: usize| {
        for slot in slots.iter().skip(call * per_call).take(per_call) {
            let task = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                work(task);
            }
        }
    };
    match threads.each(slots.len().div_ceil(per_call), &run) {
        true => Ok(()),
        false => Err(Error::Bug("a kernel panicked".to_owned())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// As many threads as its number, started anew for each loop.
    pub struct Scoped(pub usize);

    impl Threads for Scoped {
        fn n(&self) -> usize {
            self.0
        }

        fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
            let (next, ok) = (AtomicUsize::new(0), AtomicBool::new(true));
            let take = || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n {
                        return;
                    }
                    let call = std::panic::AssertUnwindSafe(|| work(i));
                    if std::panic::catch_unwind(call).is_err() {
                        ok.store(false, Ordering::Relaxed);
                    }
                }
            };
            std::thread::scope(|scope| {
                (1..self.0).for_each(|_| drop(scope.spawn(take)));
                take();
            });
            ok.into_inner()
        }
    }

    #[test]
    fn every_task_runs_once() {
        for (n_tasks, per_call) in [(0, 1), (1, 3), (7, 3), (9, 3), (20, 1)] {
            let mut counts = vec![0; n_tasks];
            each_task(&Scoped(3), counts.iter_mut(), per_call, |count| *count += 1).unwrap();
            assert_eq!(counts, vec![1; n_tasks]);
        }
    }

    #[test]
    fn a_panic_is_a_bug() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let result = each_task(&Scoped(2), 0..5, 1, |i| assert_ne!(i, 3));
        std::panic::set_hook(hook);
        assert!(matches!(result, Err(Error::Bug(_))));
    }
}
