//! Directories of tokens against the obvious way to make them: encode each file whole, cut the ids
//! into documents, put those into order, cut the result into shards.

mod assembling;
mod damage;
mod interruptions;
mod long_pieces;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::base::job::Phase;
use crate::learn::counts::Counts;
use crate::text::cutter::Cutter;
use crate::tokenizer::encode::Recognise;
use crate::tokenizer::learn::{Target, learn};
use order::Order;

const END: &str = "<|end|>";

fn job() -> Job {
    Job::new(Phase::Encode, 0)
}

fn tokenizer() -> Tokenizer {
    let specials = [END.to_owned(), "<|end|><|end|>".to_owned(), "<|other|>".to_owned()];
    let mut counts = Counts::new(Cutter::new(&["gpt2"], &specials).unwrap(), 1);
    counts.add_texts(&[b"the cat sat on the mat, the cats sat there; aaaa aaa"], &job()).unwrap();
    let spec = learn(&mut counts, &Target::new(280, &specials), &job()).unwrap();
    Tokenizer::new(&spec).unwrap()
}

fn options() -> Options {
    Options {
        format: Format::Shards,
        dtype: None,
        shard_tokens: 7,
        end_of_text: Some(END.into()),
        append_eot: true,
        val_fraction: None,
        shuffle: false,
        seed: 3,
        tokenizer_file: None,
    }
}

/// A folder with a file for each text.
struct Corpus {
    folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Corpus {
    fn new<T: AsRef<[u8]>>(texts: &[T]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = (0..texts.len()).map(|i| folder.path().join(format!("{i}.txt"))).collect();
        let corpus = Corpus { folder, paths };
        for (path, text) in corpus.paths.iter().zip(texts) {
            fs::write(path, text).unwrap();
        }
        corpus
    }

    fn inputs(&self) -> Inputs {
        Inputs::of_files(&self.paths)
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("tokens")
    }

    fn encode(&self, tokenizer: &Tokenizer, options: &Options, manner: &Manner) -> Result<()> {
        encode_files(tokenizer, &self.inputs(), &self.out(), options, manner, &job())
    }

    fn verify(&self, tokenizer: &Tokenizer) -> Vec<String> {
        verify(&self.out(), Some(tokenizer), Some(&self.inputs()), &job()).unwrap()
    }
}

/// Every file of a directory but the hidden ones, by name.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

type Document = (Vec<u32>, bool);

/// The documents of each split, in order: ids, and whether the last was appended.
fn expected(tokenizer: &Tokenizer, texts: &[Vec<u8>], options: &Options) -> Vec<Vec<Document>> {
    let end = tokenizer.vocab().id_of(END.as_bytes()).unwrap();
    let mut documents: Vec<Document> = Vec::new();
    for text in texts {
        let mut ids = Vec::new();
        tokenizer.encode(text, &Recognise::All, &mut ids).unwrap();
        let mut parts: Vec<Vec<u32>> =
            ids.split_inclusive(|&id| id == end).map(<[u32]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let n = parts.len();
        for (i, mut part) in parts.into_iter().enumerate() {
            let append = i + 1 == n && part.last() != Some(&end) && options.append_eot;
            if append {
                part.push(end);
            }
            documents.push((part, append));
        }
    }
    let order = Order::new(options.seed, options.val_fraction);
    let mut splits = vec![Vec::new(); 1 + usize::from(options.val_fraction.is_some())];
    for (number, document) in documents.into_iter().enumerate() {
        let number = number as u64;
        let key = if options.shuffle { order.key(number) } else { 0 };
        splits[order.split(number)].push((key, number, document));
    }
    let sorted = |mut split: Vec<(u64, u64, Document)>| {
        split.sort();
        split.into_iter().map(|(_, _, document)| document).collect()
    };
    splits.into_iter().map(sorted).collect()
}

fn numbers(data: &[u8], width: usize) -> Vec<u64> {
    data.chunks_exact(width)
        .map(|bytes| bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
        .collect()
}

/// What a directory holds, as [`expected`] has it; every file must have the right form.
fn found(directory: &Path) -> Vec<Vec<Document>> {
    let manifest = Manifest::read(directory).unwrap();
    let plan = &manifest.plan;
    let read = |name: &str| fs::read(directory.join(name)).unwrap();
    let mut splits = Vec::new();
    for split in &manifest.splits {
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        for shard in &split.shards {
            let data = read(&shard.file);
            assert_eq!(data.len() as u64, shard.bytes);
            let header = npy::header(plan.dtype.descr(), shard.tokens);
            assert_eq!(data[..plan.header()], header[..plan.header()]);
            let docs = read(&shard.docs.file);
            assert_eq!(docs[..npy::HEADER], npy::header("<u8", shard.documents));
            let before = ids.len() as u64;
            ends.extend(numbers(&docs[npy::HEADER..], 8).iter().map(|end| before + end));
            ids.extend(numbers(&data[plan.header()..], plan.dtype.width()));
            assert_eq!(ids.len() as u64, before + shard.tokens);
        }
        assert_eq!(ends.len() as u64, split.documents);
        let mut start = 0;
        let document = |(place, &end): (usize, &u64)| {
            let ids = ids[start..end as usize].iter().map(|&id| id as u32).collect();
            start = end as usize;
            (ids, split.appended.contains(&(place as u64)))
        };
        splits.push(ends.iter().enumerate().map(document).collect());
    }
    splits
}

fn source() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        6 => prop::sample::select(vec![
            "the", " cat", " sat", "a", " ", "\n", "größ", "12", "<|end", "|>", "aaaaaaa", "!",
        ]).prop_map(|word| word.as_bytes().to_vec()),
        2 => Just(END.as_bytes().to_vec()),
        1 => Just(b"<|other|>".to_vec()),
        1 => Just(b"\xff\xe2\x82".to_vec()),
    ];
    prop::collection::vec(word, 0..30).prop_map(|words| words.concat())
}

fn any_options() -> impl Strategy<Value = Options> {
    let formats = vec![Format::Shards, Format::Shards, Format::Npy, Format::Bin, Format::Megatron];
    (
        prop::sample::select(formats),
        1u64..40,
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec![None, Some(0.0), Some(0.3), Some(1.0)]),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(format, shard_tokens, wide, append_eot, val_fraction, shuffle, seed)| {
            let large = if format == Format::Megatron { Dtype::Int32 } else { Dtype::Uint32 };
            let dtype = wide.then_some(large);
            Options {
                format,
                dtype,
                shard_tokens,
                append_eot,
                val_fraction,
                shuffle,
                seed,
                ..options()
            }
        })
}

