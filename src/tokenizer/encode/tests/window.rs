//! Windows against the whole piece.

use super::super::window::{Borders, OpenPiece};
use super::*;
use crate::tokenizer::spec::Merge;

/// Merges of a few letters, in any order: tokens may need later merges than their own, merges may
/// never happen, and tokens may be impossible.
fn any_merges() -> impl Strategy<Value = Tokenizer> {
    let merge = (any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let order = prop_oneof![Just(false), Just(true)];
    (2u8..4, prop::collection::vec(merge, 1..24), order, any::<u64>()).prop_map(
        |(n_letters, merges, is_shuffled, seed)| {
            let mut tokens: Vec<Vec<u8>> = (0..n_letters).map(|i| vec![b'a' + i]).collect();
            let mut list = Vec::new();
            for (left, right) in merges {
                let (left, right) = (left.get(&tokens).clone(), right.get(&tokens).clone());
                let result = [&left[..], &right].concat();
                if result.len() <= 12 && !tokens.contains(&result) {
                    tokens.push(result.clone());
                    list.push((left, right, result));
                }
            }
            if is_shuffled {
                let key = |i: usize| (i as u64 + 1).wrapping_mul(seed | 1) >> 20;
                let mut order: Vec<usize> = (0..list.len()).collect();
                order.sort_by_key(|&i| key(i));
                list = order.into_iter().map(|i| list[i].clone()).collect();
            }
            let mut spec = Spec { pattern: vec!["gpt2".into()], ..Spec::default() };
            for byte in 0..=255u8 {
                spec.tokens.push(u32::from(byte), &[byte]);
            }
            let longer = tokens.iter().filter(|token| token.len() > 1);
            let numbered: HashMap<&[u8], u32> =
                longer.zip(256..).map(|(token, id)| (&token[..], id)).collect();
            for (token, id) in tokens.iter().filter(|token| token.len() > 1).zip(256..) {
                spec.tokens.push(id, token);
            }
            let id = |token: &[u8]| match token {
                [byte] => u32::from(*byte),
                _ => numbered[token],
            };
            let merge = |(l, r, t): &(Vec<u8>, Vec<u8>, Vec<u8>)| Merge {
                left: id(l),
                right: id(r),
                result: id(t),
            };
            spec.merges = MergeRule::List(list.iter().map(merge).collect());
            Tokenizer::new(&spec).unwrap()
        },
    )
}

/// Letters at random, runs of one, and repetitions of a few.
fn letters() -> impl Strategy<Value = Vec<u8>> {
    let some = prop::collection::vec(b'a'..b'd', 1..8);
    let part = prop_oneof![
        prop::collection::vec(b'a'..b'd', 1..60),
        (some, 1usize..60).prop_map(|(unit, n)| unit.repeat(n)),
    ];
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.concat())
}

fn in_windows(tokenizer: &Tokenizer, piece: &[u8], window: usize) -> (Vec<u32>, usize) {
    let (mut merger, mut borders) = (Merger::default(), Borders::new(window));
    let (mut size, mut ids) = (window, Vec::new());
    let done = tokenizer.merge_windows(&mut merger, &mut borders, piece, true, &mut size, &mut ids);
    assert_eq!(done.unwrap(), piece.len());
    (ids, borders.largest)
}

fn in_parts(tokenizer: &Tokenizer, piece: &[u8], window: usize, step: usize) -> Vec<u32> {
    let (mut merger, mut open) = (Merger::default(), OpenPiece::with_window(window));
    let mut ids = Vec::new();
    for part in piece.chunks(step) {
        tokenizer.extend_piece(&mut merger, &mut open, part, &mut ids).unwrap();
    }
    tokenizer.end_piece(&mut merger, &mut open, &mut ids).unwrap();
    assert!(open.is_empty());
    ids
}

#[test]
fn windows_equal_the_naive_encoder() {
    proptest!(ProptestConfig::with_cases(1500), |(
        tokenizer in any_merges(),
        piece in letters(),
        window in 1usize..80,
        step in 1usize..100,
    )| {
        let expected = naive_ids(&tokenizer, &piece);
        prop_assert_eq!(&in_windows(&tokenizer, &piece, window).0, &expected);
        // A prefix that was encoded early must not have been part of a longer token.
        let window = window.max(tokenizer.vocab().longest() + 1);
        prop_assert_eq!(&in_parts(&tokenizer, &piece, window, step), &expected);
    });
}

/// Repetitive text, with merges learned from it, offers the fewest borders.
#[test]
fn windows_stay_small() {
    for (unit, vocab_size) in [("a", 270), ("ab", 280), ("the cat", 300), ("東京", 290)] {
        let text = unit.repeat(40_000 / unit.len());
        let mut counts = Counts::new(Cutter::new(&[r"(?s).+"], &[""; 0]).unwrap(), 1);
        counts.add_texts(&[text.as_bytes()], &job()).unwrap();
        let merging = Options { max_token_length: 64, ..Options::default() };
        let spec = learn(&mut counts, &Target { merging, ..Target::new(vocab_size, &[]) }, &job())
            .unwrap();
        let tokenizer = Tokenizer::new(&spec).unwrap();
        let (got, largest) = in_windows(&tokenizer, text.as_bytes(), 1024);
        assert_eq!(got, ids(&tokenizer, text.as_bytes()), "{unit}");
        assert_eq!(largest, 1024, "{unit}");
    }
}

/// With very many tokens at one position, the search for borders stops early, and the ids are right.
#[test]
fn windows_of_hostile_vocabularies_grow() {
    let mut spec =
        Spec { pattern: vec!["gpt2".into()], merges: MergeRule::ByRank, ..Spec::default() };
    for byte in 0..=255u8 {
        spec.tokens.push(u32::from(byte), &[byte]);
    }
    for length in 2..400 {
        spec.tokens.push(254 + length as u32, &vec![b'a'; length]);
    }
    let tokenizer = Tokenizer::new(&spec).unwrap();
    let text = vec![b'a'; 20_000];
    let mut merger = Merger::default();
    tokenizer.merge_bytes(&mut merger, &text).unwrap();
    let expected: Vec<u32> = merger.tokens.iter().map(|&r| tokenizer.vocab().rank_id(r)).collect();
    let (got, largest) = in_windows(&tokenizer, &text, 1700);
    assert_eq!(got, expected);
    assert!(largest > 1700);
}
