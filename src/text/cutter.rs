//! Where a text may be cut: special tokens and the split pattern together.

use super::pattern::{INSIDE_REACH, Pattern};
use super::specials::Specials;
use crate::base::error::Result;

/// Cuts a corpus into documents and pieces.
#[derive(Debug, Clone)]
pub struct Cutter {
    /// Separate documents.
    pub specials: Specials,
    /// Cuts documents into pieces.
    pub pattern: Pattern,
}

impl Cutter {
    pub fn new<S: AsRef<str>, T: AsRef<str>>(pattern: &[S], specials: &[T]) -> Result<Self> {
        Ok(Cutter { specials: Specials::new(specials)?, pattern: Pattern::new(pattern)? })
    }

    /// The first position ≥ `from` (and > 0) at which `text` may be cut: the two sides together have
    /// the pieces and special tokens of the whole. Unless the text is `whole`, more follows, and only
    /// positions that are safe for every continuation are returned.
    pub fn cut_after(&self, text: &[u8], from: usize, whole: bool) -> Option<usize> {
        let reach = self.specials.longest().saturating_sub(1);
        let certain = if whole { text.len() } else { text.len().saturating_sub(reach) };
        let mut from = from.max(1);
        while let Some(at) = self.pattern.safe_cut_after(text, from) {
            if at > certain {
                break;
            }
            if !self.specials.straddle(text, at) {
                return Some(at);
            }
            from = at + 1;
        }
        self.specials.start_after(text, from).filter(|&at| at <= certain)
    }

    /// The first position ≥ `from` that is inside a piece, whatever follows, and not near a special
    /// token: see [`Pattern::insides`].
    pub fn inside_after(&self, text: &[u8], from: usize) -> Option<usize> {
        let certain = text.len().checked_sub(INSIDE_REACH + self.specials.longest())?;
        let near = |at: usize| at.saturating_sub(INSIDE_REACH)..at + INSIDE_REACH;
        let mut insides = self.pattern.insides(text, from).take_while(|&at| at <= certain);
        insides.find(|&at| !self.specials.touch(text, near(at)))
    }

    /// The last position at which `text` may be cut, whatever follows.
    pub fn cut_before(&self, text: &[u8]) -> Option<usize> {
        let reach = self.specials.longest().saturating_sub(1);
        let mut upto = text.len().checked_sub(reach)?;
        while let Some(at) = self.pattern.safe_cut_before(text, upto) {
            if !self.specials.straddle(text, at) {
                return Some(at);
            }
            upto = at - 1;
        }
        None
    }
}
