//! Pieces of up to seven bytes that are a single token: four fifths of the pieces of English text.
//!
//! A table with one slot of eight bytes per hash: 256 kB, which stay in the second-level cache. A piece
//! and its length are a number of 59 bits. It is multiplied by an odd number modulo 2^59, which is
//! invertible; the upper bits of the product select the slot, and the slot holds the others and the id.
//! So a look-up is a multiplication, a load and a comparison, without a branch. If two tokens have the
//! same slot, the earlier merge is the more common one and keeps it; the other is found in the cache of
//! pieces.
//!
//! The table belongs to the tokenizer and never changes. It is built for the first text.

use crate::base::cpu::Level;
use crate::base::pages::Pages;

/// The longest piece.
pub const MAX_LENGTH: usize = 7;
/// Bits of a piece and its length.
const KEY_BITS: u32 = 59;
/// Bits of the number of a slot.
const INDEX_BITS: u32 = 15;
const N_SLOTS: usize = 1 << INDEX_BITS;
/// The bits of the product that a slot holds.
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

/// By length. The last is for longer pieces: 0, the number of no piece.
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
    /// A table of these tokens, each of which its bytes become as a piece; of two with the same slot, the
    /// first.
    pub fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], u32)>) -> Self {
        let mut slots: Pages<u64> = Pages::new(N_SLOTS);
        let mut taken = vec![false; N_SLOTS];
        for (token, id) in tokens.filter(|(token, id)| token.len() <= MAX_LENGTH && *id <= ID_MASK)
        {
            let product = product(eight(token), token.len());
            let at = index(product);
            if !taken[at] {
                slots[at] = (product & TAG_MASK) << ID_BITS | u64::from(id);
                taken[at] = true;
            }
        }
        for at in (0..N_SLOTS).filter(|&at| !taken[at]) {
            slots[at] = impossible_tag(at) << ID_BITS;
        }
        SingleTokens { slots }
    }

    /// Looks up the pieces of `text` that begin at `from` and end at `ends`, which ascend. Writes the id of
    /// each piece found to its place in `ids`, and the numbers of the others to `missing`.
    pub fn look_up(
        &self,
        text: &[u8],
        from: usize,
        ends: &[usize],
        ids: &mut Vec<u32>,
        missing: &mut Vec<u32>,
    ) {
        self.look_up_at(Level::best(), text, from, ends, ids, missing);
    }

    /// [`SingleTokens::look_up`] with the given level.
    pub fn look_up_at(
        &self,
        level: Level,
        text: &[u8],
        from: usize,
        ends: &[usize],
        ids: &mut Vec<u32>,
        missing: &mut Vec<u32>,
    ) {
        ids.clear();
        ids.reserve(ends.len());
        missing.clear();
        // Writes of eight at a time may overrun.
        missing.reserve(ends.len() + 8);
        // The last pieces of the text, which eight bytes may not follow.
        let n_last = ends.iter().rev().take_while(|&&end| end + 8 > text.len()).count();
        let (inside, last) = ends.split_at(ends.len() - n_last);
        let Some(slots) = self.slots.first_chunk() else { return };
        let mut found = Found { slots, text, ids, missing, start: from, n: 0, n_missing: 0 };
        match level {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves that the processor has the features that the function enables. Ends
            // ascend, so eight bytes of text follow all of them that are not among the last.
            Level::Avx512(_) => unsafe { found.take_avx512(inside) },
            // SAFETY: ends ascend, so eight bytes of text follow all of them that are not among the last.
            _ => unsafe { found.take(inside) },
        }
        for &end in last {
            found.look_up(eight(&text[found.start..]), end);
        }
        let Found { n, n_missing, .. } = found;
        // SAFETY: each look-up writes one id and counts it, and counts a missing piece only after writing its
        // number; both lists have room for all pieces.
        unsafe {
            ids.set_len(n);
            missing.set_len(n_missing);
        }
    }
}

