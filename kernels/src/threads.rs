//! The threads that kernels run on, which belong to the caller, and memory that they write together.

use std::marker::PhantomData;

use crate::error::{Error, Result};

/// A caller's threads.
pub trait Threads: Sync {
    /// How many calls can run at once.
    fn n(&self) -> usize;

    /// Calls `work` once for each of `0..n`, in any order and at the same time; returns when all calls
    /// are over, false if one panicked.
    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) -> bool;
}

/// Calls `work` once for each of `0..n`.
pub(crate) fn each(threads: &dyn Threads, n: usize, work: impl Fn(usize) + Sync) -> Result<()> {
    if threads.each(n, &work) { Ok(()) } else { Err(Error::Bug("a kernel panicked".to_owned())) }
}

/// Numbers that several threads read and write, each at its own places.
#[derive(Debug)]
pub(crate) struct Shared<'a, T = f32> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: reading and writing are unsafe, and the caller of `part` promises that no other thread has
// the same place.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as for a mutable slice, which it was made from.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(numbers: &'a mut [T]) -> Self {
        Shared { start: numbers.as_mut_ptr(), len: numbers.len(), lifetime: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// `len` numbers from `start` on, to read.
    ///
    /// # Safety
    ///
    /// No thread writes any of them while the result is used.
    #[inline(always)]
    pub unsafe fn read(&self, start: usize, len: usize) -> &[T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: the range was checked, and the caller promises that no thread writes to it.
        unsafe { std::slice::from_raw_parts(self.start.add(start), len) }
    }

    /// `len` numbers from `start` on, to write.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes any of them while the result is used.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: the range was checked, and the caller promises to be alone with it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// As many threads as it says, started anew for each loop.
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
    fn a_panic_is_a_bug() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let result = each(&Scoped(2), 5, |i| assert_ne!(i, 3));
        std::panic::set_hook(hook);
        assert!(matches!(result, Err(Error::Bug(_))));
        assert_eq!(each(&Scoped(2), 5, |_| {}), Ok(()));
    }
}
