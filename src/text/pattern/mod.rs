//! Documents → pieces.
//!
//! A pattern cuts a document, any bytes, into consecutive non-empty pieces that cover every byte. It
//! has one or more stages: the first cuts the document, each further one cuts each piece of the stage
//! before. The text between two matches is a piece too, so nothing is lost. Named patterns (`names`)
//! have hand-written linear scanners (`scanners`, `simd`) over tables of character classes
//! (`classes`); others go through a regular expression engine with bounded steps (`regex`). `cuts`
//! finds positions at which a text can be divided before it is scanned.
//!
//! An invalid byte is a character of no class.

mod classes;
mod cuts;
mod groups;
mod names;
mod regex;
mod rules;
mod scanners;
mod simd;
#[cfg(test)]
mod tests;

pub use classes::UNICODE_VERSION;
pub use cuts::INSIDE_REACH;
pub use names::{NAMES, huggingface_regex, is_name, known, tiktoken_regex, unknown};

use crate::base::cpu::Level;
use crate::base::error::{Error, Result};
use scanners::Scanner;

/// Cuts documents into pieces.
#[derive(Debug, Clone)]
pub struct Pattern {
    stages: Vec<Stage>,
    texts: Vec<String>,
}

#[derive(Debug, Clone)]
enum Stage {
    Named(Scanner),
    // Boxed because a compiled expression is large and a scanner one byte.
    Regex(Box<regex::Engine>),
}

impl Pattern {
    /// A pattern of one or more stages, each a name or a regular expression. An expression that is
    /// a known spelling of a named pattern becomes that pattern. An unknown name is an error.
    pub fn new<S: AsRef<str>>(stages: &[S]) -> Result<Pattern> {
        if stages.is_empty() {
            return Err(Error::config("the split pattern must have at least one stage")
                .with_hint(format!("use one of the names {}", NAMES.join(", "))));
        }
        let mut pattern = Pattern { stages: Vec::new(), texts: Vec::new() };
        for text in stages.iter().map(AsRef::as_ref) {
            let name = known(text);
            let stage = match name.and_then(Scanner::named) {
                Some(scanner) => Stage::Named(scanner),
                None if is_name(text) => return Err(unknown(text)),
                None => Stage::Regex(Box::new(regex::Engine::new(text)?)),
            };
            pattern.stages.push(stage);
            pattern.texts.push(name.unwrap_or(text).to_owned());
        }
        Ok(pattern)
    }

    /// The stages in canonical form: a name if there is one, else the expression as given.
    pub fn stages(&self) -> &[String] {
        &self.texts
    }

    /// Appends the ends of the pieces of `text` from `from` on to `ends`, until at least `limit`
    /// were added or the text ends. Returns where to continue: the length of the text when done.
    ///
    /// `from` is 0 or a value returned earlier for the same text. A regular expression adds more
    /// than a small `limit`, so that a costly expression is found early.
    pub fn scan(
        &self,
        text: &[u8],
        from: usize,
        limit: usize,
        ends: &mut Vec<usize>,
    ) -> Result<usize> {
        let Some((first, finer)) = self.stages.split_first() else { return Ok(text.len()) };
        if finer.is_empty() {
            return first.scan(text, from, limit, 0, ends);
        }
        let mut pieces = Vec::new();
        let next = first.scan(text, from, limit, 0, &mut pieces)?;
        for stage in finer {
            let mut finer_pieces = Vec::with_capacity(pieces.len());
            let mut start = from;
            for &end in &pieces {
                stage.scan_piece(text, start, end, &mut finer_pieces)?;
                start = end;
            }
            pieces = finer_pieces;
        }
        ends.append(&mut pieces);
        Ok(next)
    }

    /// Calls `emit` with each piece of `text`.
    pub fn split<'t>(&self, text: &'t [u8], mut emit: impl FnMut(&'t [u8])) -> Result<()> {
        let mut ends = Vec::new();
        let (mut from, mut start) = (0, 0);
        while from < text.len() {
            ends.clear();
            from = self.scan(text, from, PIECES_PER_SCAN, &mut ends)?;
            for &end in &ends {
                emit(&text[start..end]);
                start = end;
            }
        }
        Ok(())
    }

    /// The first position ≥ `from`, inside `text` and not its start, at which the pattern cuts
    /// whatever comes before and after: the two sides, scanned separately, give the pieces of the
    /// whole. None if there is none, or if the pattern is a regular expression or has several stages.
    pub fn safe_cut_after(&self, text: &[u8], from: usize) -> Option<usize> {
        self.has_safe_cuts().then(|| cuts::safe_after(text, from))?
    }

    /// The last such position ≤ `upto`. It stays safe whatever is appended to `text`.
    pub fn safe_cut_before(&self, text: &[u8], upto: usize) -> Option<usize> {
        self.has_safe_cuts().then(|| cuts::safe_before(text, upto))?
    }

    /// The positions ≥ `from` that are certainly inside a piece, in a text that starts with a piece or
    /// at such a position: both sides, scanned separately, have the pieces of the whole except for that
    /// one, which they share. None as for [`Pattern::safe_cut_after`].
    pub fn insides(&self, text: &[u8], from: usize) -> impl Iterator<Item = usize> {
        let scanner = match *self.stages {
            [Stage::Named(scanner)] => Some(scanner),
            _ => None,
        };
        scanner.into_iter().flat_map(move |scanner| cuts::insides(scanner, text, from))
    }

    fn has_safe_cuts(&self) -> bool {
        matches!(*self.stages, [Stage::Named(_)])
    }
}

/// Few enough that the list of ends of [`Pattern::split`] stays in the cache.
const PIECES_PER_SCAN: usize = 1024;

impl Stage {
    fn scan(
        &self,
        text: &[u8],
        from: usize,
        limit: usize,
        base: usize,
        ends: &mut Vec<usize>,
    ) -> Result<usize> {
        match self {
            Stage::Named(scanner) => {
                Ok(simd::scan(*scanner, Level::best(), text, from, limit, ends))
            }
            Stage::Regex(engine) => engine.scan(text, from, limit, base, ends),
        }
    }

    /// Cuts a piece of the previous stage as if it were a document; the ends are positions in the
    /// document.
    fn scan_piece(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        ends: &mut Vec<usize>,
    ) -> Result<()> {
        let piece = &text[start..end];
        let first = ends.len();
        let mut from = 0;
        while from < piece.len() {
            from = self.scan(piece, from, usize::MAX, start, ends)?;
        }
        for end in &mut ends[first..] {
            *end += start;
        }
        Ok(())
    }
}