/// The pieces of a batch that were looked up so far.
struct Found<'a> {
    slots: &'a [u64; N_SLOTS],
    text: &'a [u8],
    /// Has room for all pieces.
    ids: &'a mut Vec<u32>,
    /// Has room for all pieces and eight more.
    missing: &'a mut Vec<u32>,
    /// Where the next piece starts.
    start: usize,
    n: usize,
    n_missing: usize,
}

impl Found<'_> {
    /// The next piece, of which these are the first eight bytes.
    #[inline(always)]
    fn look_up(&mut self, eight: u64, end: usize) {
        let product = product(eight, end - self.start);
        let slot = self.slots[index(product)];
        // SAFETY: both lists have room for one number per piece.
        unsafe {
            self.ids.as_mut_ptr().add(self.n).write(slot as u32 & ID_MASK);
            self.missing.as_mut_ptr().add(self.n_missing).write(self.n as u32);
        }
        self.n += 1;
        self.n_missing += usize::from(slot >> ID_BITS != product & TAG_MASK);
        self.start = end;
    }

    /// The pieces that end at `ends`.
    ///
    /// # Safety
    /// Eight bytes of text must follow each end.
    // Not inlined: its loop needs all registers.
    #[inline(never)]
    unsafe fn take(&mut self, ends: &[usize]) {
        let (mut start, mut n_missing) = (self.start, self.n_missing);
        let (text, ids, missing) =
            (self.text.as_ptr(), self.ids.as_mut_ptr(), self.missing.as_mut_ptr());
        for (i, &end) in (self.n..).zip(ends) {
            // SAFETY: the caller promises that eight bytes of text follow each end, and so each start.
            let eight = unsafe { text.add(start).cast::<[u8; 8]>().read() };
            let product = product(u64::from_le_bytes(eight), end - start);
            let slot = self.slots[index(product)];
            // SAFETY: both lists have room for one number per piece.
            unsafe {
                ids.add(i).write(slot as u32 & ID_MASK);
                missing.add(n_missing).write(i as u32);
            }
            n_missing += usize::from(slot >> ID_BITS != product & TAG_MASK);
            start = end;
        }
        (self.start, self.n, self.n_missing) = (start, self.n + ends.len(), n_missing);
    }

    /// [`Found::take`], eight pieces at a time.
    ///
    /// # Safety
    /// As for [`Found::take`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt"
    )]
    unsafe fn take_avx512(&mut self, ends: &[usize]) {
        use std::arch::x86_64::*;

        let splat = |number: u64| _mm512_set1_epi64(number as i64);
        let (text, slots) = (self.text.as_ptr(), self.slots.as_ptr());
        let (ids, missing) = (self.ids.as_mut_ptr(), self.missing.as_mut_ptr());
        let mut n_missing = self.n_missing;
        let mut numbers = _mm256_add_epi32(
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            _mm256_set1_epi32(self.n as i32),
        );
        let mut before = splat(self.start as u64);
        let (eights, rest) = ends.as_chunks::<8>();
        for (i, eight) in eights.iter().enumerate() {
            // SAFETY: the load is of eight numbers; eight bytes of text follow the starts, as the caller
            // promises; a slot has a number below N_SLOTS; the lists have room for what is written.
            unsafe {
                let ends = _mm512_loadu_si512(eight.as_ptr().cast());
                let starts = _mm512_alignr_epi64::<7>(ends, before);
                before = ends;
                let words = _mm512_i64gather_epi64::<1>(starts, text.cast());
                let lengths = _mm512_sub_epi64(ends, starts);
                let short = _mm512_cmple_epu64_mask(lengths, splat(MAX_LENGTH as u64));
                let mask = _mm512_sub_epi64(
                    _mm512_sllv_epi64(splat(1), _mm512_slli_epi64::<3>(lengths)),
                    splat(1),
                );
                let keys = _mm512_maskz_or_epi64(
                    short,
                    _mm512_and_si512(words, mask),
                    _mm512_slli_epi64::<56>(lengths),
                );
                let products = _mm512_mullo_epi64(keys, splat(FACTOR));
                let at = _mm512_and_si512(
                    _mm512_srli_epi64::<TAG_BITS>(products),
                    splat(N_SLOTS as u64 - 1),
                );
                let found = _mm512_i64gather_epi64::<8>(at, slots.cast());
                let missed = _mm512_cmpneq_epi64_mask(
                    _mm512_srli_epi64::<ID_BITS>(found),
                    _mm512_and_si512(products, splat(TAG_MASK)),
                );
                let found = _mm512_and_si512(found, splat(u64::from(ID_MASK)));
                let to = ids.add(self.n + 8 * i);
                _mm256_storeu_si256(to.cast(), _mm512_cvtepi64_epi32(found));
                let missed_numbers = _mm256_maskz_compress_epi32(missed, numbers);
                _mm256_storeu_si256(missing.add(n_missing).cast(), missed_numbers);
                n_missing += missed.count_ones() as usize;
                numbers = _mm256_add_epi32(numbers, _mm256_set1_epi32(8));
            }
        }
        if let Some(eight) = eights.last() {
            self.start = eight[7];
        }
        (self.n, self.n_missing) = (self.n + 8 * eights.len(), n_missing);
        // SAFETY: the caller promises that eight bytes of text follow each end.
        unsafe { self.take(rest) };
    }
}

