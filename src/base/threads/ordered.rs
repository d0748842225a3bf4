//! Items in, results out in the same order, in bounded memory.
//!
//! Workers take items in turn and put each result into its slot; the caller's thread takes the slots
//! in order. There are two slots per worker and two more, and a worker that is ahead waits for a free
//! one, so memory does not depend on the number of items.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::{caught, error_of, spawn};
use crate::base::error::Result;

/// Runs `work` on every item that `next` gives, on `threads` threads, and hands the results to `each`
/// in the order of the items, on the caller's thread.
///
/// Each thread has its own state (`new_state`), and results are reused. `next` is called by one thread
/// at a time; if it returns `true` with an item, the next item goes to the same thread.
pub fn ordered<T, S, R: Default + Send>(
    threads: usize,
    next: impl FnMut() -> Result<Option<(T, bool)>> + Send,
    new_state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T, &mut R) -> Result<()> + Sync,
    mut each: impl FnMut(&R) -> Result<()>,
) -> Result<()> {
    let threads = threads.max(1);
    let items = Mutex::new(Items { next, number: 0, ended: false });
    let queue = ResultQueue {
        state: Mutex::new(State {
            slots: (0..2 * threads + 2).map(|_| None).collect(),
            spare: Vec::new(),
            taken: 0,
            over: false,
            workers: threads,
        }),
        filled: Condvar::new(),
        freed: Condvar::new(),
    };
    thread::scope(|scope| {
        let over = Over(&queue);
        let mut workers = Vec::new();
        for _ in 0..threads {
            match spawn(scope, || run(&items, &queue, &new_state, &work)) {
                Ok(worker) => workers.push(worker),
                // The threads that could be started do all the work.
                Err(_) if !workers.is_empty() => drop(Left(&queue)),
                Err(error) => return Err(error),
            }
        }
        let result = loop {
            match queue.take() {
                Ok(Some(result)) => {
                    if let Err(error) = each(&result) {
                        break Err(error);
                    }
                    queue.give_back(result);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(over);
        // Joined even after an error.
        let failed = workers.into_iter().filter_map(|worker| worker.join().err()).last();
        result.and(failed.map_or(Ok(()), |cause| Err(error_of(cause.as_ref()))))
    })
}

struct Items<N> {
    next: N,
    /// The number of the next item.
    number: u64,
    ended: bool,
}

struct ResultQueue<R> {
    state: Mutex<State<R>>,
    filled: Condvar,
    freed: Condvar,
}

struct State<R> {
    /// Result `n` is in slot `n % slots.len()`.
    slots: Vec<Option<Result<R>>>,
    /// Results to be reused.
    spare: Vec<R>,
    /// The number of results taken.
    taken: u64,
    /// No further result will be taken.
    over: bool,
    workers: usize,
}

impl<R: Default> ResultQueue<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until result `number` has a slot; returns a result to fill, or None if no more results
    /// will be taken.
    fn spare_for(&self, number: u64) -> Option<R> {
        let mut state = self.lock();
        while !state.over && number >= state.taken + state.slots.len() as u64 {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.over { None } else { Some(state.spare.pop().unwrap_or_default()) }
    }

    fn put(&self, number: u64, result: Result<R>) {
        let mut state = self.lock();
        let n_slots = state.slots.len() as u64;
        state.slots[(number % n_slots) as usize] = Some(result);
        self.filled.notify_one();
    }

    /// The next result, or None if no worker is left to compute it.
    fn take(&self) -> Result<Option<R>> {
        let mut state = self.lock();
        loop {
            let slot = (state.taken % state.slots.len() as u64) as usize;
            if let Some(result) = state.slots[slot].take() {
                return result.map(Some);
            }
            if state.workers == 0 {
                return Ok(None);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, result: R) {
        let mut state = self.lock();
        state.taken += 1;
        state.spare.push(result);
        self.freed.notify_one();
    }
}

/// Stops the workers when dropped, also if the caller unwinds.
struct Over<'a, R: Default>(&'a ResultQueue<R>);

impl<R: Default> Drop for Over<'_, R> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.freed.notify_all();
    }
}

/// Counts a worker out when dropped, also if it unwinds.
struct Left<'a, R: Default>(&'a ResultQueue<R>);

impl<R: Default> Drop for Left<'_, R> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.0.filled.notify_all();
    }
}

fn run<T, S, R: Default, N: FnMut() -> Result<Option<(T, bool)>>>(
    items: &Mutex<Items<N>>,
    queue: &ResultQueue<R>,
    new_state: &impl Fn() -> S,
    work: &impl Fn(&mut S, T, &mut R) -> Result<()>,
) {
    let _left = Left(queue);
    let mut state = new_state();
    let lock = || items.lock().unwrap_or_else(PoisonError::into_inner);
    let mut held = None;
    loop {
        let mut items = held.take().unwrap_or_else(lock);
        if items.ended {
            return;
        }
        let number = items.number;
        // The lock is held while waiting; no other worker could make progress anyway.
        let Some(mut result) = queue.spare_for(number) else { return };
        let (item, keep) = match caught(|| (items.next)()) {
            Ok(Some(item)) => item,
            Ok(None) => {
                items.ended = true;
                return;
            }
            Err(error) => {
                items.ended = true;
                queue.put(number, Err(error));
                return;
            }
        };
        items.number += 1;
        held = keep.then_some(items);
        let outcome = caught(|| work(&mut state, item, &mut result));
        queue.put(number, outcome.map(|()| result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;

    fn squares(threads: usize, n: u64, fail_at: Option<u64>) -> Result<Vec<u64>> {
        let (mut at, mut results) = (0, Vec::new());
        let next = || {
            at += 1;
            Ok((at <= n).then_some((at - 1, at % 3 == 0)))
        };
        let work = |_: &mut (), item, result: &mut u64| {
            if Some(item) == fail_at {
                return Err(Error::config("told to"));
            }
            *result = item * item;
            Ok(())
        };
        ordered(
            threads,
            next,
            || (),
            work,
            |&result| {
                results.push(result);
                Ok(())
            },
        )?;
        Ok(results)
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        for threads in [1, 2, 5] {
            for n in [0, 1, 7, 300] {
                let expected: Vec<u64> = (0..n).map(|item| item * item).collect();
                assert_eq!(squares(threads, n, None).unwrap(), expected);
            }
        }
    }

    #[test]
    fn an_error_ends_all() {
        for threads in [1, 2, 5] {
            assert_eq!(squares(threads, 100, Some(40)).unwrap_err().to_string(), "told to");
            let refused = ordered(
                threads,
                || Ok(Some(((), false))),
                || (),
                |(), (), _: &mut ()| Ok(()),
                |()| Err(Error::config("enough")),
            );
            assert_eq!(refused.unwrap_err().to_string(), "enough");
        }
    }
}
