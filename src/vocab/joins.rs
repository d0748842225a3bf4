//! Where a long piece can be cut without changing its tokens.
//!
//! If no token spans a place in the text, nothing merges across it, and both sides can be encoded
//! by themselves. Whether one might is asked of the bytes around the place: up to two on each side,
//! as many as a token has there. The answer is never no where it should be yes; it may be yes
//! without need, for the contexts share the bits of one small table.

use super::Vocab;

/// Bits of the table: within a second-level cache, and hardly ever full.
const LOG: u32 = 21;

/// The contexts in which tokens span.
#[derive(Debug)]
pub struct Joins {
    /// By two bytes: whether any token has them side by side.
    two: Vec<u64>,
    /// By the hash of a longer context.
    many: Vec<u64>,
}

/// Which bytes of four a context has.
const MASKS: [u32; 4] = [0x00ff_ff00, 0x00ff_ffff, 0xffff_ff00, 0xffff_ffff];

#[inline(always)]
fn bit_of(context: u32, kind: usize) -> usize {
    let mixed =
        (u64::from(context & MASKS[kind]) << 2 | kind as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - LOG)) as usize
}

#[inline(always)]
fn has(bits: &[u64], at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 == 1
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

/// The bytes around a place: two before, two behind, zero where there are none.
#[inline(always)]
fn context(text: &[u8], at: usize) -> u32 {
    let byte = |i: usize| u32::from(text.get(i).copied().unwrap_or(0));
    byte(at.wrapping_sub(2)) | byte(at - 1) << 8 | byte(at) << 16 | byte(at + 1) << 24
}

impl Joins {
    /// Of a vocabulary.
    pub fn new(vocab: &Vocab) -> Self {
        let mut joins = Joins { two: vec![0; 1 << 10], many: vec![0; 1 << (LOG - 6)] };
        for rank in 0..vocab.n_ranks() as u32 {
            let token = vocab.rank_bytes(rank);
            for at in 1..token.len() {
                set(&mut joins.two, usize::from(token[at - 1]) << 8 | usize::from(token[at]));
                let kind = usize::from(at >= 2) | usize::from(token.len() - at >= 2) << 1;
                set(&mut joins.many, bit_of(context(token, at), kind));
            }
        }
        joins
    }

    /// Whether a token may span the place `at`, which is neither the start nor the end of `text`.
    #[inline]
    pub fn may_span(&self, text: &[u8], at: usize) -> bool {
        if !has(&self.two, usize::from(text[at - 1]) << 8 | usize::from(text[at])) {
            return false;
        }
        let context = context(text, at);
        (0..4).any(|kind| has(&self.many, bit_of(context, kind)))
    }
}
