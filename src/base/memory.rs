//! Memory that cannot be had, which is an error and not the end of the process.
//!
//! Allocations that grow with the input are made with [`reserve`] and in [`crate::base::pages`]. Where one
//! fails, the thread unwinds to [`caught`](super::threads::caught), which is around all work that others wait for. The
//! standard library ends the process where another allocation fails; in Python, [`OrExit`] makes
//! that a message and a failure instead of an abort.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;

/// What a thread unwinds with: bytes that could not be had.
struct OutOfMemory(usize);

thread_local! {
    /// Whether this thread can do without the memory that it asks for.
    static CAN_DO_WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// Unwinds because memory could not be allocated. No message is printed; the catcher reports it.
#[cold]
pub fn out_of_memory(bytes: usize) -> ! {
    resume_unwind(Box::new(OutOfMemory(bytes)))
}

/// Makes room for `n` more values, or unwinds.
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

/// Whether memory that is asked for in `attempt` can be had.
pub fn try_reserve<E>(attempt: impl FnOnce() -> Result<(), E>) -> bool {
    CAN_DO_WITHOUT.set(true);
    let result = attempt();
    CAN_DO_WITHOUT.set(false);
    result.is_ok()
}

/// How many bytes could not be had, if that is why a thread unwound with `cause`.
pub fn bytes_missing(cause: &(dyn Any + Send)) -> Option<usize> {
    cause.downcast_ref().map(|&OutOfMemory(bytes)| bytes)
}

/// The system's allocator. Where it has no more memory and the caller has no use for less, which
/// std's collections have not, the process ends with a message and exit status 1.
#[cfg(all(feature = "python", target_os = "linux"))]
pub mod exit {
    use std::alloc::{GlobalAlloc, Layout, System};

    use super::CAN_DO_WITHOUT;

    #[global_allocator]
    static ALLOCATOR: OrExit = OrExit;

    /// See above.
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
        // A thread that is about to end has no flag any more.
        if CAN_DO_WITHOUT.try_with(std::cell::Cell::get).unwrap_or(true) {
            return;
        }
        const MESSAGE: &[u8] = b"error: out of memory\n";
        // SAFETY: a message that lives for ever, and an end without any return.
        unsafe {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(1);
        }
    }

    // SAFETY: all is left to the system's allocator.
    unsafe impl GlobalAlloc for OrExit {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promises.
            checked(unsafe { System.alloc(layout) })
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as the caller promises.
            checked(unsafe { System.alloc_zeroed(layout) })
        }

        unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: as the caller promises.
            checked(unsafe { System.realloc(memory, layout, size) })
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(memory, layout) }
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
