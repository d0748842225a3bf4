//! Sixty-four bytes at a time: which of them belong to which class, as bit masks.
//!
//! Compares give the masks of ASCII and of the commonest letters beyond it; the other characters are
//! looked up one by one. The compares exist for AVX-512, AVX2, NEON and in plain Rust.

use super::classes::{CASELESS, LOWER, MARK, NUMBER, SPACE, UPPER, wide_char_at};

/// Bytes in a group: as many as a mask has bits.
pub const GROUP: usize = 64;

/// The vector operations on a group that an instruction set provides. Its token proves that the processor
/// has it; a value of the type does too, since only `load` makes one.
pub trait Bytes: Copy {
    type Token: Copy;

    fn load(token: Self::Token, group: &[u8; GROUP]) -> Self;
    /// The bytes that are in `low` to `low + width` after the bits `set` are set.
    fn within(self, set: u8, low: u8, width: u8) -> u64;
    /// The bits of `mask` at the positions of `chosen`, side by side.
    fn compress(token: Self::Token, mask: u64, chosen: u64) -> u64;
    /// The low bits of `mask`, moved to the positions of `chosen`.
    fn expand(token: Self::Token, mask: u64, chosen: u64) -> u64;

    /// Appends the positions of the bits of `mask`, counted from `base`.
    #[inline(always)]
    fn push_positions(_: Self::Token, mut mask: u64, base: usize, positions: &mut Vec<usize>) {
        let n = mask.count_ones() as usize;
        let mut few = [0; GROUP];
        // Four at a time: most groups have about twelve, and a loop whose number of rounds hardly
        // varies is predicted well. Positions past the last bit are not used.
        let mut i = 0;
        while i < n {
            for position in &mut few[i..i + 4] {
                *position = base + mask.trailing_zeros() as usize;
                mask &= mask.wrapping_sub(1);
            }
            i += 4;
        }
        positions.extend_from_slice(&few[..n]);
    }
}

/// One mask per class. A character of several bytes has a bit at its first byte only; its other bytes
/// are in `inner`.
#[derive(Debug, Clone, Copy)]
pub struct Masks {
    /// Capital letters. Where case does not matter, all ASCII letters are in `lower`.
    pub upper: u64,
    pub lower: u64,
    pub caseless: u64,
    pub mark: u64,
    pub number: u64,
    /// The space itself.
    pub space: u64,
    /// Carriage return and line feed.
    pub newline: u64,
    /// Other white space.
    pub white: u64,
    pub apostrophe: u64,
    pub slash: u64,
    pub inner: u64,
}

impl Masks {
    /// The masks of the `length` bytes at `base`, which `group` holds, and how many of these bytes they
    /// cover: a character that does not fit belongs to the next group.
    #[inline(always)]
    pub fn new<B: Bytes, const CASED: bool>(
        token: B::Token,
        group: &[u8; GROUP],
        text: &[u8],
        base: usize,
        length: usize,
    ) -> (Masks, usize) {
        let bytes = B::load(token, group);
        let is = |byte| bytes.within(0, byte, 0);
        let (upper, lower) = if CASED {
            (bytes.within(0, b'A', 25), bytes.within(0, b'a', 25))
        } else {
            (0, bytes.within(0x20, b'a', 25))
        };
        let newline = is(b'\n') | is(b'\r');
        let mut masks = Masks {
            upper,
            lower,
            caseless: 0,
            mark: 0,
            number: bytes.within(0, b'0', 9),
            space: is(b' '),
            newline,
            white: bytes.within(0, 9, 4) & !newline,
            apostrophe: is(b'\''),
            slash: is(b'/'),
            inner: 0,
        };
        let high = bytes.within(0, 0x80, 0x7f);
        let mut length = length;
        if high != 0 {
            let rest = masks.take_letters::<B, CASED>(bytes, high);
            length = masks.look_up(rest, text, base, length);
        }
        (masks, length)
    }

