//! Places where a text may be cut before it is scanned: what lets chunks be read, counted and
//! encoded apart and in parallel, with the pieces of the whole.
//!
//! Let `x` be the character before a place and `y` the one after it. The place is safe if
//!
//! 1. `x` is not white space and `y` is an ASCII space or tab; or
//! 2. `x` is a letter, and `y` is no letter, no mark and no apostrophe; or
//! 3. `x` is a number, and `y` is no number.
//!
//! Why this holds for all five named patterns and any text around:
//!
//! *A piece ends there.* In no piece does `y` follow `x`. (1) What follows a character that is not
//! white space inside a piece is a letter, mark, number or symbol, or one of `\r`, `\n`, `/`; a
//! space or tab only ever begins a piece or stands in one of white space alone. (2) Inside a piece
//! a letter is followed by a letter, in `o200k` also by a mark or the apostrophe of a contraction.
//! (3) Inside a piece a number is followed by a number.
//!
//! *What comes after does not matter to the pieces before.* They would only change if a match
//! read past the place. Runs stop there, since `y` continues none that reaches `x`, just as they
//! stop at the end of a text. Both look-aheads, `$` and `(?!\S)`, follow white space, and
//! `x` is none. A contraction that reached past the place would have `x` an apostrophe and `y` a
//! letter, or both letters: excluded by each rule. So the first part, cut off, is scanned the same
//! to its end, and with anything appended too.
//!
//! *What comes before does not matter to the pieces after*: no pattern has a look-behind.
//!
//! Both characters must be well-formed, complete and inside the text. That `y` is makes the rules
//! true for every continuation (a cut-off sequence could become a letter); that `x` is makes them
//! true for a text that itself begins in the middle of a character.

use super::classes::{LETTER, MARK, NUMBER, SPACE, valid_class_at, valid_class_before};

/// The first safe place from `from` on.
pub fn after(text: &[u8], from: usize) -> Option<usize> {
    (from.max(1)..text.len()).find(|&at| is_safe(text, at))
}

/// The last safe place up to `upto`.
pub fn before(text: &[u8], upto: usize) -> Option<usize> {
    let last = text.len().checked_sub(1)?;
    (1..=upto.min(last)).rev().find(|&at| is_safe(text, at))
}

/// Whether one of the rules holds for `at`, which is inside `text` and not its start.
fn is_safe(text: &[u8], at: usize) -> bool {
    let byte = text[at];
    // Most places are inside words and runs of symbols: decide those without decoding backwards.
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
