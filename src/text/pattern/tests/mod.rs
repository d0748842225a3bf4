//! Every named scanner against its regular expression.

mod aliases;
mod cuts;
mod engine;
mod scanners;
mod simd;
mod unicode;

use super::*;
use fancy_regex::Regex;

/// The pieces as the expression gives them, by the engine's own iterator: so simple that it is
/// unlikely to be wrong. Invalid bytes are replaced as `regex.rs` documents it.
pub struct Oracle {
    regex: Regex,
}

impl Oracle {
    pub fn new(regex: &str) -> Self {
        Oracle { regex: Regex::new(regex).unwrap() }
    }

    pub fn named(name: &str) -> Self {
        Oracle::new(tiktoken_regex(name).unwrap())
    }

    /// The ends of the pieces.
    pub fn ends(&self, text: &[u8]) -> Vec<usize> {
        let mut copy = String::new();
        let mut originals = vec![0]; // for each position in the copy, that in the text
        let mut at = 0;
        for chunk in text.utf8_chunks() {
            copy.push_str(chunk.valid());
            originals.extend(at + 1..=at + chunk.valid().len());
            at += chunk.valid().len();
            for _ in chunk.invalid() {
                copy.push('\u{FFFF}');
                at += 1;
                originals.extend([at; 3]);
            }
        }
        let mut ends = vec![];
        let mut last = 0;
        for found in self.regex.find_iter(&copy) {
            let found = found.unwrap();
            assert_eq!(found.start(), last, "the named patterns leave no gaps: {text:?}");
            last = found.end();
            ends.push(originals[last]);
        }
        assert_eq!(last, copy.len());
        ends
    }
}

pub fn pattern(name: &str) -> Pattern {
    Pattern::new(&[name]).unwrap()
}

/// The ends of the pieces.
pub fn ends(pattern: &Pattern, text: &[u8]) -> Vec<usize> {
    let mut ends = vec![];
    assert_eq!(pattern.scan(text, 0, usize::MAX, &mut ends).unwrap(), text.len());
    ends
}

/// The pieces, for messages and short expectations.
pub fn pieces<'t>(pattern: &Pattern, text: &'t [u8]) -> Vec<std::borrow::Cow<'t, str>> {
    let mut pieces = vec![];
    pattern.split(text, |piece| pieces.push(String::from_utf8_lossy(piece))).unwrap();
    pieces
}

/// Characters of each kind.
pub const ALPHABET: &[&[u8]] = &[
    b"a",
    b"s",
    b"S",
    b"l",
    b"L",
    b"e",
    b"v",
    b"R",
    b"'",
    b" ",
    b"\t",
    b"\r",
    b"\n",
    b"\x0c",
    b".",
    b"/",
    b"7",
    b"\xff",
    b"\xe2",
    b"\x80",
    b"\xc5",
    "ſ".as_bytes(),
    "É".as_bytes(),
    "ǅ".as_bytes(),
    "ʰ".as_bytes(),
    "你".as_bytes(),
    "\u{301}".as_bytes(),
    "٣".as_bytes(),
    "½".as_bytes(),
    "\u{85}".as_bytes(),
    "\u{a0}".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{3000}".as_bytes(),
    "😀".as_bytes(),
    "\u{378}".as_bytes(),
    "K".as_bytes(),
    "’".as_bytes(),
    "\u{10ffff}".as_bytes(),
];
