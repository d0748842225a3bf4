//! A vocabulary as JSON has it: an object from spelling to id, as in `vocab.json` and under
//! `model.vocab` of a `tokenizer.json`.
//!
//! Keys are spelled in the byte alphabet, but special tokens stand among them as plain text. Where
//! a text happens to use characters of the alphabet only, as `<|endoftext|>` does, the file alone
//! does not say which of the two it is; the readers settle that with what else they know.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use super::byte_alphabet;
use super::check::{MAX_ID, shown};
use super::index::TokenIndex;
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::TokenList;

/// The entries of a vocabulary.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// The entries that the byte alphabet spells.
    pub(super) tokens: TokenList,
    /// The others: plain text.
    pub(super) plain: BTreeMap<String, u32>,
}

impl Vocabulary {
    /// Every id of the file.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().map(|(id, _)| id).chain(self.plain.values().copied())
    }

    /// The id under the key `text`, taken literally; `index` is that of `self.tokens`.
    pub(super) fn id_of_key(&self, index: &TokenIndex<'_>, text: &str) -> Option<u32> {
        match byte_alphabet::decode(text) {
            Some(bytes) => index.id(&bytes),
            None => self.plain.get(text).copied(),
        }
    }

    /// The ordinary tokens: all but those with an id in `specials`. What is left must be spelled
    /// in the alphabet.
    pub(super) fn ordinary(self, specials: &HashSet<u32>) -> Result<TokenList> {
        if let Some((text, id)) = self.plain.iter().find(|(_, id)| !specials.contains(id)) {
            let culprit = text.chars().find(|c| byte_alphabet::decode(&c.to_string()).is_none());
            return Err(Error::tokenizer(format!(
                "the token {} (id {id}) contains {:?}, which spells no byte",
                shown(text),
                culprit.unwrap_or_default(),
            ))
            .with_hint(
                "only byte-level vocabularies can be read (a space is spelled \"Ġ\"); if this is \
                 a special token, declare it as one",
            ));
        }
        if specials.is_empty() {
            return Ok(self.tokens);
        }
        let mut tokens = TokenList::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().filter(|(id, _)| !specials.contains(id)) {
            tokens.push(id, token);
        }
        Ok(tokens)
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary: an object from token to id")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let mut vocabulary = Vocabulary::default();
        let mut bytes = Vec::new();
        while let Some(key) = map.next_key_seed(Key(&mut bytes))? {
            match (map.next_value::<Id>()?, key) {
                (Id::Valid(id), None) => vocabulary.tokens.push(id, &bytes),
                (Id::Valid(id), Some(text)) => {
                    let key = shown(&text);
                    if vocabulary.plain.insert(text, id).is_some() {
                        return Err(A::Error::custom(format!("the token {key} is there twice")));
                    }
                }
                (Id::Invalid(value), key) => {
                    let key = key.unwrap_or_else(|| byte_alphabet::encode(&bytes));
                    let key = shown(&key);
                    return Err(A::Error::custom(format!(
                        "the token {key} has the id {value}, which is not a whole number from 0 \
                         to {MAX_ID}"
                    )));
                }
            }
        }
        Ok(vocabulary)
    }
}

/// Reads a key: its bytes into the buffer, or the key itself where the alphabet does not spell it.
struct Key<'b>(&'b mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        self.0.clear();
        Ok(byte_alphabet::decode_into(key, self.0).is_err().then(|| key.to_owned()))
    }
}

/// An id, or what stands in place of one.
pub(super) enum Id {
    Valid(u32),
    Invalid(String),
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNumber)
    }
}

struct AnyNumber;

impl Visitor<'_> for AnyNumber {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an id: a whole number from 0 to {MAX_ID}")
    }

    fn visit_u64<E>(self, n: u64) -> Result<Id, E> {
        Ok(match u32::try_from(n) {
            Ok(id) if id <= MAX_ID => Id::Valid(id),
            _ => Id::Invalid(n.to_string()),
        })
    }

    fn visit_i64<E>(self, n: i64) -> Result<Id, E> {
        Ok(Id::Invalid(n.to_string()))
    }

    fn visit_f64<E>(self, n: f64) -> Result<Id, E> {
        Ok(Id::Invalid(format!("{n:?}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Id, E> {
        Ok(Id::Invalid(shown(text)))
    }
}
