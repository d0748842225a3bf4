//! Where a long piece can be cut without changing its tokens.
//!
//! If no token spans a position in the text, nothing merges across it, and both sides can be encoded
//! independently. Whether a token may span it is looked up by the bytes around the position: up to
//! three on each side (a character of most scripts), as many as the token has there. The contexts of
//! all tokens share the bits of one hash table, as in a Bloom filter with one hash: a false "may span"
//! is possible and costs only time, a false "cannot span" is not.
//!
//! Building is O(bytes of all tokens). Memory is 128 kB and at most 1 MB of bits. A lookup is one
//! load, and one more for each kind of token that has the two bytes at the position. In text of Chinese
//! characters that is up to eight, of which AVX-512 makes one: which of them is the first to say yes
//! cannot be predicted.

use crate::base::cpu::Level;

/// The most bytes of a context on each side.
const REACH: usize = 3;
/// The number of bytes that a token has before and after a position, each 1, 2 or at least 3.
const KINDS: usize = REACH * REACH;
/// The kind of tokens that are the two bytes at the position, and so have no further context.
const NO_CONTEXT: u16 = 1;
/// Bits of a context.
const CONTEXT_BITS: u32 = 8 * 2 * REACH as u32;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The contexts in which tokens span.
#[derive(Debug)]
pub struct Joins {
    /// By the two bytes at a position: a bit for each kind of token that contains them.
    kinds: Vec<u16>,
    /// One bit per hash of a context.
    contexts: Vec<u64>,
    shift: u32,
    level: Level,
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
        let mut joins = Joins {
            kinds: vec![0; 1 << 16],
            contexts: vec![0; 1 << (log - 6)],
            shift: 64 - log,
            level: Level::best(),
        };
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
        let context = context & MASKS[kind] | (kind as u64) << CONTEXT_BITS;
        (context.wrapping_mul(FACTOR) >> self.shift) as usize
    }

    /// The first position at which the piece `text[start..end]` can be cut.
    #[inline]
    pub fn cut(&self, text: &[u8], start: usize, end: usize) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if let Level::Avx512(_) = self.level {
            // SAFETY: the level has the features that the function enables.
            return unsafe { self.cut_avx512(text, start, end) };
        }
        self.cut_where(text, start, end, |kinds, context| self.any_spans(kinds, context))
    }

    /// The first position at which `any_spans` says that none of these kinds of tokens spans.
    #[inline(always)]
    fn cut_where(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        any_spans: impl Fn(u16, u64) -> bool,
    ) -> Option<usize> {
        // Positions inside a character can hardly ever be cut, so they are not looked up.
        (start + 1..end).find(|&at| {
            text[at] & 0xc0 != 0x80 && {
                let context = context(text, at);
                let kinds = self.kinds[middle(context)];
                kinds & NO_CONTEXT == 0 && (kinds == 0 || !any_spans(kinds, context))
            }
        })
    }

    /// Whether a token of one of these kinds may span a position with this context.
    fn any_spans(&self, mut kinds: u16, context: u64) -> bool {
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

    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt"
    )]
    fn cut_avx512(&self, text: &[u8], start: usize, end: usize) -> Option<usize> {
        use std::arch::x86_64::*;

        // One lane for each kind that has a context.
        // SAFETY: eight numbers follow the first.
        let masks = unsafe { _mm512_loadu_si512(MASKS.as_ptr().add(1).cast()) };
        let kinds = _mm512_slli_epi64::<CONTEXT_BITS>(_mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 8));
        let shift = _mm_cvtsi32_si128(self.shift as i32);
        self.cut_where(text, start, end, |asked, context| {
            let context = _mm512_and_si512(_mm512_set1_epi64(context as i64), masks);
            let product = _mm512_mullo_epi64(
                _mm512_or_si512(context, kinds),
                _mm512_set1_epi64(FACTOR as i64),
            );
            let bits = _mm512_srl_epi64(product, shift);
            // SAFETY: there are as many bits as numbers of 64 bits that are shifted by `shift`.
            let words = unsafe {
                _mm512_mask_i64gather_epi64::<8>(
                    _mm512_setzero_si512(),
                    (asked >> 1) as __mmask8,
                    _mm512_srli_epi64::<6>(bits),
                    self.contexts.as_ptr().cast(),
                )
            };
            let bit = _mm512_sllv_epi64(
                _mm512_set1_epi64(1),
                _mm512_and_si512(bits, _mm512_set1_epi64(63)),
            );
            _mm512_test_epi64_mask(words, bit) != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_token_spans_a_cut_at_any_level(
            tokens in prop::collection::vec("[abé字]{1,4}", 0..12),
            fragments in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5), 0..12),
            text in "[abé字]{0,40}",
        ) {
            let tokens: Vec<&[u8]> =
                tokens.iter().map(String::as_bytes).chain(fragments.iter().map(Vec::as_slice)).collect();
            let text = text.as_bytes();
            let mut joins = Joins::new(|| tokens.iter().copied());
            for start in 0..text.len() {
                let cuts: Vec<_> = Level::available().into_iter().map(|level| {
                    joins.level = level;
                    joins.cut(text, start, text.len())
                }).collect();
                prop_assert!(cuts.windows(2).all(|two| two[0] == two[1]), "{cuts:?}");
                let Some(cut) = cuts[0] else { continue };
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
