//! Encoding against the naive encoder.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::Stream;
use super::cache;
use super::tokenizer::*;
use super::worker::{Merger, Worker};
use crate::base::job::{Job, Phase};
use crate::learn::counts::Counts;
use crate::learn::merges::Options;
use crate::naive;
use crate::text::cutter::Cutter;
use crate::text::specials::Segment;
use crate::tokenizer::learn::{Target, learn};
use crate::tokenizer::spec::{MergeRule, Spec};

mod window;

const CORPUS: &str = "the cat sat on the mat; then the other cats sat there, aaaa aaa aa a. \
    Größe größer am größten; 東京の東京都 東京。 don't won't can't 1234 12345 \n\n  \t x";

fn job() -> Job {
    Job::new(Phase::Encode, 0)
}

fn trained(pattern: &str, vocab_size: usize) -> Tokenizer {
    let specials = ["<|end|>".to_owned(), "<|end|><|end|>".to_owned(), "a b".to_owned()];
    let mut counts = Counts::new(Cutter::new(&[pattern], &specials).unwrap(), 1);
    counts.add_texts(&[CORPUS.as_bytes()], &job()).unwrap();
    let spec = learn(&mut counts, &Target::new(vocab_size, &specials), &job()).unwrap();
    Tokenizer::new(&spec).unwrap()
}

/// Pieces by the pattern (tested elsewhere), merges by the naive encoder.
fn naive_ids(tokenizer: &Tokenizer, text: &[u8]) -> Vec<u32> {
    let vocab = tokenizer.vocab();
    let ranks: HashMap<(Vec<u8>, Vec<u8>), usize> = vocab
        .merges()
        .iter()
        .enumerate()
        .map(|(i, &(l, r))| ((vocab.rank_bytes(l).to_vec(), vocab.rank_bytes(r).to_vec()), i))
        .collect();
    let mut ids = Vec::new();
    tokenizer
        .cutter()
        .specials
        .segments(text, |segment| {
            match segment {
                Segment::Special(found) => ids.push(vocab.specials()[found.index].id),
                Segment::Plain(_, plain) => {
                    tokenizer.cutter().pattern.split(plain, |piece| {
                        for token in naive::encode(piece, &ranks) {
                            ids.push(vocab.id_of(&token).unwrap());
                        }
                    })?;
                }
            }
            Ok(())
        })
        .unwrap();
    ids
}

fn ids(tokenizer: &Tokenizer, text: &[u8]) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &Recognise::All, &mut ids).unwrap();
    ids
}

/// Text like the corpus, special tokens, and bytes.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "the",
        " cat",
        " sat",
        "größ",
        "東京",
        "<|end|>",
        "<|end",
        "|>",
        "a b",
        "a",
        " ",
        "\n",
        "\t",
        "'t",
        "1234",
        "!",
        "aaaaaaaaaaa",
        "…",
    ]);
    let word = prop_oneof![
        8 => words.prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
        1 => Just(vec![b'a'; 200]),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

fn tokenizers() -> Vec<Arc<Tokenizer>> {
    ["gpt2", "cl100k", "o200k"].map(|name| Arc::new(trained(name, 380))).to_vec()
}

#[test]
fn equals_the_naive_encoder() {
    let tokenizers = tokenizers();
    proptest!(|(text in text())| {
        for tokenizer in &tokenizers {
            let got = ids(tokenizer, &text);
            prop_assert_eq!(&got, &naive_ids(tokenizer, &text));
            let mut back = Vec::new();
            tokenizer.vocab().decode(&got, &mut back).unwrap();
            prop_assert_eq!(&back, &text);
        }
    });
}

/// Text without spaces: one long piece, of letters of one to four bytes.
fn unspaced() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::sample::select(vec![
        "a", "b", "c", "ö", "ß", "東", "京", "都", "の", "人", "民", "国", "𝒜", "𝒷",
    ]);
    let word = prop_oneof![
        8 => letters.prop_map(|letter| letter.as_bytes().to_vec()),
        1 => prop::collection::vec(0x80u8..=0xff, 1..3),
    ];
    prop::collection::vec(word, 1..120).prop_map(|words| words.concat())
}

/// A tokenizer trained on such text, with many merges across letters and parts of letters.
fn trained_unspaced(seed: u64, ignore_merges: bool) -> Tokenizer {
    let mut texts = Vec::new();
    let letters = ["a", "b", "c", "ö", "ß", "東", "京", "都", "の", "人", "民", "国", "𝒜", "𝒷"];
    let mut state = seed;
    for _ in 0..60 {
        let mut text = String::new();
        for _ in 0..20 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            text.push_str(letters[(state >> 33) as usize % letters.len()]);
        }
        texts.push(text);
    }
    let slices: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let mut counts = Counts::new(Cutter::new(&["gpt2"], &["<|end|>"]).unwrap(), 1);
    counts.add_texts(&slices, &job()).unwrap();
    let mut spec = learn(&mut counts, &Target::new(420, &["<|end|>".to_owned()]), &job()).unwrap();
    spec.ignore_merges = ignore_merges;
    Tokenizer::new(&spec).unwrap()
}

