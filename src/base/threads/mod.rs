//! The only place that starts threads.
//!
//! - [`for_each`]: one thread for each of a few items, for work that takes milliseconds or more
//! - [`ordered`]: items in, results out in the same order, for streams that do not fit into memory
//! - [`Team`]: threads that stay for many short loops, each of microseconds
//! - [`spawn`], [`background`]: one thread
//!
//! Threads live as long as the call or the [`Team`], which restarts its helpers after a fork: there is
//! no global pool whose threads a fork could lose. If the system refuses a thread, the existing ones do
//! the work. A panic in a thread is an error in the caller.

#[cfg(feature = "python")]
mod openmp;
mod ordered;
mod team;

#[cfg(feature = "python")]
pub use openmp::OpenMp;
pub use ordered::ordered;
pub use team::{Idle, Team};

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

use super::error::{Error, Result};
use super::memory::bytes_missing;

/// The number of threads that the process may run at once, by its affinity mask and, on Linux, the
/// quota of its container.
pub fn available() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `work` on each item, each on its own thread. The flag is set once the work on another item has
/// failed; the first error is returned.
pub fn for_each<T: Send>(
    items: &mut [T],
    work: impl Fn(&mut T, &AtomicBool) -> Result<()> + Sync,
) -> Result<()> {
    for_each_on(&Team::new(items.len(), Idle::Sleep), items, work)
}

/// [`for_each`] on the threads of a team.
pub fn for_each_on<T: Send>(
    team: &Team,
    items: &mut [T],
    work: impl Fn(&mut T, &AtomicBool) -> Result<()> + Sync,
) -> Result<()> {
    let failed = AtomicBool::new(false);
    if let [only] = items {
        return work(only, &failed);
    }
    let first_error = Mutex::new(None);
    // Each lock is taken once, by the thread that takes the item.
    let items: Vec<_> = items.iter_mut().map(Mutex::new).collect();
    team.each(items.len(), &|i| {
        if failed.load(Relaxed) {
            return;
        }
        let mut item = items[i].lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = caught(|| work(&mut item, &failed)) {
            failed.store(true, Relaxed);
            // Later errors are often consequences of the first.
            first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    })?;
    first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Starts a thread within a scope.
pub fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().spawn_scoped(scope, work).map_err(no_thread)
}

/// Starts a detached thread.
#[cfg(feature = "python")]
pub fn background(work: impl FnOnce() + Send + 'static) -> Result<()> {
    Builder::new().spawn(work).map(drop).map_err(no_thread)
}

fn no_thread(error: std::io::Error) -> Error {
    Error::Memory(format!("a thread could not be started: {error}"))
}

/// The result of `work`, or an error if it ran out of memory or panicked.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| Err(error_of(cause.as_ref())))
}

/// The error for the payload that a thread unwound with.
pub fn error_of(cause: &(dyn Any + Send)) -> Error {
    match bytes_missing(cause) {
        Some(bytes) => Error::Memory(format!("{bytes} bytes could not be allocated")),
        None => Error::Bug("a thread panicked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        for n in [0, 1, 2, 7] {
            let mut items = vec![0; n];
            for_each(&mut items, |item, _| {
                *item += 1;
                Ok(())
            })
            .unwrap();
            assert_eq!(items, vec![1; n]);
        }
    }

    #[test]
    fn the_first_error_is_returned_and_others_stop() {
        let mut items = [0, 1, 2];
        let error = for_each(&mut items, |item, failed| {
            if *item == 1 {
                return Err(Error::config("one"));
            }
            while !failed.load(Relaxed) {
                std::hint::spin_loop();
            }
            Err(Error::config("another"))
        });
        // Each waiting item needs a thread of its own, besides the one that fails.
        assert_eq!(error.unwrap_err().to_string(), "one");
    }

    #[test]
    fn a_panic_is_a_bug() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let result = caught::<()>(|| panic!("no"));
        std::panic::set_hook(hook);
        assert!(matches!(result, Err(Error::Bug(_))));
    }
}
