//! Merges → tables → ids: what a tokenizer is, how it encodes, and the files that hold it.

pub mod encode;
pub mod formats;
pub mod learn;
pub mod merge;
pub mod spec;
pub mod vocab;
