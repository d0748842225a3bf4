//! The `gpt2` pattern 64 bytes at a time.
//!
//! SIMD compares give one 64-bit mask per class of byte; shifting these masks against each other
//! gives the mask of the positions where a piece starts, for a group of 64 bytes at once and without
//! a branch that depends on the text. That works because `gpt2` is local: whether a piece starts at
//! a character depends on the classes of that character and its two neighbours,
//!
//! - not white space: it starts a piece unless the character before has the same class or is a space;
//! - white space: it starts a piece if it is the first or the last of its run (the last one joins the
//!   word after it, or is alone), at the end of the text only if the first,
//!
//! and on contractions, which are rare and corrected one by one. Characters beyond ASCII are mostly
//! found by a few compares too (`Letters`); the rest are looked up one by one and written into the
//! same masks. Time is linear in the text; a scan holds one group and its masks.
//!
//! The compares exist for AVX-512, AVX2 and, in plain Rust, for everything else; all are tested
//! against `scanners.rs`. With AVX-512 this scans English at 1,700 to 1,900 MB/s; one piece at a time
//! it was 250 (docs/performance.md).

use super::classes::{LETTER, NUMBER, SPACE, char_at, wide_char_at};
use crate::base::cpu::Level;

/// Bytes in a group: as many as a mask has bits.
const GROUP: usize = 64;

/// One mask per class of byte. Bytes beyond ASCII are in `high` only.
#[derive(Debug, Clone, Copy)]
struct Masks {
    letter: u64,
    number: u64,
    /// The space itself.
    space: u64,
    /// Other white space: tab to carriage return.
    white: u64,
    apostrophe: u64,
    high: u64,
}

/// The first bytes of common letters of two and of three bytes that end within the group: a few
/// compares find what would be looked up one by one.
#[derive(Debug, Clone, Copy)]
struct Letters {
    two: u64,
    three: u64,
}

impl Letters {
    /// `within(low, width)`: which bytes of the group are `low` to `low + width`.
    #[inline(always)]
    fn new(within: impl Fn(u8, u8) -> u64) -> Self {
        let is = |byte| within(byte, 0);
        let tail = within(0x80, 0x3f) >> 1;
        // Accented Latin except × and ÷, more Latin, Cyrillic.
        let latin = is(0xc3) & !((is(0x97) | is(0xb7)) >> 1);
        let two = (latin | within(0xc4, 6) | within(0xd0, 1)) & tail;
        // Chinese from U+5000 on and Korean syllables from U+B000 on; Chinese below except the
        // hexagrams, U+4DC0 to U+4DFF; Hiragana and Katakana except a few signs.
        let most = within(0xe5, 4) | within(0xeb, 1);
        let chinese = is(0xe4) & !(is(0xb7) >> 1);
        let third = |low, width| within(low, width) >> 2;
        let kana = is(0xe3)
            & (is(0x81) >> 1 & !third(0x80, 0)
                | is(0x82) >> 1 & !third(0x97, 5) & !third(0xa0, 0)
                | is(0x83) >> 1 & !third(0xbb, 0));
        Letters { two, three: (most | chinese | kana) & tail & tail >> 1 }
    }
}

/// As [`super::scanners::Scanner::scan`], for `gpt2`.
pub fn scan_gpt2(text: &[u8], from: usize, limit: usize, ends: &mut Vec<usize>) -> usize {
    scan_at_level(Level::best(), text, from, limit, ends)
}

