//! A tokenizer's entries as `vocab.json` and `tokenizer.json` spell them: ordinary tokens in the
//! byte alphabet and special tokens as they are, in the order of their ids.

use std::collections::HashMap;

use super::byte_alphabet;
use super::check::shown;
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, MergeRule, Spec};

/// Keys and ids, sorted by id; no key and no id twice.
pub(super) struct Spelled {
    pub(super) entries: Vec<(u32, String)>,
}

impl Spelled {
    /// The entries of `spec`. A special token whose text is the spelling of an ordinary one is
    /// refused: the two would share a key.
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        let ordinary = spec.tokens.iter().map(|(id, token)| (id, byte_alphabet::encode(token)));
        let special = spec.specials.iter().map(|special| (special.id, special.text.clone()));
        let mut entries: Vec<(u32, String)> = ordinary.chain(special).collect();
        entries.sort_unstable();
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::tokenizer(format!(
                "two tokens have the id {}: {} and {}",
                pair[0].0,
                shown(&pair[0].1),
                shown(&pair[1].1)
            )));
        }
        let mut ids = HashMap::with_capacity(entries.len());
        for (id, key) in &entries {
            if let Some(other) = ids.insert(key.as_str(), *id) {
                return Err(Error::tokenizer(format!(
                    "the tokens {other} and {id} would both be written as {}",
                    shown(key)
                ))
                .with_hint(
                    "a special token must not read like an ordinary token of the vocabulary; \
                     choose a text such as \"<|name|>\"",
                ));
            }
        }
        Ok(Spelled { entries })
    }

    fn key(&self, id: u32) -> Result<&str> {
        match self.entries.binary_search_by_key(&id, |&(id, _)| id) {
            Ok(i) => Ok(&self.entries[i].1),
            Err(_) => {
                Err(Error::tokenizer(format!("a merge uses the id {id}, which is no token's")))
            }
        }
    }

    /// The merges of `spec`, each as `left right`: in this form every version of `tokenizers`
    /// reads them, and no spelling in the byte alphabet contains a space.
    pub(super) fn merge_lines(&self, merges: &[Merge]) -> Result<Vec<String>> {
        merges
            .iter()
            .map(|merge| Ok(format!("{} {}", self.key(merge.left)?, self.key(merge.right)?)))
            .collect()
    }
}

/// The merges of `spec`, which must be a list.
pub(super) fn listed(spec: &Spec) -> Result<&[Merge]> {
    match &spec.merges {
        MergeRule::List(merges) => Ok(merges),
        MergeRule::ByRank => {
            Err(Error::tokenizer("merges by rank have to be listed before they can be written"))
        }
    }
}
