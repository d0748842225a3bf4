//! What every reader checks, and how values are shown in messages.

use super::byte_alphabet;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::spec::{Merge, SpecialToken, TokenList};

/// The largest id: the number after it can still be counted.
pub(super) const MAX_ID: u32 = u32::MAX - 1;

/// The id that decimal `digits` spell.
pub(super) fn parse_id(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&id| plain && id <= MAX_ID)
}

/// A text for a message: quoted, and cut where it is long.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// A token for a message: as text where it is text, otherwise as bytes.
pub(super) fn shown_token(token: &[u8]) -> String {
    match std::str::from_utf8(token) {
        Ok(text) => shown(text),
        Err(_) => {
            let bytes: String = token.iter().take(20).map(|b| format!("\\x{b:02x}")).collect();
            format!("b\"{bytes}\"{}", if token.len() > 20 { "…" } else { "" })
        }
    }
}

/// `data` as text.
pub(super) fn utf8(data: &[u8]) -> Result<&str> {
    std::str::from_utf8(data).map_err(|error| {
        let offset = error.valid_up_to();
        let byte = data.get(offset).copied().unwrap_or_default();
        Error::tokenizer(format!("not UTF-8: the byte 0x{byte:02x} at byte offset {offset}"))
    })
}

/// Special tokens as the caller asked for them, with the ids that were left open filled in: the id
/// that `vocabulary` has for the text, otherwise the next after every id in use.
pub(super) fn place_specials(
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
                "no id is left for the special token {}: the largest possible is {MAX_ID}",
                shown(text)
            )));
        }
        specials.push(SpecialToken { text: text.clone(), id, control: true });
    }
    Ok(specials)
}

/// Special tokens must have a text, all different; no merge may make one or use one; and no two
/// tokens, of either kind, may have the same id.
pub(super) fn check_ids(
    tokens: &TokenList,
    merges: &[Merge],
    specials: &[SpecialToken],
) -> Result<()> {
    let mut texts: Vec<&str> = specials.iter().map(|special| special.text.as_str()).collect();
    texts.sort_unstable();
    if let Some(pair) = texts.windows(2).find(|pair| pair[0] == pair[1]) {
        let text = shown(pair[0]);
        return Err(Error::tokenizer(format!("the special token {text} is there twice")));
    }
    if let Some(special) = specials.iter().find(|special| special.text.is_empty()) {
        return Err(Error::tokenizer(format!("the special token {} is empty", special.id)));
    }

    let mut special_ids: Vec<u32> = specials.iter().map(|special| special.id).collect();
    special_ids.sort_unstable();
    let is_special = |id: &u32| special_ids.binary_search(id).is_ok();
    if !special_ids.is_empty() {
        for (i, merge) in merges.iter().enumerate() {
            let parts = [merge.left, merge.right, merge.result];
            if let Some(id) = parts.iter().find(|id| is_special(id)) {
                return Err(Error::tokenizer(format!(
                    "merge {i} uses the id {id}, which is that of a special token"
                ))
                .with_hint(
                    "a special token never takes part in merges; give it an id of its own",
                ));
            }
        }
    }

    let mut ids: Vec<u32> = tokens.iter().map(|(id, _)| id).chain(special_ids).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let id = pair[0];
            let ordinary = tokens.iter().filter(|&(i, _)| i == id).map(|(_, t)| shown_token(t));
            let special = specials.iter().filter(|s| s.id == id).map(|s| shown(&s.text));
            let names: Vec<String> = ordinary.chain(special).take(2).collect();
            let names = names.join(" and ");
            Err(Error::tokenizer(format!("two tokens have the id {id}: {names}")))
        }
    }
}

/// The spelling of a token in GPT-2's alphabet, for a message.
pub(super) fn shown_spelling(token: &[u8]) -> String {
    shown(&byte_alphabet::encode(token))
}
