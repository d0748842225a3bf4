//! The merges and special tokens of a file, resolved to ids of its vocabulary.
//!
//! A file may list its merges before its vocabulary, so they are kept by their bytes until both are
//! known. The two halves of a merge are adjacent in one buffer: the bytes of its result are the slice
//! over both, and a lookup needs no concatenation.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::spelling::{self, shown_spelling};
use super::vocabulary::{TokenIndex, Vocabulary};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{MAX_ID, Merge, SpecialToken, TokenList, shown, shown_token};

/// Merges by the bytes of their halves.
#[derive(Debug, Default)]
pub(super) struct MergeNames {
    bytes: Vec<u8>,
    /// (end of the left half, end of the right half) in `bytes`
    ends: Vec<(usize, usize)>,
}

impl MergeNames {
    /// Adds a merge spelled `left right`; an error is the reason without the place.
    pub(super) fn push_line(&mut self, line: &str) -> Result<(), String> {
        match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => {
                self.push_half(left)?;
                let middle = self.bytes.len();
                self.push_half(right)?;
                self.ends.push((middle, self.bytes.len()));
                Ok(())
            }
            _ => Err(format!("{} is not two tokens with a space between", shown(line))),
        }
    }

    fn push_half(&mut self, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Err("one of the two tokens is empty".to_owned());
        }
        spelling::push_bytes(text, &mut self.bytes)
            .map_err(|c| format!("the token {} contains {c:?}, which spells no byte", shown(text)))
    }

    /// The merges by id. `place` names the `i`th in a message.
    pub(super) fn resolve(
        &self,
        index: &TokenIndex<'_>,
        place: impl Fn(usize) -> String,
    ) -> Result<Vec<Merge>> {
        let mut merges = Vec::with_capacity(self.ends.len());
        let (mut start, mut place_of_result) = (0, 0);
        for (i, &(middle, end)) in self.ends.iter().enumerate() {
            let [left, right, result] =
                [start..middle, middle..end, start..end].map(|range| &self.bytes[range]);
            let unknown = |token: &[u8]| {
                Error::tokenizer(format!(
                    "{}: the merge of {} and {} needs the token {}, which is not in the vocabulary",
                    place(i),
                    shown_spelling(left),
                    shown_spelling(right),
                    shown_spelling(token),
                ))
                .with_hint("the vocabulary and the merges may be from different tokenizers")
            };
            merges.push(Merge {
                left: index.id_within(&self.bytes, start, middle).ok_or_else(|| unknown(left))?,
                right: index.id_within(&self.bytes, middle, end).ok_or_else(|| unknown(right))?,
                // Vocabularies are ordered by id, and ids follow the order of the merges.
                result: index
                    .id_from(&mut place_of_result, result)
                    .ok_or_else(|| unknown(result))?,
            });
            start = end;
        }
        Ok(merges)
    }
}

impl<'de> Deserialize<'de> for MergeNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(MergeListVisitor)
    }
}

struct MergeListVisitor;

impl<'de> Visitor<'de> for MergeListVisitor {
    type Value = MergeNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MergeNames, A::Error> {
        let mut names = MergeNames::default();
        while list.next_element_seed(MergeSeed(&mut names))?.is_some() {}
        Ok(names)
    }
}

/// Appends one merge, `"a b"` or `["a", "b"]`, to the names.
struct MergeSeed<'n>(&'n mut MergeNames);

impl MergeSeed<'_> {
    fn malformed<E: serde::de::Error>(&self, why: &str) -> E {
        E::custom(format!("merge {}: {why}", self.0.ends.len()))
    }
}

impl<'de> DeserializeSeed<'de> for MergeSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MergeSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "merge {} as \"a b\" or [\"a\", \"b\"]", self.0.ends.len())
    }

    fn visit_str<E: serde::de::Error>(self, line: &str) -> Result<(), E> {
        self.0.push_line(line).map_err(|why| self.malformed(&why))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<(), A::Error> {
        let left = pair.next_element_seed(HalfSeed(self.0))?;
        let middle = self.0.bytes.len();
        let right = pair.next_element_seed(HalfSeed(self.0))?;
        match (left, right) {
            (Some(()), Some(())) if pair.next_element::<IgnoredAny>()?.is_none() => {
                self.0.ends.push((middle, self.0.bytes.len()));
                Ok(())
            }
            _ => Err(self.malformed("a merge is of two tokens")),
        }
    }
}

/// Reads one of the two strings of `["a", "b"]`.
struct HalfSeed<'n>(&'n mut MergeNames);

impl<'de> DeserializeSeed<'de> for HalfSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for HalfSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a token of merge {}", self.0.ends.len())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let i = self.0.ends.len();
        self.0.push_half(text).map_err(|why| E::custom(format!("merge {i}: {why}")))
    }
}

