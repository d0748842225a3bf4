//! The named patterns 64 bytes at a time.
//!
//! [`Masks`] classify the bytes of a group, [`rules`](super::rules) derive where pieces start, all without
//! a branch that depends on the text. Contractions are rare and corrected one by
//! one. Where the masks of a group cannot decide, its pieces are scanned one at a time (`scanners`), and
//! groups continue after them. Time is linear in the text; a scan holds one group and its masks.
//!
//! All levels are tested against `scanners.rs`, and that against the regular expressions.

use super::classes::{SPACE, char_at, class_at};
#[cfg(target_arch = "aarch64")]
use super::groups::arm::NeonBytes;
#[cfg(target_arch = "x86_64")]
use super::groups::x86::{Avx2Bytes, Avx512Bytes, Vbmi2Bytes};
use super::groups::{Bytes, GROUP, Masks, Portable};
use super::rules::{BlankEnd, Carry, Starts, gpt2, modern};
use super::scanners::{Scanner, contraction, gpt2_contraction, is_newline};
use crate::base::cpu::Level;
#[cfg(target_arch = "x86_64")]
use crate::base::cpu::{Avx2, Avx512, Vbmi2};

/// Appends the ends of at least `limit` pieces from `from` on, fewer only at the end of the text;
/// returns the last.
pub fn scan(
    scanner: Scanner,
    level: Level,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves that the processor has the features that the function enables.
        Level::Avx2(avx2) => unsafe { scan_avx2(avx2, scanner, text, from, limit, ends) },
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(avx512) => match avx512.vbmi2() {
            // SAFETY: the token proves that the processor has the features that the function enables.
            Some(vbmi2) => unsafe { scan_vbmi2(vbmi2, scanner, text, from, limit, ends) },
            // SAFETY: the token proves that the processor has the features that the function enables.
            None => unsafe { scan_avx512(avx512, scanner, text, from, limit, ends) },
        },
        #[cfg(target_arch = "aarch64")]
        Level::Neon(neon) => scan_with::<NeonBytes>(neon, scanner, text, from, limit, ends),
        _ => scan_with::<Portable>((), scanner, text, from, limit, ends),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn scan_avx2(
    token: Avx2,
    scanner: Scanner,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    scan_with::<Avx2Bytes>(token, scanner, text, from, limit, ends)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt"
)]
fn scan_avx512(
    token: Avx512,
    scanner: Scanner,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    scan_with::<Avx512Bytes>(token, scanner, text, from, limit, ends)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,popcnt,lzcnt"
)]
fn scan_vbmi2(
    token: Vbmi2,
    scanner: Scanner,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    scan_with::<Vbmi2Bytes>(token, scanner, text, from, limit, ends)
}

#[inline(always)]
fn scan_with<B: Bytes>(
    token: B::Token,
    scanner: Scanner,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    match scanner {
        Scanner::Gpt2 => scan_groups::<B, Gpt2>(token, scanner, text, from, limit, ends),
        Scanner::Cl100k => {
            scan_groups::<B, Modern<3, true>>(token, scanner, text, from, limit, ends)
        }
        Scanner::Llama3 => {
            scan_groups::<B, Modern<3, false>>(token, scanner, text, from, limit, ends)
        }
        Scanner::Qwen2 => {
            scan_groups::<B, Modern<1, false>>(token, scanner, text, from, limit, ends)
        }
        Scanner::O200k => scan_groups::<B, O200k>(token, scanner, text, from, limit, ends),
    }
}

/// A group of a text: the bytes from `base` on, `length` of them.
#[derive(Clone, Copy)]
struct Group<'t> {
    text: &'t [u8],
    base: usize,
    length: usize,
}

/// Starts that a contraction at the end of a group adds to and removes from the next.
#[derive(Default)]
struct Correction {
    add: u64,
    remove: u64,
    /// The end of the last contraction, in the text.
    end: usize,
}

/// The rules of a pattern.
trait Rules {
    /// Whether capitals differ from other letters.
    const CASED: bool;

    /// The starts by character, or None if masks cannot decide.
    fn starts(masks: &Masks, carry: &mut Carry, n: usize, next: u8, group: Group)
    -> Option<Starts>;

    /// The starts by byte, contractions included.
    fn contractions(
        starts: u64,
        apostrophe: u64,
        after_word: u64,
        group: Group,
        correction: &mut Correction,
    ) -> u64;
}

struct Gpt2;

impl Rules for Gpt2 {
    const CASED: bool = false;

    #[inline(always)]
    fn starts(masks: &Masks, carry: &mut Carry, n: usize, next: u8, _: Group) -> Option<Starts> {
        Some(Starts { starts: gpt2(masks, carry, n, next), after_word: 0 })
    }

    #[inline(always)]
    fn contractions(
        starts: u64,
        apostrophe: u64,
        _: u64,
        group: Group,
        correction: &mut Correction,
    ) -> u64 {
        contractions_at_starts(starts, apostrophe, group, correction, gpt2_contraction)
    }
}

struct Modern<const DIGITS: u32, const TAIL: bool>;

impl<const DIGITS: u32, const TAIL: bool> Rules for Modern<DIGITS, TAIL> {
    const CASED: bool = false;

    #[inline(always)]
    fn starts(
        masks: &Masks,
        carry: &mut Carry,
        n: usize,
        next: u8,
        group: Group,
    ) -> Option<Starts> {
        modern::<DIGITS, TAIL, false>(masks, carry, n, next, || blank_end(group))
    }

