//! Any counted pieces: the merges are those of the naive trainer, under every tie rule.

#![no_main]

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use bytemill::internals::counts::PieceList;
use bytemill::internals::merges::{ByteBase, Options, TieBreak, learn_merges};
use bytemill::internals::naive;
use bytemill::internals::{Job, Phase};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Pieces of a small alphabet, so that pairs repeat, with their counts.
    pieces: Vec<(Vec<u8>, u8)>,
    letters: u8,
    tie_break: u8,
    min_frequency: u8,
    max_token_length: u8,
    threads: u8,
}

fuzz_target!(|input: Input| {
    let letters = input.letters.max(1);
    let pieces: BTreeMap<Vec<u8>, u64> = input
        .pieces
        .iter()
        .take(30)
        .map(|(piece, n)| {
            let piece = piece.iter().take(60).map(|byte| byte % letters).collect();
            (piece, u64::from(*n) + 1)
        })
        .filter(|(piece, _): &(Vec<u8>, u64)| !piece.is_empty())
        .collect();
    let options = Options {
        n_merges: 60,
        tie_break: match input.tie_break % 3 {
            0 => TieBreak::Bytes,
            1 => TieBreak::HuggingFace,
            _ => TieBreak::RustBpe,
        },
        min_frequency: u64::from(input.min_frequency % 8).max(1),
        max_token_length: if input.max_token_length < 128 {
            usize::from(input.max_token_length % 16).max(1)
        } else {
            usize::MAX
        },
        threads: usize::from(input.threads % 4) + 1,
    };
    let mut list = PieceList::default();
    for (piece, n) in &pieces {
        list.push(piece, *n);
    }
    let merges =
        learn_merges(list, &ByteBase, &options, &Job::new(Phase::Merge, 0)).expect("merges");

    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut got = Vec::new();
    for (left, right) in merges {
        let (left, right) = (tokens[left as usize].clone(), tokens[right as usize].clone());
        tokens.push([&left[..], &right].concat());
        got.push((left, right));
    }
    let pieces: Vec<(Vec<u8>, u64)> = pieces.into_iter().collect();
    let expected = naive::learn(
        &pieces,
        options.n_merges,
        options.tie_break,
        options.min_frequency,
        options.max_token_length,
    );
    assert_eq!(got, expected);
});
