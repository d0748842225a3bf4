//! Which format a file is in, by what it begins with: names of files differ too much.

use super::byte_alphabet;
use super::tiktoken;

/// A format of tokenizer files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `tokenizer.json` of `tokenizers`.
    TokenizerJson,
    /// `vocab.json` of GPT-2.
    Gpt2Vocab,
    /// `merges.txt` of GPT-2.
    Gpt2Merges,
    /// A rank file of `tiktoken`.
    Tiktoken,
    /// A `.model` of minbpe.
    Minbpe,
}

/// How many lines are looked at to tell the formats of lines apart.
const N_LINES: usize = 16;

/// The format of a file by its content; it may still be malformed further on.
pub fn recognise(data: &[u8]) -> Option<Kind> {
    let trimmed = data.trim_ascii_start();
    if trimmed.starts_with(b"{") {
        return recognise_json(&trimmed[1..]);
    }
    if data.starts_with(b"minbpe v") {
        return Some(Kind::Minbpe);
    }
    if data.starts_with(b"#version") {
        return Some(Kind::Gpt2Merges);
    }
    let lines = || data.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty());
    lines().next()?;
    let is_ranks = |line: &[u8]| tiktoken::read_line(line, &mut Vec::new()).is_ok();
    if lines().take(N_LINES).all(is_ranks) {
        return Some(Kind::Tiktoken);
    }
    lines().take(N_LINES).all(is_merge).then_some(Kind::Gpt2Merges)
}

/// After the `{` of an object: in a vocabulary the first value is a number.
fn recognise_json(data: &[u8]) -> Option<Kind> {
    let mut keys = serde_json::Deserializer::from_slice(data).into_iter::<String>();
    keys.next()?.ok()?;
    let rest = data.get(keys.byte_offset()..)?.trim_ascii_start();
    let value = rest.strip_prefix(b":")?.trim_ascii_start();
    if value.first()?.is_ascii_digit() {
        return Some(Kind::Gpt2Vocab);
    }
    memchr::memmem::find(data, b"\"model\"").map(|_| Kind::TokenizerJson)
}

fn is_merge(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let is_token = |text: &str| !text.is_empty() && byte_alphabet::decode(text).is_some();
    line.split_once(' ').is_some_and(|(left, right)| is_token(left) && is_token(right))
}
