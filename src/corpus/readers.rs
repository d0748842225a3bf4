//! The blocks of all sources, for many workers: in any order, or in the order of the corpus.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::blocks::{Block, Blocks};
use super::inputs::{Inputs, Location, Source, SourcePosition};
use super::reading::Context;
use crate::base::error::Result;

/// Hands out blocks to any number of threads, in no particular order.
///
/// A worker takes a source that no other holds, finds its next block and puts the source back. So
/// several sources are decompressed at once, and one large source keeps all workers busy.
pub struct AnyOrder<'a> {
    inputs: &'a Inputs,
    context: Context<'a>,
    sources: Mutex<SourceQueue<'a>>,
    returned: Condvar,
}

#[derive(Default)]
struct SourceQueue<'a> {
    /// The next source to open.
    next: usize,
    /// Open sources that no worker holds.
    idle: Vec<Blocks<'a>>,
    /// How many workers hold one.
    busy: usize,
}

impl<'a> AnyOrder<'a> {
    pub fn new(inputs: &'a Inputs, context: Context<'a>) -> Self {
        let (sources, returned) = (Mutex::new(SourceQueue::default()), Condvar::new());
        AnyOrder { inputs, context, sources, returned }
    }

    pub fn context(&self) -> &Context<'a> {
        &self.context
    }

    /// Stored bytes of all sources.
    pub fn total(&self) -> Result<u64> {
        self.inputs.list.iter().map(|input| input.size()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, SourceQueue<'a>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next block, or None once all were handed out.
    pub fn next(&self) -> Result<Option<Block<'a>>> {
        let mut sources = self.lock();
        loop {
            let open = sources.idle.pop();
            let number = sources.next;
            if open.is_none() && number >= self.inputs.list.len() {
                if sources.busy == 0 {
                    return Ok(None);
                }
                sources = self.returned.wait(sources).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            sources.next += usize::from(open.is_none());
            sources.busy += 1;
            drop(sources);
            let busy = Busy(self);
            let mut blocks = match open {
                Some(blocks) => blocks,
                None => {
                    let input = &self.inputs.list[number];
                    Blocks::open(input, number, None, SourcePosition::default(), &self.context)?
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
            sources = self.lock();
        }
    }
}

/// Exists while a worker holds a source; wakes waiting workers when dropped, also by an error or a
/// panic.
struct Busy<'r, 'a>(&'r AnyOrder<'a>);

impl Drop for Busy<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.returned.notify_all();
    }
}

/// Hands out blocks in the order of the corpus, from any position on; an error if a source changed.
pub struct InOrder<'a> {
    inputs: &'a Inputs,
    sources: &'a [Source],
    context: Context<'a>,
    next: usize,
    at: SourcePosition,
    open: Option<Blocks<'a>>,
}

impl<'a> InOrder<'a> {
    /// `sources` are the sources as they were listed. The first block is at position `at` of source
    /// `first`, where an earlier block ended.
    pub fn new(
        inputs: &'a Inputs,
        sources: &'a [Source],
        context: Context<'a>,
        (first, at): (usize, SourcePosition),
    ) -> Self {
        InOrder { inputs, sources, context, next: first, at, open: None }
    }

    pub fn context(&self) -> Context<'a> {
        self.context
    }

    pub fn next_block(&mut self) -> Result<Option<Block<'a>>> {
        loop {
            let number = self.next;
            let (Some(input), Some(source)) =
                (self.inputs.list.get(number), self.sources.get(number))
            else {
                return Ok(None);
            };
            let small = source.size <= self.context.block_size as u64
                && source.range.is_none()
                && !matches!(input.location, Location::Rows(..) | Location::Pipe(..));
            if small && self.open.is_none() && self.at == SourcePosition::default() {
                self.next += 1;
                return Ok(Some(Block::unopened(number, input, source)));
            }
            let blocks = match &mut self.open {
                Some(blocks) => blocks,
                None => {
                    let blocks = Blocks::open(input, number, Some(source), self.at, &self.context)?;
                    self.open.insert(blocks)
                }
            };
            let block = blocks.next(&self.context)?;
            match &block {
                Some(block) if !block.ends_source => self.at = block.after,
                _ => {
                    (self.next, self.at, self.open) = (number + 1, SourcePosition::default(), None)
                }
            }
            if block.is_some() {
                return Ok(block);
            }
        }
    }
}
