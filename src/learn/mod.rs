//! Blocks → counts of pieces → merges.

pub mod counts;
pub mod merges;
