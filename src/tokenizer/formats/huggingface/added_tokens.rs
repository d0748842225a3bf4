//! The added tokens of a `tokenizer.json`: special tokens to us, all of them.

use aho_corasick::AhoCorasick;
use serde::Deserialize;

use crate::base::error::{Error, Result};
use crate::tokenizer::formats::check::{MAX_ID, shown};
use crate::tokenizer::formats::vocabulary::Id;
use crate::tokenizer::spec::SpecialToken;

/// An added token as it stands in the file.
#[derive(Deserialize)]
pub(super) struct AddedToken {
    content: String,
    id: Id,
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

/// The special tokens that the file declares.
pub(super) fn read(added: Vec<AddedToken>) -> Result<Vec<SpecialToken>> {
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

/// `normalized` means to look for a token in the normalized text, which is the text itself where
/// there is no normalizer. But `tokenizers` looks for those tokens second, in what the others leave,
/// while here the first and longest of all wins. The two differ only where a token of the others
/// lies inside a normalized one, or begins inside it.
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
        // Sorted, what begins with a text comes right after it.
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
