//! The ids of special tokens, and the ordinary tokens of a vocabulary without them.

use std::collections::HashSet;

use super::fields::MAX_ID;
use super::vocabulary::{TokenIndex, Vocabulary};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, SpecialToken, TokenList, shown, shown_token};

/// The special tokens that the caller requested. One without an id gets the id that `id_of` returns
/// for its text, else the next one after all ids in use.
pub(super) fn assign(
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
pub(super) fn in_vocabulary(
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
pub(super) fn remove(
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
        let parts = [merge.left, merge.right, merge.result];
        if let Some(id) = parts.into_iter().find(|id| ids.binary_search(id).is_ok()) {
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
