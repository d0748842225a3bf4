//! Sources → blocks of text that can be worked on apart.
//!
//! ```text
//! inputs ─► storage ─► unpack ─► members ─► stream ─► block ─► text
//!  what      bytes      .gz …     of tar,    cut       one      documents,
//!  and                            zip                  worker   stretches
//!  where     ranges ─────────────────────────────────►
//! ```
//!
//! A block of text ends where no piece and no special token can stand across the cut, so that the
//! pieces of the blocks are the pieces of the whole; a block of records ends with one. Files are
//! read by position into a buffer that each worker keeps: a file that shrinks while it is read is
//! then an error, where a memory map would end the process.
//!
//! - `kind`, `choice`, `reading`, `inputs`, `source`: what there is to read, and how
//! - `storage`, `pipe`, `unpack`, `archive`: bytes
//! - `ranges`, `stream`, `members`, `records`: an open source, cut into blocks
//! - `block`, `lines`, `json`, `separated`, `text`: a block → its text
//! - `reader`, `ordered`: the blocks of all sources, for many workers

mod archive;
mod block;
mod blocks;
mod choice;
mod inputs;
mod json;
mod kind;
mod lines;
mod members;
mod ordered;
mod pipe;
mod ranges;
mod reader;
mod reading;
mod records;
mod separated;
mod source;
mod storage;
mod stream;
mod text;
mod unpack;

#[cfg(test)]
mod tests;

pub use block::{Block, Scratch, StretchEnd, Text};
pub use blocks::Context;
pub use choice::{Choice, Chosen, is_about};
pub use inputs::{Input, Inputs, Place, Position};
pub use kind::{Format, Kind, Packing};
pub use ordered::InOrder;
pub use pipe::{Given as GivenBytes, Giver, Pipe};
pub use reader::Reader;
pub use reading::{Fault, OnError, Reading, Skipped};
pub use records::{Batch, Batches, Given, Records};
pub use source::Source;
pub use storage::{LocalFile, Storage, ended_early};
pub use text::refusal;
pub use unpack::Input as Unpacked;

use crate::base::error::Result;
use crate::text::pattern::{INSIDE_REACH, Pattern};
use crate::text::specials::Specials;

/// What cuts a corpus into documents and pieces.
#[derive(Debug, Clone)]
pub struct Cutter {
    /// Documents end at these.
    pub specials: Specials,
    /// Pieces are cut by this.
    pub pattern: Pattern,
}

impl Cutter {
    /// A cutter for this pattern and these special tokens.
    pub fn new<S: AsRef<str>, T: AsRef<str>>(pattern: &[S], specials: &[T]) -> Result<Self> {
        Ok(Cutter { specials: Specials::new(specials)?, pattern: Pattern::new(pattern)? })
    }

    /// The first position ≥ `from` (and > 0) at which `text` may be cut: what stands before and
    /// what stands behind have the pieces and special tokens of the whole. `whole` says that the
    /// text ends where it ends; otherwise more follows, and only positions that no continuation
    /// can take back are given.
    pub fn cut_after(&self, text: &[u8], from: usize, whole: bool) -> Option<usize> {
        let reach = self.specials.longest().saturating_sub(1);
        let certain = if whole { text.len() } else { text.len().saturating_sub(reach) };
        let mut from = from.max(1);
        while let Some(at) = self.pattern.safe_cut_after(text, from) {
            if at > certain {
                break;
            }
            if !self.specials.straddle(text, at) {
                return Some(at);
            }
            from = at + 1;
        }
        self.specials.start_after(text, from).filter(|&at| at <= certain)
    }

    /// The first position from `from` on that is inside a piece, whatever follows: see
    /// [`Pattern::inside_after`]. There is no special token near it.
    pub fn inside_after(&self, text: &[u8], mut from: usize) -> Option<usize> {
        let certain = text.len().checked_sub(INSIDE_REACH + self.specials.longest())?;
        loop {
            let at = self.pattern.inside_after(text, from).filter(|&at| at <= certain)?;
            if !self.specials.touch(text, at.saturating_sub(INSIDE_REACH)..at + INSIDE_REACH) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// The last position up to which `text` is settled whatever text follows it.
    pub fn cut_before(&self, text: &[u8]) -> Option<usize> {
        let reach = self.specials.longest().saturating_sub(1);
        let mut upto = text.len().checked_sub(reach)?;
        while let Some(at) = self.pattern.safe_cut_before(text, upto) {
            if !self.specials.straddle(text, at) {
                return Some(at);
            }
            upto = at - 1;
        }
        None
    }
}
