//! Counts → merges.
//!
//! All pieces are in one flat array ([`slots`]), in which a merge replaces one pair.
//!
//! A tracked pair has a count and a list of the positions at which it first occurred. A pair can only
//! appear during the merge that creates the newer of its two tokens; after that its occurrences only
//! disappear. So a list is written once, at its exact size, into one big array; stale positions are
//! skipped when the list is read.
//!
//! Most pairs are too rare ever to be merged. Since counts only fall, a pair that is below a *floor*
//! when it appears stays below it, so only pairs above the floor are tracked, which keeps the tables
//! small. The floor is a low estimate of the count of the last merge; if the candidates run out before
//! the merges do, it is lowered and the pairs are indexed again from the current slots.
//!
//! The best pair comes from a [`queue`] with stale counts: counts only fall, so the top entry is
//! either current or is put back with its current count.
//!
//! A merge takes time proportional to the list of its pair. Memory is one slot per byte of the distinct
//! pieces (4 or 8 bytes), 4 bytes per listed position, and 32 bytes per entry of the pair table;
//! `counts::stats` estimates it.
//!
//! Tried (docs/performance.md): a heap of all pairs took more than twice the time of the queue of
//! buckets; pieces in byte order or by falling count were not faster than in the order of their table;
//! threads that sleep between merges made it slower; a floor by the size of the text alone is off by a
//! factor of ten.

mod index;
mod learner;
mod pairs;
mod queue;
mod slots;
#[cfg(test)]
mod tests;

pub use learner::learn_merges;

use crate::base::error::Result;

/// Longer tokens are neither learned nor accepted from a file: no real vocabulary has them, and a
/// hostile file with them would be slow to load.
pub const MAX_TOKEN_LENGTH: usize = 1 << 16;

/// Which of several pairs with the same count is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TieBreak {
    /// The greatest pair of byte strings, the left one compared first.
    #[default]
    Bytes,
    /// As the `tokenizers` library: the smallest pair of its ids.
    HuggingFace,
    /// As the `rustbpe` library: the smallest pair of ids, which are in order of creation, the bytes first
    /// and by value.
    RustBpe,
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The most merges.
    pub n_merges: usize,
    pub tie_break: TieBreak,
    /// Rarer pairs are not merged.
    pub min_frequency: u64,
    /// The most bytes of a token; at most [`MAX_TOKEN_LENGTH`].
    pub max_token_length: usize,
    /// Threads that replace common pairs.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            n_merges: usize::MAX,
            tie_break: TieBreak::default(),
            min_frequency: 1,
            max_token_length: MAX_TOKEN_LENGTH,
            threads: 1,
        }
    }
}

/// What merging starts from: the bytes, or the tokens of a tokenizer that is extended.
pub trait Base {
    /// The tokens by id; the first 256 are the bytes.
    fn tokens(&self) -> Vec<Vec<u8>>;
    /// Appends the ids of `piece` to `out`.
    fn segment(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()>;
    /// Whether these bytes are a token.
    fn contains(&self, token: &[u8]) -> bool;
}

/// The 256 bytes.
#[derive(Debug, Clone, Copy)]
pub struct ByteBase;

impl Base for ByteBase {
    fn tokens(&self) -> Vec<Vec<u8>> {
        (0..=255u8).map(|byte| vec![byte]).collect()
    }

    fn segment(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()> {
        out.extend(piece.iter().map(|&byte| u32::from(byte)));
        Ok(())
    }

    fn contains(&self, token: &[u8]) -> bool {
        token.len() == 1
    }
}
