//! Any merges, in any order, on any text: the encoder equals the naive one, for whole text and for
//! parts, and decoding restores the bytes.

#![no_main]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arbitrary::Arbitrary;
use bytemill::Recognise;
use bytemill::Tokenizer;
use bytemill::internals::Stream;
use bytemill::internals::naive;
use bytemill::internals::pattern::NAMES;
use bytemill::{Merge, MergeRule, Spec};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    pattern: u8,
    /// Pairs of tokens, by number modulo how many there are.
    merges: Vec<(u16, u16)>,
    /// How many of the merges are moved to the front.
    turn: u8,
    text: Vec<u8>,
    cut: u16,
}

fuzz_target!(|input: Input| {
    let mut spec = Spec {
        pattern: vec![NAMES[usize::from(input.pattern) % NAMES.len()].into()],
        ..Spec::default()
    };
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut known: HashSet<Vec<u8>> = tokens.iter().cloned().collect();
    let mut merges = Vec::new();
    for &(left, right) in input.merges.iter().take(200) {
        let (left, right) = (usize::from(left) % tokens.len(), usize::from(right) % tokens.len());
        let token = [&tokens[left][..], &tokens[right]].concat();
        if token.len() <= 40 && known.insert(token.clone()) {
            let result = tokens.len() as u32;
            merges.push(Merge { left: left as u32, right: right as u32, result });
            tokens.push(token);
        }
    }
    if !merges.is_empty() {
        let n = merges.len();
        merges.rotate_left(usize::from(input.turn) % n);
    }
    for (id, token) in tokens.iter().enumerate() {
        spec.tokens.push(id as u32, token);
    }
    let ranks: HashMap<(Vec<u8>, Vec<u8>), usize> = merges
        .iter()
        .enumerate()
        .map(|(rank, m)| {
            ((tokens[m.left as usize].clone(), tokens[m.right as usize].clone()), rank)
        })
        .collect();
    spec.merges = MergeRule::List(merges);
    let tokenizer = Arc::new(Tokenizer::new(&spec).expect("a sound vocabulary"));

    let mut expected: Vec<Vec<u8>> = Vec::new();
    tokenizer
        .cutter()
        .pattern
        .split(&input.text, |piece| expected.extend(naive::encode(piece, &ranks)))
        .expect("a named pattern cuts every text");

    let mut ids = Vec::new();
    tokenizer.encode(&input.text, &Recognise::Nothing, &mut ids).expect("every text has ids");
    let got: Vec<&[u8]> = ids.iter().map(|&id| &tokens[id as usize][..]).collect();
    assert_eq!(got, expected);
    assert_eq!(got.concat(), input.text);

    let mut parts = Vec::new();
    let mut stream = Stream::new(tokenizer, Recognise::Nothing).expect("a stream");
    let (first, second) = input.text.split_at(usize::from(input.cut) % (input.text.len() + 1));
    stream.push(first, &mut parts).expect("every text has ids");
    stream.push(second, &mut parts).expect("every text has ids");
    stream.finish(&mut parts).expect("every text has ids");
    assert_eq!(parts, ids);
});
