//! Parts that were encoded apart, joined to what one run gives.

use super::*;

#[test]
fn parts_are_joined_to_the_whole() {
    let tokenizer = tokenizer();
    let texts = prop::collection::vec(source(), 1..4);
    let cuts = prop::collection::vec(0u64..150, 0..5);
    proptest!(ProptestConfig::with_cases(60), |(texts in texts, cuts in cuts, options in any_options())| {
        let corpus = Corpus::new(&texts);
        corpus.encode(&tokenizer, &options, &Manner::default()).unwrap();
        let whole = files(&corpus.out());
        let part_options = Options {
            format: Format::Npy,
            dtype: options.dtype.map(|_| Dtype::Uint32),
            val_fraction: None,
            shuffle: false,
            ..options.clone()
        };
        let mut cuts = cuts;
        cuts.extend([0, u64::MAX]);
        cuts.sort_unstable();
        let mut parts = Vec::new();
        for input in corpus.inputs().list {
            for range in cuts.windows(2) {
                let part = corpus.folder.path().join(format!("part-{}", parts.len()));
                let input = crate::corpus::Input { range: Some((range[0], range[1])), ..input.clone() };
                let inputs = Inputs { list: vec![input], ..Inputs::default() };
                encode_files(&tokenizer, &inputs, &part, &part_options, &Manner::default(), &job()).unwrap();
                parts.push(part);
            }
        }
        let joined = corpus.folder.path().join("joined");
        let manner = Manner { sort_bytes: 100, ..Manner::default() };
        join_parts(&tokenizer, &corpus.inputs(), &parts, &joined, &options, &manner, &job()).unwrap();
        prop_assert_eq!(files(&joined), whole);
        // A part of another tokenizer must not get in.
        let smaller = tokenizer.truncate(270).unwrap();
        let other = corpus.folder.path().join("other");
        let error = join_parts(&smaller, &corpus.inputs(), &parts, &other, &options, &manner, &job());
        prop_assert!(matches!(error, Err(Error::Tokens(_))));
    });
}
