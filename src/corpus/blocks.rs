//! An open source, block by block.

use super::block::Block;
use super::reading::Reading;
use crate::base::error::Result;
use crate::base::job::Job;
use crate::text::cutter::Cutter;

/// What is needed to find blocks and to read them.
#[derive(Debug, Clone, Copy)]
pub struct Context<'c> {
    /// Text is cut by this.
    pub cutter: &'c Cutter,
    /// How to read.
    pub reading: &'c Reading,
    /// About so many bytes make a block.
    pub chunk_size: usize,
    /// Whether a block may end inside a piece where the text has no other cut for long: for who
    /// takes blocks in order.
    pub open_pieces: bool,
    /// Whoever waits for bytes looks here whether to wait on.
    pub job: &'c Job,
}

/// An open source. Whoever has it is alone with it, and should not have it for long.
pub(super) trait Blocks<'a>: Send {
    /// The next block, or None behind the one that ends the source.
    fn next(&mut self, context: &Context<'_>) -> Result<Option<Block<'a>>>;
}
