//! Hands out the blocks of many sources to many workers, in no particular order.
//!
//! A worker takes a source that nobody is looking at, finds its next block and puts it back; so
//! several sources are unpacked at once, and one large source keeps all workers busy.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::block::Block;
use super::blocks::{Blocks, Context};
use super::inputs::{Inputs, Position};
use crate::base::error::Result;

/// The sources of a corpus, to be read block by block by any number of threads.
pub struct Reader<'a> {
    inputs: &'a Inputs,
    context: Context<'a>,
    state: Mutex<State<'a>>,
    returned: Condvar,
}

#[derive(Default)]
struct State<'a> {
    /// The first source that nobody has opened.
    next: usize,
    /// Sources that are open, but for those that somebody is looking at.
    idle: Vec<Box<dyn Blocks<'a> + 'a>>,
    busy: usize,
}

impl<'a> Reader<'a> {
    /// A reader of these sources.
    pub fn new(inputs: &'a Inputs, context: Context<'a>) -> Self {
        let (state, returned) = (Mutex::new(State::default()), Condvar::new());
        Reader { inputs, context, state, returned }
    }

    /// What blocks are read with.
    pub fn context(&self) -> &Context<'a> {
        &self.context
    }

    /// The sizes of all sources together.
    pub fn total(&self) -> Result<u64> {
        self.inputs.list.iter().map(|input| input.size()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next block, or None when all are handed out. Which worker gets which is left open.
    pub fn next(&self) -> Result<Option<Block<'a>>> {
        let mut state = self.lock();
        loop {
            let open = state.idle.pop();
            let number = state.next;
            if open.is_none() && number >= self.inputs.list.len() {
                if state.busy == 0 {
                    return Ok(None);
                }
                state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.next += usize::from(open.is_none());
            state.busy += 1;
            drop(state);
            let busy = Busy(self);
            let mut blocks = match open {
                Some(blocks) => blocks,
                None => {
                    let input = &self.inputs.list[number];
                    input.open(number, None, Position::default(), &self.context)?
                }
            };
            let block = blocks.next(&self.context)?;
            if block.as_ref().is_some_and(|block| !block.ends_source) {
                self.lock().idle.push(blocks);
            }
            drop(busy);
            if block.is_some() {
                return Ok(block);
            }
            state = self.lock();
        }
    }
}

/// Somebody looks at a source; told when that is over, however it ended.
struct Busy<'r, 'a>(&'r Reader<'a>);

impl Drop for Busy<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.returned.notify_all();
    }
}
