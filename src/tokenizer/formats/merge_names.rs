//! The merges of a file as pairs of spellings, before they are resolved to ids.
//!
//! A file may list its merges before its vocabulary, so they are kept by their bytes until both are
//! known. The two halves of a merge are adjacent in one buffer: the bytes of its result are the slice
//! over both, and a lookup needs no concatenation.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::spelling::{self, shown_spelling};
use super::vocabulary::TokenIndex;
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, shown};

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
