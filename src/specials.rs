//! Special tokens in text: where they stand, and where text may be cut without cutting one.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::{Error, Result};

/// Finds special tokens in text; of several that start at one place the longest wins.
#[derive(Debug, Clone)]
pub struct Specials {
    /// None where there are no special tokens to find.
    finder: Option<Finder>,
    texts: Vec<String>,
}

#[derive(Debug, Clone)]
struct Finder {
    /// Leftmost-longest: how text is read.
    reading: AhoCorasick,
    /// Every occurrence, overlapping ones too: for cuts.
    all: AhoCorasick,
    longest: usize,
}

/// A special token found in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its number in the list that [`Specials::new`] was given.
    pub index: usize,
    /// Where it starts.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Specials {
    /// A finder for these tokens.
    pub fn new<S: AsRef<str>>(tokens: &[S]) -> Result<Self> {
        let mut seen = std::collections::HashSet::new();
        for token in tokens {
            let token = token.as_ref();
            if token.is_empty() {
                return Err(Error::config("a special token is the empty string"));
            }
            if !seen.insert(token) {
                return Err(Error::config(format!("the special token {token:?} is given twice")));
            }
        }
        if tokens.is_empty() {
            return Ok(Specials { finder: None, texts: Vec::new() });
        }
        let build = |kind| {
            AhoCorasick::builder()
                .match_kind(kind)
                .build(tokens.iter().map(AsRef::as_ref))
                .map_err(|e| Error::config(format!("the special tokens are too many: {e}")))
        };
        let longest = tokens.iter().map(|t| t.as_ref().len()).max().unwrap_or(0);
        Ok(Specials {
            finder: Some(Finder {
                reading: build(MatchKind::LeftmostLongest)?,
                all: build(MatchKind::Standard)?,
                longest,
            }),
            texts: tokens.iter().map(|token| token.as_ref().to_owned()).collect(),
        })
    }

    /// The special tokens, in the order given.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The length of the longest, 0 if there is none.
    pub fn longest(&self) -> usize {
        self.finder.as_ref().map_or(0, |f| f.longest)
    }

    /// The first special token of `text` from `from` on.
    pub fn find(&self, text: &[u8], from: usize) -> Option<Found> {
        let finder = self.finder.as_ref()?;
        let found = finder.reading.find(aho_corasick::Input::new(text).range(from..))?;
        Some(Found { index: found.pattern().as_usize(), start: found.start(), end: found.end() })
    }

    /// Cuts `text` into plain stretches and special tokens, in order. Plain stretches may not be
    /// empty.
    pub fn segments<'t>(
        &self,
        text: &'t [u8],
        mut emit: impl FnMut(Segment<'t>) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        while let Some(found) = self.find(text, at) {
            if found.start > at {
                emit(Segment::Plain(at, &text[at..found.start]))?;
            }
            emit(Segment::Special(found))?;
            at = found.end;
        }
        if at < text.len() {
            emit(Segment::Plain(at, &text[at..]))?;
        }
        Ok(())
    }

    /// Whether some special token stands across position `at`, in whatever way the text is read.
    /// Where none does, the text before and the text behind can be read apart.
    pub fn straddle(&self, text: &[u8], at: usize) -> bool {
        let Some(finder) = &self.finder else { return false };
        let reach = finder.longest - 1;
        let window = at.saturating_sub(reach)..(at + reach).min(text.len());
        finder
            .all
            .find_overlapping_iter(&text[window.clone()])
            .any(|found| found.start() + window.start < at && at < found.end() + window.start)
    }

    /// Whether some special token has a byte in `range`, in whatever way the text is read.
    pub fn touch(&self, text: &[u8], range: Range<usize>) -> bool {
        let Some(finder) = &self.finder else { return false };
        let start = range.start.saturating_sub(finder.longest);
        let end = (range.end + finder.longest).min(text.len());
        let mut found = finder.all.find_overlapping_iter(&text[start..end]);
        found.any(|found| found.start() + start < range.end && range.start < found.end() + start)
    }

    /// The first position ≥ `from` at which a special token starts and which none stands across.
    pub fn start_after(&self, text: &[u8], from: usize) -> Option<usize> {
        let finder = self.finder.as_ref()?;
        let begin = from.saturating_sub(finder.longest);
        finder
            .all
            .find_overlapping_iter(&text[begin..])
            .map(|found| found.start() + begin)
            .find(|&start| start >= from && !self.straddle(text, start))
    }
}

/// A stretch of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'t> {
    /// Plain text and where it starts.
    Plain(usize, &'t [u8]),
    /// A special token.
    Special(Found),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(tokens: &[&str], text: &str) -> Vec<String> {
        let specials = Specials::new(tokens).unwrap();
        let mut out = Vec::new();
        specials
            .segments(text.as_bytes(), |segment| {
                out.push(match segment {
                    Segment::Plain(_, plain) => String::from_utf8(plain.to_vec()).unwrap(),
                    Segment::Special(found) => format!("#{}", found.index),
                });
                Ok(())
            })
            .unwrap();
        out
    }

    #[test]
    fn the_longest_wins() {
        assert_eq!(shape(&["<a>", "<a><a>"], "x<a><a><a>"), ["x", "#1", "#0"]);
        assert_eq!(shape(&["aXa"], "aXaXa"), ["#0", "Xa"]);
        assert_eq!(shape(&[], "plain"), ["plain"]);
    }

    #[test]
    fn a_cut_is_never_inside_one() {
        let specials = Specials::new(&["a b", "<e>"]).unwrap();
        let text = b"xa bx<e>y";
        let inside: Vec<usize> =
            (0..=text.len()).filter(|&at| specials.straddle(text, at)).collect();
        assert_eq!(inside, [2, 3, 6, 7]);
        assert_eq!(specials.start_after(text, 2), Some(5));
        assert_eq!(specials.start_after(text, 6), None);
    }

    #[test]
    fn impossible_ones_are_refused() {
        assert!(Specials::new(&[""]).is_err());
        assert!(Specials::new(&["a", "a"]).is_err());
    }
}
