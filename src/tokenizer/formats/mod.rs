//! Tokenizer files of other libraries ↔ [`Spec`](crate::tokenizer::spec::Spec).
//!
//! | file | content | library |
//! | --- | --- | --- |
//! | `tokenizer.json` | everything; our own format too | `tokenizers`, `transformers` |
//! | `vocab.json`, `merges.txt` | tokens and merges | GPT-2 and its successors |
//! | `*.tiktoken` | tokens, whose ids are the order of merging | `tiktoken` |
//! | `*.model` | pattern, special tokens, merges | minbpe |
//!
//! A reader returns the tokenizer whose ids are those of the library that the file comes from, or
//! fails: a setting that is not supported is refused by name, never dropped. Readers check what a
//! file states (ids, duplicates, merges of unknown tokens). Whether all 256 bytes are tokens is
//! checked later, in `vocab`.
//!
//! - `fields`, `spelling`, `vocabulary`, `resolve`: what several formats have in common
//! - `huggingface`, `gpt2`, `tiktoken`, `minbpe`: a format each

mod fields;
mod gpt2;
mod huggingface;
mod minbpe;
mod resolve;
mod spelling;
#[cfg(test)]
mod tests;
mod tiktoken;
mod vocabulary;

pub use fields::regex_stage;
pub use gpt2::{read_gpt2, write_gpt2};
pub use huggingface::{read_tokenizer_json, write_tokenizer_json};
pub use minbpe::{read_minbpe, write_minbpe};
pub use tiktoken::{read_tiktoken, write_tiktoken};

/// A format of tokenizer files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenizerFormat {
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

/// Lines that are read to distinguish rank files from lists of merges.
const MAX_PROBE_LINES: usize = 16;

/// The format of a file by its first bytes, since names of files vary; the rest may be malformed.
pub fn recognise(data: &[u8]) -> Option<TokenizerFormat> {
    let trimmed = data.trim_ascii_start();
    if trimmed.starts_with(b"{") {
        return recognise_json(&trimmed[1..]);
    }
    if data.starts_with(b"minbpe v") {
        return Some(TokenizerFormat::Minbpe);
    }
    if data.starts_with(b"#version") {
        return Some(TokenizerFormat::Gpt2Merges);
    }
    let lines = || data.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty());
    lines().next()?;
    let is_ranks = |line: &[u8]| tiktoken::read_line(line, &mut Vec::new()).is_ok();
    if lines().take(MAX_PROBE_LINES).all(is_ranks) {
        return Some(TokenizerFormat::Tiktoken);
    }
    lines().take(MAX_PROBE_LINES).all(is_merge).then_some(TokenizerFormat::Gpt2Merges)
}

/// Distinguishes objects by what follows the `{`: in a vocabulary the first value is a number.
fn recognise_json(data: &[u8]) -> Option<TokenizerFormat> {
    let mut keys = serde_json::Deserializer::from_slice(data).into_iter::<String>();
    keys.next()?.ok()?;
    let rest = data.get(keys.byte_offset()..)?.trim_ascii_start();
    let value = rest.strip_prefix(b":")?.trim_ascii_start();
    if value.first()?.is_ascii_digit() {
        return Some(TokenizerFormat::Gpt2Vocab);
    }
    memchr::memmem::find(data, b"\"model\"").map(|_| TokenizerFormat::TokenizerJson)
}

fn is_merge(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let is_token = |text: &str| !text.is_empty() && spelling::bytes_of(text).is_some();
    line.split_once(' ').is_some_and(|(left, right)| is_token(left) && is_token(right))
}
