//! The interface to the caller's threads, and output arrays that they share.
//!
//! A kernel describes its work as tasks, each of which owns the numbers that it writes (`chunks_mut`,
//! [`Columns`]), so that the compiler checks that no two threads write the same one. Handing a
//! task over costs one uncontended lock, some ten nanoseconds; tasks take microseconds.

use crate::{Error, Result};
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

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

/// Some columns of a matrix, which one task writes while others write other columns.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    /// The first of these columns in the first row.
    start: *mut f32,
    n_rows: usize,
    /// Distance from one row of the matrix to the next.
    stride: usize,
    width: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `Columns` is the only way to its numbers while it exists: `split` borrows the matrix
// mutably and gives no two of them the same column. So it may move to another thread as `&mut [f32]`
// may.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Divides a matrix with rows of `stride` numbers into groups of `width` columns; the last group
    /// may have fewer.
    pub fn split(
        matrix: &'a mut [f32],
        stride: usize,
        width: usize,
    ) -> impl Iterator<Item = Self> + use<'a> {
        assert!(stride > 0 && matrix.len().is_multiple_of(stride));
        let (start, n_rows) = (matrix.as_mut_ptr(), matrix.len() / stride);
        (0..stride).step_by(width).map(move |first| Columns {
            start: start.wrapping_add(first),
            n_rows,
            stride,
            width: width.min(stride - first),
            matrix: PhantomData,
        })
    }

    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// These columns of a row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.n_rows);
        // SAFETY: the matrix has `n_rows` rows of `stride` numbers, `row` is one of them, and these
        // columns end at or before the end of a row: the numbers are within the matrix. It stays
        // mutably borrowed for the lifetime of this value, other values have other columns, and the
        // result borrows this one mutably: no other reference to these numbers exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.width) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// This number of threads, started for each loop.
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

    #[test]
    fn every_number_is_of_one_group() {
        for (n_rows, stride, width) in [(0, 3, 2), (1, 1, 1), (3, 7, 3), (4, 6, 2), (2, 5, 9)] {
            let mut matrix = vec![0.0; n_rows * stride];
            for (group, mut columns) in Columns::split(&mut matrix, stride, width).enumerate() {
                assert_eq!(columns.n_rows(), n_rows);
                for row in 0..n_rows {
                    for number in columns.row(row) {
                        *number += 1.0 + (row * 10 + group) as f32;
                    }
                }
            }
            let expected = |i: usize| 1.0 + (i / stride * 10 + i % stride / width) as f32;
            assert_eq!(matrix, (0..n_rows * stride).map(expected).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "row < self.n_rows")]
    fn rows_outside_are_refused() {
        let mut matrix = [0.0; 6];
        Columns::split(&mut matrix, 3, 2).for_each(|mut columns| columns.row(2).fill(1.0));
    }
}
