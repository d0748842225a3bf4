//! Class masks of a group → where pieces start in it.
//!
//! Shifting masks against each other answers for 64 characters at once what a scanner asks of one:
//! whether a piece starts at a character depends on its class and on those of its neighbors. The cases
//! that depend on more (white space up to its last line break, numbers in threes, line breaks after
//! symbols) are runs, and adding a bit to the start of a run of ones carries to its end. Masks have one
//! bit per character here, whatever its size in bytes.

use super::classes::{LETTER, MARK, SPACE, SYMBOL};
use super::groups::Masks;

/// What is before a group: bit 0 of a mask is set if the last character before it is of that class. All
/// are 0 at the start of a scan.
#[derive(Debug, Default, Clone, Copy)]
pub struct Carry {
    letter: u64,
    lower: u64,
    /// A letter without case, or a mark.
    other_letter: u64,
    number: u64,
    symbol: u64,
    space: u64,
    /// White space other than line breaks.
    blank: u64,
    /// White space that is not part of a piece of symbols.
    free_blank: u64,
    /// A line break of that kind.
    free_newline: u64,
    /// A line break, or a slash, that is part of a piece of symbols.
    absorbed: u64,
    /// A symbol that is the first character of a word.
    prefix: u64,
    /// Numbers in the last piece, modulo the most that a piece may have.
    n_digits: u32,
}

/// What ends a run of white space without line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlankEnd {
    Newline,
    Text,
    EndOfText,
}

/// The last of `n` bits.
#[inline(always)]
fn last(mask: u64, n: usize) -> u64 {
    mask >> (n - 1) & 1
}

/// Each bit moved to its predecessor; `next` comes in at the end.
#[inline(always)]
fn ahead(mask: u64, next: bool, n: usize) -> u64 {
    mask >> 1 | u64::from(next) << (n - 1)
}

/// Where pieces of `gpt2` start, contractions aside. `next` is the class of the character after the
/// group, 0 at the end of the text.
///
/// Not white space: unless the character before has the same class or is a space. White space: at the
/// first and the last of a run, at the end of the text only at the first.
#[inline(always)]
pub fn gpt2(masks: &Masks, carry: &mut Carry, n: usize, next: u8) -> u64 {
    let valid = u64::MAX >> (64 - n);
    let Masks { number, space, .. } = *masks;
    let letter = masks.upper | masks.lower | masks.caseless;
    let blank = (space | masks.newline | masks.white) & valid;
    let symbol = !(letter | number | blank) & valid;
    let words = letter & !(letter << 1 | carry.letter)
        | number & !(number << 1 | carry.number)
        | symbol & !(symbol << 1 | carry.symbol);
    let before_word = ahead(!blank & valid, next & !SPACE != 0, n);
    let starts =
        words & !(space << 1 | carry.space) | blank & (!(blank << 1 | carry.blank) | before_word);
    carry.letter = last(letter, n);
    carry.number = last(number, n);
    carry.symbol = last(symbol, n);
    carry.space = last(space, n);
    carry.blank = last(blank, n);
    starts & valid
}

/// The starts of a group, and the apostrophes after words.
#[derive(Debug, Clone, Copy)]
pub struct Starts {
    pub starts: u64,
    pub after_word: u64,
}

