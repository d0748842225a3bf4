//! Arithmetic of a Llama-style language model on CPUs, in float32.
//!
//! - [`lanes`]: vector registers, and the level of them that the processor has
//! - [`passes`]: what training does between matrix products, forward and backward
//! - [`step`]: one decoding step, ids → logits
//!
//! The model, autograd and all memory belong to Python (`bytemill.lm`).

pub mod error;
pub mod lanes;
pub mod passes;
pub mod step;
mod threads;

pub use threads::Threads;
