//! `tokenizer.json` of Hugging Face's `tokenizers`, also our own format.
//!
//! The format describes a pipeline (normalizer, pre-tokenizer, model, post-processor, decoder) of
//! which byte-level BPE is one setting. What is read here is that setting in all its spellings;
//! every other is refused by its name.
//!
//! Three parts are read past because they do not change what plain encoding gives: `truncation`
//! and `padding`, which are options of a call, and post-processors that add special tokens around
//! a text (`TemplateProcessing` and its kin), since encoding here is what `tokenizers` calls
//! `add_special_tokens=False`.

mod added_tokens;
mod model;
mod regex_dialect;
mod stages;
mod write;

use serde::Deserialize;
use serde_json::Value;

use self::added_tokens::AddedToken;
use self::model::Model;
pub use self::write::write_tokenizer_json;
use super::index::TokenIndex;
use super::{json, specials};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{MergeRule, Spec};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    version: Value,
    #[serde(default)]
    added_tokens: Option<Vec<AddedToken>>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: Model,
}

/// Reads a `tokenizer.json`.
pub fn read_tokenizer_json(data: &[u8]) -> Result<Spec> {
    let file: File = json::parse(data)?;
    if !matches!(&file.version, Value::Null) && file.version != "1.0" {
        return Err(Error::tokenizer(format!("version: {} is not \"1.0\"", file.version)));
    }
    file.model.check()?;
    stages::check_normalizer(&file.normalizer)?;
    let pattern = stages::read_pattern(&file.pre_tokenizer)?;
    stages::check_post_processor(&file.post_processor)?;
    stages::check_decoder(&file.decoder)?;
    let specials = added_tokens::read(file.added_tokens.unwrap_or_default())?;

    let Model { vocab, merges, ignore_merges, .. } = file.model;
    let vocabulary = vocab.ok_or_else(|| Error::tokenizer("model: it has no vocab"))?;
    let merges = merges.ok_or_else(|| Error::tokenizer("model: it has no merges"))?;
    let index =
        TokenIndex::new(&vocabulary.tokens).map_err(|error| error.in_file("model.vocab"))?;
    let merges = merges.resolve(&index, |i| format!("model.merges[{i}]"))?;
    let among = specials::among(&vocabulary, &index, &specials)?;
    drop(index);
    let tokens = specials::settle(vocabulary, &merges, &specials, &among)?;
    Ok(Spec { pattern, tokens, merges: MergeRule::List(merges), specials, ignore_merges })
}
