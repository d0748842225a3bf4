//! Positions at which a text may be cut before it is scanned, so that blocks can be read, counted and
//! encoded in parallel and still have the pieces of the whole.
//!
//! Both searches read a few characters around each position, and each run of spaces once; they allocate
//! nothing. The proofs are for the five named patterns.
//!
//! # Safe cuts: between two pieces
//!
//! Let `x` be the character before a position and `y` the one after it. The position is safe if
//!
//! 1. `x` is not white space and `y` is an ASCII space or tab; or
//! 2. `x` is a letter, and `y` is not a letter, a mark or an apostrophe; or
//! 3. `x` is a number, and `y` is not a number.
//!
//! *A piece ends there.* In no piece does `y` follow `x`. (1) Inside a piece, a character that is not
//! white space is followed by a letter, mark, number or symbol, or by one of `\r`, `\n`, `/`; a
//! space or tab only begins a piece or is in one of white space alone. (2) Inside a piece a letter is
//! followed by a letter, in `o200k` also by a mark or the apostrophe of a contraction. (3) Inside a
//! piece a number is followed by a number.
//!
//! *The pieces before do not depend on the text after.* They would only change if a match read past
//! the position. Runs stop there, since `y` continues none that reaches `x`, just as they stop at the
//! end of a text. Both look-aheads, `$` and `(?!\S)`, follow white space, which `x` is not. A
//! contraction that reached past the position would have an apostrophe `x` and a letter `y`, or two
//! letters: each rule excludes that. So the first part is scanned to its end in the same way alone and
//! with anything appended.
//!
//! *The pieces after do not depend on the text before*: no pattern has a look-behind.
//!
//! Both characters must be well-formed, complete and inside the text. For `y`, that makes the rules
//! hold for every continuation (a truncated sequence could become a letter); for `x`, it makes them
//! hold for a text that itself begins in the middle of a character.
//!
//! # Cuts inside a piece
//!
//! A text without safe cuts may still be cut inside a piece whose two parts are joined again. Let the
//! text begin with a piece, or at such a position itself. A position is inside a piece if the four
//! characters on each side of it are
//!
//! 1. letters, for `o200k` lower-case ones; or
//! 2. numbers, for `gpt2`; or
//! 3. ASCII punctuation other than `'` and `/`; or
//! 4. spaces, and the character before the run of spaces, if any, is ASCII and not white space.
//!
//! Then the text before, scanned by itself, has the pieces of the whole, and its last one is the
//! beginning of the piece that the position is inside of; the text after, scanned by itself, has the
//! rest of that piece and then the pieces of the whole.
//!
//! *The piece that has the character before the position has the one after it.* (1) A piece of letters
//! takes them all, and so does a lower-case run in `o200k`. A contraction takes at most two after
//! its apostrophe. (2), (3) A piece takes the whole run. (4) A run of spaces is one piece except for
//! its last character, or part of a piece that extends to a later line break.
//!
//! *The pieces before do not depend on the text after.* A match reads past its end over letters
//! (`o200k`, for a lower-case letter that may follow capitals), over white space (for a line break),
//! and over a contraction. (1) The first stops at the next lower-case letter, and other patterns do
//! not read on. (4) White space before the position is spaces only, so no piece can end at a line
//! break before it.
//!
//! *The pieces after do not depend on the text before.* From the position on, the rest of the run is
//! scanned as the whole run is: it has the same class, and what decides where it ends (the last space,
//! the last line break, the next character) is after the position. A run that a piece takes only as
//! its tail (`[\r\n/]*` after symbols) has no such positions.

use super::classes::{
    LETTER, LOWER, MARK, NUMBER, SPACE, char_at, valid_class_at, valid_class_before,
};
use super::scanners::Scanner;

/// The first safe cut ≥ `from`.
pub fn safe_after(text: &[u8], from: usize) -> Option<usize> {
    (from.max(1)..text.len()).find(|&at| is_safe(text, at))
}

/// The last safe cut ≤ `upto`.
pub fn safe_before(text: &[u8], upto: usize) -> Option<usize> {
    let last = text.len().checked_sub(1)?;
    (1..=upto.min(last)).rev().find(|&at| is_safe(text, at))
}

/// Whether one of the rules holds at `at`, which is inside `text` and not its start.
fn is_safe(text: &[u8], at: usize) -> bool {
    let byte = text[at];
    // Most positions are inside words and runs of symbols: decided without decoding backwards.
    if byte.is_ascii_alphabetic() && !text[at - 1].is_ascii_digit() && text[at - 1] < 128 {
        return false;
    }
    let (Some(x), Some(y)) = (valid_class_before(text, at), valid_class_at(text, at)) else {
        return false;
    };
    (x != SPACE && (byte == b' ' || byte == b'\t'))
        || (x & LETTER != 0 && y & (LETTER | MARK) == 0 && byte != b'\'')
        || (x == NUMBER && y != NUMBER)
}

/// The characters on each side of a position that must be alike for it to be inside a piece.
const SIDE: usize = 4;
/// The most bytes on each side that [`insides`] reads, except in a run of spaces.
pub const INSIDE_REACH: usize = 4 * SIDE;

/// The positions ≥ `from` that are inside a piece.
pub fn insides(scanner: Scanner, text: &[u8], from: usize) -> impl Iterator<Item = usize> {
    // Whether the last run of spaces has such positions, and where it ends: searching its start at each of
    // them would take quadratic time.
    let (mut allowed, mut end) = (false, 0);
    (from..text.len()).filter(move |&at| {
        let sides = at.checked_sub(SIDE).and_then(|start| text.get(start..at + SIDE));
        if sides.is_some_and(|sides| sides.iter().all(|&byte| byte == b' ')) {
            if at >= end {
                let before = text[..at].iter().rposition(|&byte| byte != b' ');
                allowed = before.is_none_or(|i| text[i].is_ascii_graphic());
                let length = text[at..].iter().position(|&byte| byte != b' ');
                end = length.map_or(text.len(), |length| at + length);
            }
            return allowed;
        }
        sides.is_some_and(are_marks) || are_around(scanner, text, at)
    })
}

fn are_marks(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_punctuation() && !b"'/".contains(byte))
}

/// Whether the characters on both sides are letters or numbers that are in one piece.
fn are_around(scanner: Scanner, text: &[u8], at: usize) -> bool {
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
