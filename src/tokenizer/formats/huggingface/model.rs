//! The `model` of a `tokenizer.json`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::base::error::{Error, Result};
use crate::tokenizer::formats::merge_names::MergeNames;
use crate::tokenizer::formats::vocabulary::Vocabulary;

/// The model as it stands in the file.
#[derive(Default)]
pub(super) struct Model {
    kind: Value,
    pub(super) vocab: Option<Vocabulary>,
    pub(super) merges: Option<MergeNames>,
    pub(super) ignore_merges: bool,
    /// Settings that must be off, with their values.
    settings: Vec<(String, Value)>,
}

impl Model {
    /// Refuses what is not plain byte-level BPE, by name.
    pub(super) fn check(&self) -> Result<()> {
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
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Model;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Model, A::Error> {
        let mut model = Model::default();
        let mut seen: Vec<String> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if seen.contains(&name) {
                return Err(A::Error::custom(format!("model.{name} is there twice")));
            }
            match name.as_str() {
                "type" => {
                    model.kind = map.next_value()?;
                    if model.kind != "BPE" && !model.kind.is_null() {
                        // The rest may look like anything; `check` says why it is not read.
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                        break;
                    }
                }
                "vocab" => model.vocab = Some(map.next_value()?),
                "merges" => model.merges = Some(map.next_value()?),
                "ignore_merges" => {
                    model.ignore_merges = map.next_value::<Option<bool>>()?.unwrap_or(false);
                }
                // Where every byte is a token nothing is ever unknown.
                "unk_token" | "fuse_unk" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => model.settings.push((name.clone(), map.next_value()?)),
            }
            // A file with very many fields has unknown ones, which are refused below in any case.
            if seen.len() > 64 {
                return Err(A::Error::custom("model: it has more than 64 fields"));
            }
            seen.push(name);
        }
        Ok(model)
    }
}
