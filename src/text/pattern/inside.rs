//! Places inside a piece: where a text without safe cuts (`cuts`) may still be cut in two, if the
//! two parts of that piece are put together again.
//!
//! Let the text begin with a piece, or at such a place itself. A place is inside a piece if the
//! four characters on each side of it are
//!
//! 1. letters, lower-case ones for `o200k`; or
//! 2. numbers, for `gpt2`; or
//! 3. ASCII punctuation, but `'` and `/`; or
//! 4. spaces, and the character before the run of spaces (if it has one) is ASCII and no white
//!    space.
//!
//! The text before, scanned by itself, then has the pieces of the whole, and its last one is the
//! beginning of the piece that the place is inside of; the text after it, scanned by itself, has
//! the rest of that piece and then the pieces of the whole. Why, for the named patterns:
//!
//! *The piece that has the character before the place has the one after it.* (1) A piece of letters
//! takes them all, and so does a lower-case run in `o200k`. A contraction takes at most two after
//! its apostrophe. (2), (3) A piece takes the whole run. (4) A run of spaces is one piece but for its
//! last character, or part of one that reaches to a later line break.
//!
//! *What follows does not matter to the pieces before.* A match reads past its end over letters
//! (`o200k`, for a lower-case letter that may follow capitals), over white space (for a line break),
//! and over a contraction. (1) The first stops at the next lower-case letter, and those of other
//! patterns do not read on. (4) White space before the place is spaces only, so there is no line
//! break to end a piece at before it.
//!
//! *What stands before does not matter to the pieces after.* From the place on, the rest of the run
//! is scanned as the whole run is: it has the same class, and what decides about its end (the last
//! space, the last line break, what follows) is after the place. A run that a piece takes only as
//! its tail (`[\r\n/]*` after symbols) has no such places.

use super::classes::{LETTER, LOWER, NUMBER, char_at, valid_class_at, valid_class_before};
use super::scanners::Scanner;

/// Characters on each side that are looked at.
const SIDE: usize = 4;
/// Bytes on each side that may be looked at, but for a run of spaces.
pub const REACH: usize = 4 * SIDE;

/// The first place from `from` on that is inside a piece.
pub fn after(scanner: Scanner, text: &[u8], from: usize) -> Option<usize> {
    (from..text.len()).find(|&at| is_inside(scanner, text, at))
}

fn is_inside(scanner: Scanner, text: &[u8], at: usize) -> bool {
    if let Some(sides) = at.checked_sub(SIDE).and_then(|start| text.get(start..at + SIDE)) {
        let is_mark = |&byte: &u8| byte.is_ascii_punctuation() && byte != b'\'' && byte != b'/';
        if sides.iter().all(is_mark) {
            return true;
        }
        if sides.iter().all(|&byte| byte == b' ') {
            let before = text[..at].iter().rposition(|&byte| byte != b' ');
            return before.is_none_or(|i| text[i].is_ascii_graphic());
        }
    }
    let Some(classes) = classes_around(text, at) else { return false };
    match scanner {
        Scanner::O200k => classes == LOWER,
        Scanner::Gpt2 => classes & !LETTER == 0 || classes == NUMBER,
        Scanner::Cl100k | Scanner::Llama3 | Scanner::Qwen2 => classes & !LETTER == 0,
    }
}

/// The classes of the characters on both sides, if all are well-formed.
fn classes_around(text: &[u8], at: usize) -> Option<u8> {
    let (mut classes, mut start, mut end) = (0, at, at);
    for _ in 0..SIDE {
        classes |= valid_class_before(text, start)? | valid_class_at(text, end)?;
        end += char_at(text, end).1;
        start -= 1;
        while text[start] & 0xc0 == 0x80 {
            start -= 1;
        }
    }
    Some(classes)
}
