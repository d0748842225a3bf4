//! Counts files: a saved file opens, and is the same bytes when saved again; any other bytes are
//! refused, or contain pieces in order.

#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use bytemill::internals::Cutter;
use bytemill::internals::Segment;
use bytemill::internals::counts::{Counts, PieceList};
use bytemill::{Error, Result};
use bytemill_fuzz::{job, patch, scratch_directory};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

const CHECKSUM: usize = 32;

#[derive(Arbitrary, Debug)]
struct Built {
    texts: Vec<Vec<u8>>,
    /// Bytes written over the file, under a checksum that is right again.
    patches: Vec<(u16, u8)>,
    cut: u16,
}

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| scratch_directory("counts"));

/// Replaces the checksum by the correct one for the bytes before it.
fn sealed(mut data: Vec<u8>) -> Vec<u8> {
    data.truncate(data.len().saturating_sub(CHECKSUM));
    let checksum = Sha256::digest(&data);
    data.extend_from_slice(&checksum);
    data
}

fn open(data: &[u8]) -> Result<(PieceList, Vec<u8>)> {
    let (path, again) = (FOLDER.join("counts"), FOLDER.join("again"));
    std::fs::write(&path, data).expect("a file");
    let mut counts = Counts::open(&path, 1, &job())?;
    let pieces = counts.sorted(&job())?;
    counts.save(&again, &job())?;
    Ok((pieces, std::fs::read(&again).expect("what was saved")))
}

/// Bytes that may or may not be a counts file.
fn check(data: &[u8]) {
    match open(data) {
        Ok((pieces, saved)) => {
            assert!(pieces.iter().zip(pieces.iter().skip(1)).all(|(a, b)| a.0 < b.0));
            assert!(pieces.iter().all(|(piece, n)| !piece.is_empty() && n > 0));
            let (again, saved_again) = open(&saved).expect("what we save we open");
            assert_eq!(again, pieces);
            assert_eq!(saved_again, saved);
        }
        Err(Error::Corpus(report)) => assert!(report.hint.is_some(), "{}", report.message),
        Err(Error::Config(_)) => {}
        Err(error) => panic!("{error:?}"),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, rest)) = data.split_first() else { return };
    match kind % 4 {
        0 => return check(rest),
        1 => return check(&sealed(rest.to_vec())),
        _ => {}
    }
    let Ok(built) = Built::arbitrary_take_rest(Unstructured::new(rest)) else { return };
    let cutter = Cutter::new(&["gpt2"], &["<|end|>", "é"]).expect("a cutter");
    let mut counts = Counts::new(cutter.clone(), 1);
    let texts: Vec<&[u8]> = built.texts.iter().map(Vec::as_slice).collect();
    counts.add_texts(&texts, &job()).expect("counts");
    let path = FOLDER.join("saved");
    counts.save(&path, &job()).expect("a file");
    let saved = std::fs::read(&path).expect("what was saved");
    let (pieces, again) = open(&saved).expect("what we save we open");
    assert_eq!(again, saved);

    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for text in texts {
        let count = |segment: Segment<'_>| match segment {
            Segment::Plain(_, stretch) => cutter.pattern.split(stretch, |piece| {
                *expected.entry(piece.to_vec()).or_default() += 1;
            }),
            Segment::Special(_) => Ok(()),
        };
        cutter.specials.segments(text, count).expect("pieces");
    }
    let found: BTreeMap<Vec<u8>, u64> = pieces.iter().map(|(p, n)| (p.to_vec(), n)).collect();
    assert_eq!(found, expected);

    let mut damaged = saved.clone();
    patch(&mut damaged, &built.patches);
    if damaged != saved {
        assert!(open(&damaged).is_err(), "damage that no checksum shows");
    }
    damaged.truncate(damaged.len() - usize::from(built.cut) % damaged.len());
    check(&sealed(damaged));
});
