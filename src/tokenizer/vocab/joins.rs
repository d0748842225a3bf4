//! Where a long piece can be cut without changing its tokens.
//!
//! If no token spans a position in the text, nothing merges across it, and both sides can be encoded
//! independently. Whether a token may span it is looked up by the bytes around the position: up to
//! three on each side (a character of most scripts), as many as the token has there. The contexts of
//! all tokens share the bits of one hash table, as in a Bloom filter with one hash: a false "may span"
//! is possible and costs only time, a false "cannot span" is not.
//!
//! Building is O(bytes of all tokens). Memory is 64 kB and at most 1 MB of bits. A lookup is five loads,
//! without a branch: in text of Chinese characters, whether a position can be cut cannot be predicted.

use std::ops::Range;

/// The most bytes of a context on each side.
const REACH: usize = 3;
/// By kind, the numbers of bytes before and after a position in a context. The kind of a token is the
/// largest for which it has that many bytes.
const KINDS: [(usize, usize); 5] = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)];
/// Bits of a context.
const CONTEXT_BITS: u32 = 8 * 2 * REACH as u32;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The contexts in which tokens span.
#[derive(Debug)]
pub struct Joins {
    /// By the two bytes at a position: a bit for each kind of token that contains them.
    kinds: Vec<u8>,
    /// One bit per hash of a context.
    contexts: Vec<u64>,
    shift: u32,
}

/// By kind, the bits of a context.
const MASKS: [u64; KINDS.len()] = {
    let mut masks = [0; KINDS.len()];
    let mut kind = 0;
    while kind < KINDS.len() {
        let (before, after) = KINDS[kind];
        masks[kind] = (u64::MAX >> (64 - 8 * (before + after))) << (8 * (REACH - before));
        kind += 1;
    }
    masks
};

/// The bytes around a position, the first in the lowest bits; zero outside of the text.
#[inline(always)]
fn context(text: &[u8], at: usize) -> u64 {
    if at >= REACH
        && let Some(eight) = text[at - REACH..].first_chunk()
    {
        return u64::from_le_bytes(*eight);
    }
    let mut eight = [0; 8];
    for (i, byte) in eight[..2 * REACH].iter_mut().enumerate() {
        *byte = (at + i).checked_sub(REACH).and_then(|i| text.get(i)).copied().unwrap_or(0);
    }
    u64::from_le_bytes(eight)
}

/// The two bytes at the position.
#[inline(always)]
fn middle(context: u64) -> usize {
    (context >> (8 * (REACH - 1)) & 0xffff) as usize
}

impl Joins {
    pub fn new<'a, T: Iterator<Item = &'a [u8]>>(tokens: impl Fn() -> T) -> Self {
        let n_positions: usize = tokens().map(<[u8]>::len).sum();
        let log = (n_positions * 4).next_power_of_two().trailing_zeros().clamp(10, 23);
        let mut joins =
            Joins { kinds: vec![0; 1 << 16], contexts: vec![0; 1 << (log - 6)], shift: 64 - log };
        for token in tokens() {
            for at in 1..token.len() {
                let after = token.len() - at;
                let fits = |&(_, kind): &(_, (usize, usize))| kind.0 <= at && kind.1 <= after;
                let kind = KINDS.into_iter().enumerate().rfind(fits).map_or(0, |(kind, _)| kind);
                let context = context(token, at);
                joins.kinds[middle(context)] |= 1 << kind;
                let bit = joins.bit(context, kind);
                joins.contexts[bit / 64] |= 1 << (bit % 64);
            }
        }
        joins
    }

    #[inline(always)]
    fn bit(&self, context: u64, kind: usize) -> usize {
        let context = context & MASKS[kind] | (kind as u64) << CONTEXT_BITS;
        (context.wrapping_mul(FACTOR) >> self.shift) as usize
    }

    /// Whether a token may span a position with this context.
    #[inline(always)]
    fn may_span(&self, context: u64) -> bool {
        let kinds = self.kinds[middle(context)];
        if kinds == 0 {
            return false;
        }
        // The first kind has no more than the two bytes at the position.
        (1..KINDS.len()).fold(kinds & 1, |spans, kind| {
            let bit = self.bit(context, kind);
            let is_known = (self.contexts[bit / 64] >> (bit % 64)) as u8;
            spans | (kinds >> kind & is_known & 1)
        }) == 1
    }

    /// Writes the positions of `places` at which a piece of `text` can be cut; returns how many there are.
    /// There must be room for one more than there are places.
    #[inline]
    pub fn cuts(&self, text: &[u8], places: Range<usize>, cuts: &mut [usize]) -> usize {
        let mut n = 0;
        for at in places {
            // Positions inside a character can hardly ever be cut, so they are not looked up.
            if text[at] & 0xc0 != 0x80 {
                cuts[n] = at;
                n += usize::from(!self.may_span(context(text, at)));
            }
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_token_spans_a_cut(
            tokens in prop::collection::vec("[abé字]{1,4}", 0..12),
            fragments in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 0..12),
            text in "[abé字]{0,40}",
        ) {
            let tokens: Vec<&[u8]> =
                tokens.iter().map(String::as_bytes).chain(fragments.iter().map(Vec::as_slice)).collect();
            let text = text.as_bytes();
            let joins = Joins::new(|| tokens.iter().copied());
            let mut cuts = vec![0; text.len() + 1];
            let n = joins.cuts(text, 1..text.len().max(1), &mut cuts);
            for &cut in &cuts[..n] {
                for token in &tokens {
                    let spans = (1..token.len()).any(|before| {
                        text[..cut].ends_with(&token[..before]) && text[cut..].starts_with(&token[before..])
                    });
                    prop_assert!(!spans, "{token:?} spans {cut}");
                }
            }
        }
    }
}
