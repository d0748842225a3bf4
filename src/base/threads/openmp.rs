//! Threads borrowed from an OpenMP library that is already loaded.
//!
//! Torch multiplies matrices on OpenMP threads, which keep spinning for a while after each product in
//! case another follows. Threads of our own would compete with them for the cores, so the kernels
//! between the products run on the same threads.

#[cfg(target_os = "linux")]
use std::ffi::{CString, c_uint, c_void};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytemill_kernels::Threads;

use super::Team;
#[cfg(target_os = "linux")]
use super::caught;

/// The threads of an OpenMP library.
#[derive(Debug)]
pub struct OpenMp {
    n: usize,
    /// The address of [`PARALLEL`].
    #[cfg(target_os = "linux")]
    parallel: usize,
}

/// The function that compilers call for `#pragma omp parallel`: GNU's name, which the other libraries
/// also export.
#[cfg(target_os = "linux")]
const PARALLEL: &std::ffi::CStr = c"GOMP_parallel";
#[cfg(target_os = "linux")]
type Parallel = extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

impl OpenMp {
    /// Borrows `n` threads; None if the library is not loaded or not OpenMP's.
    #[cfg(target_os = "linux")]
    pub fn borrow(library: &str, n: usize) -> Option<Self> {
        let path = CString::new(library).ok()?;
        // SAFETY: both are C strings, and RTLD_NOLOAD loads nothing. The symbol stays valid: torch
        // never unloads the library.
        let found = unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return None;
            }
            libc::dlsym(handle, PARALLEL.as_ptr())
        };
        (!found.is_null()).then_some(OpenMp { n, parallel: found as usize })
    }

    /// None: only Linux is supported.
    #[cfg(not(target_os = "linux"))]
    pub fn borrow(_library: &str, _n: usize) -> Option<Self> {
        None
    }
}

#[cfg(target_os = "linux")]
struct Loop<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    n: usize,
    next: AtomicUsize,
    panicked: AtomicBool,
}

#[cfg(target_os = "linux")]
extern "C" fn take(data: *mut c_void) {
    // SAFETY: `each` passes a `Loop` that outlives the call, and waits for all threads. They only share
    // it: its counter and flag are atomic, and `work` is `Sync`.
    let all = unsafe { &*data.cast::<Loop>() };
    loop {
        let i = all.next.fetch_add(1, Ordering::Relaxed);
        if i >= all.n {
            return;
        }
        // A panic must not unwind through C frames, nor end a thread that is not ours.
        let call = || {
            (all.work)(i);
            Ok(())
        };
        if caught(call).is_err() {
            all.panicked.store(true, Ordering::Relaxed);
        }
    }
}

impl Threads for OpenMp {
    fn n(&self) -> usize {
        self.n
    }

    #[cfg(target_os = "linux")]
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
        let mut all = Loop { work, n, next: AtomicUsize::new(0), panicked: AtomicBool::new(false) };
        if n < 2 || self.n < 2 {
            take((&raw mut all).cast());
        } else {
            // SAFETY: `parallel` is the address that `borrow` found under GNU's name, whose type is part of
            // the ABI that compiled programs rely on: (function, its data, number of threads, flags).
            // A function pointer has the size of an address.
            let parallel = unsafe { std::mem::transmute::<usize, Parallel>(self.parallel) };
            parallel(take, (&raw mut all).cast(), self.n.min(n) as c_uint, 0);
        }
        !all.panicked.into_inner()
    }

    #[cfg(not(target_os = "linux"))]
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
        (0..n).for_each(work);
        true
    }
}

impl Threads for Team {
    fn n(&self) -> usize {
        self.size()
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
        Team::each(self, n, work).is_ok()
    }
}