/// Where pieces of `cl100k` and its relatives start, contractions aside: at most `DIGITS` numbers in a
/// piece; with `TAIL`, white space at the end of the text is one piece; with `CASED`, the words and
/// symbols of `o200k`. `blank_end` looks at what ends the white space that the group ends in.
///
/// None for what masks cannot decide, which is rare: marks that follow no letter, capitals after
/// letters without case.
#[inline(always)]
pub fn modern<const DIGITS: u32, const TAIL: bool, const CASED: bool>(
    masks: &Masks,
    carry: &mut Carry,
    n: usize,
    next: u8,
    blank_end: impl FnOnce() -> BlankEnd,
) -> Option<Starts> {
    let valid = u64::MAX >> (64 - n);
    let Masks { upper, lower, number, space, newline, .. } = *masks;
    let marks = if CASED { masks.mark } else { 0 };
    let letter = upper | lower | masks.caseless | marks;
    let after_letter = letter << 1 | carry.letter;
    let other_letter = masks.caseless | marks;
    if CASED
        && (upper & (other_letter << 1 | carry.other_letter) | marks & !after_letter) & valid != 0
    {
        return None;
    }
    let blanks = space | masks.white;
    let white = (blanks | newline) & valid;
    let symbols = !(letter | number | white) & valid;
    let slash = if CASED { masks.slash } else { 0 };
    let absorbed = absorbed(symbols, newline & valid, slash & valid, carry);
    let symbol = symbols & !absorbed;
    let free = white & !absorbed;

    // White space. The first of a run starts a piece, and the last one if other text follows. A line
    // break ends a piece unless another one follows in the same run.
    let free_newline = newline & free;
    let last_blanks = blanks & !ahead(white, next & SPACE != 0 || next == 0, n);
    let mut starts = free & !(free << 1 | carry.free_blank) | last_blanks;
    let after_newline = blanks & (free_newline << 1 | carry.free_newline) & valid;
    if after_newline != 0 {
        let mut inside = blanks & newline >> 1;
        if last(blanks, n) != 0 && after_newline & run_start(blanks, n - 1) != 0 {
            let end = blank_end();
            let is_inside = end == BlankEnd::Newline || TAIL && end == BlankEnd::EndOfText;
            inside |= u64::from(is_inside) << (n - 1);
        }
        starts |= after_newline;
        while inside != 0 {
            let end = inside.trailing_zeros() as usize;
            inside &= inside - 1;
            starts &= !(run_start(blanks, end) & after_newline);
        }
    }

    // Symbols, with a space before them.
    let after_space = space << 1 | carry.space;
    let first_symbol = symbol & !(symbol << 1 | carry.symbol);
    starts |= first_symbol & !after_space;

    // Words, with one character before them that is neither a letter, a number nor a line break. A
    // symbol is that character if it is the first and only one of its piece.
    let only_symbol = first_symbol & !ahead(symbol, next & SYMBOL & !marks_of::<CASED>() != 0, n);
    let prefix =
        only_symbol & !after_space & ahead(letter, next & (LETTER | marks_of::<CASED>()) != 0, n);
    starts |= letter & !after_letter & !(blanks << 1 | carry.blank) & !(prefix << 1 | carry.prefix);
    if CASED {
        starts |= upper & (lower << 1 | carry.lower);
    }

    starts |= numbers::<DIGITS>(number & valid, carry, n);

    let after_word = masks.apostrophe & after_letter & valid;
    carry.letter = last(letter, n);
    carry.lower = last(lower, n);
    carry.other_letter = last(other_letter, n);
    carry.number = last(number, n);
    carry.symbol = last(symbol, n);
    carry.space = last(space, n);
    carry.blank = last(blanks, n);
    carry.free_blank = last(free, n);
    carry.free_newline = last(free_newline, n);
    carry.absorbed = last(absorbed, n);
    carry.prefix = last(prefix, n);
    Some(Starts { starts: starts & valid, after_word })
}

/// Marks, if they count as letters.
const fn marks_of<const CASED: bool>() -> u8 {
    if CASED { MARK } else { 0 }
}

/// The first bit of the run of ones in `mask` that bit `at` belongs to.
#[inline(always)]
fn run_start(mask: u64, at: usize) -> u64 {
    let zeros_below = !mask & ((1 << at) - 1);
    1 << (64 - zeros_below.leading_zeros())
}

/// The line breaks after symbols, which are part of their piece, and the slashes after these.
#[inline(always)]
fn absorbed(symbols: u64, newline: u64, slash: u64, carry: &Carry) -> u64 {
    let mut starts = newline & (symbols << 1 | carry.symbol | carry.absorbed);
    if slash & (newline << 1 | carry.absorbed) == 0 {
        return newline & !newline.wrapping_add(starts);
    }
    // A slash may be among the symbols before and among what is absorbed, so runs are taken one by one.
    let all = newline | slash;
    starts |= slash & carry.absorbed;
    let mut absorbed = 0;
    while starts != 0 {
        let first = starts & starts.wrapping_neg();
        let run = all & !all.wrapping_add(first);
        absorbed |= run;
        starts &= !run;
    }
    absorbed
}

/// Numbers that start a piece: every one at a distance of a multiple of `DIGITS` from the first.
#[inline(always)]
fn numbers<const DIGITS: u32>(number: u64, carry: &mut Carry, n: usize) -> u64 {
    if DIGITS == 1 || number == 0 {
        return number;
    }
    // A piece that began before this group ends after `left` more numbers.
    let left = (DIGITS - carry.n_digits) % DIGITS;
    // Numbers that follow at least two others, as many as are in a piece with them.
    let third = number & number << 1 & number << 2;
    let mut starts = number & !(number << 1 | carry.number);
    if carry.number != 0 && (number | !0 << (left + 1)) == u64::MAX {
        starts |= 1 << left;
    }
    let mut more = starts;
    loop {
        more = more << DIGITS & third;
        if more == 0 {
            break;
        }
        starts |= more;
    }
    if last(number, n) != 0 {
        // Numbers since the last start, which may be in an earlier group.
        let since = match starts {
            0 => carry.n_digits + n as u32,
            _ => n as u32 - (63 - starts.leading_zeros()),
        };
        carry.n_digits = since % DIGITS;
    }
    starts
}
