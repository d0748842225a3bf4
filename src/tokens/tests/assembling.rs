//! Parts that were encoded apart, and the shards that are made of them: the bytes of one run.

use std::path::Path;

use super::*;

/// Where shards begin: for each split, each shard's recipe, as a driver would write it.
fn recipes(
    shares: &[Vec<Share>],
    parts: &[(PathBuf, u64)],
    room: u64,
    bits: Option<u32>,
) -> Vec<Vec<Recipe>> {
    let of_split = |(split, shares): (usize, &Vec<Share>)| {
        let total: u64 = shares.iter().map(|share| share.tokens).sum();
        let n = total.div_ceil(room).max(1);
        let recipe = |number: u64| {
            let (start, end) = (number * room, (number + 1).saturating_mul(room));
            let mut before = vec![Share::default()];
            for share in shares {
                let last = *before.last().unwrap();
                before.push(Share {
                    tokens: last.tokens + share.tokens,
                    documents: last.documents + share.documents,
                });
            }
            let reaches = |i: &usize| before[i + 1].tokens > start || number == 0;
            let first = (0..shares.len()).find(reaches).unwrap();
            let last = (0..shares.len()).rfind(|&i| before[i].tokens <= end).unwrap();
            Recipe {
                split,
                number: number as usize,
                parts: if bits.is_some() { parts.to_vec() } else { parts[first..=last].to_vec() },
                buckets: bits.map(|bits| (bits, first, last)),
                before: before[first],
            }
        };
        (0..n).map(recipe).collect()
    };
    shares.iter().enumerate().map(of_split).collect()
}

fn part_options(options: &Options) -> Options {
    Options {
        format: Format::Npy,
        dtype: options.dtype.map(|_| Dtype::Uint32),
        val_fraction: None,
        shuffle: false,
        ..options.clone()
    }
}

/// Encodes ranges of the sources into parts; gives them with the documents before each.
fn encode_parts(
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    options: &Options,
    cuts: &[u64],
    partial: &Path,
) -> Vec<(PathBuf, u64)> {
    let (mut parts, mut documents) = (Vec::new(), 0);
    for input in corpus.inputs().list {
        for range in cuts.windows(2) {
            let part = partial.join(format!("parts-{}", parts.len()));
            let input = crate::corpus::Input { range: Some((range[0], range[1])), ..input.clone() };
            let inputs = Inputs { list: vec![input], ..Inputs::default() };
            let (own, manner) = (part_options(options), Manner::default());
            encode_files(tokenizer, &inputs, &part, &own, &manner, &job()).unwrap();
            let here = facts(&part).unwrap().0.documents;
            parts.push((part, documents));
            documents += here;
        }
    }
    parts
}

#[test]
fn shards_made_apart_are_those_of_one_run() {
    let tokenizer = tokenizer();
    let texts = prop::collection::vec(source(), 1..4);
    let cuts = prop::collection::vec(0u64..150, 0..5);
    proptest!(ProptestConfig::with_cases(150), |(
        texts in texts, cuts in cuts, options in any_options(), bits in 0u32..4, backwards in any::<bool>(),
    )| {
        let corpus = Corpus::new(&texts);
        corpus.encode(&tokenizer, &options, &Manner::default()).unwrap();
        let out = corpus.folder.path().join("assembled");
        let begin = |existing| {
            Assembly::begin(&tokenizer, &corpus.inputs(), &out, &options, existing)
        };
        let assembly = begin(Existing::Refuse).unwrap().unwrap();
        let mut cuts = cuts;
        cuts.extend([0, u64::MAX]);
        cuts.sort_unstable();
        // No plan has ranges without a byte; an empty source is one document, so it must be one range.
        cuts.dedup();
        let (partial, id) = (assembly.partial().to_owned(), assembly.id());
        let parts = encode_parts(&corpus, &tokenizer, &options, &cuts, &partial);
        let bits = if options.shuffle { Some(bits) } else { None };
        let dealt: Vec<Vec<Vec<Share>>> = parts
            .iter()
            .map(|(part, first)| {
                let shares = deal(&partial, &id, part, *first, bits.unwrap_or(0), &job()).unwrap();
                // A task that is run again gives the same.
                assert_eq!(deal(&partial, &id, part, *first, bits.unwrap_or(0), &job()).unwrap(), shares);
                shares
            })
            .collect();
        let shares: Vec<Vec<Share>> = (0..dealt[0].len())
            .map(|split| match bits {
                // Unshuffled, a part is what a bucket is otherwise.
                None => dealt.iter().map(|shares| shares[split][0]).collect(),
                Some(bits) => (0..1 << bits)
                    .map(|bucket| dealt.iter().fold(Share::default(), |sum, shares| Share {
                        tokens: sum.tokens + shares[split][bucket].tokens,
                        documents: sum.documents + shares[split][bucket].documents,
                    }))
                    .collect(),
            })
            .collect();
        let room = if options.format == Format::Shards { options.shard_tokens } else { u64::MAX };
        let recipes = recipes(&shares, &parts, room, bits);
        let mut all: Vec<&Recipe> = recipes.iter().flatten().collect();
        if backwards {
            all.reverse();
        }
        for recipe in all {
            assemble(&partial, &id, recipe, &job()).unwrap();
            assemble(&partial, &id, recipe, &job()).unwrap();
        }
        // The director is killed and begins again.
        drop(assembly);
        prop_assert!(begin(Existing::Refuse).is_err());
        let assembly = begin(Existing::Resume).unwrap().unwrap();
        let n_shards: Vec<usize> = recipes.iter().map(Vec::len).collect();
        let text_bytes = parts.iter().map(|(part, _)| facts(part).unwrap().1).sum();
        assembly.commit(&n_shards, text_bytes, Default::default()).unwrap();
        drop(assembly);
        prop_assert_eq!(files(&out), files(&corpus.out()));
        prop_assert!(begin(Existing::Resume).unwrap().is_none());
    });
}

#[test]
fn a_part_of_another_tokenizer_does_not_get_in() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat sat"]);
    let (out, options) = (corpus.folder.path().join("assembled"), options());
    let smaller = tokenizer.with_vocab_size(270).unwrap();
    let begin = |existing| {
        Assembly::begin(&tokenizer, &corpus.inputs(), &out, &options, existing).unwrap().unwrap()
    };
    let assembly = begin(Existing::Refuse);
    let parts = encode_parts(&corpus, &smaller, &options, &[0, u64::MAX], assembly.partial());
    let recipe = Recipe { split: 0, number: 0, parts, buckets: None, before: Share::default() };
    let made = assemble(assembly.partial(), &assembly.id(), &recipe, &job());
    assert!(matches!(made, Err(Error::Tokens(_))));
    // Nor what was meant for other work in the same place.
    let made = assemble(assembly.partial(), "0123456789abcdef", &recipe, &job());
    assert!(made.unwrap_err().to_string().contains("given up"));
    // Nor is anything committed that is not there, and what was left on the way goes.
    assert!(matches!(assembly.commit(&[1], 0, Default::default()), Err(Error::Tokens(_))));
    let left = fs::read_dir(assembly.partial()).unwrap().count();
    assert_eq!(left, 2, "the journal and the part");
    drop(assembly);
    let assembly = begin(Existing::Overwrite);
    assert_eq!(fs::read_dir(assembly.partial()).unwrap().count(), 1);
}
