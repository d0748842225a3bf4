//! What training does between the products of matrices, forward and back: norms, attention, SwiGLU,
//! the loss. One pass over memory each, where torch's operations take several.
//!
//! The model is Python's (`bytemill.lm`), and so are autograd and all memory; float32 only.
//!
//! - `rows`: what looks at one row of numbers at a time
//! - `tile`: small products of matrices that stay in registers
//! - `attention`: causal attention with rotary positions
//!
//! Results are the same bits for any number of threads: work is cut by the shape alone, and sums
//! over rows are added up in order.

pub mod attention;
pub mod rows;
mod tile;

#[cfg(test)]
mod tests;