/// [`scan_gpt2`] with the given level.
pub fn scan_at_level(
    level: Level,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves that the processor has the features that the function enables.
        Level::Avx2(_) => unsafe { scan_avx2(text, from, limit, ends) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves that the processor has the features that the function enables.
        Level::Avx512(_) => unsafe { scan_avx512(text, from, limit, ends) },
        _ => scan_groups(text, from, limit, ends, portable, portable_letters),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn scan_avx2(text: &[u8], from: usize, limit: usize, ends: &mut Vec<usize>) -> usize {
    // SAFETY: the closure is called within this function, which has the features that the masks need.
    let masks = |group: &_| unsafe { x86::avx2(group) };
    // SAFETY: the closure is called within this function, which has the features that the masks need.
    scan_groups(text, from, limit, ends, masks, |group| unsafe { x86::avx2_letters(group) })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx2,bmi1,bmi2,popcnt,lzcnt")]
fn scan_avx512(text: &[u8], from: usize, limit: usize, ends: &mut Vec<usize>) -> usize {
    // SAFETY: the closure is called within this function, which has the features that the masks need.
    let masks = |group: &_| unsafe { x86::avx512(group) };
    // SAFETY: the closure is called within this function, which has the features that the masks need.
    scan_groups(text, from, limit, ends, masks, |group| unsafe { x86::avx512_letters(group) })
}

/// Carried from one group to the next: the class of the last character (bit 0 of one of the five
/// masks), and starts that a contraction at the end adds or removes.
#[derive(Default)]
struct Carry {
    letter: u64,
    number: u64,
    space: u64,
    white: u64,
    /// All five are 0 at the start of a scan.
    symbol: u64,
    add: u64,
    remove: u64,
}

#[inline(always)]
fn scan_groups(
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
    masks: impl Fn(&[u8; GROUP]) -> Masks,
    letters: impl Fn(&[u8; GROUP]) -> Letters,
) -> usize {
    let enough = ends.len().saturating_add(limit.max(1));
    let mut carry = Carry::default();
    let mut base = from;
    while base < text.len() {
        let (group, mut length) = match text[base..].first_chunk::<GROUP>() {
            Some(group) => (*group, GROUP),
            None => {
                let mut group = [0; GROUP];
                let rest = &text[base..];
                group[..rest.len()].copy_from_slice(rest);
                (group, rest.len())
            }
        };
        let mut masks = masks(&group);
        let mut wide = Wide::default();
        if masks.high != 0 {
            wide.take_letters(&letters(&group), &mut masks);
            length = wide.classify(text, base, length, &mut masks);
        }
        let mut starts = starts(&masks, &wide, &mut carry, length, text, base);
        if base == from {
            // The start of the scan is not the end of a piece.
            starts &= !1;
        }
        push_positions(starts, base, ends);
        base += length;
        if ends.len() >= enough {
            // The bytes after the last start, less than a group, are scanned again.
            return ends.last().copied().unwrap_or(base);
        }
    }
    if from < text.len() {
        ends.push(text.len());
    }
    text.len()
}

/// Where pieces start in a group of `length` bytes.
#[inline(always)]
fn starts(
    masks: &Masks,
    wide: &Wide,
    carry: &mut Carry,
    length: usize,
    text: &[u8],
    base: usize,
) -> u64 {
    let valid = u64::MAX >> (GROUP - length);
    let Masks { letter, number, space, white, .. } = *masks;
    let blank = (space | white) & valid;
    let symbol = !(letter | number | blank) & valid;
    let after_letter = letter << 1 | carry.letter;
    let after_number = number << 1 | carry.number;
    let after_symbol = symbol << 1 | carry.symbol;
    let after_space = space << 1 | carry.space;
    let after_blank = blank << 1 | carry.space | carry.white;
    let words =
        (letter & !after_letter | number & !after_number | symbol & !after_symbol) & !after_space;
    let end = base + length;
    let more = end < text.len() && char_at(text, end).0 != SPACE;
    let before_word = !blank >> 1 & valid >> 1 | u64::from(more) << (length - 1);
    let mut starts = words | blank & (!after_blank | before_word);
    if wide.inner != 0 {
        starts = wide.at_first_bytes(starts);
    }
    starts = (starts & valid & !carry.remove) | carry.add;
    (carry.add, carry.remove) = (0, 0);
    let mut quotes = masks.apostrophe & starts;
    while quotes != 0 {
        let bit = quotes.trailing_zeros() as usize;
        quotes &= quotes - 1;
        let width = contraction(text, base + bit);
        if width > 0 {
            // Its letters start no piece; the character after it does, if there is one.
            remove(&mut starts, carry, bit + 1, length);
            if base + bit + width < text.len() {
                add(&mut starts, carry, bit + width, length);
            }
        }
    }
    let last = |mask: u64| mask >> (length - 1) & 1;
    carry.letter = last(letter);
    carry.number = last(number);
    carry.space = last(space);
    carry.white = last(white);
    carry.symbol = last(symbol);
    starts
}

#[inline(always)]
fn add(starts: &mut u64, carry: &mut Carry, bit: usize, length: usize) {
    if bit < length { *starts |= 1 << bit } else { carry.add |= 1 << (bit - length) }
}

#[inline(always)]
fn remove(starts: &mut u64, carry: &mut Carry, bit: usize, length: usize) {
    if bit < length { *starts &= !(1 << bit) } else { carry.remove |= 1 << (bit - length) }
}

/// The length of the contraction at `at`, 0 if there is none.
#[inline]
fn contraction(text: &[u8], at: usize) -> usize {
    match text[at + 1..] {
        [b's' | b'd' | b'm' | b't', ..] => 2,
        [b'l', b'l', ..] | [b'v' | b'r', b'e', ..] => 3,
        _ => 0,
    }
}

/// Appends the positions of the bits of `starts`.
#[inline(always)]
fn push_positions(mut starts: u64, base: usize, ends: &mut Vec<usize>) {
    let n = starts.count_ones() as usize;
    let mut positions = [0; GROUP];
    // Four at a time: most groups have about twelve, and a loop whose number of rounds hardly varies
    // is predicted well. Positions past the last bit are not used.
    let mut i = 0;
    while i < n {
        for position in &mut positions[i..i + 4] {
            *position = base + starts.trailing_zeros() as usize;
            starts &= starts.wrapping_sub(1);
        }
        i += 4;
    }
    ends.extend_from_slice(&positions[..n]);
}

/// Characters of more than one byte in a group.
#[derive(Default)]
struct Wide {
    /// Their bytes except the first.
    inner: u64,
    /// The first bytes of those that are white space.
    blank: u64,
}

impl Wide {
    /// Moves the characters that need no lookup from `high` to the other masks.
    #[inline(always)]
    fn take_letters(&mut self, letters: &Letters, masks: &mut Masks) {
        let Letters { two, three } = *letters;
        self.inner |= two << 1 | three << 1 | three << 2;
        masks.letter |= two | three | self.inner;
        masks.high &= !(two | three | self.inner);
    }

    /// Looks up the characters that are in `high` and adds them to the masks. Returns the length of the
    /// group, which ends before a character that does not fit.
    #[inline(never)]
    fn classify(&mut self, text: &[u8], base: usize, length: usize, masks: &mut Masks) -> usize {
        let mut high = masks.high & u64::MAX >> (GROUP - length);
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
            if class & LETTER != 0 {
                masks.letter |= bits;
            } else if class == NUMBER {
                masks.number |= bits;
            } else if class == SPACE {
                masks.white |= bits;
                self.blank |= first;
            }
        }
        length
    }

    /// Moves starts inside characters to their first bytes.
    fn at_first_bytes(&self, starts: u64) -> u64 {
        let mut moved = starts & !self.inner;
        // The last white space of a run was found by its last byte.
        let mut firsts = self.blank;
        while firsts != 0 {
            let first = firsts & firsts.wrapping_neg();
            firsts &= firsts - 1;
            if starts & run_after(first, self.inner) != 0 {
                moved |= first;
            }
        }
        moved
    }
}

/// The run of ones in `ones` that starts right after the bit `first`.
fn run_after(first: u64, ones: u64) -> u64 {
    // Adding carries through the run and clears it.
    ones & !ones.wrapping_add(first << 1 & ones)
}

#[inline(always)]
fn portable_mask(group: &[u8; GROUP], accept: impl Fn(u8) -> bool) -> u64 {
    let mut mask = 0;
    for (eight, bytes) in group.chunks_exact(8).enumerate() {
        let mut bits = 0u64;
        for (i, &byte) in bytes.iter().enumerate() {
            bits |= u64::from(accept(byte)) << i;
        }
        mask |= bits << (8 * eight);
    }
    mask
}

fn portable(group: &[u8; GROUP]) -> Masks {
    let mask = |accept: fn(u8) -> bool| portable_mask(group, accept);
    Masks {
        letter: mask(|byte| (byte | 0x20).wrapping_sub(b'a') < 26),
        number: mask(|byte| byte.wrapping_sub(b'0') < 10),
        space: mask(|byte| byte == b' '),
        white: mask(|byte| byte.wrapping_sub(9) < 5),
        apostrophe: mask(|byte| byte == b'\''),
        high: mask(|byte| byte >= 128),
    }
}

fn portable_letters(group: &[u8; GROUP]) -> Letters {
    Letters::new(|low, width| portable_mask(group, |byte| byte.wrapping_sub(low) <= width))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{GROUP, Letters, Masks};

    /// The mask of the bytes that pass a test.
    ///
    /// SAFETY: needs AVX2.
    #[inline(always)]
    unsafe fn avx2_mask(group: &[u8; GROUP], test: impl Fn(__m256i) -> __m256i) -> u64 {
        // SAFETY: both loads are within the group; the caller has AVX2.
        unsafe {
            let half = |at| {
                let half = _mm256_loadu_si256(group.as_ptr().add(at).cast());
                u64::from(_mm256_movemask_epi8(test(half)) as u32)
            };
            half(0) | half(32) << 32
        }
    }

    /// The mask of the bytes that are `low` to `low + width` once the bits `set` are set.
    ///
    /// SAFETY: needs AVX2.
    #[inline(always)]
    unsafe fn avx2_within(group: &[u8; GROUP], set: u8, low: u8, width: u8) -> u64 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let splat = |byte: u8| _mm256_set1_epi8(byte as i8);
            avx2_mask(group, |half| {
                let shifted = _mm256_sub_epi8(_mm256_or_si256(half, splat(set)), splat(low));
                _mm256_cmpeq_epi8(_mm256_min_epu8(shifted, splat(width)), shifted)
            })
        }
    }

    /// SAFETY: needs AVX2.
    #[inline(always)]
    pub unsafe fn avx2(group: &[u8; GROUP]) -> Masks {
        // SAFETY: the caller has AVX2.
        unsafe {
            Masks {
                letter: avx2_within(group, 0x20, b'a', 25),
                number: avx2_within(group, 0, b'0', 9),
                space: avx2_within(group, 0, b' ', 0),
                white: avx2_within(group, 0, 9, 4),
                apostrophe: avx2_within(group, 0, b'\'', 0),
                high: avx2_mask(group, |half| half),
            }
        }
    }

    /// SAFETY: needs AVX2.
    #[inline(always)]
    pub unsafe fn avx2_letters(group: &[u8; GROUP]) -> Letters {
        // SAFETY: the caller has AVX2.
        Letters::new(|low, width| unsafe { avx2_within(group, 0, low, width) })
    }

    /// As [`avx2_within`].
    ///
    /// SAFETY: needs AVX-512 BW.
    #[inline(always)]
    unsafe fn avx512_within(group: &[u8; GROUP], set: u8, low: u8, width: u8) -> u64 {
        // SAFETY: the load is the group; the caller has AVX-512 BW.
        unsafe {
            let bytes = _mm512_loadu_si512(group.as_ptr().cast());
            let splat = |byte: u8| _mm512_set1_epi8(byte as i8);
            let shifted = _mm512_sub_epi8(_mm512_or_si512(bytes, splat(set)), splat(low));
            _mm512_cmple_epu8_mask(shifted, splat(width))
        }
    }

    /// SAFETY: needs AVX-512 BW.
    #[inline(always)]
    pub unsafe fn avx512(group: &[u8; GROUP]) -> Masks {
        // SAFETY: the load is the group; the caller has AVX-512 BW.
        unsafe {
            Masks {
                letter: avx512_within(group, 0x20, b'a', 25),
                number: avx512_within(group, 0, b'0', 9),
                space: avx512_within(group, 0, b' ', 0),
                white: avx512_within(group, 0, 9, 4),
                apostrophe: avx512_within(group, 0, b'\'', 0),
                high: _mm512_movepi8_mask(_mm512_loadu_si512(group.as_ptr().cast())),
            }
        }
    }

    /// SAFETY: needs AVX-512 BW.
    #[inline(always)]
    pub unsafe fn avx512_letters(group: &[u8; GROUP]) -> Letters {
        // SAFETY: the caller has AVX-512 BW.
        Letters::new(|low, width| unsafe { avx512_within(group, 0, low, width) })
    }
}
