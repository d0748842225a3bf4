//! The blocks of many sources one after the other, for whoever has to keep their order.
//!
//! Unlike [`Reader`](super::Reader) this can begin anywhere, and notices a source that is not what
//! it was when the work began.

use super::block::{Block, Content};
use super::blocks::{Blocks, Context};
use super::inputs::{Inputs, Place, Position};
use super::reading::Skipped;
use super::source::Source;
use crate::base::error::Result;

/// The sources of a corpus, block by block in order.
pub struct InOrder<'a> {
    inputs: &'a Inputs,
    sources: &'a [Source],
    context: Context<'a>,
    next: usize,
    at: Position,
    open: Option<Box<dyn Blocks<'a> + 'a>>,
}

impl<'a> InOrder<'a> {
    /// The blocks of these sources, which are expected to be as `sources` says. The first is at
    /// place `at` of source `first`, where a block once ended.
    pub fn new(
        inputs: &'a Inputs,
        sources: &'a [Source],
        context: Context<'a>,
        (first, at): (usize, Position),
    ) -> Self {
        InOrder { inputs, sources, context, next: first, at, open: None }
    }

    /// What blocks are read with.
    pub fn context(&self) -> Context<'a> {
        self.context
    }

    /// The next block.
    pub fn next_block(&mut self) -> Result<Option<Block<'a>>> {
        loop {
            let number = self.next;
            let (Some(input), Some(source)) =
                (self.inputs.list.get(number), self.sources.get(number))
            else {
                return Ok(None);
            };
            // Whoever gets a small source opens it, too: of many, that is a large part of the work.
            let small = source.size <= self.context.chunk_size as u64
                && source.range.is_none()
                && !matches!(input.place, Place::Records(..) | Place::Pipe(..));
            if small && self.open.is_none() && self.at == Position::default() {
                self.next += 1;
                return Ok(Some(Block {
                    number,
                    after: Position::default(),
                    ends_source: true,
                    weight: source.size,
                    content: Content::Source { input, source: Some(source) },
                    skipped: Skipped::default(),
                }));
            }
            let blocks = match &mut self.open {
                Some(blocks) => blocks,
                None => {
                    let blocks = input.open(number, Some(source), self.at, &self.context)?;
                    self.open.insert(blocks)
                }
            };
            let block = blocks.next(&self.context)?;
            match &block {
                Some(block) if !block.ends_source => self.at = block.after,
                _ => (self.next, self.at, self.open) = (number + 1, Position::default(), None),
            }
            if block.is_some() {
                return Ok(block);
            }
        }
    }
}
