//! Arithmetic of a Llama-style language model on CPUs, in float32.
//!
//! Training calls one function for each operation between two matrix products, forward and backward
//! ([`norm`], [`swiglu`], [`attention`], [`cross_entropy`]); generation calls one function for each
//! token ([`decode`]). The model, autograd and all memory belong to Python (`bytemill.lm`).
//!
//! - `simd`: vector registers, and the [`Level`] of them that the processor has
//! - `math`: the formulas on rows of numbers, each once
//! - `threads`, `columns`: how work and output arrays are divided among threads
//!
//! Results are the same bits for any number of threads: work is divided by the shape of the arrays
//! alone, every sum is computed by one thread in one order, and partial sums are added in order. They
//! differ between levels, which have registers of different width.

pub mod attention;
mod columns;
pub mod cross_entropy;
pub mod decode;
pub mod error;
mod math;
pub mod norm;
mod simd;
pub mod swiglu;
#[cfg(test)]
mod tests;
mod threads;

pub use math::Angles;
pub use simd::Level;
pub use threads::Threads;