    /// Finds common letters of two and three bytes by their bytes; returns the bytes that are left to
    /// be looked up.
    #[inline(always)]
    fn take_letters<B: Bytes, const CASED: bool>(&mut self, bytes: B, high: u64) -> u64 {
        let within = |low, width| bytes.within(0, low, width);
        let is = |byte| within(byte, 0);
        let second = |low, width| within(low, width) >> 1;
        let third = |low, width| within(low, width) >> 2;
        let tail = second(0x80, 0x3f);
        // Latin-1 except × and ÷, and Cyrillic, where case is a matter of ranges.
        let (latin, ru, rl) = (is(0xc3), is(0xd0), is(0xd1));
        let (upper, lower) = if CASED {
            (
                latin & second(0x80, 0x1e) & !second(0x97, 0) | ru & second(0x80, 0x2f),
                latin & second(0x9f, 0x20) & !second(0xb7, 0)
                    | ru & second(0xb0, 0xf)
                    | rl & second(0x80, 0x1f),
            )
        } else {
            // And more Latin, in which case alternates.
            let latin = latin & !second(0x97, 0) & !second(0xb7, 0);
            (0, (latin | within(0xc4, 6) | ru | rl) & tail)
        };
        // Chinese from U+5000 on and Korean syllables from U+B000 on; Chinese below except the
        // hexagrams, U+4DC0 to U+4DFF; Hiragana and Katakana except a few signs.
        let most = within(0xe5, 4) | within(0xeb, 1);
        let chinese = is(0xe4) & !second(0xb7, 0);
        let kana = is(0xe3)
            & (second(0x81, 0) & !third(0x80, 0)
                | second(0x82, 0) & !third(0x97, 5) & !third(0xa0, 0)
                | second(0x83, 0) & !third(0xbb, 0));
        let three = (most | chinese | kana) & tail & tail >> 1;
        let two = upper | lower;
        self.upper |= upper;
        self.lower |= lower;
        self.caseless |= three;
        self.inner |= (two | three) << 1 | three << 2;
        high & !(two | three | self.inner)
    }

    /// Looks up the characters that begin in `high`; returns the length of the group, which ends before
    /// a character that does not fit.
    #[inline(never)]
    fn look_up(&mut self, high: u64, text: &[u8], base: usize, length: usize) -> usize {
        let mut high = high & u64::MAX >> (GROUP - length);
        while high != 0 {
            let bit = high.trailing_zeros() as usize;
            let (class, size) = wide_char_at(text, base + bit);
            if bit + size > length {
                return bit;
            }
            let bits = (u64::MAX >> (GROUP - size)) << bit;
            let first = 1 << bit;
            high &= !bits;
            self.inner |= bits & !first;
            let is = |mask: u8| if class & mask != 0 { first } else { 0 };
            self.upper |= is(UPPER);
            self.lower |= is(LOWER);
            self.caseless |= is(CASELESS);
            self.mark |= is(MARK);
            self.number |= is(NUMBER);
            self.white |= is(SPACE);
        }
        length
    }

    /// Masks with one bit per character instead of one per byte.
    #[inline(always)]
    pub fn by_character<B: Bytes>(&self, token: B::Token, firsts: u64) -> Masks {
        let of = |mask| B::compress(token, mask, firsts);
        Masks {
            upper: of(self.upper),
            lower: of(self.lower),
            caseless: of(self.caseless),
            mark: of(self.mark),
            number: of(self.number),
            space: of(self.space),
            newline: of(self.newline),
            white: of(self.white),
            apostrophe: of(self.apostrophe),
            slash: of(self.slash),
            inner: 0,
        }
    }
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub struct Portable([u8; GROUP]);

impl Bytes for Portable {
    type Token = ();

    #[inline(always)]
    fn load(_: (), group: &[u8; GROUP]) -> Self {
        Portable(*group)
    }

    #[inline(always)]
    fn within(self, set: u8, low: u8, width: u8) -> u64 {
        let mut mask = 0;
        for (eight, bytes) in self.0.chunks_exact(8).enumerate() {
            let mut bits = 0u64;
            for (i, &byte) in bytes.iter().enumerate() {
                bits |= u64::from((byte | set).wrapping_sub(low) <= width) << i;
            }
            mask |= bits << (8 * eight);
        }
        mask
    }

    #[inline(always)]
    fn compress(_: (), mask: u64, chosen: u64) -> u64 {
        compress(mask, chosen)
    }

