//! Records that somebody else reads: columns of Parquet, a dataset, an iterator.

use std::fmt;
use std::sync::Arc;

use super::block::{Block, Content};
use super::blocks::{Blocks, Context};
use super::inputs::Position;
use super::reading::Skipped;
use crate::base::error::Result;

/// Texts that lie somewhere in memory.
pub trait Batch: Send + Sync + fmt::Debug {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them, or None if it is null.
    fn get(&self, row: usize) -> Option<&[u8]>;

    /// Whether any bytes will do, however many: the caller gave them, and knows what they are.
    fn is_callers_own(&self) -> bool {
        false
    }
}

/// A batch and what it is a part of.
#[derive(Debug)]
pub struct Given {
    /// The texts.
    pub batch: Arc<dyn Batch>,
    /// The number of the row group it is of.
    pub part: u64,
    /// How many rows of that come before it.
    pub first: u64,
    /// Whether the row group ends with it.
    pub ends_part: bool,
    /// Bytes of the source, as it lies on disk, that it is about.
    pub weight: u64,
    /// What is wrong with the row group, or with all of the source, if it cannot be read; and of how
    /// many records.
    pub fault: Option<(String, u64)>,
}

/// A source of records.
pub trait Records: Send + Sync + fmt::Debug {
    /// Begins to give them, from a place on at which a block once ended.
    fn open(&self, from: Position) -> Result<Box<dyn Batches>>;
}

/// Gives batches in order.
pub trait Batches: Send {
    /// The next batch, or None at the end.
    fn next(&mut self) -> Result<Option<Given>>;
}

/// The blocks of a source of records.
pub(super) struct RowBlocks<'a> {
    number: usize,
    name: &'a str,
    batches: Box<dyn Batches>,
    /// The present batch, and how much of it was handed out.
    open: Option<(Given, usize)>,
    at: Position,
    over: bool,
}

impl<'a> RowBlocks<'a> {
    pub(super) fn new(
        number: usize,
        name: &'a str,
        batches: Box<dyn Batches>,
        from: Position,
    ) -> Self {
        RowBlocks { number, name, batches, open: None, at: from, over: false }
    }
}

impl<'a> Blocks<'a> for RowBlocks<'a> {
    fn next(&mut self, context: &Context<'_>) -> Result<Option<Block<'a>>> {
        if self.over {
            return Ok(None);
        }
        let mut skipped = Skipped::default();
        let (given, mut first) = match self.open.take() {
            Some(open) => open,
            None => match self.batches.next()? {
                Some(given) => (given, 0),
                None => {
                    self.over = true;
                    let (number, after) = (self.number, self.at);
                    let content = Content::Nothing;
                    return Ok(Some(Block {
                        number,
                        after,
                        ends_source: true,
                        weight: 0,
                        content,
                        skipped,
                    }));
                }
            },
        };
        if let Some((kind, n)) = &given.fault {
            skipped.add(kind, *n);
        }
        // Begun again, a row group may be given from its start.
        if given.part == self.at.part && self.at.records > given.first {
            first = first.max((self.at.records - given.first) as usize);
        }
        let (n, mut end, mut size) = (given.batch.len(), first, 0);
        while end < n && size < context.chunk_size {
            size += given.batch.get(end).map_or(0, <[u8]>::len) + 1;
            end += 1;
        }
        let whole = end >= n;
        self.at = if whole && given.ends_part {
            Position { part: given.part + 1, ..Position::default() }
        } else {
            Position { part: given.part, offset: 0, records: given.first + end as u64 }
        };
        let weight =
            (given.weight as u128 * (end - first.min(end)) as u128 / n.max(1) as u128) as u64;
        let place = format!("{}: row group {}", self.name, given.part);
        let (batch, before) = (Arc::clone(&given.batch), given.first);
        let content = Content::Rows { batch, first: first.min(end), end, place, before };
        if !whole {
            self.open = Some((given, end));
        }
        let (number, after) = (self.number, self.at);
        Ok(Some(Block { number, after, ends_source: false, weight, content, skipped }))
    }
}
