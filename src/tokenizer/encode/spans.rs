//! The position of each token in the text.

use super::tokenizer::{Recognise, Tokenizer};
use crate::base::error::Result;
use crate::base::job::Job;

/// The range of a token, half open: in bytes and in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte, and one past the last.
    pub bytes: (usize, usize),
    /// The first character, and one past the last.
    pub chars: (usize, usize),
}

impl Tokenizer {
    /// The ids of `text`, and the span of each.
    pub fn encode_spans(
        &self,
        text: &[u8],
        recognise: &Recognise,
        job: &Job,
    ) -> Result<(Vec<u32>, Vec<Span>)> {
        let ids = self.encode_job(text, recognise, 1, job)?;
        // Tokens are adjacent, so the lengths of their bytes give their ends.
        let mut ends = Vec::with_capacity(ids.len());
        let mut end = 0;
        for &id in &ids {
            end += self.vocab().id_bytes(id).map_or(0, <[u8]>::len);
            ends.push(end);
        }
        let spans = char_spans(text, &ends);
        Ok((ids, spans))
    }
}

/// Spans from the ends of tokens. A token that holds part of a character spans all of it; a byte
/// that is not UTF-8 is a character.
fn char_spans(text: &[u8], ends: &[usize]) -> Vec<Span> {
    // By byte: does a character start here? Characters are counted token by token.
    let starts = |at: usize| at >= text.len() || character_starts(text, at);
    let mut spans = Vec::with_capacity(ends.len());
    let (mut at, mut n_started, mut start) = (0, 0usize, 0);
    for &end in ends {
        let inside = !starts(start);
        // Characters that start before this token; one that it continues is its first.
        let first = if inside { n_started - 1 } else { n_started };
        while at < end {
            n_started += usize::from(starts(at));
            at += 1;
        }
        spans.push(Span { bytes: (start, end), chars: (first, n_started) });
        start = end;
    }
    spans
}

/// Whether a character starts at `at`, that is, the byte does not continue a valid one.
fn character_starts(text: &[u8], at: usize) -> bool {
    if text[at] & 0xc0 != 0x80 {
        return true;
    }
    // A continuation byte belongs to a character that began at most three bytes before.
    for back in 1..=3.min(at) {
        let lead = at - back;
        if text[lead] & 0xc0 != 0x80 {
            let width = match text[lead] {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => return true,
            };
            return back >= width
                || text
                    .get(lead..lead + width)
                    .is_none_or(|bytes| std::str::from_utf8(bytes).is_err());
        }
    }
    true
}
