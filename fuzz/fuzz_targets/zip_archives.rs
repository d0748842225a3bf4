//! Any zip archive: undamaged members have the content that they have as separate files; damaged
//! ones are skipped and counted, and the text is never longer than the unpacked bytes.
//!
//! The first byte decides whether the rest is an archive, or instructions to build one with correct
//! checksums.

#![no_main]

use std::io::Write;

use arbitrary::{Arbitrary, Unstructured};
use bytemill::internals::corpus::{Compression, FileFormat, FileKind, OnError, Reading};
use bytemill_fuzz::{Found, patch, read, read_in_every_way};
use libfuzzer_sys::fuzz_target;

const ENDINGS: [&str; 6] = ["txt", "jsonl", "csv", "txt.gz", "zip", "jsonl.zst"];
/// The decompressed size that is always allowed, and the allowed ratio beyond it.
const GRACE: usize = 16 << 20;
const RATIO: usize = 250;

#[derive(Arbitrary, Debug)]
struct Member {
    ending: u8,
    deflated: bool,
    content: Vec<u8>,
    extra: Vec<u8>,
    /// Bytes written over its headers: the local one, and the one in the directory.
    local: Vec<(u16, u8)>,
    central: Vec<(u16, u8)>,
}

#[derive(Arbitrary, Debug)]
struct Built {
    members: Vec<Member>,
    comment: Vec<u8>,
    /// Bytes written over the last record.
    end: Vec<(u16, u8)>,
    patches: Vec<(u16, u8)>,
    cut: Option<u16>,
}

fn archive(members: &[(String, &Member)], comment: &[u8], end: &[(u16, u8)]) -> Vec<u8> {
    let (mut out, mut listing) = (Vec::new(), Vec::new());
    for (name, member) in members {
        let content = &member.content;
        let packed = if member.deflated {
            let mut encoder =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(content).expect("memory");
            encoder.finish().expect("memory")
        } else {
            content.clone()
        };
        let method = if member.deflated { 8u16 } else { 0 };
        let extra = &member.extra[..member.extra.len().min(40)];
        let mut fields = vec![0, 0];
        fields.extend(method.to_le_bytes());
        fields.extend([0; 4]);
        fields.extend(crc32fast::hash(content).to_le_bytes());
        fields.extend((packed.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend((extra.len() as u16).to_le_bytes());
        let offset = out.len() as u32;
        let mut local = [b"PK\x03\x04\x14\0", &fields[..]].concat();
        patch(&mut local, &member.local);
        out.extend([&local, name.as_bytes(), extra, &packed].concat());
        let (made_by, rest) = (b"PK\x01\x02\x14\0\x14\0", [0; 10]);
        let mut central = [made_by, &fields[..], &rest, &offset.to_le_bytes()].concat();
        patch(&mut central, &member.central);
        listing.extend([&central, name.as_bytes(), extra].concat());
    }
    let (start, size) = (out.len() as u32, listing.len() as u32);
    out.extend(listing);
    let mut last = b"PK\x05\x06\0\0\0\0\0\0\0\0".to_vec();
    last.extend(size.to_le_bytes());
    last.extend(start.to_le_bytes());
    last.extend((comment.len() as u16).to_le_bytes());
    patch(&mut last, end);
    out.extend(last);
    out.extend(comment);
    out
}

fn check(data: &[u8], chunk_size: usize) -> Option<Found> {
    let kind = FileKind { format: FileFormat::Zip, compression: Compression::Plain };
    let found = read_in_every_way(data, kind, &Reading::default(), chunk_size)?;
    // Members that are compressed themselves have a limit of their own.
    assert!(found.n_bytes() <= 2 * (GRACE + RATIO * data.len()));
    Some(found)
}

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, chunk_size], rest)) = data.split_first_chunk::<2>() else { return };
    let chunk_size = usize::from(chunk_size) * 4 + 1;
    if kind % 4 == 0 {
        check(rest, chunk_size);
        return;
    }
    let Ok(built) = Built::arbitrary_take_rest(Unstructured::new(rest)) else { return };
    let named: Vec<(String, &Member)> = built
        .members
        .iter()
        .take(6)
        .enumerate()
        .map(|(i, member)| (format!("d/{i}.{}", ENDINGS[usize::from(member.ending) % 6]), member))
        .collect();
    // A comment that contains the signature of the last record is ambiguous to every reader.
    let comment: Vec<u8> = built.comment.iter().filter(|&&byte| byte != b'P').copied().collect();
    let mut data = archive(&named, &comment, &built.end);
    let cut = built.cut.map(|cut| usize::from(cut) % (data.len() + 1));
    patch(&mut data, &built.patches);
    data.truncate(cut.unwrap_or(data.len()));
    let found = check(&data, chunk_size);
    let members = &built.members;
    let whole = built.patches.is_empty() && cut.is_none() && built.end.is_empty();
    if whole && members.iter().all(|m| m.local.is_empty() && m.central.is_empty()) {
        let mut expected = Found::default();
        for (name, member) in &named {
            let kind = FileKind::of_name(name);
            if kind.format == FileFormat::Zip {
                *expected.skipped.entry("not_text".into()).or_default() += 1;
                continue;
            }
            let reading = Reading { on_error: OnError::Skip, ..Reading::default() };
            let Ok(alone) = read(&member.content, kind, &reading, 1 << 30) else { return };
            expected.extend(&alone);
        }
        assert_eq!(found, Some(expected));
    }
});
