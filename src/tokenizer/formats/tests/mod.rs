//! Tests across the formats: what is written reads back the same.

mod damage;
mod gpt2;
mod lines;
mod refusals;

use proptest::prelude::*;

use super::*;
use crate::tokenizer::spec::{Merge, MergeRule, Spec, SpecialToken, TokenList};

/// A tokenizer of the 256 bytes and a merge for each pair of numbers, which choose its halves
/// among the tokens so far. With `canonical`, ids are in order; otherwise they have gaps.
pub(super) fn spec_of(choices: &[(usize, usize)], canonical: bool) -> Spec {
    let number = |i: usize| if canonical { i as u32 } else { 3 * i as u32 + 1 };
    let mut words: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let mut merges = Vec::new();
    for &(left, right) in choices {
        let (left, right) = (left % words.len(), right % words.len());
        let word = [words[left].clone(), words[right].clone()].concat();
        if word.len() <= 40 && !words.contains(&word) {
            let result = number(words.len());
            merges.push(Merge { left: number(left), right: number(right), result });
            words.push(word);
        }
    }
    let mut tokens = TokenList::default();
    for (i, word) in words.iter().enumerate() {
        tokens.push(number(i), word);
    }
    let pattern = vec!["gpt2".to_owned()];
    Spec {
        pattern,
        tokens,
        merges: MergeRule::List(merges),
        specials: Vec::new(),
        ignore_merges: false,
    }
}

pub(super) fn special(text: &str, id: u32) -> SpecialToken {
    SpecialToken { text: text.to_owned(), id, control: true }
}

/// A spec with two merges and a special token, for small, readable files.
pub(super) fn small() -> Spec {
    let mut spec = spec_of(&[(b't' as usize, b'h' as usize), (256, b'e' as usize)], true);
    spec.specials.push(special("<|endoftext|>", 258));
    spec
}

/// A spec that a tokenizer can be built from: some errors of a file are only found then.
pub(super) fn built(spec: crate::Result<Spec>) -> crate::Result<Spec> {
    let blamed = |error: crate::Error| error.blaming_file(crate::Error::Tokenizer);
    spec.and_then(|spec| crate::Tokenizer::new(&spec).map(|_| spec).map_err(blamed))
}

pub(super) fn message<T: std::fmt::Debug>(result: crate::Result<T>) -> String {
    match result {
        Err(error @ crate::Error::Tokenizer(_)) => error.to_string(),
        other => panic!("not a tokenizer error: {other:?}"),
    }
}

fn choices() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0usize..1000, 0usize..1000), 0..60)
}

fn specials() -> impl Strategy<Value = Vec<SpecialToken>> {
    let texts = prop::collection::btree_set("<\\|[a-zé中 \"\\\\]{1,8}\\|>", 0..5);
    (texts, 0u32..5).prop_map(|(texts, gap)| {
        let ids = (2000..).step_by(1 + gap as usize);
        let mut specials: Vec<SpecialToken> =
            texts.iter().zip(ids).map(|(text, id)| special(text, id)).collect();
        if let Some(first) = specials.first_mut() {
            first.control = gap != 0;
        }
        specials
    })
}

/// The same special tokens, as a caller would request them.
fn requested(spec: &Spec) -> Vec<(String, Option<u32>)> {
    spec.specials.iter().map(|special| (special.text.clone(), Some(special.id))).collect()
}

/// `spec` with every special token a control token, for the formats that know no other.
fn all_control(mut spec: Spec) -> Spec {
    spec.specials.iter_mut().for_each(|special| special.control = true);
    spec
}

fn sorted(list: &TokenList) -> Vec<(u32, Vec<u8>)> {
    let mut entries: Vec<_> = list.iter().map(|(id, token)| (id, token.to_vec())).collect();
    entries.sort();
    entries
}

