//! Blocks of text → counts of pieces → merges.

pub mod counts;
pub mod merges;
