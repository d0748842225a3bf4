//! Damaged files: an error or a valid tokenizer, never a panic and never a part of one.

use proptest::prelude::*;

use super::{built, message, small};
use crate::base::error::{Error, Result};
use crate::tokenizer::formats::*;
use crate::tokenizer::spec::{MergeRule, Spec};

type Reader = fn(&[u8]) -> Result<Spec>;

/// Every format of one file; of the pair of two files, each with the other intact.
fn files() -> Vec<(&'static str, Vec<u8>, Reader)> {
    fn vocab(data: &[u8]) -> Result<Spec> {
        read_gpt2(data, &write_gpt2(&small())?.1, &["gpt2".into()], &[])
    }
    fn merges(data: &[u8]) -> Result<Spec> {
        read_gpt2(&write_gpt2(&small())?.0, data, &["gpt2".into()], &[])
    }
    fn ranks(data: &[u8]) -> Result<Spec> {
        read_tiktoken(data, &["gpt2".into()], &[("<|endoftext|>".into(), None)])
    }
    let spec = small();
    let (vocab_json, merges_txt) = write_gpt2(&spec).unwrap();
    vec![
        ("tokenizer.json", write_tokenizer_json(&spec).unwrap(), read_tokenizer_json),
        ("vocab.json", vocab_json, vocab),
        ("merges.txt", merges_txt, merges),
        ("ranks", write_tiktoken(&spec).unwrap(), ranks),
        ("minbpe", write_minbpe(&spec).unwrap(), read_minbpe),
    ]
}

/// What every reader guarantees.
fn check(spec: &Spec) {
    let mut ids: Vec<u32> = spec.tokens.iter().map(|(id, _)| id).collect();
    ids.extend(spec.specials.iter().map(|special| special.id));
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "two tokens with the same id");
    let bytes = |id| spec.tokens.iter().find(|(i, _)| *i == id).map(|(_, token)| token);
    let mut words: Vec<&[u8]> = spec.tokens.iter().map(|(_, token)| token).collect();
    words.sort_unstable();
    assert!(words.windows(2).all(|pair| pair[0] < pair[1]), "two tokens with the same bytes");
    assert!(words.iter().all(|word| !word.is_empty()));
    if let MergeRule::List(merges) = &spec.merges {
        for merge in merges {
            let halves = [bytes(merge.left).unwrap(), bytes(merge.right).unwrap()];
            assert_eq!(bytes(merge.result).unwrap(), halves.concat());
        }
    }
    assert!(spec.specials.iter().all(|special| !special.text.is_empty()));
    assert!(!spec.pattern.is_empty());
}

fn read(name: &str, data: &[u8], reader: Reader) {
    let _ = recognise(data);
    match built(reader(data)) {
        Ok(spec) => check(&spec),
        Err(Error::Tokenizer(report)) => assert!(!report.message.is_empty()),
        Err(other) => panic!("{name}: {other:?}"),
    }
}

#[test]
fn cut_at_every_byte() {
    for (name, data, reader) in files() {
        assert!(reader(&data).is_ok(), "{name}");
        for end in 0..data.len() {
            read(name, &data[..end], reader);
        }
    }
}

#[test]
fn cut_json_is_an_error() {
    for (name, data, reader) in files().into_iter().take(2) {
        // Up to the last brace; only a newline follows it.
        for end in 0..data.len() - 1 {
            assert!(reader(&data[..end]).is_err(), "{name} cut at {end}");
        }
    }
    let data = write_tokenizer_json(&small()).unwrap();
    let text = message(read_tokenizer_json(&data[..2000]));
    assert!(text.contains("ends too early"), "{text}");
    assert!(text.contains("byte offset "), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn changed_bytes(
        file in 0usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (name, mut data, reader) = files().swap_remove(file);
        for (place, byte) in changes {
            let i = place.index(data.len());
            data[i] = byte;
        }
        read(name, &data, reader);
    }

    #[test]
    fn moved_pieces(
        file in 0usize..5,
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        n in 1usize..40,
    ) {
        let (name, mut data, reader) = files().swap_remove(file);
        let from = from.index(data.len());
        let piece = data[from..data.len().min(from + n)].to_vec();
        let to = to.index(data.len());
        data.splice(to..to, piece);
        read(name, &data, reader);
    }

    #[test]
    fn anything_at_all(data: Vec<u8>, lines in "[ -~\n]{0,80}") {
        for (name, _, reader) in files() {
            read(name, &data, reader);
            read(name, lines.as_bytes(), reader);
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{\"a\":", "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["] {
        assert!(read_tokenizer_json(open.repeat(100_000).as_bytes()).is_err());
    }
}
