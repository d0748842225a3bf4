//! `tiktoken`'s rank files: a line for each token, its base64 and its id; a lower id merges first.
//!
//! The file knows neither the split pattern nor the special tokens: the caller does.

use std::collections::HashSet;

use super::check::{parse_id, shown};
use super::vocabulary::Vocabulary;
use super::{base64, by_rank, canonical_pattern, specials};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{MergeRule, Spec};

/// Reads a rank file.
///
/// A special token has the id given, or the next free one.
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
    let specials = specials::place(special_tokens, &vocabulary, |_| None)?;
    let tokens = specials::settle(vocabulary, &[], &specials, &HashSet::new())?;
    Ok(Spec {
        pattern: canonical_pattern(pattern),
        tokens,
        merges: MergeRule::ByRank,
        specials,
        ignore_merges: true,
    })
}

/// Reads one line: the token's bytes into `token`, the id as the result; or says what is wrong.
pub(super) fn read_line(line: &[u8], token: &mut Vec<u8>) -> Result<u32, String> {
    let text = String::from_utf8_lossy;
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (Some(coded), Some(id), None) = (fields.next(), fields.next(), fields.next()) else {
        return Err(format!("{} is not a token and an id", shown(&text(line))));
    };
    base64::decode_into(coded, token).map_err(|why| {
        let coded = shown(&text(coded));
        match why {
            base64::Malformed::Length => {
                format!("{coded} is not base64: its length is not a multiple of 4")
            }
            base64::Malformed::Digit(at) => format!("{coded} is not base64, from its byte {at}"),
            base64::Malformed::Tail => {
                format!("{coded} is not base64: bits are left over at its end")
            }
        }
    })?;
    std::str::from_utf8(id)
        .ok()
        .and_then(parse_id)
        .ok_or_else(|| format!("{} is not an id", shown(&text(id))))
}

/// Writes a rank file: the ordinary tokens in the order of their ids. Special tokens and the
/// pattern have no place in it.
///
/// Fails where the ids do not say in which order tokens merge.
pub fn write_tiktoken(spec: &Spec) -> Result<Vec<u8>> {
    if let MergeRule::List(merges) = &spec.merges {
        by_rank::check(spec, merges, spec.ignore_merges)?;
    }
    let mut tokens: Vec<(u32, &[u8])> = spec.tokens.iter().collect();
    tokens.sort_unstable();
    let mut out = Vec::new();
    for (id, token) in tokens {
        base64::encode_into(token, &mut out);
        out.extend_from_slice(format!(" {id}\n").as_bytes());
    }
    Ok(out)
}
