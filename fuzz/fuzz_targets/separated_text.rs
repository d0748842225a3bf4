//! Any bytes as text with any separator: the documents are those of a search from the front, and all
//! ways of reading the file agree.

#![no_main]

use bytemill::internals::corpus::{FileKind, Reading};
use bytemill_fuzz::read_in_every_way;
use libfuzzer_sys::fuzz_target;

/// The documents up to a length, and the number of longer ones.
fn expected<'d>(data: &'d [u8], separator: &[u8], max_document: usize) -> (Vec<&'d [u8]>, u64) {
    let (mut documents, mut n_long, mut start, mut at) = (Vec::new(), 0, 0, 0);
    loop {
        let ends = data[at..].starts_with(separator);
        if ends || at == data.len() {
            match &data[start..at] {
                [] => {}
                document if document.len() > max_document => n_long += 1,
                document => documents.push(document),
            }
            if !ends {
                return (documents, n_long);
            }
            at += separator.len();
            start = at;
        } else {
            at += 1;
        }
    }
}

fuzz_target!(|input: (u8, u8, u8, u8, &[u8])| {
    let (flags, chunk_size, max_document, length, data) = input;
    let (separator, data) = data.split_at((usize::from(length) % 8 + 1).min(data.len()));
    if separator.is_empty() {
        return;
    }
    // Sometimes larger than the buffers of a stream.
    let data = data.repeat(if flags & 0xf8 == 0xf8 { 1 + 70_000 / (data.len() + 1) } else { 1 });
    let mut reading = Reading { separator: Some(separator.to_vec()), ..Reading::default() };
    if flags & 1 != 0 {
        reading.max_document = usize::from(max_document);
    }
    let chunk_size = usize::from(chunk_size) * if data.len() > 10_000 { 500 } else { 1 } + 1;
    let found = read_in_every_way(&data, FileKind::TEXT, &reading, chunk_size)
        .expect("documents can be skipped");
    if found.skipped.contains_key("not_text") {
        return;
    }
    let (documents, n_long) = expected(&data, separator, reading.max_document);
    assert_eq!(found.documents(), documents);
    assert_eq!(found.skipped.get("too_long").copied().unwrap_or(0), n_long);
});
