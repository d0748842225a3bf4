//! The named patterns as hand-written scanners.
//!
//! Each takes the start of a piece and returns its end, which does not depend on anything before the
//! start (no pattern has a look-behind). The class of the first one or two characters selects the
//! alternative of the regular expression; comments give the reasoning where the two differ in shape.
//! `names.rs` has the expressions; the tests compare both.
//!
//! All are linear in the length of the text: a run of characters is walked at most three times,
//! whatever the input, since the next two pieces always consume what a piece leaves of it. No memory
//! is allocated except for the ends of the pieces.

use super::classes::{
    CASELESS, LETTER, LOWER, MARK, NUMBER, OTHER, SPACE, SYMBOL, UPPER, char_at, class_at, run,
};

/// A named pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanner {
    /// GPT-2, and GPT-3.
    Gpt2,
    /// GPT-3.5 and GPT-4.
    Cl100k,
    /// GPT-4o and later.
    O200k,
    /// Llama 3: `cl100k`, but trailing white space is cut after its last line break.
    Llama3,
    /// Qwen 2: `llama3`, but each digit is a piece.
    Qwen2,
}

impl Scanner {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gpt2" => Scanner::Gpt2,
            "cl100k" => Scanner::Cl100k,
            "o200k" => Scanner::O200k,
            "llama3" => Scanner::Llama3,
            "qwen2" => Scanner::Qwen2,
            _ => return None,
        })
    }

    /// The end of the piece that starts at `start`.
    pub fn next_end(self, text: &[u8], start: usize) -> usize {
        match self {
            Scanner::Gpt2 => gpt2(text, start),
            Scanner::Cl100k => cl100k::<3, true>(text, start),
            Scanner::Llama3 => cl100k::<3, false>(text, start),
            Scanner::Qwen2 => cl100k::<1, false>(text, start),
            Scanner::O200k => o200k(text, start),
        }
    }
}

/// `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
#[inline(always)]
fn gpt2(text: &[u8], start: usize) -> usize {
    let (mut class, mut size) = char_at(text, start);
    let first = text[start];
    if first == b'\''
        && let Some(end) = gpt2_contraction(text, start)
    {
        return end;
    }
    let mut at = start;
    if first == b' ' && at + 1 < text.len() {
        // A space joins any following character that is not white space.
        let (next_class, next_size) = char_at(text, at + 1);
        if next_class != SPACE {
            at += 1;
            (class, size) = (next_class, next_size);
        }
    }
    at += size;
    if class & LETTER != 0 {
        run(text, at, LETTER)
    } else if class == NUMBER {
        run(text, at, NUMBER)
    } else if class & SYMBOL != 0 {
        run(text, at, SYMBOL)
    } else {
        let space = WhiteSpace::at(text, start);
        if space.end == text.len() { space.end } else { space.all_but_last(start) }
    }
}

/// `cl100k` and its relatives; the expression of `cl100k` itself, where `DIGITS` is 3 and `TAIL`
/// (white space at the end of the text is one piece) is true:
///
/// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+`
/// `|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
#[inline(always)]
fn cl100k<const DIGITS: usize, const TAIL: bool>(text: &[u8], start: usize) -> usize {
    let (class, size) = char_at(text, start);
    let first = text[start];
    let second = start + size;
    if class & LETTER != 0 {
        return run(text, second, LETTER);
    }
    if class == NUMBER {
        return digits::<DIGITS>(text, second);
    }
    if first == b'\''
        && let Some(end) = contraction(text, start)
    {
        return end;
    }
    let next = class_at(text, second);
    if next & LETTER != 0 && !is_newline(first) {
        return run(text, second, LETTER);
    }
    if class & SYMBOL != 0 || (first == b' ' && next & SYMBOL != 0) {
        let end = run(text, second, SYMBOL);
        return bytes_while(text, end, is_newline);
    }
    white_space::<TAIL>(text, start)
}

