//! Documents → pieces: special tokens, split patterns, and pieces as table keys.

pub mod cutter;
pub mod keys;
pub mod pattern;
pub mod specials;
