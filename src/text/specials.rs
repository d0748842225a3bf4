//! Special tokens in text: where they are, and where text may be cut without cutting one.
//!
//! Aho-Corasick automata find them in time linear in the text. Building one takes about a microsecond
//! per byte of the tokens, so very many tokens are looked up in a sorted list instead ([`SortedTexts`]).

use crate::base::error::{Error, Result};
use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;
use std::sync::Arc;

/// The most bytes of special tokens that an automaton is built for.
const MAX_AUTOMATON_BYTES: usize = 1 << 20;
/// The longest token that is looked up in the sorted list: the time per position of the text may grow
/// with this length.
const MAX_SORTED_LENGTH: usize = 256;

/// Finds special tokens in text; of several that start at one position the longest wins.
#[derive(Debug, Clone)]
pub struct Specials {
    /// None if there are no special tokens.
    finder: Option<Arc<Finder>>,
    texts: Arc<[String]>,
    longest: usize,
}

#[derive(Debug)]
enum Finder {
    Automata {
        /// Leftmost-longest matches: how text is read.
        reading: AhoCorasick,
        /// All matches, overlapping ones included: for cuts.
        all: AhoCorasick,
    },
    Sorted(SortedTexts),
}

/// A special token found in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialMatch {
    /// Its index in the list passed to [`Specials::new`].
    pub index: usize,
    pub start: usize,
    pub end: usize,
}

impl Specials {
    pub fn new<S: AsRef<str>>(tokens: &[S]) -> Result<Self> {
        let mut seen = std::collections::HashSet::new();
        for token in tokens {
            let token = token.as_ref();
            if token.is_empty() {
                return Err(Error::config("a special token must not be empty"));
            }
            if !seen.insert(token) {
                return Err(Error::config(format!("duplicate special token {token:?}")));
            }
        }
        let longest = tokens.iter().map(|t| t.as_ref().len()).max().unwrap_or(0);
        let size: usize = tokens.iter().map(|t| t.as_ref().len()).sum();
        let finder = if tokens.is_empty() {
            None
        } else if size > MAX_AUTOMATON_BYTES && longest <= MAX_SORTED_LENGTH {
            Some(Finder::Sorted(SortedTexts::new(tokens)))
        } else {
            Some(Finder::automata(tokens)?)
        };
        let texts = tokens.iter().map(|token| token.as_ref().to_owned()).collect();
        Ok(Specials { finder: finder.map(Arc::new), texts, longest })
    }

    /// The special tokens, in the order given.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The length of the longest special token, 0 if there is none.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The first special token of `text` from `from` on.
    pub fn find(&self, text: &[u8], from: usize) -> Option<SpecialMatch> {
        match self.finder.as_deref()? {
            Finder::Automata { reading, .. } => {
                let found = reading.find(aho_corasick::Input::new(text).range(from..))?;
                let index = found.pattern().as_usize();
                Some(SpecialMatch { index, start: found.start(), end: found.end() })
            }
            Finder::Sorted(texts) => (from..text.len()).find_map(|start| {
                let (index, length) = texts.longest(&text[start..])?;
                Some(SpecialMatch { index, start, end: start + length })
            }),
        }
    }

    /// Passes the special tokens of `text` and the non-empty text between them to `emit`, in order.
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

    /// Whether a match, overlapping or not, spans position `at`. If none does, the text before and the
    /// text after can be read independently.
    pub fn straddle(&self, text: &[u8], at: usize) -> bool {
        self.any(text, at..at, |start, end| start < at && at < end)
    }

    /// Whether a match, overlapping or not, has a byte in `range`.
    pub fn touch(&self, text: &[u8], range: Range<usize>) -> bool {
        self.any(text, range.clone(), |start, end| start < range.end && range.start < end)
    }

    /// Whether a match that starts before the end of `range` and may reach it is `wanted`. If one of
    /// several that start at one position is, the longest must be.
    fn any(&self, text: &[u8], range: Range<usize>, wanted: impl Fn(usize, usize) -> bool) -> bool {
        let Some(finder) = &self.finder else { return false };
        let first = range.start.saturating_sub(self.longest - 1);
        match &**finder {
            Finder::Automata { all, .. } => {
                let end = (range.end + self.longest - 1).min(text.len());
                let mut found = all.find_overlapping_iter(&text[first..end]);
                found.any(|found| wanted(first + found.start(), first + found.end()))
            }
            Finder::Sorted(texts) => (first..range.end.min(text.len())).any(|start| {
                let longest = texts.longest(&text[start..]);
                longest.is_some_and(|(_, length)| wanted(start, start + length))
            }),
        }
    }

    /// The first position ≥ `from` at which a special token starts and which none spans.
    pub fn start_after(&self, text: &[u8], from: usize) -> Option<usize> {
        match self.finder.as_deref()? {
            Finder::Automata { all, .. } => {
                let begin = from.saturating_sub(self.longest);
                let mut starts =
                    all.find_overlapping_iter(&text[begin..]).map(|found| found.start() + begin);
                starts.find(|&start| start >= from && !self.straddle(text, start))
            }
            Finder::Sorted(texts) => (from..text.len()).find(|&start| {
                texts.longest(&text[start..]).is_some() && !self.straddle(text, start)
            }),
        }
    }
}

