//! Any tar archive: undamaged members have the content that they have as separate files; damaged
//! ones are skipped and counted, and the text is never longer than the unpacked bytes.
//!
//! The first byte decides whether the rest is an archive, or instructions to build one with correct
//! checksums in its headers.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use bytemill::internals::corpus::{Compression, FileFormat, FileKind, OnError, Reading};
use bytemill_fuzz::{Found, patch, read, read_in_every_way};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;
const ENDINGS: [&str; 6] = ["txt", "jsonl", "csv", "txt.gz", "tar", "jsonl.zst"];
/// The decompressed size that is always allowed, and the allowed ratio beyond it.
const GRACE: usize = 16 << 20;
const RATIO: usize = 250;

#[derive(Arbitrary, Debug)]
struct Member {
    ending: u8,
    /// Where its name is: in its header, or in a GNU or pax header before it.
    form: u8,
    content: Vec<u8>,
    /// Bytes written over its header before the checksum is computed.
    patches: Vec<(u16, u8)>,
}

#[derive(Arbitrary, Debug)]
struct Built {
    members: Vec<Member>,
    /// Bytes written over the archive, and where it is truncated.
    patches: Vec<(u16, u8)>,
    cut: Option<u16>,
}

fn append(out: &mut Vec<u8>, name: &str, kind: u8, content: &[u8], patches: &[(u16, u8)]) {
    let mut head = [0; BLOCK];
    let n = name.len().min(100);
    head[..n].copy_from_slice(&name.as_bytes()[..n]);
    head[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    head[156] = kind;
    head[257..263].copy_from_slice(b"ustar\0");
    patch(&mut head, patches);
    head[148..156].fill(b' ');
    let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
    head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    out.extend(head);
    out.extend(content);
    out.resize(out.len().div_ceil(BLOCK) * BLOCK, 0);
}

fn archive(members: &[(String, &Member)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, member) in members {
        match member.form % 3 {
            0 => {}
            1 => append(&mut out, "@LongLink", b'L', name.as_bytes(), &[]),
            _ => {
                let line = format!(" path={name}\n");
                let length = (1..4).map(|digits| line.len() + digits);
                let length = length.clone().find(|n| n.to_string().len() + line.len() == *n);
                let line = format!("{}{line}", length.expect("a length"));
                append(&mut out, "pax", b'x', line.as_bytes(), &[]);
            }
        }
        let name = if member.form % 3 == 0 { name } else { "ignored" };
        append(&mut out, name, b'0', &member.content, &member.patches);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn check(data: &[u8], chunk_size: usize) -> Option<Found> {
    let kind = FileKind { format: FileFormat::Tar, compression: Compression::Plain };
    let found = read_in_every_way(data, kind, &Reading::default(), chunk_size)?;
    assert!(found.n_bytes() <= GRACE + RATIO * data.len());
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
    let mut data = archive(&named);
    let cut = built.cut.map(|cut| usize::from(cut) % (data.len() + 1));
    patch(&mut data, &built.patches);
    data.truncate(cut.unwrap_or(data.len()));
    let found = check(&data, chunk_size);
    let whole = built.patches.is_empty() && cut.is_none();
    if whole && built.members.iter().all(|member| member.patches.is_empty()) {
        let mut expected = Found::default();
        for (name, member) in &named {
            let kind = FileKind::of_name(name);
            if kind.format == FileFormat::Tar {
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
