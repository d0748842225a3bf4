//! Tokenizer files: what others write is read into a [`Spec`], and a [`Spec`] is written as they
//! read it.
//!
//! | file | holds | by |
//! | --- | --- | --- |
//! | `tokenizer.json` | everything; our own format too | `tokenizers`, `transformers` |
//! | `vocab.json`, `merges.txt` | tokens and merges | GPT-2 and its heirs |
//! | `*.tiktoken` | tokens, whose ids are the order of merging | `tiktoken` |
//! | `*.model` | pattern, special tokens, merges | minbpe |
//!
//! A reader gives the tokenizer whose ids are those of the library that the file comes from, or
//! fails: a setting that cannot be honoured is refused by name, never dropped. Readers check what
//! a file says for itself (ids, duplicates, merges of unknown tokens); whether all 256 bytes are
//! the tables are made from it later.

mod base64;
mod by_rank;
mod byte_alphabet;
mod check;
mod gpt2;
mod huggingface;
mod index;
mod json;
mod merge_names;
mod minbpe;
mod recognise;
mod specials;
mod spelled;
#[cfg(test)]
mod tests;
mod tiktoken;
mod vocabulary;

pub use gpt2::{read_gpt2, write_gpt2};
pub use huggingface::{read_tokenizer_json, write_tokenizer_json};
pub use minbpe::{read_minbpe, write_minbpe};
pub use recognise::{Kind, recognise};
pub use tiktoken::{read_tiktoken, write_tiktoken};

use crate::base::error::{Error, Result};
use crate::text::pattern;
#[cfg(doc)]
use crate::tokenizer::spec::Spec;

/// A pattern that leaves a document in one piece.
const WHOLE: &str = r"[\s\S]+";

/// The stages of a pattern, by name where they have one.
fn canonical_pattern(stages: &[String]) -> Vec<String> {
    let named = |stage: &String| pattern::known(stage).map(str::to_owned);
    stages.iter().map(|stage| named(stage).unwrap_or_else(|| stage.clone())).collect()
}

/// The stage for a regular expression of a file: its name, if it is a spelling of a named pattern.
/// An expression that reads like a name is refused: the file means something else by it.
pub fn regex_stage(regex: &str) -> Result<String> {
    if pattern::is_name(regex) {
        let regex = check::shown(regex);
        return Err(Error::tokenizer(format!(
            "the split pattern {regex} is a name, where the file must have a regular expression"
        )));
    }
    Ok(pattern::known(regex).unwrap_or(regex).to_owned())
}
