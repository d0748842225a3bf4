//! Values that several formats have in common: text, ids, patterns, JSON.

use serde::Deserialize;
use serde_json::error::Category;

use crate::base::error::{Error, Result};
use crate::text::pattern;
use crate::tokenizer::spec::{MAX_ID, shown};

/// A pattern that leaves a document in one piece.
pub(super) const WHOLE: &str = r"[\s\S]+";

/// The id that decimal `digits` spell.
pub(super) fn parse_id(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|&id| plain && id <= MAX_ID)
}

/// `data` as text; an error names the first byte that is not UTF-8.
pub(super) fn utf8(data: &[u8]) -> Result<&str> {
    std::str::from_utf8(data).map_err(|error| {
        let offset = error.valid_up_to();
        let byte = data.get(offset).copied().unwrap_or_default();
        Error::tokenizer(format!("not UTF-8: the byte 0x{byte:02x} at byte offset {offset}"))
    })
}

/// The stages of a pattern, by name where they have one.
pub(super) fn canonical_pattern(stages: &[String]) -> Vec<String> {
    let named = |stage: &String| pattern::known(stage).map(str::to_owned);
    stages.iter().map(|stage| named(stage).unwrap_or_else(|| stage.clone())).collect()
}

/// The stage for a regular expression of a file: its name, if it is a spelling of a named pattern.
/// An expression that reads like a name is refused, because the library that wrote the file would
/// match the text of the name.
pub fn regex_stage(regex: &str) -> Result<String> {
    if pattern::is_name(regex) {
        let regex = shown(regex);
        return Err(Error::tokenizer(format!(
            "the split pattern {regex} is a name, where the file must have a regular expression"
        )));
    }
    Ok(pattern::known(regex).unwrap_or(regex).to_owned())
}

/// A value from a whole JSON text; an error names its line and byte offset.
pub(super) fn parse_json<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T> {
    // Validated once as a whole, which is faster than string by string.
    let text = utf8(data)?;
    serde_json::from_str(text).map_err(|error| {
        let offset = line_offset(data, error.line(), error.column());
        let what = error.to_string();
        let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what);
        let kind = match error.classify() {
            Category::Data => "",
            Category::Eof => "the file ends too early: ",
            Category::Syntax | Category::Io => "malformed JSON: ",
        };
        Error::tokenizer(format!("{kind}{what}, at line {}, byte offset {offset}", error.line()))
    })
}

/// The byte offset of a line and column, both counted from 1.
fn line_offset(data: &[u8], line: usize, column: usize) -> usize {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(n) => memchr::memchr_iter(b'\n', data).nth(n).map_or(0, |newline| newline + 1),
    };
    (start + column.saturating_sub(1)).min(data.len())
}
