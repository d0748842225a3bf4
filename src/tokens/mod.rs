//! A range of a corpus → ids in shards or parts; parts → shards; checking what was written.
//!
//! ```text
//! sources ─► blocks ─► ids ─► documents ─► shards
//!            in order  several    │            ▲
//!                      threads    └─► parts ───┘  elsewhere, or to be shuffled
//! ```
//!
//! Only the loops are here. What is written where, when it is complete, and how work resumes is
//! decided in Python (`bytemill/encoding.py`), for one machine and for a cluster alike.
//!
//! The ids are those of each text or record encoded as one, with special tokens where they stand; a
//! document ends after every end-of-text and with its text or record. The bytes depend on the
//! sources, the tokenizer and the [`Plan`] alone, not on threads, blocks or parts. Memory is
//! constant.
//!
//! - `plan`, `order`: the layout of the files, which split a document goes to, and where in it
//! - `pipeline`, `encode`: a range of a corpus → shards, or one part
//! - `parts`, `assembly`: parts → a shard
//! - `writer`, `append`, `npy`, `megatron`: the files
//! - `verify`, `sources`: whether files and ids are what they should be

mod append;
mod assembly;
mod encode;
mod megatron;
mod npy;
mod order;
mod parts;
mod pipeline;
mod plan;
mod sources;
mod verify;
mod writer;

pub use assembly::{Content, Recipe, assemble};
pub use encode::{Range, encode_range};
pub use parts::{Part, Share, deal};
pub use plan::{Dtype, Format, Plan};
pub use sources::compare;
pub use verify::check_shard;

#[cfg(test)]
mod tests;
