//! `tiktoken`'s rank files: a line for each token, with its base64 and its id; a lower id merges first.
//!
//! Base64 has padding (RFC 4648, section 4) and must be canonical: padding is present and unused bits
//! are zero, so a token has only one spelling. `data-encoding` is as strict, but decoding the 100,256
//! tokens of `cl100k_base` with it takes 43 million instructions, with the code here 27 million: tokens
//! are short.
//!
//! The file states neither the split pattern nor the special tokens; the caller provides both.
//!
//! In a rank file two neighbors merge where their concatenation is a token, the lowest id first,
//! and a piece that is a token is that token. A list of merges is equivalent, on every text, if
//!
//! 1. the ids of the results never fall along the list, and
//! 2. for each token, merging its own bytes by rank until two tokens are left gives a pair that is listed.
//!
//! Consider two neighbors, somewhere in a text, whose concatenation is the token *t*. Nothing has
//! merged across the ends of *t*, so what happened inside is what happens to the bytes of *t* alone:
//! the two are the pair of point 2. Hence merging by rank never meets a pair that is not in the list,
//! and both take the same steps. Likewise a piece that is a token becomes that token by merging,
//! except for a token whose bytes never merge to two tokens: only a whole piece becomes it, which
//! needs `ignore_merges`.

use super::fields::{canonical_pattern, parse_id};
use super::resolve;
use super::vocabulary::{TokenIndex, Vocabulary};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, MergeRule, Spec, shown, shown_token};
use std::collections::HashSet;

/// Reads a rank file. A special token has the id given, or the next free one.
pub fn read_tiktoken(
    data: &[u8],
    pattern: &[String],
    special_tokens: &[(String, Option<u32>)],
) -> Result<Spec> {
    let mut vocabulary = Vocabulary::default();
    let mut token = Vec::new();
    let mut start = 0;
    for (i, line) in data.split(|&byte| byte == b'\n').enumerate() {
        if !line.trim_ascii().is_empty() {
            token.clear();
            let id = read_line(line, &mut token).map_err(|why| {
                Error::tokenizer(format!("line {} (byte offset {start}): {why}", i + 1))
                    .with_hint("a rank file has lines such as `aGVsbG8= 42`")
            })?;
            vocabulary.tokens.push(id, &token);
        }
        start += line.len() + 1;
    }
    let specials = resolve::assign_ids(special_tokens, &vocabulary, |_| None)?;
    let tokens = resolve::without_specials(vocabulary, &[], &specials, &HashSet::new())?;
    Ok(Spec {
        pattern: canonical_pattern(pattern),
        tokens,
        merges: MergeRule::ByRank,
        specials,
        ignore_merges: true,
    })
}

/// Appends the token of a line to `token` and returns its id; an error is the reason without the
/// place.
pub(super) fn read_line(line: &[u8], token: &mut Vec<u8>) -> Result<u32, String> {
    let text = String::from_utf8_lossy;
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (Some(coded), Some(id), None) = (fields.next(), fields.next(), fields.next()) else {
        return Err(format!("{} is not a token and an id", shown(&text(line))));
    };
    decode_base64(coded, token).map_err(|why| {
        let coded = shown(&text(coded));
        match why {
            Malformed::Length => {
                format!("{coded} is not base64: its length is not a multiple of 4")
            }
            Malformed::Digit(at) => format!("{coded} is not base64, from its byte {at}"),
            Malformed::Tail => {
                format!("{coded} is not base64: bits are left over at its end")
            }
        }
    })?;
    std::str::from_utf8(id)
        .ok()
        .and_then(parse_id)
        .ok_or_else(|| format!("{} is not an id", shown(&text(id))))
}

/// Writes the ordinary tokens in the order of their ids; a rank file has neither special tokens nor
/// a pattern. Fails if the ids are not the order of merging.
pub fn write_tiktoken(spec: &Spec) -> Result<Vec<u8>> {
    if let MergeRule::List(merges) = &spec.merges {
        check_rank_order(spec, merges, spec.ignore_merges)?;
    }
    let mut tokens: Vec<(u32, &[u8])> = spec.tokens.iter().collect();
    tokens.sort_unstable();
    let mut out = Vec::new();
    for (id, token) in tokens {
        encode_base64(token, &mut out);
        out.extend_from_slice(format!(" {id}\n").as_bytes());
    }
    Ok(out)
}

