//! JSON in, with the place of what is wrong.

use serde::Deserialize;
use serde_json::error::Category;

use super::check::utf8;
use crate::base::error::{Error, Result};

/// A value from a whole JSON text.
pub(super) fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T> {
    // Checked once as a whole rather than string by string.
    let text = utf8(data)?;
    serde_json::from_str(text).map_err(|error| {
        let offset = offset(data, error.line(), error.column());
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

/// Where the `column`th byte of the `line`th line is.
fn offset(data: &[u8], line: usize, column: usize) -> usize {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(n) => memchr::memchr_iter(b'\n', data).nth(n).map_or(0, |newline| newline + 1),
    };
    (start + column.saturating_sub(1)).min(data.len())
}
