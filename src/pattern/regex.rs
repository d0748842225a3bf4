//! Patterns that have no scanner: regular expressions.
//!
//! The engine is `fancy-regex`: linear where an expression needs no look-around or back-reference,
//! backtracking where it does. It reads only well-formed text. In other text each invalid byte is
//! replaced, in a copy, by U+FFFF, a noncharacter of no class, and the places that are found are
//! mapped back; well-formed text is read where it stands.
//!
//! Nothing here runs for ever. One match may backtrack [`BACKTRACKS`] times; a scan may take
//! [`TIME_BASE`] and [`TIME_PER_BYTE`] for each byte, which an expression that is merely slow does
//! not come near. Beyond either the scan ends with an error that names the place. (A count of steps
//! would be better than a clock, but the engine keeps none that spans its linear parts.)

use std::time::{Duration, Instant};

use fancy_regex::{Error as EngineError, Regex, RegexBuilder, RegexInput};

use super::names::NAMES;
use crate::error::{Error, Result};

/// Backtracking steps allowed in one match.
const BACKTRACKS: usize = 1_000_000;
/// Time allowed for a scan, whatever its size.
const TIME_BASE: Duration = Duration::from_secs(2);
/// Further time allowed for each byte from the start of the scan to the end of the text: 5 seconds
/// for a megabyte, a hundred times what common expressions take.
const TIME_PER_BYTE: Duration = Duration::from_micros(5);
/// Matches between two looks at the clock.
const MATCHES_PER_LOOK: u32 = 16;
/// The most that counts of the time between two looks: a process that was stopped for a while is
/// not to fail when it goes on.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// Stands for an invalid byte.
const STAND_IN: char = '\u{FFFF}';

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Engine {
    regex: Regex,
}

impl Engine {
    pub fn new(pattern: &str) -> Result<Self> {
        let regex = RegexBuilder::new(pattern).backtrack_limit(BACKTRACKS).build();
        regex.map(|regex| Engine { regex }).map_err(|error| {
            Error::config(format!("the split pattern {pattern:?} cannot be used: {error}"))
                .with_hint(format!(
                    "give one of the names {}, or a regular expression in the syntax of the Rust \
                     crate fancy-regex",
                    NAMES.join(", ")
                ))
        })
    }

    /// Like [`super::Pattern::scan`]; errors give places relative to `base`.
    pub fn scan(
        &self,
        text: &[u8],
        from: usize,
        limit: usize,
        base: usize,
        ends: &mut Vec<usize>,
    ) -> Result<usize> {
        // Each call has to check the whole text. A 32nd of it per call keeps that linear.
        let limit = limit.max(1 << 16).max(text.len() / 32);
        let failure = |(at, why): Failure| self.failure(base + at, &why);
        if let Ok(text) = std::str::from_utf8(text) {
            return self.scan_str(text, from, limit, ends).map_err(failure);
        }
        let copy = Substituted::new(text);
        let first = ends.len();
        let next = self
            .scan_str(&copy.text, copy.place_of(from), limit, ends)
            .map_err(|(at, why)| failure((copy.original_of(at), why)))?;
        copy.map_back(&mut ends[first..]);
        Ok(copy.original_of(next))
    }

    fn scan_str(
        &self,
        text: &str,
        from: usize,
        limit: usize,
        ends: &mut Vec<usize>,
    ) -> Result<usize, Failure> {
        // Where a caller breaks the rule for `from`, the engine would panic.
        let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let enough = ends.len().saturating_add(limit);
        let mut search = Search::new(&self.regex, text, from);
        let mut last = from; // the end of the last piece
        let mut at = from; // where to search on
        while ends.len() < enough {
            let Some((start, end)) = search.next(at)? else {
                if last < text.len() {
                    ends.push(text.len());
                }
                return Ok(text.len());
            };
            // With `\K` a match can claim to start before the last one ended, or behind its end.
            let start = start.max(last);
            let end = end.max(start);
            if start > last {
                ends.push(start);
            }
            if end > start {
                ends.push(end);
            }
            last = end;
            // An empty match cuts, but is no piece. The search goes on behind the next character,
            // or it would be found again.
            at = if end > start { end } else { next_char(text, end) };
        }
        Ok(last)
    }

