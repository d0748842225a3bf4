//! Documents → ids.
//!
//! A [`Tokenizer`] is immutable and shared by all threads. Reusable state (buffers, the cache of
//! pieces) is in a [`Worker`]; a call takes one from a small pool and returns it. If the pool is empty
//! the call creates one instead of waiting, so neither threads nor a fork can block it.
//!
//! - `tokenizer`: what a tokenizer consists of
//! - `worker`, `cache`, `long_cache`: the reusable state of a thread
//! - `single`: short pieces that are one token
//! - `short_merge`, `merge_lanes`: merging of short pieces, one by one and sixteen side by side
//! - `plain`, `window`: one text; very long pieces
//! - `batch`, `stream`, `spans`, `by_size`: many texts, text in parts, positions of tokens, token counts
//!   of smaller vocabularies

mod batch;
mod by_size;
mod cache;
mod long_cache;
mod merge_lanes;
mod plain;
mod short_merge;
mod single;
mod spans;
mod stream;
mod tokenizer;
mod window;
mod worker;

pub use stream::Stream;
pub use tokenizer::{Recognise, Tokenizer};
pub use window::OpenPiece;

#[cfg(test)]
mod tests;