    #[inline(always)]
    fn expand(_: (), mask: u64, chosen: u64) -> u64 {
        expand(mask, chosen)
    }
}

/// Parallel bit extract by six rounds of shifts: round `i` moves every bit that has an odd number of
/// 2^`i` unchosen bits below it down by 2^`i`.
fn compress(mask: u64, chosen: u64) -> u64 {
    let (mut mask, mut chosen) = (mask & chosen, chosen);
    let mut unchosen_below = !chosen << 1;
    for round in 0..6 {
        let odd = prefix_parity(unchosen_below);
        let moving = odd & chosen;
        chosen = chosen ^ moving | moving >> (1 << round);
        let bits = mask & moving;
        mask = mask ^ bits | bits >> (1 << round);
        unchosen_below &= !odd;
    }
    mask
}

/// The inverse of [`compress`].
fn expand(mask: u64, chosen: u64) -> u64 {
    let mut moves = [0; 6];
    let mut left = chosen;
    let mut unchosen_below = !chosen << 1;
    for (round, moving) in moves.iter_mut().enumerate() {
        let odd = prefix_parity(unchosen_below);
        *moving = odd & left;
        left = left ^ *moving | *moving >> (1 << round);
        unchosen_below &= !odd;
    }
    let mut mask = mask;
    for (round, moving) in moves.iter().enumerate().rev() {
        let moved = mask << (1 << round);
        mask = mask & !moving | moved & moving;
    }
    mask & chosen
}

/// Each bit: the parity of the bits up to and including it.
fn prefix_parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(target_arch = "x86_64")]
pub mod x86 {
    use std::arch::x86_64::*;

    use super::{Bytes, GROUP};
    use crate::base::cpu::{Avx2, Avx512, Vbmi2};

    /// 0, 1, 2, …
    static NUMBERS: [u8; GROUP] = {
        let mut numbers = [0; GROUP];
        let mut i = 0;
        while i < GROUP {
            numbers[i] = i as u8;
            i += 1;
        }
        numbers
    };

    #[derive(Clone, Copy)]
    pub struct Avx2Bytes([__m256i; 2]);

    impl Bytes for Avx2Bytes {
        type Token = Avx2;

        #[inline(always)]
        fn load(_: Avx2, group: &[u8; GROUP]) -> Self {
            // SAFETY: both loads are within the group; the token proves that there is AVX2.
            unsafe {
                let half = |at| _mm256_loadu_si256(group.as_ptr().add(at).cast());
                Avx2Bytes([half(0), half(32)])
            }
        }

        #[inline(always)]
        fn within(self, set: u8, low: u8, width: u8) -> u64 {
            // SAFETY: `self` was loaded, with a token that proves that there is AVX2.
            unsafe {
                let splat = |byte: u8| _mm256_set1_epi8(byte as i8);
                let [low_half, high_half] = self.0.map(|half| {
                    let shifted = _mm256_sub_epi8(_mm256_or_si256(half, splat(set)), splat(low));
                    let found = _mm256_cmpeq_epi8(_mm256_min_epu8(shifted, splat(width)), shifted);
                    u64::from(_mm256_movemask_epi8(found) as u32)
                });
                low_half | high_half << 32
            }
        }

        #[inline(always)]
        fn compress(_: Avx2, mask: u64, chosen: u64) -> u64 {
            // SAFETY: the token proves that there is BMI2.
            unsafe { _pext_u64(mask, chosen) }
        }

        #[inline(always)]
        fn expand(_: Avx2, mask: u64, chosen: u64) -> u64 {
            // SAFETY: the token proves that there is BMI2.
            unsafe { _pdep_u64(mask, chosen) }
        }
    }

    #[derive(Clone, Copy)]
    pub struct Avx512Bytes(__m512i);

    impl Bytes for Avx512Bytes {
        type Token = Avx512;

        #[inline(always)]
        fn load(_: Avx512, group: &[u8; GROUP]) -> Self {
            // SAFETY: the load is the group; the token proves that there is AVX-512 F.
            Avx512Bytes(unsafe { _mm512_loadu_si512(group.as_ptr().cast()) })
        }

        #[inline(always)]
        fn within(self, set: u8, low: u8, width: u8) -> u64 {
            // SAFETY: `self` was loaded, with a token that proves that there is AVX-512 BW.
            unsafe {
                let splat = |byte: u8| _mm512_set1_epi8(byte as i8);
                let shifted = _mm512_sub_epi8(_mm512_or_si512(self.0, splat(set)), splat(low));
                _mm512_cmple_epu8_mask(shifted, splat(width))
            }
        }

        #[inline(always)]
        fn compress(_: Avx512, mask: u64, chosen: u64) -> u64 {
            // SAFETY: the token proves that there is BMI2.
            unsafe { _pext_u64(mask, chosen) }
        }

        #[inline(always)]
        fn expand(_: Avx512, mask: u64, chosen: u64) -> u64 {
            // SAFETY: the token proves that there is BMI2.
            unsafe { _pdep_u64(mask, chosen) }
        }
    }

    /// [`Avx512Bytes`], except for positions, which are made eight at a time.
    #[derive(Clone, Copy)]
    pub struct Vbmi2Bytes(Avx512Bytes);

    impl Bytes for Vbmi2Bytes {
        type Token = Vbmi2;

