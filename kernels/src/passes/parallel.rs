//! Work on all threads, and memory that they write together.
//!
//! Torch multiplies matrices with threads of OpenMP, which keep their cores busy for a while after
//! each product in the hope of another. Threads of our own would have to share the cores with
//! them, so we ask the same library for the same threads ([`borrow_threads`]); elsewhere rayon's do
//! the work.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::error::{Error, Result};

/// Does `work` for all of `0..n`, on up to `n_threads` threads.
pub fn each(n: usize, n_threads: usize, work: impl Fn(usize) + Sync) -> Result<()> {
    let failed = AtomicBool::new(false);
    // A panic must not cross frames of C, nor end a thread that is not ours.
    let guarded = |i| {
        if catch_unwind(AssertUnwindSafe(|| work(i))).is_err() {
            failed.store(true, Ordering::Relaxed);
        }
    };
    if n_threads < 2 || n < 2 {
        (0..n).for_each(guarded);
    } else if !openmp::each(n, n_threads.min(n), &guarded) {
        (0..n).into_par_iter().with_max_len(1).for_each(guarded);
    }
    if failed.into_inner() {
        return Err(Error::Bug("a kernel panicked".to_owned()));
    }
    Ok(())
}

/// Makes the threads of an OpenMP library that is loaded already ours too; false if that cannot be.
pub fn borrow_threads(library: &str) -> bool {
    openmp::borrow(library)
}

#[cfg(target_os = "linux")]
mod openmp {
    use std::ffi::{CString, c_uint, c_void};
    use std::mem::transmute;

    use super::{AtomicUsize, Ordering};

    /// What a compiler calls for `#pragma omp parallel`: GNU's name for it, which others have too.
    const NAME: &std::ffi::CStr = c"GOMP_parallel";
    type Parallel = extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

    /// Its address; 0 if there is none.
    static PARALLEL: AtomicUsize = AtomicUsize::new(0);

    pub fn borrow(library: &str) -> bool {
        let Ok(path) = CString::new(library) else { return false };
        // SAFETY: both are strings of C, and no library is loaded that is not there yet. What is
        // found stays: torch never unloads it.
        let found = unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return false;
            }
            libc::dlsym(handle, NAME.as_ptr())
        };
        PARALLEL.store(found as usize, Ordering::Release);
        !found.is_null()
    }

    struct Loop<'a> {
        work: &'a (dyn Fn(usize) + Sync),
        n: usize,
        next: AtomicUsize,
    }

    extern "C" fn take(data: *mut c_void) {
        // SAFETY: `each` hands over a `Loop`, and waits for all threads.
        let all = unsafe { &*data.cast::<Loop>() };
        loop {
            let i = all.next.fetch_add(1, Ordering::Relaxed);
            if i >= all.n {
                return;
            }
            (all.work)(i);
        }
    }

    /// False if there is no library; `work` must not panic.
    pub fn each(n: usize, n_threads: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
        let address = PARALLEL.load(Ordering::Acquire);
        if address == 0 {
            return false;
        }
        // SAFETY: what has that name has that type.
        let parallel = unsafe { transmute::<usize, Parallel>(address) };
        let mut all = Loop { work, n, next: AtomicUsize::new(0) };
        parallel(take, (&raw mut all).cast(), n_threads as c_uint, 0);
        true
    }
}

#[cfg(not(target_os = "linux"))]
mod openmp {
    pub fn borrow(_library: &str) -> bool {
        false
    }

    pub fn each(_n: usize, _n_threads: usize, _work: &(dyn Fn(usize) + Sync)) -> bool {
        false
    }
}

/// Numbers of which several threads write different ones.
#[derive(Debug)]
pub struct Written<'a, T = f32> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: who asks for a part promises to be alone with it.
unsafe impl<T: Send> Sync for Written<'_, T> {}
// SAFETY: as for a slice.
unsafe impl<T: Send> Send for Written<'_, T> {}

impl<'a, T> Written<'a, T> {
    /// All of them.
    pub fn new(numbers: &'a mut [T]) -> Self {
        Written { start: numbers.as_mut_ptr(), len: numbers.len(), life: PhantomData }
    }

    /// `len` numbers from `start` on.
    ///
    /// # Safety
    ///
    /// Nobody else has any of them.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: it is within, and the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
