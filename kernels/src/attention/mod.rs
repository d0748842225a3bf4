//! Causal attention with rotary positions, forward and backward.
//!
//! A task is one head of keys and values of one sample, with the heads of queries that share it. Its
//! thread copies the rows of that head into memory of its own, rotates them on the way and lays them out
//! for the products of [`tile`]; gradients are rotated back on the way out. So rotated queries and keys
//! are never written to shared memory, scores never leave the caches, and beyond the diagonal only the
//! rest of a tile is computed.
//!
//! O(tokens² · d_head) time per head, half of what a full product takes. A thread's memory is
//! O(tokens · d_head + 8 · tokens) forward and O(tokens · d_head + 128 · tokens) backward; of the forward
//! pass one number per query is kept, the logarithm of its sum of exponentials, from which the backward
//! pass computes the softmax again.
//!
//! Tried (docs/performance.md): rows that end amid a register cost a quarter of the time, so scores
//! beyond the diagonal are computed up to a whole register and set to zero; prefetching the rows of the
//! next head gave 10 to 15 %.

mod gradients;
mod layout;
mod output;
mod tile;

pub use gradients::{Outputs, backward};
pub use layout::{AttentionShape, Inputs};
pub use output::forward;
