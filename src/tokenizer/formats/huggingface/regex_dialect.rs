//! Where a regular expression means one thing to `tokenizers` and another here.
//!
//! `tokenizers` compiles with Oniguruma's Ruby dialect. Nearly everything that split patterns use
//! means the same in both; what does not would cut text differently without a word, so that such
//! an expression is neither read from a `tokenizer.json` nor written to one.

/// What in `regex` the dialects read differently, if anything.
pub(super) fn difference(regex: &str) -> Option<&'static str> {
    // Behind a possessive run of white space no line can end but the last.
    let regex = regex.replace(r"\s++$", r"\s++\z");
    let mut rest = regex.as_str();
    let mut class_depth = 0usize;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let escaped = rest.chars().next()?;
                rest = &rest[escaped.len_utf8()..];
                // `\p{…}+` is a plain repetition of a class, not a repeated repetition.
                if matches!(escaped, 'p' | 'P' | 'x' | 'u' | 'k' | 'g')
                    && rest.starts_with('{')
                    && let Some(end) = rest.find('}')
                {
                    rest = &rest[end + 1..];
                }
            }
            '[' if class_depth > 0 && rest.starts_with(':') => {
                return Some("a class such as [:alpha:], which is of all of Unicode there");
            }
            '[' => {
                class_depth += 1;
                rest = rest.strip_prefix('^').unwrap_or(rest);
                // A bracket that comes first stands for itself.
                rest = rest.strip_prefix(']').unwrap_or(rest);
            }
            ']' => class_depth = class_depth.saturating_sub(1),
            _ if class_depth > 0 => {}
            '^' => return Some("^, which matches at every line there"),
            '$' => return Some("$, which matches at every line there"),
            '}' if rest.starts_with('+') => {
                return Some("{…}+, which is not possessive there but repeats");
            }
            '}' if rest.starts_with('?') => {
                let before = &regex[..regex.len() - rest.len() - 1];
                let count = before.rsplit('{').next().unwrap_or_default();
                if count.bytes().all(|b| b.is_ascii_digit()) {
                    return Some("{n}?, which is not lazy there but optional");
                }
            }
            '(' => {
                if let Some(group) = rest.strip_prefix('?') {
                    let flags = group.split([':', ')']).next().unwrap_or_default();
                    let is_flags = flags.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                    if is_flags && flags.contains(['m', 's', 'u', 'a', 'U', 'R']) {
                        return Some("a flag such as (?m) or (?s), which differs there");
                    }
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_in_use_are_alike() {
        for name in crate::text::pattern::NAMES {
            let regex = crate::text::pattern::huggingface_regex(name).unwrap_or_default();
            assert_eq!(difference(regex), None, "{name}: {regex}");
        }
        for regex in [
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+(?!\S)|\s+",
            r"(?i:'s|'t)|\p{N}+|\^\$|[\^$]|[^$^]|[]^]|a{2,}|a{1,2}?|\x{41}+|(?<name>a)\k<name>(?:b)",
            r"(?=a)(?!b)(?<=c)(?<!d)(?>e)",
            r"\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        ] {
            assert_eq!(difference(regex), None, "{regex}");
        }
    }

    #[test]
    fn what_differs_is_named() {
        for (regex, what) in [
            (r"\p{N}{1,3}+", "{…}+"),
            ("a{2}?", "{n}?"),
            ("^a", "^"),
            ("a|b$", "$"),
            ("(?m:.)", "flag"),
            ("(?s).+", "flag"),
            ("(?i-m:a)", "flag"),
            ("[[:alpha:]]+", "[:alpha:]"),
            (r"[a]\[^", "^"),
        ] {
            assert!(difference(regex).is_some_and(|d| d.contains(what)), "{regex}");
        }
    }
}
