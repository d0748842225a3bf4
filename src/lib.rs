//! From raw text to tokens: learn a byte-level BPE tokenizer, and encode with it.
//!
//! ```text
//! corpus ──► counts ──► merges ──► tokenizer ──► tokens
//!  files     pieces     pairs      ids ↔ bytes    shards
//! ```
//!
//! Each noun is a module, each arrow a function; a module knows only those to its left. Nothing
//! here knows Python but `python`, which is behind a feature.
//!
//! - [`pattern`], [`specials`]: what cuts text into pieces, and documents from each other
//! - [`corpus`]: files → chunks
//! - [`pages`], [`pieces`], [`counts`]: chunks → counts
//! - [`merges`]: counts → merges, and [`learn`] → a tokenizer
//! - [`spec`], [`formats`]: a tokenizer as plain data ↔ files
//! - [`vocab`], [`bpe`], [`encode`]: the tokenizer, text ↔ ids
//! - [`tokens`]: files → ids on disk
//! - [`passes`]: what training that model does between products of matrices
//! - [`step`]: one step of the language model that is made from them, ids → logits
//! - [`naive`]: the obvious slow versions, for tests

pub mod bpe;
pub mod corpus;
pub mod counts;
pub mod encode;
pub mod error;
mod files;
pub mod formats;
mod heap;
pub mod job;
pub mod lanes;
pub mod learn;
mod memory;
pub mod merges;
pub mod naive;
pub mod pages;
pub mod passes;
pub mod pattern;
pub mod pieces;
#[cfg(feature = "python")]
mod python;
mod seed;
pub mod spec;
pub mod specials;
pub mod step;
pub mod tokens;
pub mod vocab;

pub use encode::Tokenizer;
pub use error::{Error, Result};
