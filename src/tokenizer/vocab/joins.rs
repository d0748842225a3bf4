//! Where a long piece can be cut without changing its tokens.
//!
//! If no token spans a position in the text, nothing merges across it, and both sides can be encoded
//! independently. Whether a token may span it is looked up by the bytes around the position: up to
//! three on each side (a character of most scripts), as many as the token has there. The contexts of
//! all tokens share the bits of one hash table, as in a Bloom filter with one hash: a false "may span"
//! is possible and costs only time, a false "cannot span" is not.
//!
//! Building is O(bytes of all tokens). Memory is 128 kB and at most 1 MB of bits. A lookup is one
//! load, and one more for each kind of token that has the two bytes at the position.

/// The most bytes of a context on each side.
const REACH: usize = 3;
/// The number of bytes that a token has before and after a position, each 1, 2 or at least 3.
const KINDS: usize = REACH * REACH;

/// The contexts in which tokens span.
#[derive(Debug)]
pub struct Joins {
    /// By the two bytes at a position: a bit for each kind of token that contains them.
    kinds: Vec<u16>,
    /// One bit per hash of a context.
    contexts: Vec<u64>,
    shift: u32,
}

/// By kind, the bytes of a context that the token has.
const MASKS: [u64; KINDS] = {
    let mut masks = [0; KINDS];
    let mut kind = 0;
    while kind < KINDS {
        let (before, after) = (kind / REACH + 1, kind % REACH + 1);
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
                let kind = (at.min(REACH) - 1) * REACH + (token.len() - at).min(REACH) - 1;
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
        let mixed = (context & MASKS[kind]) << 4 | kind as u64;
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93) >> self.shift) as usize
    }

    /// The first position at which the piece `text[start..end]` can be cut.
    #[inline]
    pub fn cut(&self, text: &[u8], start: usize, end: usize) -> Option<usize> {
        // Positions inside a character can hardly ever be cut, so they are not looked up.
        (start + 1..end).find(|&at| text[at] & 0xc0 != 0x80 && !self.may_span(text, at))
    }

    /// Whether a token may span the position `at`, which is neither the start nor the end of `text`.
    #[inline]
    fn may_span(&self, text: &[u8], at: usize) -> bool {
        let context = context(text, at);
        let mut kinds = self.kinds[middle(context)];
        while kinds != 0 {
            let kind = kinds.trailing_zeros() as usize % KINDS;
            kinds &= kinds - 1;
            let bit = self.bit(context, kind);
            if self.contexts[bit / 64] >> (bit % 64) & 1 == 1 {
                return true;
            }
        }
        false
    }
}