/// The special tokens that the caller requested. One without an id gets the id that `id_of` returns
/// for its text, else the next one after all ids in use.
pub(super) fn assign_ids(
    requested: &[(String, Option<u32>)],
    vocabulary: &Vocabulary,
    id_of: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<SpecialToken>> {
    let largest = vocabulary.ids().chain(requested.iter().filter_map(|(_, id)| *id)).max();
    let mut next = largest.map_or(0, |id| u64::from(id) + 1);
    let mut specials = Vec::with_capacity(requested.len());
    for (text, id) in requested {
        let id = match id.or_else(|| id_of(text)) {
            Some(id) => id,
            None => {
                next += 1;
                u32::try_from(next - 1).unwrap_or(u32::MAX)
            }
        };
        if id > MAX_ID {
            return Err(Error::tokenizer(format!(
                "the special token {} would have the id {id}; the largest possible is {MAX_ID}",
                shown(text)
            )));
        }
        specials.push(SpecialToken { text: text.clone(), id, control: true });
    }
    Ok(specials)
}

/// The ids of the special tokens whose plain text is a key of `vocabulary`; `index` is that of its
/// tokens.
pub(super) fn specials_in(
    vocabulary: &Vocabulary,
    index: &TokenIndex<'_>,
    specials: &[SpecialToken],
) -> Result<HashSet<u32>> {
    let mut ids = HashSet::new();
    for special in specials {
        match vocabulary.id_of_key(index, &special.text) {
            Some(id) if id == special.id => {
                ids.insert(id);
            }
            Some(id) => {
                return Err(Error::tokenizer(format!(
                    "the special token {} has the id {}, but {id} in the vocabulary",
                    shown(&special.text),
                    special.id
                ))
                .with_hint("a special token that is in the vocabulary keeps its id there"));
            }
            None => {}
        }
    }
    Ok(ids)
}

/// The ordinary tokens of `vocabulary`: all but the entries with the ids `among`, which are special
/// tokens. An error unless the texts of special tokens are distinct and not empty, no merge creates or
/// uses one, and no two tokens of either kind have the same id.
pub(super) fn without_specials(
    vocabulary: Vocabulary,
    merges: &[Merge],
    specials: &[SpecialToken],
    among: &HashSet<u32>,
) -> Result<TokenList> {
    check_texts(specials)?;
    check_ids(&vocabulary, specials, among)?;
    if !specials.is_empty() {
        check_merges(merges, specials)?;
    }
    vocabulary.ordinary(among)
}

fn check_texts(specials: &[SpecialToken]) -> Result<()> {
    if let Some(special) = specials.iter().find(|special| special.text.is_empty()) {
        return Err(Error::tokenizer(format!("the special token {} is empty", special.id)));
    }
    let mut texts: Vec<&str> = specials.iter().map(|special| special.text.as_str()).collect();
    texts.sort_unstable();
    match texts.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let text = shown(pair[0]);
            Err(Error::tokenizer(format!("the special token {text} occurs twice")))
        }
    }
}

fn check_ids(
    vocabulary: &Vocabulary,
    specials: &[SpecialToken],
    among: &HashSet<u32>,
) -> Result<()> {
    let own = specials.iter().map(|special| special.id).filter(|id| !among.contains(id));
    // A special token in the vocabulary shares the id of its own entry, which is no conflict.
    let mut ids: Vec<u32> = vocabulary.ids().chain(own).collect();
    if ids.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    ids.sort_unstable();
    let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
    let id = pair[0];
    let ordinary = vocabulary.tokens.iter().filter(|&(i, _)| i == id).map(|(_, t)| shown_token(t));
    let plain = vocabulary.plain.iter().filter(|&(_, &i)| i == id).map(|(text, _)| shown(text));
    let special = specials.iter().filter(|special| special.id == id).map(|s| shown(&s.text));
    let names: Vec<String> = ordinary.chain(plain).chain(special).take(2).collect();
    Err(Error::tokenizer(format!("two tokens have the id {id}: {}", names.join(" and "))))
}

fn check_merges(merges: &[Merge], specials: &[SpecialToken]) -> Result<()> {
    let mut ids: Vec<u32> = specials.iter().map(|special| special.id).collect();
    ids.sort_unstable();
    for (i, merge) in merges.iter().enumerate() {
        let used = [merge.left, merge.right, merge.result];
        if let Some(id) = used.into_iter().find(|id| ids.binary_search(id).is_ok()) {
            let text = specials.iter().find(|special| special.id == id).map(|s| shown(&s.text));
            return Err(Error::tokenizer(format!(
                "merge {i} makes or uses the token {id}, which is the special token {}",
                text.unwrap_or_default()
            ))
            .with_hint("a special token takes no part in merges"));
        }
    }
    Ok(())
}
