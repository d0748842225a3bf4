//! Tokens as `vocab.json` and `tokenizer.json` spell them: one printable character for each byte.
//!
//! A byte that Latin-1 prints (all but controls, the two spaces and the soft hyphen) is spelled by
//! the character of the same number; the other 68 are U+0100, U+0101, … in order. A space is
//! therefore `Ġ`, a newline `Ċ`, and no spelling contains white space.

use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, MergeRule, Spec, shown};
use std::collections::HashMap;

/// One past the last character of the alphabet.
const ALPHABET_END: usize = 0x100 + 68;
/// Marks a character that spells no byte.
const NO_BYTE: u16 = u16::MAX;

const SPELLING: [char; 256] = spelling();
const BYTE: [u16; ALPHABET_END] = bytes();

const fn is_printed(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn spelling() -> [char; 256] {
    let mut table = ['\0'; 256];
    let (mut i, mut next) = (0, 0x100);
    while i < 256 {
        table[i] = if is_printed(i as u8) {
            i as u8 as char
        } else {
            next += 1;
            match char::from_u32(next - 1) {
                Some(c) => c,
                None => '\0',
            }
        };
        i += 1;
    }
    table
}

const fn bytes() -> [u16; ALPHABET_END] {
    let mut table = [NO_BYTE; ALPHABET_END];
    let mut i = 0;
    while i < 256 {
        table[SPELLING[i] as usize] = i as u16;
        i += 1;
    }
    table
}

/// Appends the bytes that `text` spells. An error is the first character that spells none; `out` is
/// then unchanged.
pub(super) fn push_bytes(text: &str, out: &mut Vec<u8>) -> Result<(), char> {
    let start = out.len();
    out.reserve(text.len());
    for c in text.chars() {
        match BYTE.get(c as usize) {
            Some(&byte) if byte != NO_BYTE => out.push(byte as u8),
            _ => {
                out.truncate(start);
                return Err(c);
            }
        }
    }
    Ok(())
}

/// The bytes that `text` spells; None if a character spells none.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    push_bytes(text, &mut bytes).ok()?;
    Some(bytes)
}

pub(super) fn spell(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| SPELLING[byte as usize]).collect()
}

/// The spelling of a token, for a message.
pub(super) fn shown_spelling(token: &[u8]) -> String {
    shown(&spell(token))
}

/// The keys and ids of a vocabulary, sorted by id: ordinary tokens in the byte alphabet, special
/// tokens as plain text. No key and no id occurs twice.
pub(super) struct Spelled {
    pub(super) entries: Vec<(u32, String)>,
}

impl Spelled {
    /// Refuses a special token whose text is the spelling of an ordinary one: they would share a key.
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        let ordinary = spec.tokens.iter().map(|(id, token)| (id, spell(token)));
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
        // Without gaps, the id is the place.
        let place = match self.entries.get(id as usize) {
            Some((found, _)) if *found == id => Ok(id as usize),
            _ => self.entries.binary_search_by_key(&id, |&(id, _)| id),
        };
        let unknown = |_| Error::tokenizer(format!("a merge uses the id {id}, which no token has"));
        place.map(|place| &*self.entries[place].1).map_err(unknown)
    }

    /// Each merge as `left right`: every version of `tokenizers` reads this form, and no spelling
    /// contains a space.
    pub(super) fn merge_lines(&self, merges: &[Merge]) -> Result<Vec<String>> {
        merges
            .iter()
            .map(|merge| Ok([self.key(merge.left)?, self.key(merge.right)?].join(" ")))
            .collect()
    }
}

pub(super) fn listed(spec: &Spec) -> Result<&[Merge]> {
    match &spec.merges {
        MergeRule::List(merges) => Ok(merges),
        MergeRule::ByRank => {
            Err(Error::Bug("a tokenizer file was written from merges by rank".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_spelling_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let text = spell(&all);
        assert_eq!(text.chars().count(), 256);
        assert_eq!(bytes_of(&text), Some(all));
        assert!(!text.chars().any(char::is_whitespace));
    }

    #[test]
    fn spellings_are_those_of_gpt2() {
        assert_eq!(spell(b" \n\0\t\x7f\xa0\xad"), "ĠĊĀĉġłŃ");
        assert_eq!(spell("é~!".as_bytes()), "Ã©~!");
        assert_eq!(ALPHABET_END, 0x144);
    }

    #[test]
    fn others_are_refused_and_change_nothing() {
        // U+0144 is the first character past the alphabet.
        for (text, culprit) in [("a b", ' '), ("a\n", '\n'), ("ń", 'ń'), ("中", '中')] {
            let mut out = b"kept".to_vec();
            assert_eq!(push_bytes(text, &mut out), Err(culprit));
            assert_eq!(out, b"kept");
        }
    }
}