    #[inline(always)]
    fn contractions(
        starts: u64,
        apostrophe: u64,
        _: u64,
        group: Group,
        correction: &mut Correction,
    ) -> u64 {
        contractions_at_starts(starts, apostrophe, group, correction, contraction)
    }
}

struct O200k;

impl Rules for O200k {
    const CASED: bool = true;

    #[inline(always)]
    fn starts(
        masks: &Masks,
        carry: &mut Carry,
        n: usize,
        next: u8,
        group: Group,
    ) -> Option<Starts> {
        modern::<3, false, true>(masks, carry, n, next, || blank_end(group))
    }

    /// A contraction ends a word instead of starting a piece; one right after another contraction does
    /// not.
    #[inline(always)]
    fn contractions(
        mut starts: u64,
        _: u64,
        after_word: u64,
        group: Group,
        correction: &mut Correction,
    ) -> u64 {
        let mut quotes = after_word;
        while quotes != 0 {
            let bit = quotes.trailing_zeros() as usize;
            quotes &= quotes - 1;
            let at = group.base + bit;
            if at != correction.end
                && let Some(end) = contraction(group.text, at)
            {
                correction.take(&mut starts, group, bit, end - group.base);
                correction.end = end;
            }
        }
        starts
    }
}

/// Corrects starts for contractions that are pieces: their letters start no piece, the character after
/// them does. `end_of` is the end of the contraction at a position, if there is one.
#[inline(always)]
fn contractions_at_starts(
    mut starts: u64,
    apostrophe: u64,
    group: Group,
    correction: &mut Correction,
    end_of: impl Fn(&[u8], usize) -> Option<usize>,
) -> u64 {
    let mut quotes = apostrophe & starts;
    while quotes != 0 {
        let bit = quotes.trailing_zeros() as usize;
        quotes &= quotes - 1;
        if let Some(end) = end_of(group.text, group.base + bit) {
            correction.take(&mut starts, group, bit + 1, end - group.base);
        }
    }
    starts
}

impl Correction {
    /// Removes the starts from bit `first` to before bit `end`, and adds one at `end`.
    #[inline(always)]
    fn take(&mut self, starts: &mut u64, group: Group, first: usize, end: usize) {
        let split = |bits: u128| {
            (bits as u64 & u64::MAX >> (GROUP - group.length), (bits >> group.length) as u64)
        };
        let (now, later) = split((1 << end) - (1 << first));
        *starts &= !now;
        self.remove |= later;
        self.add &= !later;
        if group.base + end < group.text.len() {
            let (now, later) = split(1 << end);
            *starts |= now;
            self.add |= later;
        }
    }
}

#[inline(always)]
fn scan_groups<B: Bytes, R: Rules>(
    token: B::Token,
    scanner: Scanner,
    text: &[u8],
    from: usize,
    limit: usize,
    ends: &mut Vec<usize>,
) -> usize {
    let n_before = ends.len();
    let enough = n_before.saturating_add(limit.max(1));
    let (mut carry, mut correction) = (Carry::default(), Correction::default());
    // Where groups began after pieces that were scanned one at a time: the end of one of them.
    let mut fresh = from;
    let mut base = from;
    while base < text.len() {
        let (bytes, length) = match text[base..].first_chunk::<GROUP>() {
            Some(bytes) => (*bytes, GROUP),
            None => {
                let mut bytes = [0; GROUP];
                let rest = &text[base..];
                bytes[..rest.len()].copy_from_slice(rest);
                (bytes, rest.len())
            }
        };
        let (masks, length) = if R::CASED {
            Masks::new::<B, true>(token, &bytes, text, base, length)
        } else {
            Masks::new::<B, false>(token, &bytes, text, base, length)
        };
        let group = Group { text, base, length };
        let next = class_at(text, base + length);
        let found = if masks.inner == 0 {
            R::starts(&masks, &mut carry, length, next, group)
        } else {
            let firsts = !masks.inner & u64::MAX >> (GROUP - length);
            let by_character = masks.by_character::<B>(token, firsts);
            let n = firsts.count_ones() as usize;
            R::starts(&by_character, &mut carry, n, next, group).map(|found| Starts {
                starts: B::expand(token, found.starts, firsts),
                after_word: B::expand(token, found.after_word, firsts),
            })
        };
        let Some(Starts { mut starts, after_word }) = found else {
            let mut at = ends[n_before..].last().copied().unwrap_or(from);
            while at < base + length {
                at = scanner.next_end(text, at);
                ends.push(at);
            }
            if at == text.len() || ends.len() >= enough {
                return at;
            }
            (carry, correction) = (Carry::default(), Correction::default());
            (base, fresh) = (at, at);
            continue;
        };
        starts = starts & !correction.remove | correction.add;
        (correction.add, correction.remove) = (0, 0);
        starts = R::contractions(starts, masks.apostrophe, after_word, group, &mut correction);
        if base == fresh {
            // The start of the scan is not the end of a piece.
            starts &= !1;
        }
        B::push_positions(token, starts, base, ends);
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

/// What ends the white space, without line breaks, that the group ends in.
#[cold]
fn blank_end(group: Group) -> BlankEnd {
    let Group { text, base, length } = group;
    let mut at = base + length;
    while at < text.len() && !is_newline(text[at]) {
        let (class, size) = char_at(text, at);
        if class != SPACE {
            return BlankEnd::Text;
        }
        at += size;
    }
    if at < text.len() { BlankEnd::Newline } else { BlankEnd::EndOfText }
}