/// A tag that no piece has in this slot; not 0, which pieces that are too long have in the first.
fn impossible_tag(at: usize) -> u64 {
    // Nearly all numbers belong to no piece, so one of the first tags does.
    (1..)
        .find(|tag| {
            let product = (at as u64) << TAG_BITS | tag;
            let number = product.wrapping_mul(inverse(FACTOR)) & ((1 << KEY_BITS) - 1);
            let length = (number >> 56) as usize;
            length == 0 || number & !SHAPES[length].mask & ((1 << 56) - 1) != 0
        })
        .unwrap_or(0)
}

/// The inverse of an odd number modulo 2^64.
fn inverse(odd: u64) -> u64 {
    // Each round doubles the number of correct bits, which is three at first.
    (0..5)
        .fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn multiplication_is_undone() {
        assert_eq!(FACTOR.wrapping_mul(inverse(FACTOR)), 1);
    }

    /// All bytes, and `ab`, `abc`, … up to eight letters.
    fn tokens() -> Vec<(Vec<u8>, u32)> {
        let bytes = (0..=255u8).map(|byte| (vec![byte], u32::from(byte)));
        let words = (2..=8).map(|length| (b"abcdefgh"[..length].to_vec(), 1000 + length as u32));
        bytes.chain(words).collect()
    }

    proptest! {
        #[test]
        fn what_is_found_is_right_at_every_level(
            pieces in prop::collection::vec(
                prop_oneof![
                    "[a-h]{1,9}".prop_map(String::into_bytes),
                    (1usize..=12).prop_map(|n| b"abcdefghabcd"[..n].to_vec()),
                    Just(b"xy".to_vec()),
                    prop::collection::vec(any::<u8>(), 1..12),
                ],
                0..60,
            ),
            from in 0usize..3,
        ) {
            let tokens = tokens();
            let table = SingleTokens::new(tokens.iter().map(|(token, id)| (&token[..], *id)));
            let mut text = vec![b'?'; from];
            let mut ends = vec![];
            for piece in &pieces {
                text.extend_from_slice(piece);
                ends.push(text.len());
            }
            let mut expected: Option<Vec<u32>> = None;
            for level in Level::available() {
                let (mut ids, mut missing) = (vec![], vec![]);
                table.look_up_at(level, &text, from, &ends, &mut ids, &mut missing);
                for (i, piece) in pieces.iter().enumerate() {
                    let id = tokens.iter().find(|(token, _)| token == piece).map(|(_, id)| *id);
                    if !missing.contains(&(i as u32)) {
                        prop_assert_eq!(id, Some(ids[i]));
                    } else if piece == b"a" {
                        prop_assert!(false, "a token of the first slots is missing");
                    }
                }
                prop_assert_eq!(expected.get_or_insert_with(|| missing.clone()), &missing);
            }
        }
    }
}
