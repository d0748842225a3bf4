//! Merges against the naive learner.

use proptest::prelude::*;

use super::learner::learn_with;
use super::*;
use crate::base::error::Error;
use crate::base::job::{Job, Phase};
use crate::base::threads::{Idle, Team};
use crate::learn::counts::PieceList;
use crate::naive;

const TIE_BREAKS: [TieBreak; 3] = [TieBreak::Bytes, TieBreak::HuggingFace, TieBreak::RustBpe];

fn list(pieces: &[(Vec<u8>, u64)]) -> PieceList {
    let mut list = PieceList::default();
    for (piece, count) in pieces {
        list.push(piece, *count);
    }
    list
}

fn learned(pieces: &[(Vec<u8>, u64)], options: &Options) -> Vec<(Vec<u8>, Vec<u8>)> {
    let merges =
        learn_merges(list(pieces), &ByteBase, options, &Job::new(Phase::Merge, 0)).unwrap();
    let mut tokens = ByteBase.tokens();
    merges
        .iter()
        .map(|&(a, b)| {
            let pair = (tokens[a as usize].clone(), tokens[b as usize].clone());
            tokens.push([&pair.0[..], &pair.1].concat());
            pair
        })
        .collect()
}

fn agree(pieces: &[(Vec<u8>, u64)], options: &Options) {
    let expected = naive::learn(
        pieces,
        options.n_merges,
        options.tie_break,
        options.min_frequency,
        options.max_token_length,
    );
    assert_eq!(learned(pieces, options), expected);
}

#[test]
fn runs_of_equal_letters() {
    for tie_break in TIE_BREAKS {
        for longest in 1..24 {
            let pieces: Vec<(Vec<u8>, u64)> =
                (1..=longest).map(|n| (vec![b'a'; n], (n * 7 % 5 + 1) as u64)).collect();
            agree(&pieces, &Options { tie_break, ..Options::default() });
        }
    }
}

#[test]
fn two_letters_in_turn() {
    let pieces: Vec<(Vec<u8>, u64)> = (1..20)
        .map(|n| ((0..n).map(|i| b"ab"[i % 2]).collect(), n as u64))
        .chain((1..20).map(|n| ((0..n).map(|i| b"baa"[i % 3]).collect(), 3)))
        .collect();
    agree(&pieces, &Options::default());
}

#[test]
fn counts_past_32_bits() {
    let pieces = [
        (b"abc".to_vec(), 3 << 32),
        (b"abd".to_vec(), (1 << 31) + 5),
        (b"bc".to_vec(), (1 << 31) - 1),
        (b"xy".to_vec(), u64::from(u32::MAX)),
    ];
    agree(&pieces, &Options::default());
}

/// The count of a pair may exceed those of the pieces.
#[test]
fn counts_past_64_bits_are_refused() {
    agree(&[(b"aaa".to_vec(), u64::MAX / 4), (b"xy".to_vec(), 3)], &Options::default());
    for pieces in [
        vec![(b"aaaa".to_vec(), 1 << 62)],
        vec![(b"ab".to_vec(), 1 << 62), (b"abc".to_vec(), 1 << 62)],
    ] {
        let job = Job::new(Phase::Merge, 0);
        let refused = learn_merges(list(&pieces), &ByteBase, &Options::default(), &job);
        assert!(matches!(refused, Err(Error::Corpus(_))), "{pieces:?}: {refused:?}");
    }
}

#[test]
fn nothing_to_merge() {
    assert!(learned(&[], &Options::default()).is_empty());
    assert!(learned(&[(b"a".to_vec(), 5)], &Options::default()).is_empty());
}

#[test]
fn a_stopped_job_ends() {
    let job = Job::new(Phase::Merge, 0);
    job.stop();
    let result = learn_merges(list(&[(b"ab".to_vec(), 1)]), &ByteBase, &Options::default(), &job);
    assert!(matches!(result, Err(Error::Interrupted)));
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop::sample::select(b"ab".to_vec()), 1..20),
        prop::collection::vec(prop::sample::select(b"abcde ".to_vec()), 1..12),
        prop::collection::vec(any::<u8>(), 1..8),
    ]
}

proptest! {
    #[test]
    fn equals_the_naive_learner(
        pieces in prop::collection::vec((piece(), 1u64..20), 0..24),
        n_merges in 0usize..120,
        tie_break in prop::sample::select(TIE_BREAKS.to_vec()),
        min_frequency in 0u64..6,
        max_token_length in prop_oneof![Just(usize::MAX), 1usize..8],
    ) {
        agree(&pieces, &Options { n_merges, tie_break, min_frequency, max_token_length, threads: 1 });
    }
}

/// Lists that are long enough to be shared between threads.
#[test]
fn threads_do_not_matter() {
    let mut pieces = Vec::new();
    let mut state = 1u64;
    for _ in 0..60_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = 1 + (state >> 60) as usize;
        let piece = (0..length).map(|i| b"aab"[(state >> (2 * i) & 3) as usize % 3]).collect();
        pieces.push((piece, 1 + (state >> 40 & 3)));
    }
    for tie_break in TIE_BREAKS {
        let options = Options { n_merges: 60, tie_break, ..Options::default() };
        let alone = learned(&pieces, &options);
        for threads in [2, 3, 8] {
            assert_eq!(learned(&pieces, &Options { threads, ..options }), alone);
        }
    }
}

/// Slots of both widths, with counts that fit neither.
#[test]
fn both_widths_give_the_same_merges() {
    let base = ByteBase;
    let job = Job::new(Phase::Merge, 0);
    proptest!(|(pieces in prop::collection::vec(
        (
            prop::collection::vec(0u8..4, 1..12),
            prop_oneof![1u64..9, Just(32_767), Just(32_768), Just(1 << 31), (1u64 << 33)..1 << 34],
        ),
        1..40,
    ))| {
        let options = Options { n_merges: 60, ..Options::default() };
        let pieces: std::collections::BTreeMap<Vec<u8>, u64> = pieces.into_iter().collect();
        let pieces: Vec<(Vec<u8>, u64)> = pieces.into_iter().collect();
        prop_assert!(slots::are_small(&list(&pieces), 256 + 60));
        let team = Team::new(options.threads, Idle::Spin);
        let small = learn_with::<u16>(list(&pieces), &base, &options, &team, &job).unwrap();
        let large = learn_with::<u32>(list(&pieces), &base, &options, &team, &job).unwrap();
        prop_assert_eq!(small, large);
        agree(&pieces, &options);
    });
}
