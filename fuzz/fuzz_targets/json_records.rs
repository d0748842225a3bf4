//! Any bytes as lines of JSON: each record gives the text that `serde_json` finds in it, and all
//! ways of reading the file agree.

#![no_main]

use std::collections::HashMap;

use bytemill::internals::corpus::{FileKind, Reading};
use bytemill_fuzz::{Found, read, read_in_every_way};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// What a record must give: its text, the reason why it is skipped, or None if `serde_json` is
/// stricter than Python's `json`, which we follow.
fn expected(line: &[u8], field: &str, max_document: usize) -> Option<Result<String, &'static str>> {
    if line.len() > max_document {
        return Some(Err("too_long"));
    }
    let Ok(text) = std::str::from_utf8(line) else { return Some(Err("invalid_utf8")) };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => {
            let lenient = ["NaN", "Infinity", "\\ud", "\\uD", "e", "E", "[[[[[[[["];
            let deep = text.matches(['[', '{']).count() > 100;
            let long_number = text.bytes().filter(u8::is_ascii_digit).count() > 300;
            let unsure = deep || long_number || lenient.iter().any(|mark| text.contains(mark));
            return if unsure { None } else { Some(Err("invalid_json")) };
        }
    };
    let Value::Object(members) = &value else { return Some(Err("wrong_type")) };
    let mut found = members.get(field);
    if found.is_none() {
        found = Some(&value);
        for name in field.split('.') {
            found = found.and_then(|value| value.get(name));
        }
    }
    Some(match found {
        Some(Value::String(text)) => Ok(text.clone()),
        None | Some(Value::Null) => Err("missing_field"),
        Some(_) => Err("wrong_type"),
    })
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (flags, chunk_size, max_document, data) = input;
    let field = if flags & 1 == 0 { "text" } else { "a.text" };
    let mut reading = Reading::default().with_field(field);
    reading.on_error = bytemill::internals::corpus::OnError::Skip;
    if flags & 2 != 0 {
        reading.max_document = usize::from(max_document);
    }
    // Sometimes larger than the buffers of a stream.
    let data = data.repeat(if flags & 0xf8 == 0xf8 { 1 + 70_000 / (data.len() + 1) } else { 1 });
    let kind = FileKind::parse("jsonl").expect("a kind");
    let chunk_size = usize::from(chunk_size) * if data.len() > 10_000 { 500 } else { 1 } + 1;
    let all = read_in_every_way(&data, kind, &reading, chunk_size).expect("records can be skipped");

    let mut by_line = Found::default();
    let mut known: HashMap<&[u8], Found> = HashMap::new();
    for (number, line) in data.split(|&byte| byte == b'\n').enumerate() {
        let line =
            if number == 0 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if let Some(alone) = known.get(line) {
            by_line.extend(alone);
            continue;
        }
        // Not at the beginning of a file, where a byte order mark is skipped.
        let alone = read(&[b"\n", line].concat(), kind, &reading, 1 << 30).expect("one record");
        by_line.extend(&alone);
        let blank = line.iter().all(u8::is_ascii_whitespace);
        match expected(line, field, reading.max_document) {
            _ if blank && line.len() <= reading.max_document => {
                assert_eq!(alone, Found::default());
            }
            Some(Ok(text)) => assert_eq!(alone.documents(), [text.as_bytes()]),
            Some(Err(reason)) => {
                let reasons: Vec<&str> = alone.skipped.keys().map(String::as_str).collect();
                assert_eq!((reasons, &alone.parts), (vec![reason], &vec![]));
            }
            None => assert_eq!(alone.parts.len() + alone.skipped.len(), 1),
        }
        known.insert(line, alone);
    }
    assert_eq!(all, by_line);
});
