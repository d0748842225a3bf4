//! Any bytes as a tokenizer file of any kind: refused, or a tokenizer that round-trips through every
//! format that can hold it.

#![no_main]

use bytemill::Recognise;
use bytemill::Tokenizer;
use bytemill::internals::formats::{
    read_gpt2, read_minbpe, read_tiktoken, read_tokenizer_json, recognise, write_gpt2,
    write_minbpe, write_tiktoken, write_tokenizer_json,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (kind, cut, data) = input;
    let _ = recognise(data);
    let pattern = ["gpt2".to_owned()];
    let specials = [("<|endoftext|>".to_owned(), None)];
    let spec = match kind % 4 {
        0 => read_tokenizer_json(data),
        1 => {
            let (vocab, merges) = data.split_at(usize::from(cut) % (data.len() + 1));
            read_gpt2(vocab, merges, &pattern, &specials)
        }
        2 => read_tiktoken(data, &pattern, &specials),
        _ => read_minbpe(data),
    };
    let Ok(spec) = spec else { return };
    let Ok(tokenizer) = Tokenizer::new(&spec) else { return };
    let mut ids = Vec::new();
    if tokenizer.encode(data, &Recognise::All, &mut ids).is_ok() {
        let mut bytes = Vec::new();
        tokenizer.vocab().decode(&ids, &mut bytes).expect("ids it gave itself");
        assert_eq!(bytes, data);
    }
    let spec = tokenizer.spec();
    let again = |file: Vec<u8>| read_tokenizer_json(&file).and_then(|spec| Tokenizer::new(&spec));
    if let Ok(file) = write_tokenizer_json(&spec) {
        let again = again(file).expect("what we write we read");
        assert_eq!(again.fingerprint(), tokenizer.fingerprint());
    }
    let _ = (write_gpt2(&spec), write_tiktoken(&spec), write_minbpe(&spec));
});
