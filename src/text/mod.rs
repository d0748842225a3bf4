//! A document → its pieces: special tokens, split patterns, and pieces as table keys.

pub mod pattern;
pub mod pieces;
pub mod specials;
