//! The vocabulary of a file, and its tokens by their bytes.
//!
//! In `vocab.json`, and under `model.vocab` of a `tokenizer.json`, it is an object from spelling to
//! id. Keys are spelled in the byte alphabet, but special tokens among them are plain text. Where a
//! text uses characters of the alphabet only, as `<|endoftext|>` does, the object alone does not
//! show which of the two it is; the readers decide it from the rest of the file.

use super::spelling;
use crate::base::error::{Error, Result};
use crate::base::table::Table;
use crate::tokenizer::spec::{MAX_ID, TokenList, shown, shown_token};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;

#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// The entries that the byte alphabet spells.
    pub(super) tokens: TokenList,
    /// The others: plain text.
    pub(super) plain: BTreeMap<String, u32>,
}

impl Vocabulary {
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().map(|(id, _)| id).chain(self.plain.values().copied())
    }

    /// The id under the key `text`, taken literally; `index` is that of `self.tokens`.
    pub(super) fn id_of_key(&self, index: &TokenIndex<'_>, text: &str) -> Option<u32> {
        match spelling::bytes_of(text) {
            Some(bytes) => index.id(&bytes),
            None => self.plain.get(text).copied(),
        }
    }

    /// All tokens but those with an id in `specials`. An error if one of them is not spelled in the
    /// byte alphabet.
    pub(super) fn ordinary(self, specials: &HashSet<u32>) -> Result<TokenList> {
        if let Some((text, id)) = self.plain.iter().find(|(_, id)| !specials.contains(id)) {
            let culprit = text.chars().find(|c| spelling::bytes_of(&c.to_string()).is_none());
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
        deserializer.deserialize_map(VocabularyVisitor)
    }
}

struct VocabularyVisitor;

impl<'de> Visitor<'de> for VocabularyVisitor {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary: an object from token to id")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let mut vocabulary = Vocabulary::default();
        let mut bytes = Vec::new();
        while let Some(key) = map.next_key_seed(JsonKey(&mut bytes))? {
            match (map.next_value::<JsonId>()?, key) {
                (JsonId::Valid(id), None) => vocabulary.tokens.push(id, &bytes),
                (JsonId::Valid(id), Some(text)) => {
                    let key = shown(&text);
                    if vocabulary.plain.insert(text, id).is_some() {
                        return Err(A::Error::custom(format!("the token {key} occurs twice")));
                    }
                }
                (JsonId::Invalid(value), key) => {
                    let key = key.unwrap_or_else(|| spelling::spell(&bytes));
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
struct JsonKey<'b>(&'b mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for JsonKey<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for JsonKey<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        self.0.clear();
        Ok(spelling::push_bytes(key, self.0).is_err().then(|| key.to_owned()))
    }
}

/// An id, or the invalid value in its place.
pub(super) enum JsonId {
    Valid(u32),
    Invalid(String),
}

impl<'de> Deserialize<'de> for JsonId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonIdVisitor)
    }
}

struct JsonIdVisitor;

impl Visitor<'_> for JsonIdVisitor {
    type Value = JsonId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an id: a whole number from 0 to {MAX_ID}")
    }

    fn visit_u64<E>(self, n: u64) -> Result<JsonId, E> {
        Ok(match u32::try_from(n) {
            Ok(id) if id <= MAX_ID => JsonId::Valid(id),
            _ => JsonId::Invalid(n.to_string()),
        })
    }

    fn visit_i64<E>(self, n: i64) -> Result<JsonId, E> {
        Ok(JsonId::Invalid(n.to_string()))
    }

    fn visit_f64<E>(self, n: f64) -> Result<JsonId, E> {
        Ok(JsonId::Invalid(format!("{n:?}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonId, E> {
        Ok(JsonId::Invalid(shown(text)))
    }
}

/// Token bytes → id: resolves the names in a list of merges.
///
/// A large file has more than a million of them, and most of the time is spent waiting for memory. So
/// a caller whose lookups follow the order of the file tries the next token of the list first
/// ([`TokenIndex::id_from`]).
pub(super) struct TokenIndex<'a> {
    tokens: &'a TokenList,
    /// Token → `(place in the list + 1) << 32 | id`.
    places: Table<u64>,
}

impl<'a> TokenIndex<'a> {
    /// An error if a token is empty or occurs twice.
    pub(super) fn new(tokens: &'a TokenList) -> Result<Self> {
        let mut places = Table::<u64>::with_room(tokens.len());
        for (place, (id, token)) in (1u64..).zip(tokens.iter()) {
            if token.is_empty() {
                return Err(Error::tokenizer(format!("token {id} is empty")));
            }
            let entry = places.value_mut(token);
            if *entry != 0 {
                return Err(Error::tokenizer(format!(
                    "the token {} occurs twice, with the ids {} and {id}",
                    shown_token(token),
                    *entry as u32,
                )));
            }
            *entry = place << 32 | u64::from(id);
        }
        Ok(TokenIndex { tokens, places })
    }

    pub(super) fn id(&self, token: &[u8]) -> Option<u32> {
        self.places.get(token).map(|found| found as u32)
    }

    /// The id of the token `buffer[start..end]`.
    #[inline]
    pub(super) fn id_within(&self, buffer: &[u8], start: usize, end: usize) -> Option<u32> {
        self.places.get_within(buffer, start, end).map(|found| found as u32)
    }

    /// The id of a token that is probably at `place` of the list, or the next one. Sets `place` to
    /// where it was found.
    pub(super) fn id_from(&self, place: &mut usize, token: &[u8]) -> Option<u32> {
        for i in [*place, *place + 1] {
            if i < self.tokens.len()
                && let (id, candidate) = self.tokens.get(i)
                && candidate == token
            {
                *place = i;
                return Some(id);
            }
        }
        let found = self.places.get(token)?;
        *place = (found >> 32) as usize - 1;
        Some(found as u32)
    }
}
