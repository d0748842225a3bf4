//! GPT-2's pair of files: `vocab.json`, an object from token to id, and `merges.txt`, one merge a
//! line, both spelled in the byte alphabet.
//!
//! The files state neither the split pattern nor which tokens are special; the caller provides both.

use std::collections::HashSet;

use super::fields::{canonical_pattern, parse_json, utf8};
use super::resolve::{self, MergeNames};
use super::spelling::{Spelled, listed, shown_spelling, spell};
use super::tiktoken::check_rank_order;
use super::vocabulary::{TokenIndex, Vocabulary};
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, MergeRule, Spec, TokenList};

/// Reads `vocab.json` and `merges.txt`.
///
/// A special token has the id given, else that of its text in the vocabulary, else the next free
/// one. If none are given, entries that look like one (`<|…|>`, `<s>`, `</s>`, `<pad>`, `<unk>`,
/// `<mask>`) and that no merge creates or uses are special.
pub fn read_gpt2(
    vocab_json: &[u8],
    merges_txt: &[u8],
    pattern: &[String],
    special_tokens: &[(String, Option<u32>)],
) -> Result<Spec> {
    let vocabulary: Vocabulary = parse_json(vocab_json)?;
    let index = TokenIndex::new(&vocabulary.tokens)?;
    let merges = read_merges_txt(merges_txt, &index)?;

    let found;
    let requested = if special_tokens.is_empty() {
        found = find_specials(&vocabulary, &merges);
        &found
    } else {
        special_tokens
    };
    let id_of = |text: &str| vocabulary.id_of_key(&index, text);
    let specials = resolve::assign_ids(requested, &vocabulary, id_of)?;
    let among = resolve::specials_in(&vocabulary, &index, &specials)?;
    check_made(&vocabulary.tokens, &merges, &index, &among)?;
    drop(index);
    let tokens = resolve::without_specials(vocabulary, &merges, &specials, &among)?;
    Ok(Spec {
        pattern: canonical_pattern(pattern),
        tokens,
        merges: MergeRule::List(merges),
        specials,
        ignore_merges: false,
    })
}

/// Skips empty lines, and a first line `#version…`.
fn read_merges_txt(merges_txt: &[u8], index: &TokenIndex<'_>) -> Result<Vec<Merge>> {
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

/// Tokens without a merge that are allowed if none of them is two other tokens end to end: fairseq
/// pads its vocabularies with words such as `madeupword0000`.
const MAX_FILLERS: usize = 64;
/// Longer tokens are not searched for two other tokens.
const MAX_HALVED: usize = 1 << 10;

/// Fails if tokens lack the merges that create them: the two files are from different tokenizers, or
/// one is truncated.
///
/// Bytes and special tokens have no merges. Nor have entries that are special tokens although the
/// file does not declare them: `<…>` and `[…]`, those before the first byte, where trainers put them,
/// and a few fillers. Every other token of a learned tokenizer has one, above all one that is two
/// other tokens end to end.
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
        looks_special.then(|| (spell(token), id))
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

/// Writes `vocab.json`, which includes the special tokens, and `merges.txt`.
///
/// The files cannot state `ignore_merges`, so this fails if a token could not be created without it.
pub fn write_gpt2(spec: &Spec) -> Result<(Vec<u8>, Vec<u8>)> {
    let merges = listed(spec)?;
    if spec.ignore_merges {
        check_rank_order(spec, merges, false).map_err(|error| {
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