#[test]
fn long_pieces_equal_the_naive_encoder() {
    let tokenizers: Vec<Tokenizer> = (1..4)
        .flat_map(|seed| [false, true].map(|ignore| trained_unspaced(seed, ignore)))
        .collect();
    // Some are cut as in long texts, others are not.
    for tokenizer in &tokenizers[..4] {
        tokenizer.vocab().joins(true);
    }
    proptest!(|(texts in prop::collection::vec(unspaced(), 1..4))| {
        for tokenizer in &tokenizers {
            for text in &texts {
                prop_assert_eq!(&ids(tokenizer, text), &naive_ids(tokenizer, text));
            }
        }
    });
}

/// Caches of any size, full or not.
#[test]
fn small_caches_change_nothing() {
    let tokenizer = trained("gpt2", 380);
    let expected = |text: &[u8]| ids(&tokenizer, text);
    proptest!(ProptestConfig::with_cases(32), |(
        pieces in prop::collection::vec(prop::collection::vec(b'a'..=b'z', 1..20), 2000..4000),
        limit in prop::sample::select(vec![0usize, 40_000, 70_000, 1 << 20]),
    )| {
        let mut worker = Worker::new(limit);
        for _ in 0..2 {
            for some in pieces.chunks(50) {
                let text = some.join(&b' ');
                let mut got = Vec::new();
                tokenizer.encode_with(&mut worker, &text, &Recognise::All, &mut got).unwrap();
                prop_assert_eq!(got, expected(&text));
            }
        }
    });
}

#[test]
fn a_stream_is_one_text() {
    let tokenizers = tokenizers();
    // Small parts, and parts large enough for the stream to hand ids out in between.
    proptest!(ProptestConfig::with_cases(48), |(text in text(), repeat in prop_oneof![Just(1usize), Just(400)], step in 1usize..3000)| {
        let text = text.repeat(repeat);
        for tokenizer in &tokenizers {
            let mut stream = Stream::new(Arc::clone(tokenizer), Recognise::All).unwrap();
            let mut got = Vec::new();
            for part in text.chunks(step) {
                stream.push(part, &mut got).unwrap();
            }
            stream.finish(&mut got).unwrap();
            prop_assert_eq!(got, ids(tokenizer, &text));
        }
    });
}

/// A long piece without a cut is encoded in parts, too.
#[test]
fn a_stream_holds_little_of_a_long_piece() {
    for tokenizer in tokenizers() {
        for unit in ["a", " ", "-", "the", "ab"] {
            let text = format!("x {}<|end|>{0} y", unit.repeat(500_000 / unit.len()));
            let mut stream = Stream::new(Arc::clone(&tokenizer), Recognise::All).unwrap();
            let (mut got, mut largest) = (Vec::new(), 0);
            for part in text.as_bytes().chunks(10_007) {
                stream.push(part, &mut got).unwrap();
                largest = largest.max(stream.held());
            }
            stream.finish(&mut got).unwrap();
            assert!(got == ids(&tokenizer, text.as_bytes()), "{unit:?}");
            assert!(largest < 250_000, "{unit:?}: {largest}");
        }
    }
}

#[test]
fn a_batch_is_its_texts() {
    let tokenizer = trained("gpt2", 350);
    proptest!(ProptestConfig::with_cases(16), |(texts in prop::collection::vec(text(), 0..20), threads in 1usize..5)| {
        let texts: Vec<Vec<u8>> = texts.into_iter().map(|text| text.repeat(300)).collect();
        let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let (flat, offsets) =
            tokenizer.encode_batch(&slices, &Recognise::All, threads, &job()).unwrap();
        prop_assert_eq!(offsets.len(), texts.len() + 1);
        for (i, text) in texts.iter().enumerate() {
            let part = &flat[offsets[i] as usize..offsets[i + 1] as usize];
            prop_assert_eq!(part, &ids(&tokenizer, text)[..]);
        }
    });
}

#[test]
fn a_long_text_in_parts_is_one_text() {
    let tokenizer = trained("gpt2", 350);
    let text = CORPUS.repeat((3 << 20) / CORPUS.len());
    let expected = ids(&tokenizer, text.as_bytes());
    for threads in [1, 2, 5] {
        let parted =
            tokenizer.encode_job(text.as_bytes(), &Recognise::All, threads, &job()).unwrap();
        assert_eq!(parted, expected);
    }
}

