//! minbpe's `.model` files, built line by line: an error names the line, or the tokenizer is written
//! again as it was read.

#![no_main]

use arbitrary::Arbitrary;
use bytemill::Error;
use bytemill::Recognise;
use bytemill::Tokenizer;
use bytemill::internals::formats::{read_minbpe, write_minbpe};
use bytemill_fuzz::edit;
use libfuzzer_sys::fuzz_target;

const GPT4: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const PATTERNS: [&str; 4] = ["", GPT4, r"\w+|\W+", "gpt2"];

#[derive(Arbitrary, Debug)]
struct Input {
    pattern: u8,
    specials: Vec<(String, u16)>,
    merges: Vec<(u16, u16)>,
    text: Vec<u8>,
    edits: Vec<(u16, u8, Vec<u8>)>,
}

fuzz_target!(|input: Input| {
    let pattern = PATTERNS[usize::from(input.pattern) % PATTERNS.len()];
    let mut file = format!("minbpe v1\n{pattern}\n{}\n", input.specials.len());
    for (text, id) in &input.specials {
        file += &format!("{text} {id}\n");
    }
    for (number, (left, right)) in input.merges.iter().take(100).enumerate() {
        let made = 256 + number as u32;
        file += &format!("{} {}\n", u32::from(*left) % made, u32::from(*right) % made);
    }
    let data = edit(file.as_bytes(), &input.edits);
    let read = |data: &[u8]| {
        read_minbpe(data).and_then(|spec| Tokenizer::new(&spec).map(|tokenizer| (spec, tokenizer)))
    };
    let (spec, tokenizer) = match read(&data) {
        Ok(both) => both,
        // An invalid regular expression is an error of another kind.
        Err(Error::Tokenizer(_) | Error::Config(_)) => return,
        Err(error) => panic!("{error:?}"),
    };
    let written = match write_minbpe(&spec) {
        Ok(written) => written,
        Err(Error::Tokenizer(_)) => return,
        Err(error) => panic!("{error:?}"),
    };
    let (_, again) = read(&written).expect("what we write we read");
    assert_eq!(again.fingerprint(), tokenizer.fingerprint());
    if input.edits.is_empty() {
        let mut ids = Vec::new();
        tokenizer.encode(&input.text, &Recognise::All, &mut ids).expect("every text has ids");
        let mut bytes = Vec::new();
        tokenizer.vocab().decode(&ids, &mut bytes).expect("ids it gave itself");
        assert_eq!(bytes, input.text);
    }
});
