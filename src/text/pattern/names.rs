//! The named patterns: names, aliases, regular expressions, and equivalent spellings of those.
//!
//! A string that looks like a name is never a regular expression: an unknown one is refused, because
//! an expression of plain letters would cut hardly anything and go unnoticed.
//!
//! The same pattern has many spellings: with or without possessive quantifiers, a class in brackets
//! or bare, one tail of alternatives for another. A spelling counts as a name only if it cuts every
//! text alike. So it is not normalized (dropping the possessive plus of `\s++(?!\S)` would change
//! its meaning) but compared, alternative by alternative, with spellings that were proven equal; the
//! tests check each against the scanner.

use crate::base::error::Error;

/// The names of the patterns that have scanners.
pub const NAMES: &[&str] = &["gpt2", "cl100k", "o200k", "llama3", "qwen2"];

/// Other names of the patterns: encodings and models of tiktoken, pre-tokenizers of llama.cpp, models
/// whose `tokenizer.json` has the pattern (Qwen 3.5 has not). Lower case, without `-`, `_` and `.`,
/// which are ignored in names.
const ALIASES: &[(&str, &[&str])] = &[
    ("gpt2", &["gpt2", "r50k", "r50kbase", "p50k", "p50kbase", "p50kedit"]),
    ("cl100k", &["cl100k", "cl100kbase", "gpt4", "gpt35", "gpt35turbo"]),
    (
        "o200k",
        &["o200k", "o200kbase", "o200kharmony", "gpt4o", "gpt4omini", "gpt41", "gpt5", "gptoss"],
    ),
    ("llama3", &["llama3", "llamabpe", "llama31", "llama32", "llama33"]),
    ("qwen2", &["qwen2", "qwen25", "qwen3"]),
];

/// A pattern as a list of alternatives, or groups of them, each with its equivalent spellings.
type Alternatives = &'static [&'static [&'static str]];

// No two contractions match at one position, so their order does not matter; these orders are common.
const CONTRACTIONS: &[&str] = &[
    r"'(?:[sdmt]|ll|ve|re)",
    r"'s|'t|'re|'ve|'m|'ll|'d",
    r"(?:'s|'t|'re|'ve|'m|'ll|'d)",
    r"'(?:s|t|re|ve|m|ll|d)",
    r"'(?:s|d|m|t|ll|ve|re)",
];
const ANY_CASE: &[&str] = &[
    r"'(?i:[sdmt]|ll|ve|re)",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r"'(?i:s|t|re|ve|m|ll|d)",
    r"'(?i:s|d|m|t|ll|ve|re)",
];
// The prefix is not a letter and a letter follows it, so possessive or not is the same. The same holds
// for every run below: nothing that follows could match a character that the run gives back.
const WORD: &[&str] = &[
    r"[^\r\n\p{L}\p{N}]?+\p{L}++",
    r"[^\r\n\p{L}\p{N}]?+\p{L}+",
    r"[^\r\n\p{L}\p{N}]?\p{L}++",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
];
// Oniguruma reads `{1,3}+` as any number of groups; here it is possessive, as tiktoken means it.
const THREE_DIGITS: &[&str] = &[r"\p{N}{1,3}+", r"\p{N}{1,3}"];
const SYMBOLS: &[&str] = &[
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
    r" ?[^\s\p{L}\p{N}]++[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
];
// After the other alternatives, `\s+` is only reached at a single character of white space before
// something else, so `\s` is the same; and `\s*[\r\n]` always ends at the last line break of the run,
// so `[\r\n]+` never finds another.
const LLAMA3_TAIL: &[&str] = &[
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\s*[\r\n]+|\s+(?!\S)|\s",
    r"\s*[\r\n]|\s+(?!\S)|\s+",
    r"\s*[\r\n]|\s+(?!\S)|\s",
];
// Without `\s+$`: where `$` is the end of a line, it can stop in the middle of a run. A possessive run
// cannot, since no line break follows it.
const CL100K_TAIL: &[&str] = &[
    r"\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"\s++$|\s*[\r\n]|\s+(?!\S)|\s+",
    r"\s++$|\s*[\r\n]+|\s+(?!\S)|\s",
    r"\s++$|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\s++\z|\s*[\r\n]|\s+(?!\S)|\s",
    r"\s++\z|\s*[\r\n]|\s+(?!\S)|\s+",
    r"\s++\z|\s*[\r\n]+|\s+(?!\S)|\s",
    r"\s++\z|\s*[\r\n]+|\s+(?!\S)|\s+",
];

const GPT2: Alternatives = &[
    CONTRACTIONS,
    &[r" ?\p{L}++", r" ?\p{L}+", r" ?[\p{L}]+", r" ?[\p{L}]++"],
    &[r" ?\p{N}++", r" ?\p{N}+", r" ?[\p{N}]+", r" ?[\p{N}]++"],
    &[r" ?[^\s\p{L}\p{N}]++", r" ?[^\s\p{L}\p{N}]+"],
    &[
        r"\s++$|\s+(?!\S)|\s",
        r"\s++$|\s+(?!\S)|\s+",
        r"\s++\z|\s+(?!\S)|\s",
        r"\s++\z|\s+(?!\S)|\s+",
        r"\s+(?!\S)|\s+",
        r"\s+(?!\S)|\s",
    ],
];
const CL100K: Alternatives = &[ANY_CASE, WORD, THREE_DIGITS, SYMBOLS, CL100K_TAIL];
const LLAMA3: Alternatives = &[ANY_CASE, WORD, THREE_DIGITS, SYMBOLS, LLAMA3_TAIL];
const QWEN2: Alternatives = &[ANY_CASE, WORD, &[r"\p{N}"], SYMBOLS, LLAMA3_TAIL];
const O200K: Alternatives = &[
    &[
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    ],
    &[
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    ],
    THREE_DIGITS,
    &[
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*+",
        r" ?[^\s\p{L}\p{N}]++[\r\n/]*",
        r" ?[^\s\p{L}\p{N}]++[\r\n/]*+",
    ],
    LLAMA3_TAIL,
];

const SPELLINGS: &[(&str, Alternatives)] =
    &[("gpt2", GPT2), ("cl100k", CL100K), ("o200k", O200K), ("llama3", LLAMA3), ("qwen2", QWEN2)];

/// The canonical name of a name, an alias, or a regular expression that is known to cut alike.
pub fn known(text: &str) -> Option<&'static str> {
    if is_name(text) {
        let plain = plain(text);
        let has = |aliases: &[&str]| aliases.contains(&plain.as_str());
        return ALIASES.iter().find(|(_, aliases)| has(aliases)).map(|(name, _)| *name);
    }
    SPELLINGS.iter().find(|(_, alternatives)| spells(text, alternatives)).map(|(name, _)| *name)
}

