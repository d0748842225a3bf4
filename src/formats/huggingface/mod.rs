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

mod model;
mod regex_dialect;
mod stages;
mod write;

use serde::Deserialize;
use serde_json::Value;

use self::model::Model;
pub use self::write::write_tokenizer_json;
use super::check::{MAX_ID, check_ids, shown};
use super::index::TokenIndex;
use super::json;
use super::vocabulary::Id;
use crate::error::{Error, Result};
use crate::spec::{MergeRule, Spec, SpecialToken};

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

#[derive(Deserialize)]
struct AddedToken {
    content: String,
    id: Id,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
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
    let specials = read_added_tokens(file.added_tokens.unwrap_or_default())?;

    let Model { vocab, merges, ignore_merges, .. } = file.model;
    let vocabulary = vocab.ok_or_else(|| Error::tokenizer("model: it has no vocab"))?;
    let merges = merges.ok_or_else(|| Error::tokenizer("model: it has no merges"))?;
    let index =
        TokenIndex::new(&vocabulary.tokens).map_err(|error| error.in_file("model.vocab"))?;
    let merges = merges.resolve(&index, |i| format!("model.merges[{i}]"))?;
    let mut among_tokens = Vec::new();
    for (i, special) in specials.iter().enumerate() {
        match vocabulary.id_of_key(&index, &special.text) {
            Some(id) if id == special.id => among_tokens.push(id),
            Some(id) => {
                return Err(Error::tokenizer(format!(
                    "added_tokens[{i}]: {} has the id {}, but {id} in model.vocab",
                    shown(&special.text),
                    special.id
                )));
            }
            None => {}
        }
    }
    drop(index);
    check_ids(&Default::default(), &merges, &specials)?;
    let tokens = vocabulary.ordinary(&among_tokens).map_err(|e| e.in_file("model.vocab"))?;
    check_ids(&tokens, &[], &specials)?;
    Ok(Spec { pattern, tokens, merges: MergeRule::List(merges), specials, ignore_merges })
}

fn read_added_tokens(added: Vec<AddedToken>) -> Result<Vec<SpecialToken>> {
    let mut specials = Vec::with_capacity(added.len());
    for (i, token) in added.into_iter().enumerate() {
        let text = shown(&token.content);
        let flags = [
            ("lstrip", token.lstrip),
            ("rstrip", token.rstrip),
            ("single_word", token.single_word),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, set)| *set) {
            return Err(Error::tokenizer(format!(
                "added_tokens[{i}]: {text} has {flag}, which is not supported"
            ))
            .with_hint(
                "special tokens are found exactly as they are written; if the text around this \
                 one does not matter, set the flag to false in the file",
            ));
        }
        let id = match token.id {
            Id::Valid(id) => id,
            Id::Invalid(value) => {
                return Err(Error::tokenizer(format!(
                    "added_tokens[{i}]: {text} has the id {value}, which is not a whole number \
                     from 0 to {MAX_ID}"
                )));
            }
        };
        specials.push(SpecialToken { text: token.content, id, control: token.special });
    }
    Ok(specials)
}
