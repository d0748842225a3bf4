//! Sources → blocks of text that workers process independently.
//!
//! ```text
//! inputs ──► bytes ──────────► records ──────────► blocks ─────────► readers
//! kind       decompress        text_stream         ranges            in order or
//! choice     tar, zip          csv, json           sequential        in any order
//! reading                    separator
//! ```
//!
//! - `inputs`, `kind`, `choice`, `reading`: what to read, and how
//! - `bytes`, `decompress`, `tar`, `zip`: where bytes come from
//! - `records`, `json`, `csv`, `text_stream`, `separator`: bytes → texts and documents
//! - `blocks`, `ranges`, `sequential`: an open source, cut into blocks
//! - `readers`: the blocks of all sources, for many workers
//!
//! One worker at a time holds an open source and finds where its next block ends (or decompresses
//! it); the worker that gets a block reads and parses it. Time is linear in the corpus; memory is a
//! few blocks per worker.

mod blocks;
mod bytes;
mod choice;
mod csv;
mod decompress;
mod inputs;
mod json;
mod kind;
mod ranges;
mod readers;
mod reading;
mod records;
mod separator;
mod sequential;
mod tar;
mod text_stream;
mod zip;

#[cfg(test)]
mod tests;

pub use blocks::Block;
pub use bytes::ended_early;
pub use choice::{Choice, Chosen, is_about};
pub use inputs::{
    GivenRows, Input, Inputs, Location, Pipe, RowBatch, RowBatches, RowSource, Source,
    SourcePosition, Storage,
};
pub use kind::{Compression, FileFormat, FileKind, not_text};
pub use readers::{AnyOrder, InOrder};
pub use reading::{Context, Nulls, OnError, Reading, Skipped};
pub use records::{BlockBuffers, BlockEnd, BlockText};