/// The expression has `[^\r\n\p{L}\p{N}]?` and then a word as one of
///
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`
///
/// and then `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`.
#[inline(always)]
fn o200k(text: &[u8], start: usize) -> usize {
    let (class, size) = char_at(text, start);
    let first = text[start];
    let second = start + size;
    if class & LETTER != 0 {
        return match Word::at(text, start) {
            Word::Lower(end) | Word::Upper(end) => with_contraction(text, end),
            Word::None => second, // unreachable: a letter begins a word
        };
    }
    if class == NUMBER {
        return digits::<3>(text, second);
    }
    let next = class_at(text, second);
    if next & (LETTER | MARK) != 0 && !is_newline(first) {
        match Word::at(text, second) {
            Word::Lower(end) => return with_contraction(text, end),
            // The first form is tried without the optional character before the second form is
            // tried with it, and a mark alone satisfies the first form.
            Word::Upper(end) if class != MARK => return with_contraction(text, end),
            Word::Upper(_) | Word::None => {}
        }
    }
    if class == MARK {
        // No letter follows, or only capitals do, which do not join it; further marks would have been
        // taken above.
        return with_contraction(text, second);
    }
    if class == OTHER || (first == b' ' && next & SYMBOL != 0) {
        let end = run(text, second, SYMBOL);
        return bytes_while(text, end, |byte| is_newline(byte) || byte == b'/');
    }
    white_space::<false>(text, start)
}

/// Which of the two forms of an `o200k` word begins at a position, and where the word ends (without
/// the contraction).
enum Word {
    /// The first form: it ends in a lower-case or caseless letter or a mark.
    Lower(usize),
    /// Only the second form: all of it is capitals.
    Upper(usize),
    None,
}

impl Word {
    /// Finds what backtracking would, in one pass. The first form takes a run of anything but
    /// lower-case letters, then needs a run of anything but capitals. Where the first run stops,
    /// either a lower-case letter follows and the second run starts there; or the first run gives
    /// back characters, up to and including the last that is not a capital, and the word ends after
    /// that one; or it has none, and the form fails. The second form then takes the whole run.
    #[inline(always)]
    fn at(text: &[u8], start: usize) -> Self {
        let mut at = start;
        let mut last_caseless = start;
        while at < text.len() {
            let (class, size) = char_at(text, at);
            if class & (UPPER | CASELESS | MARK) == 0 {
                if class == LOWER {
                    return Word::Lower(run(text, at + size, LOWER | CASELESS | MARK));
                }
                break;
            }
            at += size;
            if class != UPPER {
                last_caseless = at;
            }
        }
        if last_caseless > start {
            Word::Lower(last_caseless)
        } else if at > start {
            Word::Upper(at)
        } else {
            Word::None
        }
    }
}

/// The end of the contraction of `gpt2` at `at`, if there is one.
#[inline(always)]
pub fn gpt2_contraction(text: &[u8], at: usize) -> Option<usize> {
    match text[at + 1..] {
        [b's' | b'd' | b'm' | b't', ..] => Some(at + 2),
        [b'l', b'l', ..] | [b'v' | b'r', b'e', ..] => Some(at + 3),
        _ => None,
    }
}

/// The end of the contraction at `at`, in either case, if there is one.
#[inline(always)]
pub fn contraction(text: &[u8], at: usize) -> Option<usize> {
    let letter = |at: usize| text.get(at).map(u8::to_ascii_lowercase);
    match letter(at + 1)? {
        b's' | b'd' | b'm' | b't' => Some(at + 2),
        b'l' if letter(at + 2) == Some(b'l') => Some(at + 3),
        b'v' | b'r' if letter(at + 2) == Some(b'e') => Some(at + 3),
        // U+017F, the long s, is an s to an expression that ignores case. It is the only character
        // beyond ASCII that folds to a letter of a contraction.
        0xC5 if text.get(at + 2) == Some(&0xBF) => Some(at + 3),
        _ => None,
    }
}

#[inline(always)]
fn with_contraction(text: &[u8], end: usize) -> usize {
    if text.get(end) == Some(&b'\'') { contraction(text, end).unwrap_or(end) } else { end }
}

/// The end of a run of at most `DIGITS` numbers, the first of which was already read.
#[inline(always)]
fn digits<const DIGITS: usize>(text: &[u8], mut at: usize) -> usize {
    for _ in 1..DIGITS {
        if at == text.len() {
            break;
        }
        let (class, size) = char_at(text, at);
        if class != NUMBER {
            break;
        }
        at += size;
    }
    at
}

pub fn is_newline(byte: u8) -> bool {
    byte == b'\r' || byte == b'\n'
}

#[inline(always)]
fn bytes_while(text: &[u8], mut at: usize, accept: impl Fn(u8) -> bool) -> usize {
    while text.get(at).is_some_and(|&byte| accept(byte)) {
        at += 1;
    }
    at
}

/// `\s++$|\s*[\r\n]|\s+(?!\S)|\s`, the first alternative only if `TAIL`, at white space that does not
/// belong to a word.
#[inline(always)]
fn white_space<const TAIL: bool>(text: &[u8], start: usize) -> usize {
    let space = WhiteSpace::at(text, start);
    let ends_text = space.end == text.len();
    if ends_text && TAIL {
        space.end
    } else if space.newline_end > start {
        space.newline_end
    } else if ends_text {
        space.end
    } else {
        space.all_but_last(start)
    }
}

/// A run of white space.
struct WhiteSpace {
    end: usize,
    /// Where its last character begins.
    last: usize,
    /// The end of its last line break; its start if it has none.
    newline_end: usize,
}

impl WhiteSpace {
    #[inline(always)]
    fn at(text: &[u8], start: usize) -> Self {
        let mut space = WhiteSpace { end: start, last: start, newline_end: start };
        while space.end < text.len() {
            let (class, size) = char_at(text, space.end);
            if class != SPACE {
                break;
            }
            space.last = space.end;
            space.end += size;
            if is_newline(text[space.last]) {
                space.newline_end = space.end;
            }
        }
        space
    }

    /// `\s+(?!\S)|\s` before other text: the run without its last character, or that character if it
    /// is the only one.
    #[inline(always)]
    fn all_but_last(&self, start: usize) -> usize {
        if self.last > start { self.last } else { self.end }
    }
}
