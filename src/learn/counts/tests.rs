//! Counting in blocks and on threads against counting everything at once.

mod disk;

use std::collections::BTreeMap;
use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::base::job::Phase;
use crate::text::specials::Segment;

fn job() -> Job {
    Job::new(Phase::Count, 0)
}

fn counted(counts: &mut Counts) -> BTreeMap<Vec<u8>, u64> {
    counts.sorted(&job()).unwrap().iter().map(|(piece, n)| (piece.to_vec(), n)).collect()
}

fn at_once(cutter: &Cutter, text: &[u8]) -> BTreeMap<Vec<u8>, u64> {
    let mut expected = BTreeMap::<Vec<u8>, u64>::new();
    cutter
        .specials
        .segments(text, |segment| match segment {
            Segment::Special(_) => Ok(()),
            Segment::Plain(_, plain) => cutter
                .pattern
                .split(plain, |piece| *expected.entry(piece.to_vec()).or_default() += 1),
        })
        .unwrap();
    expected
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => prop::sample::select(vec![
            "the", " cat", "'t", "東京", "。", "<|end|>", "<|", "end|>", "x y", "x", " ", "\n", "\t",
            "12", "!?", "a long word that is not so long", "aaaaaaaaaaaaaaaaaaaaaaaa", "\u{301}",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..3),
    ];
    prop::collection::vec(word, 0..200).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn blocks_and_threads_do_not_matter(
        texts in prop::collection::vec(text(), 1..4),
        name in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\w+|\s+(?!\S)"]),
        threads in 1usize..9,
        block_size in prop_oneof![1usize..64, 64usize..4096],
    ) {
        let cutter = Cutter::new(&[name], &["<|end|>", "x y", "<|end|><|"]).unwrap();
        let mut expected = BTreeMap::<Vec<u8>, u64>::new();
        let directory = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            // Zero bytes at the start make a file binary; that is tested elsewhere.
            let text: Vec<u8> = text.iter().map(|&b| b.max(9)).collect();
            for (piece, n) in at_once(&cutter, &text) {
                *expected.entry(piece).or_default() += n;
            }
            let path = directory.path().join(format!("{i}.txt"));
            std::fs::File::create(&path).unwrap().write_all(&text).unwrap();
            paths.push(path);
        }
        let mut counts = Counts::new(cutter, threads);
        match counts.add_corpus(&Inputs::of_files(&paths), block_size, &job()) {
            Ok(()) => prop_assert_eq!(counted(&mut counts), expected),
            // Random bytes may look like binary data.
            Err(error) => prop_assert!(error.to_string().contains("binary"), "{}", error),
        }
    }
}

#[test]
fn no_piece_spans_two_texts() {
    let cutter = Cutter::new(&["gpt2"], &["<|end|>"]).unwrap();
    let mut counts = Counts::new(cutter, 3);
    let long = b"word ".repeat(BLOCK_SIZE);
    counts.add_texts(&[b"ab", b"c<|end|>c", b"", &long], &job()).unwrap();
    counts.add_texts(&[b"ab"], &job()).unwrap();
    let counted = counted(&mut counts);
    assert_eq!(counted[&b"ab".to_vec()], 2);
    assert_eq!(counted[&b"c".to_vec()], 2);
    assert_eq!(counted[&b" word".to_vec()], BLOCK_SIZE as u64 - 1);
    assert_eq!(counts.stats(&job()).unwrap().n_pieces, 5);
    assert_eq!(counts.bytes_read(), 13 + long.len() as u64);
}

#[test]
fn missing_and_binary_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut counts = Counts::new(Cutter::new::<_, &str>(&["gpt2"], &[]).unwrap(), 2);
    let missing = directory.path().join("missing.txt");
    let error = counts.add_corpus(&Inputs::of_files(&[missing]), BLOCK_SIZE, &job()).unwrap_err();
    assert!(error.to_string().contains("missing.txt"), "{error}");
    let binary = directory.path().join("binary.txt");
    std::fs::write(&binary, b"\x7fELF\0\0\0").unwrap();
    let error = counts.add_corpus(&Inputs::of_files(&[binary]), BLOCK_SIZE, &job()).unwrap_err();
    assert!(error.to_string().contains("binary.txt: binary data"), "{error}");
}
