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
pub use reading::{OnError, Reading, Skipped};
pub use records::{Batch, Batches, Given, Records};
pub use source::Source;
pub use storage::{Storage, ended_early};
pub use text::refusal;
pub use unpack::Input as Unpacked;
