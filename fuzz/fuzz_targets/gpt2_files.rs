//! GPT-2's pair of files: a valid pair gives the tokenizer that it describes, and is written again
//! byte for byte; an edited pair is refused, or gives a tokenizer that its files can hold.

#![no_main]

use std::collections::{HashMap, HashSet};

use arbitrary::Arbitrary;
use bytemill::Error;
use bytemill::Recognise;
use bytemill::Tokenizer;
use bytemill::internals::formats::{read_gpt2, write_gpt2};
use bytemill::internals::naive;
use bytemill::{Merge, MergeRule, Spec, SpecialToken};
use bytemill_fuzz::edit;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    /// Pairs of tokens, by number modulo how many there are.
    merges: Vec<(u16, u16)>,
    with_special: bool,
    text: Vec<u8>,
    vocab_edits: Vec<(u16, u8, Vec<u8>)>,
    merges_edits: Vec<(u16, u8, Vec<u8>)>,
}

fuzz_target!(|input: Input| {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut known: HashSet<Vec<u8>> = tokens.iter().cloned().collect();
    let (mut merges, mut ranks) = (Vec::new(), HashMap::new());
    for &(left, right) in input.merges.iter().take(60) {
        let (left, right) = (usize::from(left) % tokens.len(), usize::from(right) % tokens.len());
        let token = [&tokens[left][..], &tokens[right]].concat();
        if token.len() <= 40 && known.insert(token.clone()) {
            ranks.insert((tokens[left].clone(), tokens[right].clone()), merges.len());
            let result = tokens.len() as u32;
            merges.push(Merge { left: left as u32, right: right as u32, result });
            tokens.push(token);
        }
    }
    let mut spec = Spec { pattern: vec!["gpt2".into()], ..Spec::default() };
    for (id, token) in tokens.iter().enumerate() {
        spec.tokens.push(id as u32, token);
    }
    spec.merges = MergeRule::List(merges);
    if input.with_special {
        let (text, id) = ("<|endoftext|>".to_owned(), tokens.len() as u32);
        spec.specials.push(SpecialToken { text, id, control: true });
    }
    let tokenizer = Tokenizer::new(&spec).expect("a sound vocabulary");
    let (vocab_json, merges_txt) = write_gpt2(&spec).expect("files");
    let read = |vocab: &[u8], merges: &[u8]| {
        read_gpt2(vocab, merges, &["gpt2".to_owned()], &[])
            .and_then(|spec| Tokenizer::new(&spec).map(|tokenizer| (spec, tokenizer)))
    };

    let (_, again) = read(&vocab_json, &merges_txt).expect("what we write we read");
    assert_eq!(again.fingerprint(), tokenizer.fingerprint());
    let files = write_gpt2(&again.spec()).expect("files");
    assert_eq!(files, (vocab_json.clone(), merges_txt.clone()));
    let mut ids = Vec::new();
    again.encode(&input.text, &Recognise::Nothing, &mut ids).expect("every text has ids");
    let mut expected: Vec<Vec<u8>> = Vec::new();
    let pattern = &again.cutter().pattern;
    pattern
        .split(&input.text, |piece| expected.extend(naive::encode(piece, &ranks)))
        .expect("pieces");
    let got: Vec<&[u8]> = ids.iter().map(|&id| &tokens[id as usize][..]).collect();
    assert_eq!(got, expected);

    let vocab_json = edit(&vocab_json, &input.vocab_edits);
    let merges_txt = edit(&merges_txt, &input.merges_edits);
    match read(&vocab_json, &merges_txt) {
        Ok((spec, tokenizer)) => {
            // Some tokenizers that can be read cannot be written, such as those with gaps between ids.
            let Ok((vocab_json, merges_txt)) = write_gpt2(&spec) else { return };
            let specials: Vec<(String, Option<u32>)> =
                spec.specials.iter().map(|s| (s.text.clone(), Some(s.id))).collect();
            let again = read_gpt2(&vocab_json, &merges_txt, &["gpt2".to_owned()], &specials)
                .and_then(|spec| Tokenizer::new(&spec))
                .expect("what we write we read");
            assert_eq!(again.fingerprint(), tokenizer.fingerprint());
        }
        Err(Error::Tokenizer(_)) => {}
        Err(error) => panic!("{error:?}"),
    }
});