impl Finder {
    fn automata<S: AsRef<str>>(tokens: &[S]) -> Result<Self> {
        let build = |kind| {
            AhoCorasick::builder()
                .match_kind(kind)
                .build(tokens.iter().map(AsRef::as_ref))
                .map_err(|e| Error::config(format!("too many special tokens: {e}")))
        };
        let reading = build(MatchKind::LeftmostLongest)?;
        Ok(Finder::Automata { reading, all: build(MatchKind::Standard)? })
    }
}

/// A special token, or the text between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'t> {
    /// Where the text starts, and the text.
    Plain(usize, &'t [u8]),
    Special(SpecialMatch),
}

/// Very many special tokens in byte order, where an automaton would take seconds to build.
///
/// Each position of a text is tried: a bitmap over the first two bytes nearly always rules it out,
/// otherwise the range of tokens that share its prefix is narrowed down byte by byte. That is
/// O(m log n) per position for n tokens of at most m bytes, so this is for short ones. Building takes
/// O(n m log n); memory is the tokens, 12 bytes for each, and 8 kB for the bitmap.
#[derive(Debug)]
struct SortedTexts {
    /// All texts end to end, in the order of their bytes, and where each starts.
    bytes: Vec<u8>,
    starts: Vec<usize>,
    /// The index of each text in the list as given.
    numbers: Vec<u32>,
    /// One bit for each two bytes: whether a text begins with them.
    begins: Vec<u64>,
}

impl SortedTexts {
    /// The texts must be distinct and not empty.
    pub fn new<S: AsRef<str>>(texts: &[S]) -> Self {
        let text = |number: u32| texts[number as usize].as_ref().as_bytes();
        let mut numbers: Vec<u32> = (0..texts.len() as u32).collect();
        numbers.sort_unstable_by(|&a, &b| text(a).cmp(text(b)));
        let mut sorted = SortedTexts {
            bytes: Vec::new(),
            starts: vec![0],
            numbers: Vec::new(),
            begins: vec![0; 1 << 10],
        };
        for &number in &numbers {
            let text = text(number);
            sorted.bytes.extend_from_slice(text);
            sorted.starts.push(sorted.bytes.len());
            let second = text.get(1).map_or(0..=255, |&byte| byte..=byte);
            for byte in second {
                let two = usize::from(text[0]) << 8 | usize::from(byte);
                sorted.begins[two / 64] |= 1 << (two % 64);
            }
        }
        sorted.numbers = numbers;
        sorted
    }

    /// The longest text that `rest` begins with: its index and its length.
    #[inline]
    pub fn longest(&self, rest: &[u8]) -> Option<(usize, usize)> {
        if let [first, second, ..] = *rest {
            let two = usize::from(first) << 8 | usize::from(second);
            if self.begins[two / 64] >> (two % 64) & 1 == 0 {
                return None;
            }
        }
        self.narrow_down(rest)
    }

    fn narrow_down(&self, rest: &[u8]) -> Option<(usize, usize)> {
        let text = |i: usize| &self.bytes[self.starts[i]..self.starts[i + 1]];
        let (mut first, mut end) = (0, self.numbers.len());
        let mut found = None;
        for depth in 0.. {
            // All in the range begin with `rest[..depth]`; one that ends there is the first of them.
            if first < end && text(first).len() == depth {
                found = Some((self.numbers[first] as usize, depth));
                first += 1;
            }
            let Some(byte) = rest.get(depth).filter(|_| first < end) else { break };
            let search = |from: usize, is_before: &dyn Fn(u8) -> bool| {
                let (mut low, mut high) = (from, end);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if is_before(text(middle)[depth]) {
                        low = middle + 1;
                    } else {
                        high = middle;
                    }
                }
                low
            };
            first = search(first, &|other| other < *byte);
            end = search(first, &|other| other <= *byte);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn automata_and_the_sorted_list_agree() {
        let texts = prop::collection::vec("[ab<|]{1,4}|a{1,9}", 1..12);
        proptest!(|(texts in texts, text in "[ab<|é]{0,40}")| {
            let texts: Vec<String> =
                texts.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            let few = Specials::new(&texts).unwrap();
            let finder = Some(Arc::new(Finder::Sorted(SortedTexts::new(&texts))));
            let many = Specials { finder, ..few.clone() };
            let text = text.as_bytes();
            for at in 0..=text.len() {
                prop_assert_eq!(few.find(text, at), many.find(text, at));
                prop_assert_eq!(few.straddle(text, at), many.straddle(text, at));
                prop_assert_eq!(few.start_after(text, at), many.start_after(text, at));
                for end in at..=text.len() {
                    prop_assert_eq!(few.touch(text, at..end), many.touch(text, at..end));
                }
            }
        });
    }

    #[test]
    fn no_automaton_is_built_for_very_many() {
        let texts: Vec<String> = (0..100_000).map(|i| format!("<|token {i}|>")).collect();
        let specials = Specials::new(&texts).unwrap();
        assert!(matches!(specials.finder.as_deref(), Some(Finder::Sorted(_))));
        let found = specials.find(b"x <|token 7|><|token 77|>", 3).unwrap();
        assert_eq!(found, SpecialMatch { index: 77, start: 13, end: 25 });
        let few = Specials::new(&texts[..1000]).unwrap();
        assert!(matches!(few.finder.as_deref(), Some(Finder::Automata { .. })));
    }

    #[test]
    fn impossible_ones_are_refused() {
        assert!(Specials::new(&[""]).is_err());
        assert!(Specials::new(&["a", "a"]).is_err());
    }
}
