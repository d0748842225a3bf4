//! The named patterns: their names, their regular expressions, and how others spell those.
//!
//! The same pattern goes by many spellings: with possessive quantifiers or without, a class in
//! brackets or bare, one tail of alternatives for another. A spelling is taken for a name only if
//! it cuts every text alike, so it is not normalised (dropping the possessive plus of
//! `\s++(?!\S)`, say, would change its meaning) but compared, part by part, with spellings that
//! were proven equal; the tests hold each against the scanner.

/// The names of the patterns that have scanners.
pub const NAMES: &[&str] = &["gpt2", "cl100k", "o200k", "llama3", "qwen2"];

/// A pattern as a list of alternatives, or groups of them, each with its equal spellings.
type Parts = &'static [&'static [&'static str]];

// The contractions are exclusive, so their order does not matter; only these orders are common.
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
// What follows the prefix is a letter, which the prefix is not: possessive or not is the same. So
// it is for every run below: nothing stands behind it that a character given back could match.
const WORD: &[&str] = &[
    r"[^\r\n\p{L}\p{N}]?+\p{L}++",
    r"[^\r\n\p{L}\p{N}]?+\p{L}+",
    r"[^\r\n\p{L}\p{N}]?\p{L}++",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
];
// Oniguruma reads the possessive spelling as any number of groups. We read what tiktoken writes.
const THREE_DIGITS: &[&str] = &[r"\p{N}{1,3}+", r"\p{N}{1,3}"];
const SYMBOLS: &[&str] = &[
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
    r" ?[^\s\p{L}\p{N}]++[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
];
// Behind the other alternatives `\s+` is only reached where one character of white space stands
// before something else, so `\s` is the same; and `\s*[\r\n]` always ends at the last line break
// of the run, so there is never another for `[\r\n]+`.
const LLAMA3_TAIL: &[&str] = &[
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\s*[\r\n]+|\s+(?!\S)|\s",
    r"\s*[\r\n]|\s+(?!\S)|\s+",
    r"\s*[\r\n]|\s+(?!\S)|\s",
];
// `\s+$` is missing on purpose: where `$` is the end of a line it can stop in the middle of a run.
// A possessive run cannot, since what follows it is no line break.
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

const GPT2: Parts = &[
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
const CL100K: Parts = &[ANY_CASE, WORD, THREE_DIGITS, SYMBOLS, CL100K_TAIL];
const LLAMA3: Parts = &[ANY_CASE, WORD, THREE_DIGITS, SYMBOLS, LLAMA3_TAIL];
const QWEN2: Parts = &[ANY_CASE, WORD, &[r"\p{N}"], SYMBOLS, LLAMA3_TAIL];
const O200K: Parts = &[
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

const SPELLINGS: &[(&str, Parts)] =
    &[("gpt2", GPT2), ("cl100k", CL100K), ("o200k", O200K), ("llama3", LLAMA3), ("qwen2", QWEN2)];

/// The name for a name, or for a regular expression that is known to cut every text alike.
pub fn known(text: &str) -> Option<&'static str> {
    if let Some(name) = NAMES.iter().find(|name| **name == text) {
        return Some(name);
    }
    SPELLINGS.iter().find(|(_, parts)| spells(text, parts)).map(|(name, _)| *name)
}

/// Whether `text` is one spelling of each part, with bars between.
fn spells(text: &str, parts: Parts) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    first.iter().any(|spelling| match text.strip_prefix(spelling) {
        Some(after) if rest.is_empty() => after.is_empty(),
        Some(after) => after.strip_prefix('|').is_some_and(|after| spells(after, rest)),
        None => false,
    })
}

/// The regular expression of a named pattern as tiktoken spells it, in the syntax of
/// `fancy-regex`. Patterns that tiktoken does not have are in the spelling of their authors.
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
/// Face `tokenizers`, and `fancy-regex` read with the same meaning: no `$`, which ends a line
/// there, and no plus behind `{1,3}`, which is not possessive there.
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

/// All spellings of a named pattern, each with the number of parts that are not in the first one.
#[cfg(test)]
pub fn spellings(name: &str) -> Vec<(String, usize)> {
    let parts = SPELLINGS.iter().find(|(other, _)| *other == name).map_or(GPT2, |(_, parts)| parts);
    parts.iter().fold(vec![(String::new(), 0)], |heads, part| {
        let with = |(head, n_changes): &(String, usize)| -> Vec<(String, usize)> {
            let bar = if head.is_empty() { "" } else { "|" };
            let join = |(number, spelling)| {
                (format!("{head}{bar}{spelling}"), n_changes + usize::from(number > 0))
            };
            part.iter().enumerate().map(join).collect()
        };
        heads.iter().flat_map(with).collect()
    })
}