proptest! {
    #[test]
    fn tokenizer_json(
        choices in choices(),
        canonical: bool,
        specials in specials(),
        ignore_merges: bool,
        pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\d+|\D+", "(?:gpt3)"]),
    ) {
        let mut spec = spec_of(&choices, canonical);
        (spec.specials, spec.ignore_merges) = (specials, ignore_merges);
        spec.pattern = vec![pattern.to_owned()];
        let data = write_tokenizer_json(&spec).unwrap();
        prop_assert_eq!(read_tokenizer_json(&data).unwrap(), spec);
        prop_assert_eq!(recognise(&data), Some(TokenizerFormat::TokenizerJson));
        prop_assert_eq!(data.last(), Some(&b'\n'));
    }

    #[test]
    fn gpt2_files(choices in choices(), canonical: bool, specials in specials()) {
        let mut spec = spec_of(&choices, canonical);
        spec.specials = specials;
        let spec = all_control(spec);
        let (vocab, merges) = write_gpt2(&spec).unwrap();
        let asked = requested(&spec);
        prop_assert_eq!(&read_gpt2(&vocab, &merges, &spec.pattern, &asked).unwrap(), &spec);
        // All of them look special, so that they are recognized without being named.
        let found = read_gpt2(&vocab, &merges, &spec.pattern, &[]).unwrap();
        prop_assert_eq!(found.tokens, spec.tokens);
        prop_assert_eq!(recognise(&vocab), Some(TokenizerFormat::Gpt2Vocab));
        prop_assert_eq!(recognise(&merges), Some(TokenizerFormat::Gpt2Merges));
    }

    #[test]
    fn minbpe_model(choices in choices(), specials in specials()) {
        let mut spec = spec_of(&choices, true);
        spec.specials = specials;
        let spec = all_control(spec);
        let data = write_minbpe(&spec).unwrap();
        prop_assert_eq!(read_minbpe(&data).unwrap(), spec);
        prop_assert_eq!(recognise(&data), Some(TokenizerFormat::Minbpe));
    }

    #[test]
    fn rank_file(choices in choices(), canonical: bool, specials in specials()) {
        let mut spec = spec_of(&choices, canonical);
        spec.specials = specials;
        let mut spec = all_control(spec);
        (spec.merges, spec.ignore_merges) = (MergeRule::ByRank, true);
        let data = write_tiktoken(&spec).unwrap();
        let asked = requested(&spec);
        prop_assert_eq!(read_tiktoken(&data, &spec.pattern, &asked).unwrap(), spec);
        prop_assert_eq!(recognise(&data), Some(TokenizerFormat::Tiktoken));
    }

    /// If a list can be written as ranks, both rules give the same ids for every text.
    #[test]
    fn ranks_mean_the_list(
        choices in prop::collection::vec((0usize..9, 0usize..9), 1..10),
        canonical: bool,
        texts in prop::collection::vec("[a-d]{0,12}", 20),
    ) {
        // The letters a to c and the first merges: so few that merges conflict with each
        // other.
        let token = |i| if i < 3 { 97 + i } else { 253 + i };
        let choices: Vec<_> = choices.iter().map(|&(l, r)| (token(l), token(r))).collect();
        let spec = spec_of(&choices, canonical);
        if write_tiktoken(&spec).is_ok() {
            let MergeRule::List(merges) = &spec.merges else { unreachable!() };
            for text in &texts {
                let listed = encode(&spec, text, |l, r| {
                    let i = merges.iter().position(|m| (m.left, m.right) == (l, r))?;
                    Some((i as u32, merges[i].result))
                });
                let words = sorted(&spec.tokens);
                let word = |id: u32| words.iter().find(|(i, _)| *i == id).unwrap().1.clone();
                let ranked = encode(&spec, text, |l, r| {
                    let whole = [word(l), word(r)].concat();
                    words.iter().find(|(_, w)| *w == whole).map(|(id, _)| (*id, *id))
                });
                prop_assert_eq!(&listed, &ranked, "{}", text);
                if let Some((id, _)) = words.iter().find(|(_, w)| w == text.as_bytes()) {
                    prop_assert_eq!(listed, vec![*id]);
                }
            }
        }
    }
}

/// The obvious encoder: the lowest rank first, the leftmost of equals.
fn encode(spec: &Spec, text: &str, rank: impl Fn(u32, u32) -> Option<(u32, u32)>) -> Vec<u32> {
    let byte = |b: u8| spec.tokens.iter().find(|(_, t)| *t == [b]).unwrap().0;
    let mut ids: Vec<u32> = text.bytes().map(byte).collect();
    while let Some((_, i, result)) = (1..ids.len())
        .filter_map(|i| rank(ids[i - 1], ids[i]).map(|(rank, result)| (rank, i, result)))
        .min()
    {
        ids[i - 1] = result;
        ids.remove(i);
    }
    ids
}

#[test]
fn a_written_file_is_as_tokenizers_writes_it() {
    let text = String::from_utf8(write_tokenizer_json(&small()).unwrap()).unwrap();
    for part in [
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n",
        "    {\n      \"id\": 258,\n      \"content\": \"<|endoftext|>\",\n",
        "      \"special\": true\n    }\n  ],\n  \"normalizer\": null,\n",
        "  \"pre_tokenizer\": {\n    \"type\": \"ByteLevel\",\n    \"add_prefix_space\": false,\n",
        "      \"the\": 257,\n      \"<|endoftext|>\": 258\n    },\n",
        "    \"merges\": [\n      \"t h\",\n      \"th e\"\n    ]\n  }\n}\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

#[test]
fn formats_are_detected_by_content() {
    for (data, kind) in [
        (&b"#version: 0.2\n"[..], Some(TokenizerFormat::Gpt2Merges)),
        ("Ġ t\nh e\n".as_bytes(), Some(TokenizerFormat::Gpt2Merges)),
        (b"IQ== 0\nIg== 1\n", Some(TokenizerFormat::Tiktoken)),
        (b"minbpe v1\n", Some(TokenizerFormat::Minbpe)),
        (b" {\"!\": 0}", Some(TokenizerFormat::Gpt2Vocab)),
        (b"{\"version\": \"1.0\", \"model\": {}}", Some(TokenizerFormat::TokenizerJson)),
        (b"{\"architectures\": []}", None),
        (b"{}", None),
        (b"{", None),
        (b"", None),
        (b"\n\n", None),
        (b"once upon a time", None),
        (b"\xff\xfe", None),
    ] {
        assert_eq!(recognise(data), kind, "{:?}", String::from_utf8_lossy(data));
    }
}
