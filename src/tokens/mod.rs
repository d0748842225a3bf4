//! A range of a corpus → ids in shards or parts; parts → shards; verification.
//!
//! ```text
//! sources ─► blocks ─► ids ─► documents ─► shards
//!            in order  several    │            ▲
//!                      threads    └─► parts ───┘  elsewhere, or to be shuffled
//! ```
//!
//! Only the loops are here. Paths, completeness and resuming are decided in Python
//! (`bytemill/tokens`), for one machine and for a cluster alike.
//!
//! The ids are those of each text or record encoded as a whole, including its special tokens; a
//! document ends after every end-of-text and at the end of its text or record. The files depend on
//! the sources, the tokenizer and the [`Plan`] alone, not on threads, blocks or parts. Memory is
//! constant, except for shuffling (`parts`) and comparing with the sources.
//!
//! - `plan`: the options that determine the files; split and order of documents
//! - `encode`: a range of a corpus → shards, or one part
//! - `parts`, `assembly`: parts → a shard
//! - `writer`, `append`: the files
//! - `verify`, `sources`: comparison with the manifest and with the sources

mod append;
mod assembly;
mod encode;
mod parts;
mod plan;
mod sources;
mod verify;
mod writer;

pub use assembly::{Content, ShardSource, ShuffledParts, assemble};
pub use encode::{CorpusRange, encode_range};
pub use parts::{Part, Share, deal};
pub use plan::{Dtype, Format, Plan};
pub use sources::compare;
pub use verify::check_shard;

#[cfg(test)]
mod tests;