fn any_manner() -> impl Strategy<Value = Manner> {
    (1usize..4, 1usize..100, 0u64..100, 0u64..200).prop_map(
        |(threads, chunk_size, journal_every, sort_bytes)| Manner {
            threads,
            chunk_size,
            journal_every,
            sort_bytes,
            existing: Existing::Refuse,
        },
    )
}

#[test]
fn equals_the_obvious_way() {
    let tokenizer = tokenizer();
    let texts = prop::collection::vec(source(), 1..6);
    proptest!(ProptestConfig::with_cases(150), |(texts in texts, options in any_options(), manner in any_manner())| {
        let corpus = Corpus::new(&texts);
        corpus.encode(&tokenizer, &options, &manner).unwrap();
        prop_assert_eq!(found(&corpus.out()), expected(&tokenizer, &texts, &options));
        prop_assert_eq!(corpus.verify(&tokenizer), Vec::<String>::new());
        let plain = files(&corpus.out());
        prop_assert!(plain.iter().all(|(name, _)| !name.starts_with('.')));
        // The manner does not show, not even in the manifest.
        let overwrite = Manner { existing: Existing::Overwrite, ..Manner::default() };
        corpus.encode(&tokenizer, &options, &overwrite).unwrap();
        prop_assert_eq!(files(&corpus.out()), plain);
    });
}

#[test]
fn large_sources_in_many_chunks() {
    let tokenizer = tokenizer();
    let text = format!("the cat sat on the mat {END} aaaa, größer ").repeat(40_000).into_bytes();
    let texts = vec![text.clone(), Vec::new(), text];
    let corpus = Corpus::new(&texts);
    let options = Options { shard_tokens: 100_000, ..options() };
    corpus.encode(&tokenizer, &options, &Manner { threads: 3, ..Manner::default() }).unwrap();
    assert!(found(&corpus.out()) == expected(&tokenizer, &texts, &options));
    let manifest = Manifest::read(&corpus.out()).unwrap();
    assert!(manifest.splits[0].shards.len() > 5);
    assert!(manifest.splits[0].shards.iter().rev().skip(1).all(|shard| shard.tokens == 100_000));
}

#[test]
fn empty_documents_keep_their_rows() {
    let tokenizer = tokenizer();
    // An empty file at a border of shards, too: its end belongs to the shard that is full.
    let texts: Vec<Vec<u8>> =
        ["", "ab", "", "", "c", ""].iter().map(|t| t.as_bytes().into()).collect();
    let corpus = Corpus::new(&texts);
    let options = Options { shard_tokens: 2, append_eot: false, ..options() };
    corpus.encode(&tokenizer, &options, &Manner::default()).unwrap();
    assert_eq!(found(&corpus.out()), expected(&tokenizer, &texts, &options));
    let manifest = Manifest::read(&corpus.out()).unwrap();
    let documents: Vec<u64> = manifest.splits[0].shards.iter().map(|s| s.documents).collect();
    assert_eq!(documents, [4, 2]);
    let second = fs::read(corpus.out().join("shard-00001.docs.npy")).unwrap();
    assert_eq!(numbers(&second[npy::HEADER..], 8), [1, 1]);
    assert_eq!(corpus.verify(&tokenizer), Vec::<String>::new());
}

#[test]
fn impossible_options_are_refused() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["text"]);
    let refused = |options: Options| {
        let error = corpus.encode(&tokenizer, &options, &Manner::default()).unwrap_err();
        assert!(!corpus.out().exists());
        assert!(matches!(error, Error::Config(_)), "{error}");
        error.to_string()
    };
    assert!(refused(Options { shard_tokens: 0, ..options() }).contains("shard_tokens=0"));
    assert!(refused(Options { end_of_text: None, ..options() }).contains("append_eot"));
    assert!(refused(Options { end_of_text: Some("<x>".into()), ..options() }).contains("<x>"));
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(refused(Options { val_fraction: Some(share), ..options() }).contains("between"));
    }
    assert!(refused(Options { dtype: Some(Dtype::Int32), ..options() }).contains("int32"));
    let megatron = Options { format: Format::Megatron, ..options() };
    assert!(refused(Options { dtype: Some(Dtype::Uint32), ..megatron }).contains("uint32"));
}