        #[inline(always)]
        fn load(token: Vbmi2, group: &[u8; GROUP]) -> Self {
            Vbmi2Bytes(Avx512Bytes::load(token.avx512(), group))
        }

        #[inline(always)]
        fn within(self, set: u8, low: u8, width: u8) -> u64 {
            self.0.within(set, low, width)
        }

        #[inline(always)]
        fn compress(token: Vbmi2, mask: u64, chosen: u64) -> u64 {
            Avx512Bytes::compress(token.avx512(), mask, chosen)
        }

        #[inline(always)]
        fn expand(token: Vbmi2, mask: u64, chosen: u64) -> u64 {
            Avx512Bytes::expand(token.avx512(), mask, chosen)
        }

        #[inline(always)]
        fn push_positions(_: Vbmi2, mask: u64, base: usize, positions: &mut Vec<usize>) {
            let n = mask.count_ones() as usize;
            positions.reserve(GROUP);
            // SAFETY: a mask has at most GROUP bits, for which room was reserved; positions are written
            // eight at a time, so at most GROUP of them, and the first `n` are set. The loads are of
            // NUMBERS, and of eight bytes of `chosen` from a multiple of eight below `n` on. The token
            // proves that there are AVX-512 VBMI2, BW and F.
            unsafe {
                let numbers = _mm512_loadu_si512(NUMBERS.as_ptr().cast());
                let mut chosen = [0u8; GROUP];
                let compressed = _mm512_maskz_compress_epi8(mask, numbers);
                _mm512_storeu_si512(chosen.as_mut_ptr().cast(), compressed);
                let to = positions.as_mut_ptr().add(positions.len());
                let base = _mm512_set1_epi64(base as i64);
                let eight = |i: usize, bytes| {
                    let wide = _mm512_add_epi64(_mm512_cvtepu8_epi64(bytes), base);
                    _mm512_storeu_si512(to.add(i).cast(), wide);
                };
                let low = _mm512_castsi512_si128(compressed);
                eight(0, low);
                eight(8, _mm_unpackhi_epi64(low, low));
                let mut i = 16;
                while i < n {
                    eight(i, _mm_loadl_epi64(chosen.as_ptr().add(i).cast()));
                    i += 8;
                }
                positions.set_len(positions.len() + n);
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub mod arm {
    use std::arch::aarch64::*;

    use super::{Bytes, GROUP, Portable};
    use crate::base::cpu::Neon;

    #[derive(Clone, Copy)]
    pub struct NeonBytes([uint8x16_t; 4]);

    impl Bytes for NeonBytes {
        type Token = Neon;

        #[inline(always)]
        fn load(_: Neon, group: &[u8; GROUP]) -> Self {
            // SAFETY: the four loads are within the group; the token proves that there is NEON.
            let quarter = |at: usize| unsafe { vld1q_u8(group.as_ptr().add(at)) };
            NeonBytes([quarter(0), quarter(16), quarter(32), quarter(48)])
        }

        #[inline(always)]
        fn within(self, set: u8, low: u8, width: u8) -> u64 {
            const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
            // SAFETY: `self` was loaded, with a token that proves that there is NEON; the load is of
            // sixteen bytes.
            unsafe {
                let bits = vld1q_u8(BITS.as_ptr());
                let [a, b, c, d] = self.0.map(|quarter| {
                    let shifted = vsubq_u8(vorrq_u8(quarter, vdupq_n_u8(set)), vdupq_n_u8(low));
                    vandq_u8(vcleq_u8(shifted, vdupq_n_u8(width)), bits)
                });
                // Adding neighbors three times leaves eight bytes of eight bits each.
                let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
                vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
            }
        }

        #[inline(always)]
        fn compress(_: Neon, mask: u64, chosen: u64) -> u64 {
            Portable::compress((), mask, chosen)
        }

        #[inline(always)]
        fn expand(_: Neon, mask: u64, chosen: u64) -> u64 {
            Portable::expand((), mask, chosen)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn compress_and_expand_move_bits_one_by_one(mask: u64, a: u64, b: u64) {
            for chosen in [a, a & b, a | b, 0, u64::MAX] {
                let positions: Vec<u32> = (0..64).filter(|i| chosen >> i & 1 == 1).collect();
                let expected = positions.iter().zip(0..).map(|(&at, to)| (mask >> at & 1) << to).sum::<u64>();
                prop_assert_eq!(compress(mask, chosen), expected);
                let expected = positions.iter().zip(0..).map(|(&to, at)| (mask >> at & 1) << to).sum::<u64>();
                prop_assert_eq!(expand(mask, chosen), expected);
            }
        }
    }
}
