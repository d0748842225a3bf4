//! Characters and their classes, which every scanner uses.
//!
//! A class is one bit, so that a set of classes is a mask and finding the end of a run takes one
//! lookup and one test per character. ASCII, nearly all of most corpora, is looked up in a table of
//! 256 bytes; the rest is decoded and looked up in the two-level table that `build.rs` generates.
//!
//! Decoding is strict UTF-8. A byte that is not part of a well-formed character (a stray
//! continuation byte, an overlong form, a surrogate, a value above U+10FFFF, a cut-off sequence) is
//! a character of its own, of class [`OTHER`].

/// `Lu` and `Lt`: letters that only begin a word of `o200k`.
pub const UPPER: u8 = 1;
/// `Ll`.
pub const LOWER: u8 = 2;
/// `Lm` and `Lo`: letters without case.
pub const CASELESS: u8 = 4;
/// `M`: marks. Not letters, though `o200k` treats them as such.
pub const MARK: u8 = 8;
/// `N`: numbers.
pub const NUMBER: u8 = 16;
/// White space (`\s`): the property `White_Space`.
pub const SPACE: u8 = 32;
/// Everything else: punctuation, symbols, controls, unassigned code points, invalid bytes.
pub const OTHER: u8 = 64;

/// `\p{L}`.
pub const LETTER: u8 = UPPER | LOWER | CASELESS;
/// `[^\s\p{L}\p{N}]`.
pub const SYMBOL: u8 = MARK | OTHER;

/// In [`BYTES`]: the byte is not ASCII, so the character must be decoded.
const MULTIBYTE: u8 = 128;

include!(concat!(env!("OUT_DIR"), "/classes.rs"));

/// The class of each ASCII byte; [`MULTIBYTE`] for the others.
static BYTES: [u8; 256] = {
    let mut bytes = [MULTIBYTE; 256];
    let mut byte = 0;
    while byte < 128 {
        // The first page holds all of ASCII.
        bytes[byte] = PAGES[((INDEX[0] as usize) << PAGE_BITS) + byte];
        byte += 1;
    }
    bytes
};

/// The class of a code point.
#[inline]
fn class_of(code_point: u32) -> u8 {
    let page = INDEX.get((code_point >> PAGE_BITS) as usize).copied().unwrap_or(0);
    let within = code_point & ((1 << PAGE_BITS) - 1);
    PAGES.get(((page as usize) << PAGE_BITS) + within as usize).copied().unwrap_or(OTHER)
}

/// The class and length of the character at `at`, which must be inside `text`.
#[inline(always)]
pub fn char_at(text: &[u8], at: usize) -> (u8, usize) {
    let class = BYTES[text[at] as usize];
    if class == MULTIBYTE { decode(&text[at..]) } else { (class, 1) }
}

/// The class of the character at `at`; 0, which is in no mask, at the end.
#[inline(always)]
pub fn class_at(text: &[u8], at: usize) -> u8 {
    match text.get(at) {
        Some(&byte) if byte < 128 => BYTES[byte as usize],
        Some(_) => decode(&text[at..]).0,
        None => 0,
    }
}

/// The end of the run of characters from `at` on whose class is in `mask`.
#[inline(always)]
pub fn run(text: &[u8], mut at: usize, mask: u8) -> usize {
    while let Some(&byte) = text.get(at) {
        let class = BYTES[byte as usize];
        if class & mask != 0 {
            at += 1;
        } else if class == MULTIBYTE {
            let (class, size) = decode(&text[at..]);
            if class & mask == 0 {
                break;
            }
            at += size;
        } else {
            break;
        }
    }
    at
}

/// The class and size of the first character of `bytes`, which begins with a byte above 127.
///
/// Not inlined, so that the ASCII loops around it stay small.
#[inline(never)]
fn decode(bytes: &[u8]) -> (u8, usize) {
    wide_char_at(bytes, 0)
}

/// The class and size of the character at `at`, which begins with a byte above 127.
#[inline(always)]
pub fn wide_char_at(text: &[u8], at: usize) -> (u8, usize) {
    match well_formed(&text[at..]) {
        Some((code_point, size)) => (class_of(code_point), size),
        None => (OTHER, 1),
    }
}

/// The code point and size of the character that `bytes` begins with; None if it is ASCII, incomplete
/// or ill-formed.
///
/// The ranges of the second byte are those of the Unicode standard, table 3-7: they rule out
/// overlong forms, surrogates and values above U+10FFFF.
#[inline(always)]
pub fn well_formed(bytes: &[u8]) -> Option<(u32, usize)> {
    let tail = |byte: u8| (byte & 0xC0 == 0x80).then_some(u32::from(byte & 0x3F));
    match *bytes {
        [a @ 0xC2..=0xDF, b, ..] => Some((u32::from(a & 0x1F) << 6 | tail(b)?, 2)),
        [a @ 0xE0..=0xEF, b, c, ..] => {
            let fits = match a {
                0xE0 => b >= 0xA0,
                0xED => b < 0xA0,
                _ => true,
            };
            let code_point = u32::from(a & 0x0F) << 12 | tail(b)? << 6 | tail(c)?;
            fits.then_some((code_point, 3))
        }
        [a @ 0xF0..=0xF4, b, c, d, ..] => {
            let fits = match a {
                0xF0 => b >= 0x90,
                0xF4 => b < 0x90,
                _ => true,
            };
            let code_point = u32::from(a & 0x07) << 18 | tail(b)? << 12 | tail(c)? << 6 | tail(d)?;
            fits.then_some((code_point, 4))
        }
        _ => None,
    }
}

/// The class of the character at `at` if it is well-formed and complete.
pub fn valid_class_at(text: &[u8], at: usize) -> Option<u8> {
    match text.get(at) {
        Some(&byte) if byte < 128 => Some(BYTES[byte as usize]),
        Some(_) => well_formed(&text[at..]).map(|(code_point, _)| class_of(code_point)),
        None => None,
    }
}

/// The class of the character that ends at `at` if it is well-formed and begins inside `text`.
pub fn valid_class_before(text: &[u8], at: usize) -> Option<u8> {
    let last = at.checked_sub(1)?;
    if let Some(&byte) = text.get(last)
        && byte < 128
    {
        return Some(BYTES[byte as usize]);
    }
    // Lead bytes are not continuation bytes: at most one of these starts can be well-formed.
    (2..=4).find_map(|size| {
        let (code_point, found) = well_formed(text.get(at.checked_sub(size)?..at)?)?;
        (found == size).then(|| class_of(code_point))
    })
}
