//! The parts of a `tokenizer.json` around the model: what cuts the text, and what must not touch
//! it.

use fancy_regex::escape;
use serde_json::Value;

use super::regex_dialect;
use crate::base::error::{Error, Result};
use crate::text::pattern;
use crate::tokenizer::formats::check::shown;
use crate::tokenizer::formats::{WHOLE, regex_stage};

/// A component and where it stands.
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

    /// The component with the members of sequences in place of these, at any depth.
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

    /// The component's type.
    fn kind(&self) -> Result<&'a str> {
        self.value["type"].as_str().ok_or_else(|| self.error("it has no type"))
    }

    /// A setting that is true or false.
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

/// A normalizer would change the text before it is cut, so there must be none.
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
    let parts = Component::new("pre_tokenizer", value).flat("pretokenizers")?;
    let mut stages = Vec::new();
    let mut is_bytes = false;
    for part in &parts {
        let kind = part.kind()?;
        if is_bytes {
            return Err(part
                .error(&format!("{} comes after ByteLevel", shown(kind)))
                .with_hint("ByteLevel turns text into bytes, so that it must be the last step"));
        }
        match kind {
            "ByteLevel" => {
                is_bytes = true;
                if part.flag("add_prefix_space", None)? {
                    return Err(part.refused(
                        "add_prefix_space",
                        "it adds a space in front of every text, which decoding would not take \
                         away; set it to false in the file, and write the space in the text",
                    ));
                }
                if part.flag("use_regex", Some(true))? {
                    stages.push("gpt2".to_owned());
                }
            }
            "Split" => stages.push(read_split(part)?),
            "Digits" => stages.push(match part.flag("individual_digits", None)? {
                true => r"\p{N}".to_owned(),
                false => r"\p{N}+".to_owned(),
            }),
            _ => return Err(part.refused(kind, "ByteLevel, Split and Digits are")),
        }
    }
    if !is_bytes {
        return Err(Error::tokenizer("pre_tokenizer: it has no ByteLevel").with_hint(
            "only byte-level tokenizers can be read: those that cut text and then turn it into \
             bytes",
        ));
    }
    if stages.is_empty() {
        // A text is one piece.
        stages.push(WHOLE.to_owned());
    }
    Ok(stages)
}

/// The regular expression of a `Split`, by name where it has one.
fn read_split(part: &Component<'_>) -> Result<String> {
    let pattern = &part.value["pattern"];
    let stage = match (pattern["Regex"].as_str(), pattern["String"].as_str()) {
        (Some(regex), None) => {
            if let Some(what) = regex_dialect::difference(regex) {
                return Err(part
                    .error(&format!("the regular expression {} has {what}", shown(regex)))
                    .with_hint(
                        "`tokenizers` reads it in another dialect than bytemill; write it \
                         without, so that both mean the same",
                    ));
            }
            regex_stage(regex).map_err(|error| error.in_file(&part.path))?
        }
        // A text stands for itself, though it may read like a name.
        (None, Some(text)) if pattern::is_name(&escape(text)) => format!("(?:{text})"),
        (None, Some(text)) => escape(text).into_owned(),
        _ => return Err(part.error("its pattern is neither a Regex nor a String")),
    };
    if stage.is_empty() {
        return Err(part.error("its pattern is empty"));
    }
    let behavior = part.value["behavior"].as_str();
    let behavior = behavior.ok_or_else(|| part.error("a Split without behavior"))?;
    match (behavior, part.flag("invert", Some(false))?) {
        // Matches and what is between them are pieces: which of them is called a match is one.
        ("Isolated", _) => {}
        // What is not a match is dropped. The named patterns match every text throughout.
        ("Removed", true) if pattern::NAMES.contains(&stage.as_str()) => {}
        ("Removed", _) => {
            return Err(part.refused(
                "Removed",
                "it drops a part of the text, so that decoding would not give it back",
            ));
        }
        _ => return Err(part.refused(behavior, "the behavior \"Isolated\" is")),
    }
    Ok(stage)
}

/// Post-processors move offsets or add special tokens around a text: neither changes the ids of
/// the text itself. See the head of the module above.
pub(super) fn check_post_processor(value: &Value) -> Result<()> {
    const READ_PAST: &[&str] =
        &["ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"];
    check_types("post_processor", "processors", value, READ_PAST)
}

/// Decoding is joining bytes; a decoder that does more is refused.
pub(super) fn check_decoder(value: &Value) -> Result<()> {
    check_types("decoder", "decoders", value, &["ByteLevel"])
}

fn check_types(path: &str, members: &str, value: &Value, allowed: &[&str]) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    for part in Component::new(path, value).flat(members)? {
        let kind = part.kind()?;
        if !allowed.contains(&kind) {
            return Err(part.refused(kind, &format!("{} are", allowed.join(", "))));
        }
    }
    Ok(())
}
