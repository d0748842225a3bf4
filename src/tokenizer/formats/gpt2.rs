//! GPT-2's pair of files: `vocab.json`, an object from token to id, and `merges.txt`, one merge a
//! line, both spelled in the byte alphabet.
//!
//! The files know neither the split pattern nor which tokens are special: the caller does.

use std::collections::HashSet;

use super::check::{shown_spelling, utf8};
use super::index::TokenIndex;
use super::merge_names::MergeNames;
use super::spelled::{Spelled, listed};
use super::vocabulary::Vocabulary;
use super::{by_rank, byte_alphabet, canonical_pattern, json, specials};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, MergeRule, Spec, TokenList};

/// Reads `vocab.json` and `merges.txt`.
///
/// A special token takes the id that the vocabulary has for its text, or the one given, or the
/// next free one. Where no special tokens are given, the entries that look like one (`<|…|>`,
/// `<s>`, `</s>`, `<pad>`, `<unk>`, `<mask>`) and that no merge makes are taken for special; other
/// tokens that no merge makes stay ordinary ones.
pub fn read_gpt2(
    vocab_json: &[u8],
    merges_txt: &[u8],
    pattern: &[String],
    special_tokens: &[(String, Option<u32>)],
) -> Result<Spec> {
    let vocabulary: Vocabulary = json::parse(vocab_json)?;
    let index = TokenIndex::new(&vocabulary.tokens)?;
    let merges = read_merges(merges_txt, &index)?;

    let found;
    let requested = if special_tokens.is_empty() {
        found = find_specials(&vocabulary, &merges);
        &found
    } else {
        special_tokens
    };
    let id_of = |text: &str| vocabulary.id_of_key(&index, text);
    let specials = specials::place(requested, &vocabulary, id_of)?;
    let among = specials::among(&vocabulary, &index, &specials)?;
    check_made(&vocabulary.tokens, &merges, &index, &among)?;
    drop(index);
    let tokens = specials::settle(vocabulary, &merges, &specials, &among)?;
    Ok(Spec {
        pattern: canonical_pattern(pattern),
        tokens,
        merges: MergeRule::List(merges),
        specials,
        ignore_merges: false,
    })
}

/// Reads the lines of `merges.txt`: a first line `#version…` is no merge, empty lines are none.
fn read_merges(merges_txt: &[u8], index: &TokenIndex<'_>) -> Result<Vec<Merge>> {
    let text = utf8(merges_txt)?;
    let mut names = MergeNames::default();
    let mut lines = Vec::new();
    for (i, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() || i == 0 && line.starts_with("#version") {
            continue;
        }
        names
            .push_line(line)
            .map_err(|why| Error::tokenizer(format!("merges, line {}: {why}", i + 1)))?;
        lines.push(i + 1);
    }
    names.resolve(index, |i| format!("merges, line {}", lines[i]))
}

/// Tokens without a merge that are borne with where none of them looks as if it had one: fairseq
/// fills its vocabularies up with words of its own (`madeupword0000`).
const MAX_FILLERS: usize = 64;
/// Longer tokens are not searched for their halves.
const MAX_HALVED: usize = 1 << 10;

/// Fails if tokens lack the merges that make them: then the two files are not of one tokenizer, or
/// one is cut off.
///
/// Bytes and special tokens have no merges. Nor have entries that are meant as special tokens,
/// though the file does not say so: `<…>` and `[…]`, those before the first byte, where trainers put them,
/// and a few fillers. No other token of a tokenizer that was learnt does without; one that is two
/// other tokens end to end certainly does not.
fn check_made(
    tokens: &TokenList,
    merges: &[Merge],
    index: &TokenIndex<'_>,
    specials: &HashSet<u32>,
) -> Result<()> {
    let made: HashSet<u32> = merges.iter().map(|merge| merge.result).collect();
    let first_byte = tokens.iter().filter(|(_, token)| token.len() == 1).map(|(id, _)| id).min();
    let is_marker = |token: &[u8]| {
        let ends = (token.first(), token.last());
        matches!(ends, (Some(b'<'), Some(b'>')) | (Some(b'['), Some(b']')))
    };
    let unmade: Vec<(u32, &[u8])> = tokens
        .iter()
        .filter(|(id, token)| token.len() > 1 && !made.contains(id) && !specials.contains(id))
        .filter(|&(id, token)| !is_marker(token) && first_byte.is_none_or(|first| id > first))
        .collect();
    let has_halves = |&&(_, token): &&(u32, &[u8])| {
        let halves = |at| index.id(&token[..at]).and_then(|_| index.id(&token[at..]));
        token.len() <= MAX_HALVED && (1..token.len()).any(|at| halves(at).is_some())
    };
    let halved = unmade.iter().find(has_halves);
    let Some((id, token)) = halved.or_else(|| unmade.get(MAX_FILLERS)) else { return Ok(()) };
    Err(Error::tokenizer(format!(
        "the vocabulary has {} tokens and merges.txt {} merges, which do not belong together: no \
         merge makes {} (id {id}), one of {} such tokens",
        tokens.len(),
        merges.len(),
        shown_spelling(token),
        unmade.len(),
    ))
    .with_hint(
        "the two files may be of different tokenizers, or merges.txt is incomplete; if such tokens \
         are special tokens, name them as special tokens",
    ))
}

/// The entries that look like special tokens and that no merge makes or uses.
fn find_specials(vocabulary: &Vocabulary, merges: &[Merge]) -> Vec<(String, Option<u32>)> {
    let merged: HashSet<u32> = merges.iter().flat_map(|m| [m.left, m.right, m.result]).collect();
    let spelled = vocabulary.tokens.iter().filter_map(|(id, token)| {
        let looks_special = token.first() == Some(&b'<') && token.last() == Some(&b'>');
        looks_special.then(|| (byte_alphabet::encode(token), id))
    });
    spelled
        .chain(vocabulary.plain.iter().map(|(text, id)| (text.clone(), *id)))
        .filter(|(text, id)| looks_special(text) && !merged.contains(id))
        .map(|(text, id)| (text, Some(id)))
        .collect()
}

fn looks_special(text: &str) -> bool {
    matches!(text, "<s>" | "</s>" | "<pad>" | "<unk>" | "<mask>")
        || text.len() >= 4 && text.starts_with("<|") && text.ends_with("|>")
}

/// Writes `vocab.json`, with the special tokens in it, and `merges.txt`.
///
/// The files have no place for `ignore_merges`: where a token would be lost without it, this fails.
pub fn write_gpt2(spec: &Spec) -> Result<(Vec<u8>, Vec<u8>)> {
    let merges = listed(spec)?;
    if spec.ignore_merges {
        by_rank::check(spec, merges, false).map_err(|error| {
            error.with_hint(
                "vocab.json and merges.txt cannot say that a piece which is a token ignores the \
                 merges; save a tokenizer.json",
            )
        })?;
    }
    check_made(&spec.tokens, merges, &TokenIndex::new(&spec.tokens)?, &HashSet::new())?;
    let spelled = Spelled::new(spec)?;
    let mut vocab_json = String::from("{");
    for (i, (id, key)) in spelled.entries.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let key = serde_json::Value::from(key.as_str());
        vocab_json += &format!("{comma}{key}: {id}");
    }
    vocab_json += "}\n";

    let mut merges_txt = String::from("#version: 0.2\n");
    for line in spelled.merge_lines(merges)? {
        merges_txt += &line;
        merges_txt.push('\n');
    }
    Ok((vocab_json.into_bytes(), merges_txt.into_bytes()))
}
