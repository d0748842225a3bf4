//! The stages of a `tokenizer.json` around the model: the split pattern is read, and stages that
//! would change the text are refused.

use crate::base::error::{Error, Result};
use crate::text::pattern;
use crate::tokenizer::formats::fields::{WHOLE, regex_stage};
use crate::tokenizer::spec::shown;
use fancy_regex::escape;
use serde_json::Value;

/// A component and its path in the file.
struct Component<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Component<'a> {
    fn new(path: &str, value: &'a Value) -> Self {
        Component { path: path.to_owned(), value }
    }

    fn error(&self, why: &str) -> Error {
        Error::tokenizer(format!("{}: {why}", self.path))
    }

    /// The component, or the members of a sequence, at any depth.
    fn flat(self, members: &str) -> Result<Vec<Component<'a>>> {
        if self.kind()? != "Sequence" {
            return Ok(vec![self]);
        }
        let list = self.value[members].as_array();
        let list = list.ok_or_else(|| self.error(&format!("a Sequence without {members}")))?;
        let mut flat = Vec::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            flat.extend(
                Component { path: format!("{}.{members}[{i}]", self.path), value }.flat(members)?,
            );
        }
        Ok(flat)
    }

    fn kind(&self) -> Result<&'a str> {
        self.value["type"].as_str().ok_or_else(|| self.error("it has no type"))
    }

    fn flag(&self, name: &str, default: Option<bool>) -> Result<bool> {
        match (&self.value[name], default) {
            (Value::Bool(set), _) => Ok(*set),
            (Value::Null, Some(default)) => Ok(default),
            (Value::Null, None) => Err(self.error(&format!("it has no {name}"))),
            (other, _) => Err(self.error(&format!("{name} is {other}, not true or false"))),
        }
    }

    fn refused(&self, kind: &str, hint: &str) -> Error {
        self.error(&format!("{} is not supported", shown(kind))).with_hint(hint)
    }
}

/// A normalizer changes the text before it is cut, so any is refused.
pub(super) fn check_normalizer(value: &Value) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    match Component::new("normalizer", value).flat("normalizers")?.first() {
        None => Ok(()),
        Some(component) => Err(component.refused(
            component.kind()?,
            "a normalizer changes the text, so that decoding would not give it back; normalize \
             the text before encoding, and set the normalizer to null in the file",
        )),
    }
}

/// The stages of the split pattern.
pub(super) fn read_pattern(value: &Value) -> Result<Vec<String>> {
    if value.is_null() {
        return Err(Error::tokenizer("pre_tokenizer: there is none").with_hint(
            "a byte-level tokenizer has a ByteLevel pre-tokenizer; without one, tokens are of \
             characters, not of bytes",
        ));
    }
    let components = Component::new("pre_tokenizer", value).flat("pretokenizers")?;
    let mut stages = Vec::new();
    let mut is_bytes = false;
    for component in &components {
        let kind = component.kind()?;
        if is_bytes {
            return Err(component
                .error(&format!("{} comes after ByteLevel", shown(kind)))
                .with_hint("ByteLevel turns text into bytes, so that it must be the last step"));
        }
        match kind {
            "ByteLevel" => {
                is_bytes = true;
                if component.flag("add_prefix_space", None)? {
                    return Err(component.refused(
                        "add_prefix_space",
                        "it adds a space in front of every text, which decoding would not take \
                         away; set it to false in the file, and write the space in the text",
                    ));
                }
                if component.flag("use_regex", Some(true))? {
                    stages.push("gpt2".to_owned());
                }
            }
            "Split" => stages.push(read_split(component)?),
            "Digits" => stages.push(match component.flag("individual_digits", None)? {
                true => r"\p{N}".to_owned(),
                false => r"\p{N}+".to_owned(),
            }),
            _ => return Err(component.refused(kind, "ByteLevel, Split and Digits are")),
        }
    }
    if !is_bytes {
        return Err(Error::tokenizer("pre_tokenizer: it has no ByteLevel").with_hint(
            "only byte-level tokenizers can be read: those that cut text and then turn it into \
             bytes",
        ));
    }
    if stages.is_empty() {
        stages.push(WHOLE.to_owned());
    }
    Ok(stages)
}