#[test]
fn choices_of_special_tokens() {
    let tokenizer = trained("gpt2", 300);
    let encode = |text: &str, recognise: &Recognise| {
        let mut ids = Vec::new();
        tokenizer.encode(text.as_bytes(), recognise, &mut ids).map(|()| ids)
    };
    assert_eq!(encode("<|end|>", &Recognise::All).unwrap(), [297]);
    assert_eq!(encode("<|end|><|end|><|end|>", &Recognise::All).unwrap(), [298, 297]);
    assert!(encode("<|end|>", &Recognise::Nothing).unwrap().len() > 1);
    assert_eq!(encode("", &Recognise::Nothing).unwrap(), [0u32; 0]);
    let error = encode("x <|end|>", &Recognise::Refuse).unwrap_err().to_string();
    assert!(error.contains("\"<|end|>\" at byte 2"), "{error}");
    let some = tokenizer.recognise_some(&["<|end|>"]).unwrap();
    assert_eq!(encode("<|end|><|end|>", &some).unwrap(), [297, 297]);
    assert!(tokenizer.recognise_some(&["<|other|>"]).is_err());
}

#[test]
fn spans_cover_the_text() {
    let tokenizer = trained("gpt2", 260);
    let text = "né\u{10ffff}e\u{301}".as_bytes();
    let text = [text, b"\xff\xe2\x82", "€".as_bytes()].concat();
    let (_, spans) = tokenizer.encode_spans(&text, &Recognise::All, &job()).unwrap();
    let n_chars = 5 + 3 + 1;
    assert_eq!(spans.first().unwrap().bytes.0, 0);
    assert_eq!(spans.last().unwrap().bytes.1, text.len());
    assert_eq!(spans.last().unwrap().chars.1, n_chars);
    for (span, next) in spans.iter().zip(&spans[1..]) {
        assert_eq!(span.bytes.1, next.bytes.0);
        // Neighbors share a character or are adjacent.
        assert!(next.chars.0 == span.chars.1 || next.chars.0 + 1 == span.chars.1);
    }
}

#[test]
fn ranked_vocabularies_merge_as_tiktoken_does() {
    // "abc" has a lower rank than "ab", which is part of it: it is merged all the same.
    let mut spec =
        Spec { pattern: vec!["gpt2".into()], merges: MergeRule::ByRank, ..Spec::default() };
    for byte in 0..=255u8 {
        spec.tokens.push(u32::from(byte), &[byte]);
    }
    spec.tokens.push(256, b"abc");
    spec.tokens.push(257, b"ab");
    spec.tokens.push(258, b"xyz");
    let tokenizer = Tokenizer::new(&spec).unwrap();
    assert_eq!(ids(&tokenizer, b"abc"), [256]);
    assert_eq!(ids(&tokenizer, b"xyz"), [120, 121, 122]);
    assert_eq!(tokenizer.unreachable(), [258]);
    let whole = Tokenizer::new(&Spec { ignore_merges: true, ..spec }).unwrap();
    assert_eq!(ids(&whole, b"xyz"), [258]);
    assert_eq!(ids(&whole, b" xyz"), [32, 120, 121, 122]);
}

#[test]
fn truncating_is_learning_less() {
    let large = trained("gpt2", 330);
    for size in [259, 260, 300, 330] {
        let small = large.with_vocab_size(size).unwrap();
        assert_eq!(small.spec(), trained("gpt2", size).spec());
        assert_eq!(small.fingerprint(), trained("gpt2", size).fingerprint());
    }
    assert!(large.with_vocab_size(258).is_err());
    assert!(large.with_vocab_size(331).is_err());
}

/// The number of tokens of a text, without special ones, by size of the vocabulary.
fn by_size(tokenizer: &Tokenizer, text: &[u8]) -> Vec<u64> {
    let specials: Vec<_> = tokenizer.vocab().specials().iter().map(|s| s.text.clone()).collect();
    let stages = tokenizer.cutter().pattern.stages();
    let mut counts = Counts::new(Cutter::new(stages, &specials).unwrap(), 1);
    counts.add_texts(&[text], &job()).unwrap();
    tokenizer.tokens_by_size(&mut counts, &job()).unwrap()
}

#[test]
fn tokens_by_size_are_those_of_smaller_vocabularies() {
    let tokenizer = trained("gpt2", 330);
    let smaller: Vec<_> =
        (259..=330).map(|size| tokenizer.with_vocab_size(size).unwrap()).collect();
    proptest!(|(text in text())| {
        let found = by_size(&tokenizer, &text);
        for (one, n) in smaller.iter().zip(&found) {
            let ordinary = |id: &&u32| (**id as usize) < one.vocab().n_ranks();
            let expected = ids(one, &text).iter().filter(ordinary).count() as u64;
            prop_assert_eq!(*n, expected);
        }
        prop_assert_eq!(found.len(), smaller.len());
    });
}