/// Fails unless `merges`, the list of `spec`, is equivalent to its ids. `with_whole` allows tokens
/// that only whole pieces become. O(n²) for a token of n bytes, which is short.
pub(super) fn check_rank_order(spec: &Spec, merges: &[Merge], with_whole: bool) -> Result<()> {
    let refused = |message: String| {
        Error::tokenizer(message)
            .with_hint("such a tokenizer cannot be written in this format; save a tokenizer.json")
    };
    if let Some(i) = merges.windows(2).position(|pair| pair[0].result > pair[1].result) {
        return Err(refused(format!(
            "the ids do not follow the order of the merges: merge {i} makes {}, the next one {}",
            merges[i].result,
            merges[i + 1].result
        )));
    }
    let index = TokenIndex::new(&spec.tokens)?;
    let listed: HashSet<Merge> = merges.iter().copied().collect();
    for (id, token) in spec.tokens.iter().filter(|(_, token)| token.len() > 1) {
        let found = last_pair(&index, token);
        let agrees = match found {
            Some((left, right)) => listed.contains(&Merge { left, right, result: id }),
            None => with_whole,
        };
        if !agrees {
            return Err(refused(format!(
                "the ids do not say how the token {} (id {id}) is made{}",
                shown_token(token),
                match found {
                    Some((left, right)) => format!(": by them it is {left} and {right}"),
                    None => " and no merge makes it".to_owned(),
                }
            )));
        }
    }
    Ok(())
}

/// The two tokens that remain before the last merge, when `token` is merged by rank; None if it never
/// merges to two.
fn last_pair(index: &TokenIndex<'_>, token: &[u8]) -> Option<(u32, u32)> {
    let mut ends: Vec<usize> = (1..=token.len()).collect();
    let start = |ends: &[usize], i: usize| if i == 0 { 0 } else { ends[i - 1] };
    while ends.len() > 2 {
        let lowest = (0..ends.len() - 1)
            .filter_map(|i| Some((index.id(&token[start(&ends, i)..ends[i + 1]])?, i)))
            .min()?;
        ends.remove(lowest.1);
    }
    Some((index.id(&token[..ends[0]])?, index.id(&token[ends[0]..])?))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Marks a byte that is no digit.
const NO_DIGIT: u8 = u8::MAX;
const DIGIT: [u8; 256] = digits();

const fn digits() -> [u8; 256] {
    let mut table = [NO_DIGIT; 256];
    let mut i = 0;
    while i < 64 {
        table[ALPHABET[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// Appends the base64 of `bytes`.
fn encode_base64(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = 0u32;
        for i in 0..3 {
            word = word << 8 | u32::from(group.get(i).copied().unwrap_or(0));
        }
        for i in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i > group.len() { b'=' } else { digit });
        }
    }
}

/// Why a text is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Malformed {
    /// The length is not a multiple of four.
    Length,
    /// The byte at this offset is no digit, or padding where none belongs.
    Digit(usize),
    /// Unused bits before the padding are not zero.
    Tail,
}

/// Appends the bytes of a base64 `text`; after an error `out` holds some of them.
fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    if !text.len().is_multiple_of(4) {
        return Err(Malformed::Length);
    }
    let n_padding = text.iter().rev().take(2).take_while(|&&c| c == b'=').count();
    let digits = &text[..text.len() - n_padding];
    for (i, group) in digits.chunks(4).enumerate() {
        let mut word = 0u32;
        for (j, &c) in group.iter().enumerate() {
            let digit = DIGIT[c as usize];
            if digit == NO_DIGIT {
                return Err(Malformed::Digit(4 * i + j));
            }
            word |= u32::from(digit) << (18 - 6 * j);
        }
        // A group of n digits holds n - 1 whole bytes.
        let [_, bytes @ ..] = word.to_be_bytes();
        let n = group.len() - 1;
        if bytes[n..].iter().any(|&byte| byte != 0) {
            return Err(Malformed::Tail);
        }
        out.extend_from_slice(&bytes[..n]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(text: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        decode_base64(text, &mut out).map(|()| out)
    }

    fn encode(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        encode_base64(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded.as_bytes()).as_deref(), Ok(plain.as_bytes()));
        }
    }

    #[test]
    fn everything_malformed_is_refused() {
        for (text, why) in [
            ("Z", Malformed::Length),
            ("Zg", Malformed::Length),
            ("Zg=", Malformed::Length),
            ("Zm9vY", Malformed::Length),
            ("====", Malformed::Digit(0)),
            ("Z===", Malformed::Digit(1)),
            ("Zg==Zg==", Malformed::Digit(2)),
            ("Z=g=", Malformed::Digit(1)),
            ("=Zg=", Malformed::Digit(0)),
            ("Zm-v", Malformed::Digit(2)),
            ("Zm_v", Malformed::Digit(2)),
            ("Zm v", Malformed::Digit(2)),
            ("Zm\nv", Malformed::Digit(2)),
            ("Zm\u{e9}", Malformed::Digit(2)),
            ("Zh==", Malformed::Tail),
            ("Zm9=", Malformed::Tail),
        ] {
            assert_eq!(decode(text.as_bytes()), Err(why), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(bytes: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Ok(bytes));
        }

        #[test]
        fn what_decodes_is_canonical(text in "[A-Za-z0-9+/=]{0,12}") {
            if let Ok(bytes) = decode(text.as_bytes()) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
