//! Pieces of up to seven bytes that are a single token: four fifths of the pieces of English text.
//!
//! A table with one slot of eight bytes per hash, 256 KB that stay in the second-level cache. A piece
//! and its length are a number of 59 bits; multiplied by an odd number modulo 2^59, which can be
//! undone, its upper bits are the slot and the others are in the slot beside the id. So a look-up is a
//! multiplication, a load and a comparison, without a branch. Where two tokens have the same slot, the
//! earlier merge is the more common one and keeps it; the other is found in the cache of pieces.
//!
//! The table belongs to the tokenizer and never changes. It is built once enough text was encoded to
//! make up for the time.

use super::tokenizer::Tokenizer;
use super::worker::Merger;
use crate::base::pages::Pages;

/// The longest piece.
const MAX_LENGTH: usize = 7;
/// Bits of a piece and its length.
const KEY_BITS: u32 = 59;
/// Bits of the number of a slot.
const INDEX_BITS: u32 = 15;
const N_SLOTS: usize = 1 << INDEX_BITS;
/// What is left of the product.
const TAG_BITS: u32 = KEY_BITS - INDEX_BITS;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const ID_BITS: u32 = 64 - TAG_BITS;
const ID_MASK: u32 = (1 << ID_BITS) - 1;
/// Odd, and otherwise random.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// How a piece of a length becomes a number.
#[derive(Clone, Copy)]
struct Shape {
    mask: u64,
    length: u64,
}

/// By length. The last is for longer pieces: 0, which is not the number of any piece.
static SHAPES: [Shape; MAX_LENGTH + 2] = {
    let mut shapes = [Shape { mask: 0, length: 0 }; MAX_LENGTH + 2];
    let mut length = 1;
    while length <= MAX_LENGTH {
        shapes[length] =
            Shape { mask: u64::MAX >> (64 - 8 * length), length: (length as u64) << 56 };
        length += 1;
    }
    shapes
};

/// The product of a piece that starts with these eight bytes.
#[inline(always)]
fn product(eight: u64, length: usize) -> u64 {
    let Shape { mask, length } = SHAPES[length.min(MAX_LENGTH + 1)];
    (eight & mask | length).wrapping_mul(FACTOR)
}

#[inline(always)]
fn index(product: u64) -> usize {
    (product >> TAG_BITS) as usize % N_SLOTS
}

/// The first eight bytes of `bytes`, zeros after its end.
fn eight(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let n = bytes.len().min(8);
    eight[..n].copy_from_slice(&bytes[..n]);
    u64::from_le_bytes(eight)
}

/// The ids of pieces that are single tokens.
#[derive(Debug)]
pub struct SingleTokens {
    /// The tag above the id.
    slots: Pages<u64>,
}

impl SingleTokens {
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let mut slots: Pages<u64> = Pages::new(N_SLOTS);
        let mut taken = vec![false; N_SLOTS];
        let mut merger = Merger::default();
        let vocab = tokenizer.vocab();
        for rank in 0..vocab.n_ranks() as u32 {
            let (token, id) = (vocab.rank_bytes(rank), vocab.rank_id(rank));
            if token.len() > MAX_LENGTH || id > ID_MASK {
                continue;
            }
            let product = product(eight(token), token.len());
            let at = index(product);
            // A token that its own bytes do not give is not what such a piece becomes.
            if !taken[at]
                && tokenizer.merge_piece(&mut merger, token).is_ok()
                && merger.tokens == [rank]
            {
                slots[at] = (product & TAG_MASK) << ID_BITS | u64::from(id);
                taken[at] = true;
            }
        }
        for at in (0..N_SLOTS).filter(|&at| !taken[at]) {
            slots[at] = impossible_tag(at) << ID_BITS;
        }
        SingleTokens { slots }
    }

    /// Looks up the pieces of `text` that begin at `from` and end at `ends`. Writes the id of each that
    /// is found to its place in `ids`, and the numbers of the others to `missing`; returns how many
    /// these are.
    #[inline(always)]
    pub fn look_up(
        &self,
        text: &[u8],
        from: usize,
        ends: &[usize],
        ids: &mut Vec<u32>,
        missing: &mut Vec<u32>,
    ) {
        let n = ends.len();
        ids.clear();
        ids.reserve(n);
        missing.clear();
        missing.reserve(n);
        let start_of = |i: usize| if i == 0 { from } else { ends[i - 1] };
        let mut n_inside = n;
        while n_inside > 0 && start_of(n_inside - 1) + 8 > text.len() {
            n_inside -= 1;
        }
        let (slots, text_at) = (&self.slots[..N_SLOTS], text.as_ptr());
        let (ids_at, missing_at) = (ids.as_mut_ptr(), missing.as_mut_ptr());
        let (mut start, mut n_missing) = (from, 0);
        for (i, &end) in ends.iter().enumerate() {
            let eight = if i < n_inside {
                // SAFETY: eight bytes of text follow the starts of these pieces.
                u64::from_le_bytes(unsafe { text_at.add(start).cast::<[u8; 8]>().read() })
            } else {
                eight(&text[start..])
            };
            let product = product(eight, end - start);
            let slot = slots[index(product)];
            // SAFETY: both lists have room for one number per piece.
            unsafe {
                ids_at.add(i).write(slot as u32 & ID_MASK);
                missing_at.add(n_missing).write(i as u32);
            }
            n_missing += usize::from(slot >> ID_BITS != product & TAG_MASK);
            start = end;
        }
        // SAFETY: as many were written.
        unsafe {
            ids.set_len(n);
            missing.set_len(n_missing);
        }
    }
}

/// A tag that no piece has in this slot.
fn impossible_tag(at: usize) -> u64 {
    // Nearly all numbers are of no piece, so the first tags are.
    (0..)
        .find(|tag| {
            let product = (at as u64) << TAG_BITS | tag;
            let number = product.wrapping_mul(inverse(FACTOR)) & ((1 << KEY_BITS) - 1);
            let length = (number >> 56) as usize;
            length == 0 || number & !SHAPES[length].mask & ((1 << 56) - 1) != 0
        })
        .unwrap_or(0)
}

/// The number by which multiplying with an odd number is undone.
fn inverse(odd: u64) -> u64 {
    // Each round doubles the number of right bits, of which there are three at first.
    (0..5)
        .fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}
