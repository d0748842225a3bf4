//! Lines of JSON → documents.

use std::str::from_utf8;
use std::sync::Arc;

use memchr::{memchr, memchr_iter};

use super::block::{SKIP_HINT, other_than_text};
use super::json;
use super::reading::{Fault, Reading, Skipped};
use super::storage::{Storage, read_range};
use crate::base::error::Result;

/// Where lines stand, for messages.
#[derive(Debug)]
pub struct Place {
    /// The file, with the member of an archive.
    pub name: String,
    /// The byte at which they begin.
    pub offset: u64,
    /// How many lines come before, if that is known.
    pub before: Before,
    /// Whether the last line is longer than is allowed, and not all here.
    pub cut_short: bool,
}

/// How many lines come before.
#[derive(Debug)]
pub enum Before {
    /// So many.
    Lines(u64),
    /// As many as the file has up to there: counted when somebody asks.
    Of(Arc<dyn Storage>),
}

/// UTF-8's, which some programs begin files with.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Appends the texts of lines to `text`, and where each ends to `ends`. Blank lines are no records.
pub fn documents(
    data: &[u8],
    place: &Place,
    reading: &Reading,
    text: &mut Vec<u8>,
    ends: &mut Vec<usize>,
    skipped: &mut Skipped,
) -> Result<()> {
    // All at once is cheaper than line by line; which line it is matters only if there is one.
    let sound = from_utf8(data).is_ok();
    let mut at = 0;
    while at < data.len() {
        let newline = memchr(b'\n', &data[at..]);
        let end = newline.map_or(data.len(), |n| at + n);
        let (start, mut line) = (at, &data[at..end]);
        at = end + 1;
        if place.offset + start as u64 == 0 {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        let wrong = if line.len() > reading.max_document || (newline.is_none() && place.cut_short) {
            Some((Fault::TooLong, format!("longer than {} bytes", reading.max_document)))
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else if !sound && from_utf8(line).is_err() {
            Some((Fault::Utf8, "not UTF-8".to_owned()))
        } else {
            let before = text.len();
            match json::text_at(line, &reading.path, text) {
                Ok(found) => other_than_text(found, &reading.text_field),
                Err(wrong) => {
                    text.truncate(before);
                    Some((Fault::Json, format!("not JSON: {} at byte {}", wrong.what, wrong.at)))
                }
            }
        };
        match wrong {
            None => ends.push(text.len()),
            Some((fault, what)) => {
                let number = || place.line(&data[..start]);
                let offset = place.offset + start as u64;
                reading.fault(fault, skipped, || {
                    let message =
                        format!("{}: line {} (byte {offset}): {what}", place.name, number());
                    (message, hint(fault))
                })?;
            }
        }
    }
    Ok(())
}

/// What to do about a record that cannot be read.
pub(super) fn hint(fault: Fault) -> &'static str {
    match fault {
        Fault::Field => {
            "name the field that holds the text: text_field=, dotted if nested; on_error=\"skip\" \
             leaves such records out, and counts them"
        }
        Fault::TooLong => {
            "a larger max_document= allows it; on_error=\"skip\" leaves such records out, and \
             counts them"
        }
        Fault::Json => {
            "a record is a JSON object on a line of its own; on_error=\"skip\" leaves such lines out, \
             input_format=\"text\" reads all as text"
        }
        _ => SKIP_HINT,
    }
}

impl Place {
    /// The number, from 1, of the line behind `text`, which the block begins with.
    fn line(&self, text: &[u8]) -> u64 {
        let here = count(text);
        let before = match &self.before {
            Before::Lines(n) => *n,
            Before::Of(storage) => lines_of(storage.as_ref(), self.offset).unwrap_or(0),
        };
        before + here + 1
    }
}

/// How many lines there are in `text`.
pub fn count(text: &[u8]) -> u64 {
    memchr_iter(b'\n', text).count() as u64
}

/// How many lines the first bytes of a file have.
fn lines_of(storage: &dyn Storage, end: u64) -> Result<u64> {
    let (mut lines, mut at, mut buffer) = (0, 0, Vec::new());
    while at < end {
        let next = (at + (1 << 20)).min(end);
        read_range(storage, at, next, &mut buffer)?;
        lines += count(&buffer);
        at = next;
    }
    Ok(lines)
}

/// The place behind the first newline from `from` on, and whether there was one before `limit`.
pub fn end_of_line(storage: &dyn Storage, from: u64, limit: u64) -> Result<(u64, bool)> {
    let (mut at, mut buffer, mut width) = (from, Vec::new(), 16 << 10);
    let size = storage.size();
    while at < size.min(limit) {
        let next = (at + width).min(size).min(limit);
        read_range(storage, at, next, &mut buffer)?;
        if let Some(n) = memchr(b'\n', &buffer) {
            return Ok((at + n as u64 + 1, true));
        }
        at = next;
        width = (width * 2).min(8 << 20);
    }
    Ok((at, at >= size))
}