/// The regular expression of a `Split`, by name where it has one.
fn read_split(component: &Component<'_>) -> Result<String> {
    let pattern = &component.value["pattern"];
    let stage = match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
        (Some(regex), None) => {
            if let Some(what) = dialect_difference(regex) {
                return Err(component
                    .error(&format!("the regular expression {} has {what}", shown(regex)))
                    .with_hint(
                        "`tokenizers` reads it in another dialect than bytemill; write it \
                         without, so that both mean the same",
                    ));
            }
            regex_stage(regex).map_err(|error| error.in_file(&component.path))?
        }
        // A literal text that reads like a pattern name must not become one.
        (None, Some(text)) if pattern::is_name(&escape(text)) => format!("(?:{text})"),
        (None, Some(text)) => escape(text).into_owned(),
        _ => return Err(component.error("its pattern is neither a Regex nor a String")),
    };
    if stage.is_empty() {
        return Err(component.error("its pattern is empty"));
    }
    let behavior = component.value["behavior"].as_str();
    let behavior = behavior.ok_or_else(|| component.error("a Split without behavior"))?;
    match (behavior, component.flag("invert", Some(false))?) {
        // Both the matches and the text between them are pieces, so `invert` makes no difference.
        ("Isolated", _) => {}
        // Text between matches is dropped, but the named patterns leave none.
        ("Removed", true) if pattern::NAMES.contains(&stage.as_str()) => {}
        ("Removed", _) => {
            return Err(component.refused(
                "Removed",
                "it drops a part of the text, so that decoding would not give it back",
            ));
        }
        _ => return Err(component.refused(behavior, "the behavior \"Isolated\" is")),
    }
    Ok(stage)
}

/// These post-processors move offsets or add special tokens around a text; neither changes the ids
/// of the text itself.
pub(super) fn check_post_processor(value: &Value) -> Result<()> {
    const IGNORED: &[&str] =
        &["ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"];
    check_types("post_processor", "processors", value, IGNORED)
}

/// Decoding concatenates bytes; a decoder that does more is refused.
pub(super) fn check_decoder(value: &Value) -> Result<()> {
    check_types("decoder", "decoders", value, &["ByteLevel"])
}

fn check_types(path: &str, members: &str, value: &Value, allowed: &[&str]) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    for component in Component::new(path, value).flat(members)? {
        let kind = component.kind()?;
        if !allowed.contains(&kind) {
            return Err(component.refused(kind, &format!("{} are", allowed.join(", "))));
        }
    }
    Ok(())
}

/// The first construct of `regex` that `tokenizers` interprets differently.
///
/// `tokenizers` compiles with Oniguruma's Ruby dialect. Nearly all that split patterns use means the
/// same in both; the rest would cut text differently without any error, so such an expression is
/// neither read from a `tokenizer.json` nor written to one.
pub(super) fn dialect_difference(regex: &str) -> Option<&'static str> {
    // After a possessive run of white space, only the last line can end.
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
    fn common_patterns_have_no_difference() {
        for name in crate::text::pattern::NAMES {
            let regex = crate::text::pattern::huggingface_regex(name).unwrap_or_default();
            assert_eq!(dialect_difference(regex), None, "{name}: {regex}");
        }
        for regex in [
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+(?!\S)|\s+",
            r"(?i:'s|'t)|\p{N}+|\^\$|[\^$]|[^$^]|[]^]|a{2,}|a{1,2}?|\x{41}+|(?<name>a)\k<name>(?:b)",
            r"(?=a)(?!b)(?<=c)(?<!d)(?>e)",
            r"\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        ] {
            assert_eq!(dialect_difference(regex), None, "{regex}");
        }
    }

    #[test]
    fn differences_are_named() {
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
            assert!(dialect_difference(regex).is_some_and(|d| d.contains(what)), "{regex}");
        }
    }
}
