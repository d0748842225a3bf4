//! Any manifest, or any edit of a real one: refused, or one whose files lie in its directory and
//! that is the same when written and read again. Verifying with it always ends.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use bytemill::Error;
use bytemill::Tokenizer;
use bytemill::internals::corpus::Inputs;
use bytemill::internals::tokens::{Format, Manifest, Manner, Options, encode_files, verify};
use bytemill_fuzz::{edit, job, scratch_directory, small_tokenizer};
use libfuzzer_sys::fuzz_target;

struct Case {
    tokenizer: Tokenizer,
    inputs: Inputs,
    out: PathBuf,
    manifest: Vec<u8>,
}

static CASE: LazyLock<Case> = LazyLock::new(|| {
    let folder = scratch_directory("manifests");
    let (source, out) = (folder.join("source.txt"), folder.join("tokens"));
    fs::write(&source, b"the cat sat on the mat<|end|>a dog".repeat(5)).expect("a source");
    let options = Options {
        tokenizer_file: None,
        format: Format::Shards,
        dtype: None,
        shard_tokens: 20,
        end_of_text: Some("<|end|>".into()),
        append_eot: true,
        val_fraction: Some(0.3),
        shuffle: false,
        seed: 3,
    };
    let (tokenizer, inputs) = (small_tokenizer(), Inputs::of_files(&[source]));
    encode_files(&tokenizer, &inputs, &out, &options, &Manner::default(), &job()).expect("tokens");
    let manifest = fs::read(out.join("manifest.json")).expect("a manifest");
    Case { tokenizer, inputs, out, manifest }
});

#[derive(Arbitrary, Debug)]
struct Edits(Vec<(u16, u8, Vec<u8>)>);

fuzz_target!(|data: &[u8]| {
    let Some((&kind, rest)) = data.split_first() else { return };
    let case = &*CASE;
    let manifest = if kind & 1 == 0 {
        rest.to_vec()
    } else {
        let Ok(Edits(edits)) = Edits::arbitrary_take_rest(Unstructured::new(rest)) else { return };
        edit(&case.manifest, &edits)
    };
    let path = case.out.join("manifest.json");
    fs::write(&path, &manifest).expect("a file");
    let read = match Manifest::read(&case.out) {
        Ok(read) => read,
        Err(Error::Tokens(report)) => return assert!(report.hint.is_some()),
        Err(error) => panic!("{error:?}"),
    };
    assert!(read.files().all(|(name, _)| !name.contains(['/', '\\']) && !name.starts_with('.')));
    // Whatever it says of its files is looked for in them; the ids may well be sound.
    let _ = verify(&case.out, Some(&case.tokenizer), Some(&case.inputs), &job());
    fs::write(&path, read.to_json()).expect("a file");
    assert_eq!(Manifest::read(&case.out).expect("what we write we read"), read);
});
