//! Failed allocations as errors instead of aborts, and settings of glibc's allocator.
//!
//! Allocations that grow with the input are made with [`reserve`] and in [`crate::base::pages`]. If one
//! fails, the thread unwinds to [`caught`](super::threads::caught), which wraps all work that other
//! threads wait for. Where any other allocation fails, the standard library aborts the process; in
//! Python, [`exit`] turns that into a message and exit status 1.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;

/// The panic payload of a failed allocation: its size in bytes.
struct OutOfMemory(usize);

thread_local! {
    /// Whether the caller handles a failure of the allocation in progress.
    static FAILURE_HANDLED: Cell<bool> = const { Cell::new(false) };
}

/// Unwinds without printing a message: [`caught`](super::threads::caught) reports the failure.
#[cold]
pub fn out_of_memory(bytes: usize) -> ! {
    resume_unwind(Box::new(OutOfMemory(bytes)))
}

/// Reserves room for `n` more values, or unwinds.
#[inline]
pub fn reserve<T>(list: &mut Vec<T>, n: usize) {
    if list.capacity() - list.len() < n && !try_reserve(|| list.try_reserve(n)) {
        out_of_memory(n.saturating_mul(size_of::<T>()));
    }
}

/// `n` times the same value, or unwinds.
pub fn filled<T: Clone>(value: T, n: usize) -> Vec<T> {
    let mut list = Vec::new();
    reserve(&mut list, n);
    list.resize(n, value);
    list
}

/// Whether the allocation in `attempt` succeeds; [`exit`] does not end the process if it fails.
pub fn try_reserve<E>(attempt: impl FnOnce() -> Result<(), E>) -> bool {
    FAILURE_HANDLED.set(true);
    let result = attempt();
    FAILURE_HANDLED.set(false);
    result.is_ok()
}

/// The size of the failed allocation that a thread unwound with, if `cause` is one.
pub fn bytes_missing(cause: &(dyn Any + Send)) -> Option<usize> {
    cause.downcast_ref().map(|&OutOfMemory(bytes)| bytes)
}

/// The system's allocator, except that a failure no caller handles ends the process with a message
/// and exit status 1.
#[cfg(all(feature = "python", target_os = "linux"))]
pub mod exit {
    use std::alloc::{GlobalAlloc, Layout, System};

    use super::FAILURE_HANDLED;

    #[global_allocator]
    static ALLOCATOR: OrExit = OrExit;

    pub struct OrExit;

    #[inline]
    fn checked(memory: *mut u8) -> *mut u8 {
        if memory.is_null() {
            failed();
        }
        memory
    }

    #[cold]
    fn failed() {
        // A thread that is shutting down has already dropped its flag.
        if FAILURE_HANDLED.try_with(std::cell::Cell::get).unwrap_or(true) {
            return;
        }
        const MESSAGE: &[u8] = b"error: out of memory\n";
        // SAFETY: `write` reads `MESSAGE.len()` bytes of a static array, and `_exit`, which does not return,
        // may be called in any state. Neither allocates.
        unsafe {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(1);
        }
    }

    // SAFETY: every call is forwarded to the system's allocator, which keeps the contract of the trait,
    // and its result is returned unchanged.
    unsafe impl GlobalAlloc for OrExit {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller keeps the contract of this method, which is that of the system's.
            checked(unsafe { System.alloc(layout) })
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller keeps the contract of this method, which is that of the system's.
            checked(unsafe { System.alloc_zeroed(layout) })
        }

        unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: the caller keeps the contract of this method, which is that of the system's.
            checked(unsafe { System.realloc(memory, layout, size) })
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps the contract of this method, which is that of the system's.
            unsafe { System.dealloc(memory, layout) }
        }
    }
}

/// Returns freed memory to the system, in milliseconds; does nothing except on glibc. Tables that grew
/// and were freed leave holes that still count against a memory limit: with a limit of 150 MB, a
/// second count in the same process reached 155 MB without this.
pub fn release_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: `malloc_trim` is declared as in glibc's malloc.h, is thread-safe, and affects only free
        // memory.
        unsafe {
            malloc_trim(0);
        }
    }
}

/// Makes all threads share one arena if the address space is limited (`ulimit -v`): otherwise glibc
/// maps 64 MB for each thread and uses little of it.
#[cfg(feature = "python")]
pub fn limit_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `getrlimit` writes to `limit`, which lives throughout; `mallopt` is thread-safe and affects
        // only arenas that are created later.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0
                && limit.rlim_cur != libc::RLIM_INFINITY
            {
                libc::mallopt(libc::M_ARENA_MAX, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::threads::caught;

    #[test]
    fn too_much_memory_is_an_error() {
        let work = || {
            let mut list = Vec::<u64>::new();
            reserve(&mut list, usize::MAX / 16);
            Ok(list.len())
        };
        for error in [caught(work), std::thread::spawn(move || caught(work)).join().unwrap()] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Memory(_)), "{error}");
            assert!(error.to_string().starts_with("out of memory: "), "{error}");
        }
        assert_eq!(filled(7u8, 3), [7, 7, 7]);
    }
}
