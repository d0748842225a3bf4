//! The arguments of learning: the vocabulary to start from, and what to learn.

use crate::base::error::Result;

/// Longer tokens are neither learned nor accepted from a file: no real vocabulary has them, and they
/// would make loading a hostile file slow.
pub const MAX_TOKEN_LENGTH: usize = 1 << 16;

/// Which of several pairs with the same count is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TieBreak {
    /// The greatest pair of byte strings, the left one compared first.
    #[default]
    Bytes,
    /// The one that the `tokenizers` library takes: the smallest pair of its ids.
    HuggingFace,
}

/// What to learn.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many merges at most.
    pub n_merges: usize,
    /// Which of equally common pairs.
    pub tie_break: TieBreak,
    /// Pairs that occur less often are not merged.
    pub min_frequency: u64,
    /// Tokens do not grow longer than this, nor than [`MAX_TOKEN_LENGTH`].
    pub max_token_length: usize,
    /// How many threads replace where a pair is common.
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

/// What merging starts from: tokens, and pieces written in them.
pub trait Base {
    /// The tokens there are, by number; the first 256 are the bytes.
    fn tokens(&self) -> Vec<Vec<u8>>;
    /// Writes the tokens of `piece` to `out`.
    fn segment(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()>;
    /// Whether these bytes are a token already.
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