/// Whether `text` looks like a name: word characters, `-` and `.`, with at least one word character.
pub fn is_name(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.contains(is_word) && text.chars().all(|c| is_word(c) || c == '-' || c == '.')
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !"-_.".contains(*c)).flat_map(char::to_lowercase).collect()
}

/// The error for an unknown name, with suggestions.
pub fn unknown(text: &str) -> Error {
    // Longer strings are not misspelled names, and the distance is quadratic.
    let wanted: String = plain(text).chars().take(64).collect();
    let distance = |(name, aliases): &(&'static str, &[&str])| {
        let nearest = aliases.iter().map(|alias| edits(&wanted, alias)).min();
        (nearest.unwrap_or(usize::MAX), *name)
    };
    let mut near: Vec<_> = ALIASES.iter().map(distance).collect();
    near.sort_by_key(|&(distance, _)| distance);
    near.retain(|&(distance, _)| distance <= 1 + wanted.chars().count() / 4);
    let near: Vec<&str> = near.iter().map(|&(_, name)| name).take(3).collect();
    let suggested = match near[..] {
        [] => String::new(),
        _ => format!("did you mean {}? ", near.join(" or ")),
    };
    Error::config(format!("unknown split pattern {text:?}")).with_hint(format!(
        "{suggested}known patterns are {}, and their names in tiktoken and other libraries; to use \
         the string as a regular expression, write (?:{text})",
        NAMES.join(", ")
    ))
}

/// The edit distance of two strings.
fn edits(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, b) in other.chars().enumerate() {
            let replaced = before + usize::from(a != b);
            before = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Whether `text` is one spelling of each alternative, joined by bars.
fn spells(text: &str, alternatives: Alternatives) -> bool {
    let Some((first, rest)) = alternatives.split_first() else { return false };
    first.iter().any(|spelling| match text.strip_prefix(spelling) {
        Some(after) if rest.is_empty() => after.is_empty(),
        Some(after) => after.strip_prefix('|').is_some_and(|after| spells(after, rest)),
        None => false,
    })
}

/// The regular expression of a named pattern as tiktoken spells it, in the syntax of
/// `fancy-regex`; for patterns that tiktoken does not have, as their authors spell it.
pub fn tiktoken_regex(name: &str) -> Option<&'static str> {
    Some(match name {
        "gpt2" => {
            r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
        }
        "cl100k" => {
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
        }
        _ => return huggingface_regex(name),
    })
}

/// The regular expression of a named pattern in a spelling that Oniguruma, the engine of Hugging
/// Face `tokenizers`, and `fancy-regex` give the same meaning: no `$`, which matches the end of a line
/// in Oniguruma, and no plus after `{1,3}`, which is not possessive there.
pub fn huggingface_regex(name: &str) -> Option<&'static str> {
    Some(match name {
        "gpt2" => r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        "cl100k" => {
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s++\z|\s*[\r\n]+|\s+(?!\S)|\s+"
        }
        "o200k" => {
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        }
        "llama3" => {
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        }
        "qwen2" => {
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        }
        _ => return None,
    })
}

/// All spellings of a named pattern, each with the number of alternatives not in their first spelling.
#[cfg(test)]
pub fn spellings(name: &str) -> Vec<(String, usize)> {
    let alternatives = SPELLINGS
        .iter()
        .find(|(other, _)| *other == name)
        .map_or(GPT2, |(_, alternatives)| alternatives);
    alternatives.iter().fold(vec![(String::new(), 0)], |heads, alternative| {
        let with = |(head, n_changes): &(String, usize)| -> Vec<(String, usize)> {
            let bar = if head.is_empty() { "" } else { "|" };
            let join = |(number, spelling)| {
                (format!("{head}{bar}{spelling}"), n_changes + usize::from(number > 0))
            };
            alternative.iter().enumerate().map(join).collect()
        };
        heads.iter().flat_map(with).collect()
    })
}
