//! Any bytes as CSV or TSV: the documents are those of a splitter that reads byte by byte.

#![no_main]

use bytemill::internals::corpus::{Compression, FileFormat, FileKind, Reading};
use bytemill_fuzz::{Found, Part, read_in_every_way};
use libfuzzer_sys::fuzz_target;

struct Row {
    values: Vec<Vec<u8>>,
    /// Its bytes, with what ends it.
    size: usize,
    unclosed: bool,
}

/// The next row, as Python's `csv` has it.
fn row(data: &[u8], separator: u8) -> Row {
    let mut row = Row { values: vec![Vec::new()], size: 0, unclosed: false };
    let (mut at, mut quoted, mut begins) = (0, false, true);
    while let Some(&byte) = data.get(at) {
        let value = row.values.last_mut().expect("a value");
        at += 1;
        match byte {
            b'"' if quoted && data.get(at) == Some(&b'"') => {
                value.push(b'"');
                at += 1;
            }
            b'"' if quoted => quoted = false,
            _ if quoted => value.push(byte),
            b'"' if begins => quoted = true,
            b'\n' => break,
            b'\r' => {
                at += usize::from(data.get(at) == Some(&b'\n'));
                break;
            }
            _ if byte == separator => {
                row.values.push(Vec::new());
                begins = true;
                continue;
            }
            _ => value.push(byte),
        }
        begins = false;
    }
    (row.size, row.unclosed) = (at, quoted);
    if matches!(data.first(), None | Some(b'\n' | b'\r')) {
        row.values.clear();
    }
    row
}

fn expected(mut data: &[u8], separator: u8, max_document: usize) -> Found {
    data = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let mut found = Found::default();
    let mut column: Option<Option<usize>> = None;
    while !data.is_empty() {
        let Row { values, size, unclosed } = row(data, separator);
        data = &data[size..];
        if values.is_empty() && (size <= max_document || column.is_none()) {
            continue;
        }
        let Some(column) = column else {
            column = Some(values.iter().position(|name| name == b"text"));
            continue;
        };
        let value = column.and_then(|column| values.get(column));
        let reason = match value {
            _ if size > max_document => "too_long",
            _ if unclosed => "invalid_csv",
            None => "missing_field",
            Some(value) if std::str::from_utf8(value).is_err() => "invalid_utf8",
            Some(value) => {
                found.parts.push(Part::Document(value.clone()));
                continue;
            }
        };
        *found.skipped.entry(reason.into()).or_default() += 1;
    }
    found
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (flags, chunk_size, max_document, data) = input;
    let mut reading = Reading::default();
    if flags & 2 != 0 {
        reading.max_document = usize::from(max_document);
    }
    // Usually with a header row, which the fuzzer would take long to find.
    let names: &[u8] = if flags & 4 == 0 { b"text,x\n" } else { b"" };
    let data = [names, data].concat();
    // Sometimes larger than the buffers of a stream.
    let data = data.repeat(if flags & 0xf8 == 0xf8 { 1 + 70_000 / (data.len() + 1) } else { 1 });
    if reading.max_document < data.len() && data.len() > 60_000 {
        // Whether a header row that is too long is an error depends on the buffers.
        reading.max_document = reading.max_document.max(data.len() / 2);
    }
    let separator = if flags & 1 == 0 { b',' } else { b'\t' };
    let kind =
        FileKind { format: FileFormat::Separated(separator), compression: Compression::Plain };
    let chunk_size = usize::from(chunk_size) * if data.len() > 10_000 { 500 } else { 1 } + 1;
    let Some(found) = read_in_every_way(&data, kind, &reading, chunk_size) else { return };
    assert_eq!(found, expected(&data, separator, reading.max_document));
});
