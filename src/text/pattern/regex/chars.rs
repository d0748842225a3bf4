//! Characters as an expression sees them, and sets of them.
//!
//! Text is any bytes. A byte that is not part of a well-formed character is a character of its own
//! that reads as U+FFFF, a noncharacter of no class. Every position that a match reaches is a
//! boundary between two such characters.

use regex_syntax::hir::{Class, HirKind};

use crate::text::pattern::classes::well_formed;

/// The code point that an invalid byte reads as.
const STAND_IN: u32 = 0xFFFF;

/// The character at `at` and its size in bytes; None at the end of the text.
#[inline]
pub fn char_at(text: &[u8], at: usize) -> Option<(u32, usize)> {
    match *text.get(at)? {
        byte @ ..128 => Some((u32::from(byte), 1)),
        _ => Some(well_formed(&text[at..]).unwrap_or((STAND_IN, 1))),
    }
}

/// Where the character before `at` starts; None at the start of the text.
#[inline]
pub fn before(text: &[u8], at: usize) -> Option<usize> {
    let last = at.checked_sub(1)?;
    if text[last] & 0xC0 == 0x80 {
        for size in 2..=4.min(at) {
            if text[at - size] & 0xC0 != 0x80 {
                let whole = well_formed(&text[at - size..at]).is_some_and(|found| found.1 == size);
                return Some(if whole { at - size } else { last });
            }
        }
    }
    Some(last)
}

/// Whether no character spans `at`.
pub fn is_boundary(text: &[u8], at: usize) -> bool {
    let spans = |back: usize| {
        let start = at.checked_sub(back);
        start.and_then(|start| char_at(text, start)).is_some_and(|(_, size)| size > back)
    };
    !(1..=3).any(spans)
}

/// Whether two characters are equal except for case.
pub fn same_but_for_case(one: u32, other: u32) -> bool {
    let folded = || CharSet::parse(&format!(r"\x{{{one:x}}}"), true);
    one == other || folded().is_ok_and(|set| set.contains(other))
}

/// A set of characters.
#[derive(Debug, PartialEq, Eq)]
pub struct CharSet {
    ascii: u128,
    /// All ranges, sorted.
    ranges: Box<[(u32, u32)]>,
}

impl CharSet {
    fn new(ranges: impl Iterator<Item = (u32, u32)>) -> Self {
        let ranges: Box<[_]> = ranges.collect();
        let within = |byte: u32| ranges.iter().any(|&(low, high)| low <= byte && byte <= high);
        let ascii = (0..128).filter(|&byte| within(byte)).fold(0, |bits, byte| bits | 1 << byte);
        CharSet { ascii, ranges }
    }

    /// The set that an expression for one character describes.
    pub fn parse(class: &str, any_case: bool) -> Result<Self, String> {
        let mut parser = regex_syntax::ParserBuilder::new().case_insensitive(any_case).build();
        let hir = parser.parse(class).map_err(|error| error.to_string())?;
        let one = |text: &[u8]| {
            let mut chars = std::str::from_utf8(text).ok()?.chars();
            chars.next().filter(|_| chars.next().is_none())
        };
        match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => Ok(CharSet::new(
                class.ranges().iter().map(|r| (u32::from(r.start()), u32::from(r.end()))),
            )),
            HirKind::Class(Class::Bytes(class)) if class.is_ascii() => Ok(CharSet::new(
                class.ranges().iter().map(|r| (u32::from(r.start()), u32::from(r.end()))),
            )),
            HirKind::Literal(literal) if one(&literal.0).is_some() => {
                let c = one(&literal.0).map(u32::from);
                Ok(CharSet::new(c.map(|c| (c, c)).into_iter()))
            }
            _ => Err(format!("{class} is not a character class")),
        }
    }

    #[inline]
    pub fn contains(&self, c: u32) -> bool {
        if c < 128 {
            return self.ascii >> c & 1 == 1;
        }
        let after = self.ranges.partition_point(|&(low, _)| low <= c);
        after > 0 && c <= self.ranges[after - 1].1
    }

    /// The size of the character at `at`, if it is in the set.
    #[inline]
    pub fn size_at(&self, text: &[u8], at: usize) -> Option<usize> {
        let (c, size) = char_at(text, at)?;
        self.contains(c).then_some(size)
    }

    /// The bytes that its characters begin with.
    pub fn first_bytes(&self) -> ByteSet {
        let wide = self.ranges.last().is_some_and(|&(_, high)| high >= 128);
        let wide = if wide { u64::MAX } else { 0 };
        ByteSet { bits: [self.ascii as u64, (self.ascii >> 64) as u64, wide, wide], end: false }
    }
}

/// A set of bytes that may come next, and of the end of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteSet {
    bits: [u64; 4],
    end: bool,
}

impl ByteSet {
    pub const ANY: ByteSet = ByteSet { bits: [u64::MAX; 4], end: true };

    pub fn of(byte: u8) -> Self {
        let mut set = ByteSet::default();
        set.bits[usize::from(byte >> 6)] = 1 << (byte & 63);
        set
    }

    pub fn add(&mut self, other: ByteSet) {
        for (bits, more) in self.bits.iter_mut().zip(other.bits) {
            *bits |= more;
        }
        self.end |= other.end;
    }

    #[inline]
    pub fn allows(&self, text: &[u8], at: usize) -> bool {
        match text.get(at) {
            Some(&byte) => self.bits[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1,
            None => self.end,
        }
    }
}