#[test]
fn tokens_by_size_with_unordered_ranks() {
    let spec = |tokens: &[&[u8]], ignore_merges: bool| {
        let pattern = vec!["gpt2".into()];
        let mut spec =
            Spec { pattern, merges: MergeRule::ByRank, ignore_merges, ..Spec::default() };
        for byte in 0..=255u8 {
            spec.tokens.push(u32::from(byte), &[byte]);
        }
        for (token, id) in tokens.iter().zip(256..) {
            spec.tokens.push(id, token);
        }
        Tokenizer::new(&spec).unwrap()
    };
    let tokens: [&[u8]; 5] = [b"abc", b"ab", b"cd", b"abcd", b"xyz"];
    let text = b"abc abcd abd xyz xyzz cdab";
    for ignore_merges in [false, true] {
        let found = by_size(&spec(&tokens, ignore_merges), text);
        for (n, found) in found.iter().enumerate() {
            let smaller = spec(&tokens[..n], ignore_merges);
            assert_eq!(*found, ids(&smaller, text).len() as u64, "{n} tokens, {ignore_merges}");
        }
    }
    let mut other = Counts::new(Cutter::new(&["cl100k"], &[""; 0]).unwrap(), 1);
    let error = spec(&tokens, false).tokens_by_size(&mut other, &job()).unwrap_err();
    assert!(error.to_string().contains("cl100k"), "{error}");
}

#[test]
fn long_pieces_take_linear_time() {
    let tokenizer = trained("gpt2", 380);
    for unit in ["a", " ", "the", "東京"] {
        let text = unit.repeat((2 << 20) / unit.len());
        let got = ids(&tokenizer, text.as_bytes());
        let mut back = Vec::new();
        tokenizer.vocab().decode(&got, &mut back).unwrap();
        assert!(back == text.as_bytes(), "{unit:?}");
    }
}

/// Many unseen pieces, some repeated, some long, and special tokens between texts: the ids of pending
/// pieces are in the order of the text.
#[test]
fn pending_pieces_keep_their_order() {
    let tokenizer = trained("gpt2", 380);
    let mut text = String::new();
    let mut number = 1u32;
    for i in 0..3000 {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = format!(" {:x}", number >> (i % 20));
        text += &word;
        if i % 7 == 0 {
            text += &word;
        }
        if i % 50 == 0 {
            text += &"größte東京".repeat(i % 9);
            text += "<|end|>";
        }
        if i % 400 == 0 {
            text += &"the cat".repeat(2000);
        }
    }
    let expected = naive_ids(&tokenizer, text.as_bytes());
    assert_eq!(ids(&tokenizer, text.as_bytes()), expected);
    tokenizer.vocab().joins(true);
    // On a processor that cannot merge side by side.
    let mut worker = Worker::new(cache::DEFAULT_BYTES).without_lanes();
    let mut got = Vec::new();
    tokenizer.encode_with(&mut worker, text.as_bytes(), &Recognise::All, &mut got).unwrap();
    assert_eq!(got, expected);
    // Again, with everything in the cache; and with several threads.
    assert_eq!(ids(&tokenizer, text.as_bytes()), expected);
    for threads in 1..=3 {
        let got = tokenizer.encode_job(text.as_bytes(), &Recognise::All, threads, &job()).unwrap();
        assert_eq!(got, expected);
    }
}

/// Every processor must give the same ids: merging in lanes against merging piece by piece.
#[test]
fn side_by_side_is_one_by_one() {
    use super::merge_lanes::MergeLanes;
    use super::short_merge::ShortMerge;
    if MergeLanes::new().is_none() {
        return;
    }
    let tokenizer = trained("gpt2", 380);
    let pairs = tokenizer.vocab().pairs();
    proptest!(|(pieces in prop::collection::vec(
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..=15),
            "[a-e ]{1,15}".prop_map(String::into_bytes),
            "(the|cat|sat|größ|aa){1,5}".prop_map(|text| text.into_bytes()[..].iter().copied().take(15).collect()),
        ],
        0..60,
    ))| {
        let keys: Vec<_> =
            pieces.iter().map(|piece| crate::base::table::key(piece, 0, piece.len())).collect();
        let (mut lanes, mut small) = (MergeLanes::new().unwrap(), ShortMerge::default());
        let mut got = vec![vec![]; pieces.len()];
        lanes.merge(&keys, pairs, |i, ranks| got[i] = ranks.to_vec());
        for (piece, got) in pieces.iter().zip(got) {
            small.merge(piece, pairs);
            prop_assert_eq!(&got, &small.ranks[..small.n], "{:?}", piece);
        }
    });
}
