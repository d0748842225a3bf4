//! The arguments of learning: the vocabulary to start from, and what to learn.

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
pub struct Bytes;

impl Base for Bytes {
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
