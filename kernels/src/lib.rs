//! Arithmetic of a Llama-style language model on CPUs, in float32.
//!
//! Training calls one function for each operation between two matrix products, forward and backward
//! ([`rowwise`], [`attention`]); generation calls one function for each token ([`decode`]). The model,
//! autograd and all memory belong to Python (`bytemill.lm`).
//!
//! - `simd`: vector registers, and the [`SimdLevel`] of the processor
//! - `math`: the formulas on rows of numbers, each once
//! - `threads`: how work and output arrays are divided among threads
//!
//! Results are the same bits for any number of threads: work is divided by the shape of the arrays
//! alone, every sum is computed by one thread in one order, and partial sums are added in order. They
//! differ between levels, which have registers of different width.

pub mod attention;
pub mod decode;
mod math;
pub mod rowwise;
mod simd;
#[cfg(test)]
mod tests;
mod threads;

pub use math::Angles;
pub use simd::SimdLevel;
pub use threads::Threads;

use std::fmt;

/// Errors of this crate; `bytemill` converts them into its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Arrays or settings of the wrong size.
    Input(String),
    /// A kernel panicked.
    Bug(String),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(message) | Error::Bug(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// An error with this message unless the condition holds.
pub(crate) fn require(holds: bool, message: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::input(message)) }
}
