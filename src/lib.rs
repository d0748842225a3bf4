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
//! - [`base`]: errors, jobs, memory, files
//! - [`text`]: what cuts text into pieces, and documents from each other
//! - [`corpus`]: files → blocks of text
//! - [`learn`]: blocks → counts → merges
//! - [`tokenizer`]: a tokenizer as plain data and as files; text ↔ ids
//! - [`tokens`]: files → ids on disk
//! - [`naive`]: the obvious slow versions, for tests

pub mod base;
pub mod corpus;
pub mod learn;
pub mod naive;
#[cfg(feature = "python")]
mod python;
pub mod text;
pub mod tokenizer;
pub mod tokens;

pub use base::error::{Error, Result};
pub use tokenizer::encode::Tokenizer;