    fn failure(&self, at: usize, why: &str) -> Error {
        Error::tokenizer(format!(
            "the split pattern {:?} fails at byte {at} of the document: {why}",
            self.regex.as_str(),
        ))
        .with_hint(format!(
            "the expression backtracks too much on this text; use possessive quantifiers (`\\s++`), \
             or one of the named patterns {}, which are linear",
            NAMES.join(", ")
        ))
    }
}

/// Where a scan failed, and why.
type Failure = (usize, String);

/// Where the character behind the one at `at` begins; beyond the text at its end.
fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

/// The searches of one scan.
struct Search<'a> {
    regex: &'a Regex,
    text: &'a str,
    /// Try each place on its own instead of letting the engine look for one. The engine counts the
    /// places it passes over as backtracking, so a long stretch without a match exhausts the limit
    /// though no match is costly. From then on each place has a limit of its own.
    one_by_one: bool,
    allowed: Duration,
    taken: Duration,
    looked_at: Instant,
    looks_in: u32,
}

impl<'a> Search<'a> {
    fn new(regex: &'a Regex, text: &'a str, from: usize) -> Self {
        let n_bytes = u32::try_from(text.len().saturating_sub(from)).unwrap_or(u32::MAX);
        Search {
            regex,
            text,
            one_by_one: false,
            allowed: TIME_BASE + TIME_PER_BYTE * n_bytes,
            taken: Duration::ZERO,
            looked_at: Instant::now(),
            looks_in: MATCHES_PER_LOOK,
        }
    }

    /// The first match from `at` on.
    fn next(&mut self, at: usize) -> Result<Option<(usize, usize)>, Failure> {
        if !self.one_by_one {
            match self.find(at, false) {
                Err(_) => self.one_by_one = true,
                Ok(found) => {
                    self.look_at_clock(at)?;
                    return Ok(found);
                }
            }
        }
        let mut at = at;
        while at <= self.text.len() {
            match self.find(at, true) {
                Err(error) => return Err((at, error.to_string())),
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => at = next_char(self.text, at),
            }
            self.look_at_clock(at)?;
        }
        Ok(None)
    }

    fn find(&self, at: usize, anchored: bool) -> Result<Option<(usize, usize)>, EngineError> {
        if at > self.text.len() {
            return Ok(None);
        }
        let input = RegexInput::new(self.text).from_pos(at).anchored(anchored);
        Ok(self.regex.find_input(input)?.map(|found| (found.start(), found.end())))
    }

    fn look_at_clock(&mut self, at: usize) -> Result<(), Failure> {
        self.looks_in -= 1;
        if self.looks_in > 0 {
            return Ok(());
        }
        self.looks_in = MATCHES_PER_LOOK;
        let now = Instant::now();
        self.taken += now.duration_since(self.looked_at).min(LONGEST_STEP);
        self.looked_at = now;
        if self.taken <= self.allowed {
            return Ok(());
        }
        Err((at, format!("it took longer than {} s", self.allowed.as_secs())))
    }
}

/// Text with stand-ins for its invalid bytes.
struct Substituted {
    text: String,
    /// The invalid bytes: their places in the original.
    invalid: Vec<usize>,
}

impl Substituted {
    /// How much longer a stand-in is than the byte.
    const EXCESS: usize = STAND_IN.len_utf8() - 1;

    fn new(original: &[u8]) -> Self {
        let mut text = String::with_capacity(original.len() + original.len() / 8);
        let mut invalid = Vec::new();
        let mut at = 0;
        for chunk in original.utf8_chunks() {
            text.push_str(chunk.valid());
            at += chunk.valid().len();
            for _ in chunk.invalid() {
                text.push(STAND_IN);
                invalid.push(at);
                at += 1;
            }
        }
        Substituted { text, invalid }
    }

    /// Where a place of the original is in the copy.
    fn place_of(&self, original: usize) -> usize {
        original + Self::EXCESS * self.invalid.partition_point(|&place| place < original)
    }

    /// Where a place of the copy is in the original.
    fn original_of(&self, place: usize) -> usize {
        let mut places = [place];
        self.map_back(&mut places);
        places[0]
    }

    /// Replaces places of the copy, in increasing order, by those in the original.
    fn map_back(&self, places: &mut [usize]) {
        let mut excess = 0;
        let mut invalid = self.invalid.iter().peekable();
        for place in places {
            while invalid.next_if(|&&byte| byte + excess < *place).is_some() {
                excess += Self::EXCESS;
            }
            *place -= excess;
        }
    }
}
