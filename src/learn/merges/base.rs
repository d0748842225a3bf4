//! What merging starts from: the bytes, or the tokens of a tokenizer that is extended.

use crate::base::error::Result;

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
