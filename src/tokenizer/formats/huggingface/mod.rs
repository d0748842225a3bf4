//! `tokenizer.json` of Hugging Face's `tokenizers`, also our own format.
//!
//! The format describes a pipeline (normalizer, pre-tokenizer, model, post-processor, decoder), of
//! which byte-level BPE is one configuration. All spellings of that configuration are read; any other
//! is refused by its name.
//!
//! Three parts are ignored because they do not affect the ids of plain encoding: `truncation` and
//! `padding`, which are options of a call, and post-processors that add special tokens around a text
//! (`TemplateProcessing` and similar), since encoding here is `add_special_tokens=False` of
//! `tokenizers`.

mod stages;
mod write;

pub use write::write_tokenizer_json;

use std::fmt;

use aho_corasick::AhoCorasick;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::fields::parse_json;
use super::resolve::{self, MergeNames};
use super::vocabulary::{JsonId, TokenIndex, Vocabulary};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{MAX_ID, MergeRule, Spec, SpecialToken, shown};

#[derive(Deserialize)]
struct TokenizerJson {
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

pub fn read_tokenizer_json(data: &[u8]) -> Result<Spec> {
    let file: TokenizerJson = parse_json(data)?;
    if !matches!(&file.version, Value::Null) && file.version != "1.0" {
        return Err(Error::tokenizer(format!("version: {} is not \"1.0\"", file.version)));
    }
    file.model.check()?;
    stages::check_normalizer(&file.normalizer)?;
    let pattern = stages::read_pattern(&file.pre_tokenizer)?;
    stages::check_post_processor(&file.post_processor)?;
    stages::check_decoder(&file.decoder)?;
    let specials = special_tokens(file.added_tokens.unwrap_or_default())?;

    let Model { vocab, merges, ignore_merges, .. } = file.model;
    let vocabulary = vocab.ok_or_else(|| Error::tokenizer("model: it has no vocab"))?;
    let merges = merges.ok_or_else(|| Error::tokenizer("model: it has no merges"))?;
    let index =
        TokenIndex::new(&vocabulary.tokens).map_err(|error| error.in_file("model.vocab"))?;
    let merges = merges.resolve(&index, |i| format!("model.merges[{i}]"))?;
    let among = resolve::specials_in(&vocabulary, &index, &specials)?;
    drop(index);
    let tokens = resolve::without_specials(vocabulary, &merges, &specials, &among)?;
    Ok(Spec { pattern, tokens, merges: MergeRule::List(merges), specials, ignore_merges })
}

/// The `model` of the file.
#[derive(Default)]
struct Model {
    kind: Value,
    vocab: Option<Vocabulary>,
    merges: Option<MergeNames>,
    ignore_merges: bool,
    /// Settings that must be off, with their values.
    settings: Vec<(String, Value)>,
}

impl Model {
    /// Refuses what is not plain byte-level BPE, by name.
    fn check(&self) -> Result<()> {
        if !matches!(self.kind.as_str(), Some("BPE")) && !self.kind.is_null() {
            return Err(Error::tokenizer(format!(
                "model.type: {} is not supported, only \"BPE\" is",
                self.kind
            )));
        }
        for (name, value) in &self.settings {
            let is_off = match value {
                Value::Null => true,
                Value::Bool(set) => !set,
                Value::Number(n) => n.as_f64() == Some(0.0),
                Value::String(text) => text.is_empty(),
                Value::Array(_) | Value::Object(_) => false,
            };
            if is_off {
                continue;
            }
            let hint = match name.as_str() {
                "dropout" => "dropout makes encoding random; set it to null in the file",
                "byte_fallback" => {
                    "this is a vocabulary of characters, as SentencePiece makes them, not of bytes"
                }
                _ => "only byte-level vocabularies as GPT-2 has them can be read",
            };
            let message = format!("model.{name}: {value} is not supported");
            return Err(Error::tokenizer(message).with_hint(hint));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Model;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Model, A::Error> {
        let mut model = Model::default();
        let mut seen: Vec<String> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("model.{name} occurs twice")));
            }
            match name.as_str() {
                "type" => {
                    model.kind = map.next_value()?;
                    if model.kind != "BPE" && !model.kind.is_null() {
                        // The other fields may have any form; `check` reports the type.
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                        break;
                    }
                }
                "vocab" => model.vocab = Some(map.next_value()?),
                "merges" => model.merges = Some(map.next_value()?),
                "ignore_merges" => {
                    model.ignore_merges = map.next_value::<Option<bool>>()?.unwrap_or(false);
                }
                // If every byte is a token, nothing is unknown.
                "unk_token" | "fuse_unk" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => model.settings.push((name.clone(), map.next_value()?)),
            }
            // So many fields include unknown ones, which are refused anyway.
            if seen.len() > 64 {
                return Err(A::Error::custom("model: it has more than 64 fields"));
            }
            seen.push(name);
        }
        Ok(model)
    }
}

/// An added token of the file: always a special token here.
#[derive(Deserialize)]
struct AddedToken {
    content: String,
    id: JsonId,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    single_word: bool,
}

fn special_tokens(added: Vec<AddedToken>) -> Result<Vec<SpecialToken>> {
    check_order(&added)?;
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
            JsonId::Valid(id) => id,
            JsonId::Invalid(value) => {
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

/// Refuses added tokens that `tokenizers` would find in another order.
///
/// A `normalized` token is searched in the normalized text, which is the text itself without a
/// normalizer. But `tokenizers` searches for these tokens second, between the other ones, while here
/// the leftmost and longest of all wins. The two differ only if one of the others is inside a
/// normalized token or begins inside it.
fn check_order(added: &[AddedToken]) -> Result<()> {
    let by_turn = |normalized| {
        let texts = added.iter().filter(move |token| token.normalized == normalized);
        texts.map(|token| token.content.as_str()).filter(|text| !text.is_empty())
    };
    if by_turn(true).next().is_none() {
        return Ok(());
    }
    let mut first: Vec<&str> = by_turn(false).collect();
    first.sort_unstable();
    let automaton = AhoCorasick::new(&first)
        .map_err(|error| Error::tokenizer(format!("added_tokens: too many of them: {error}")))?;
    for second in by_turn(true) {
        let inside = automaton.find(second).map(|found| first[found.pattern().as_usize()]);
        // In sorted order, the texts that begin with `rest` follow its position.
        let begins = || {
            second.char_indices().skip(1).find_map(|(start, _)| {
                let rest = &second[start..];
                let i = first.partition_point(|text| *text < rest);
                first.get(i).copied().filter(|text| text.starts_with(rest))
            })
        };
        if let Some(other) = inside.or_else(begins) {
            return Err(Error::tokenizer(format!(
                "added_tokens: {} is normalized and {} is not, but they overlap",
                shown(second),
                shown(other)
            ))
            .with_hint("set normalized to false in the file: the first of the two wins then"));
        }
    }
    Ok(())
}
