//! Shards against a plain implementation: encode each file whole, cut the ids into documents, order
//! these, cut the result into shards. The bytes are the same however the corpus is divided into
//! ranges, and whether these are written to shards directly or through parts.

mod damage;
mod long_pieces;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::encode::Written;
use super::plan::{NPY_HEADER_SIZE, npy_header};
use super::writer::{OpenShard, Split};
use super::*;
use crate::base::error::Result;
use crate::base::job::{Job, Phase};
use crate::corpus::{Input, Inputs};
use crate::learn::counts::Counts;
use crate::text::cutter::Cutter;
use crate::tokenizer::encode::{Recognise, Tokenizer};
use crate::tokenizer::learn::{Target, learn};

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

fn plan(tokenizer: &Tokenizer) -> Plan {
    Plan {
        format: Format::Npy,
        dtype: Dtype::Uint16,
        max_id: tokenizer.vocab().max_id(),
        end_of_text: tokenizer.vocab().id_of(END.as_bytes()),
        append_eot: true,
        shard_tokens: Some(7),
        val_fraction: None,
        shuffle: false,
        seed: 3,
        stems: vec!["shard".into()],
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

    /// A new directory.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// The sources in ranges between these positions, each a separate range of the corpus.
    fn ranges(&self, cuts: &[u64]) -> Vec<Inputs> {
        let mut ranges = Vec::new();
        for input in self.inputs().list {
            for bounds in cuts.windows(2) {
                let input = Input { range: Some((bounds[0], bounds[1])), ..input.clone() };
                ranges.push(Inputs { list: vec![input], ..Inputs::default() });
            }
        }
        ranges
    }
}

fn encoded(
    tokenizer: &Tokenizer,
    inputs: &Inputs,
    plan: &Plan,
    directory: &Path,
    open: Vec<OpenShard>,
    is_last: bool,
    (threads, block_size): (usize, usize),
) -> Result<Written> {
    let sources = inputs.sources()?;
    let range = CorpusRange { inputs, sources: &sources, threads, block_size: Some(block_size) };
    encode_range(tokenizer, &range, plan, directory, open, is_last, &job())
}

/// All at once.
fn whole(
    tokenizer: &Tokenizer,
    corpus: &Corpus,
    plan: &Plan,
    directory: &Path,
    manner: (usize, usize),
) -> Vec<Split> {
    let inputs = corpus.inputs();
    encoded(tokenizer, &inputs, plan, directory, Vec::new(), true, manner).unwrap().splits
}

/// Range by range, directly into shards; after each, the files have excess bytes at their ends.
fn continued(
    tokenizer: &Tokenizer,
    ranges: &[Inputs],
    plan: &Plan,
    directory: &Path,
) -> Vec<Split> {
    let mut splits = vec![Split::default(); plan.stems.len()];
    let mut open = Vec::new();
    for (number, range) in ranges.iter().enumerate() {
        let is_last = number + 1 == ranges.len();
        let written = encoded(tokenizer, range, plan, directory, open, is_last, (1, 20)).unwrap();
        for (split, made) in splits.iter_mut().zip(written.splits) {
            split.appended.extend(made.appended);
            split.shards.extend(made.shards);
        }
        open = written.open;
        for (split, open) in open.iter().enumerate() {
            let path = directory.join(plan.ids_name(split, open.number));
            let data = [fs::read(&path).unwrap(), b"debris".to_vec()].concat();
            fs::write(path, data).unwrap();
        }
    }
    splits
}

/// Through parts of a few ids each.
fn assembled(
    tokenizer: &Tokenizer,
    ranges: &[Inputs],
    plan: &Plan,
    directory: &Path,
    (bits, dealt): (u32, bool),
) -> Vec<Split> {
    let mut parts = Vec::new();
    for (number, range) in ranges.iter().enumerate() {
        let own = Plan {
            format: Format::Npy,
            shard_tokens: Some(11),
            val_fraction: None,
            shuffle: false,
            stems: vec![format!("part-{number}")],
            ..plan.clone()
        };
        let written = encoded(tokenizer, range, &own, directory, Vec::new(), true, (2, 30));
        let [split] = &written.unwrap().splits[..] else { panic!("one split") };
        let mut first = 0;
        for shard in &split.shards {
            let before = parts.iter().map(|part: &Part| part.documents).sum();
            let last = first + shard.documents;
            let here = split.appended.iter().filter(|n| (first..last).contains(n));
            parts.push(Part {
                ids: directory.join(&shard.file),
                docs: directory.join(&shard.docs.file),
                tokens: shard.tokens,
                documents: shard.documents,
                appended: here.map(|n| n - first).collect(),
                before,
            });
            first = last;
        }
    }
    let bits = if plan.shuffle { bits } else { 0 };
    let dealt_path = |part: usize, split: usize| directory.join(format!("dealt-{part}-{split}"));
    let n_splits = plan.stems.len();
    let mut totals = vec![0; n_splits];
    for (number, part) in parts.iter().enumerate() {
        let outputs: Vec<PathBuf> = (0..if plan.shuffle && dealt { n_splits } else { 0 })
            .map(|split| dealt_path(number, split))
            .collect();
        let shares = deal(plan, part, &outputs, bits, &job()).unwrap();
        for (total, of_split) in totals.iter_mut().zip(shares) {
            *total += of_split.iter().map(|share| share.tokens).sum::<u64>();
        }
    }
    let room = plan.shard_tokens.unwrap_or(u64::MAX);
    let mut splits = vec![Split::default(); n_splits];
    for split in 0..n_splits {
        for number in 0..totals[split].div_ceil(room).max(1) {
            let content = if plan.shuffle {
                let parts = if dealt {
                    let paths = (0..parts.len()).map(|part| dealt_path(part, split));
                    ShuffledParts::Dealt(paths.collect())
                } else {
                    ShuffledParts::Whole(parts.clone())
                };
                Content::Buckets { parts, bits, first: 0, last: (1 << bits) - 1 }
            } else {
                Content::Parts(parts.clone())
            };
            let source = ShardSource { split, number, content, before: Share::default() };
            let made = assemble(plan, &source, directory, &job()).unwrap();
            splits[split].appended.extend(made.appended);
            splits[split].shards.extend(made.shards);
        }
    }
    splits
}

/// The content of all files of all splits.
fn files(directory: &Path, splits: &[Split]) -> Vec<(String, Vec<u8>)> {
    let shards = splits.iter().flat_map(|split| &split.shards);
    let names = shards.flat_map(|shard| {
        let index = shard.index.iter().map(|index| index.file.clone());
        [shard.file.clone(), shard.docs.file.clone()].into_iter().chain(index)
    });
    names.map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect()
}

type Document = (Vec<u32>, bool);

/// The documents of each split, in order: ids, and whether the last was appended.
fn expected(tokenizer: &Tokenizer, texts: &[Vec<u8>], plan: &Plan) -> Vec<Vec<Document>> {
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
            let append = i + 1 == n && part.last() != Some(&end) && plan.append_eot;
            if append {
                part.push(end);
            }
            documents.push((part, append));
        }
    }
    let order = plan.order();
    let mut splits = vec![Vec::new(); plan.stems.len()];
    for (number, document) in documents.into_iter().enumerate() {
        let number = number as u64;
        let key = if plan.shuffle { order.key(number) } else { 0 };
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

/// What shards hold, as [`expected`] has it; every file must have the right form.
fn found(directory: &Path, plan: &Plan, splits: &[Split]) -> Vec<Vec<Document>> {
    let read = |name: &str| fs::read(directory.join(name)).unwrap();
    let mut documents = Vec::new();
    for split in splits {
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        for shard in &split.shards {
            let data = read(&shard.file);
            assert_eq!(data.len() as u64, shard.bytes);
            let header = npy_header(plan.dtype.descr(), shard.tokens);
            assert_eq!(data[..plan.header_size()], header[..plan.header_size()]);
            let docs = read(&shard.docs.file);
            assert_eq!(docs[..NPY_HEADER_SIZE], npy_header("<u8", shard.documents));
            let before = ids.len() as u64;
            ends.extend(numbers(&docs[NPY_HEADER_SIZE..], 8).iter().map(|end| before + end));
            ids.extend(numbers(&data[plan.header_size()..], plan.dtype.width()));
            assert_eq!(ids.len() as u64, before + shard.tokens);
        }
        let mut start = 0;
        let document = |(place, &end): (usize, &u64)| {
            let ids = ids[start..end as usize].iter().map(|&id| id as u32).collect();
            start = end as usize;
            (ids, split.appended.contains(&(place as u64)))
        };
        documents.push(ends.iter().enumerate().map(document).collect());
    }
    documents
}

fn problems(directory: &Path, plan: &Plan, splits: &[Split], tokenizer: &Tokenizer) -> Vec<String> {
    let shards = splits.iter().flat_map(|split| &split.shards);
    let check = |shard| check_shard(directory, plan, shard, Some(tokenizer), &job()).unwrap().0;
    shards.flat_map(check).collect()
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

fn any_plan() -> impl Strategy<Value = Plan> {
    (
        prop::sample::select(vec![Format::Npy, Format::Npy, Format::Bin, Format::Megatron]),
        prop::option::of(1u64..40),
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec![None, Some(0.0), Some(0.3), Some(1.0)]),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(format, room, wide, append_eot, val_fraction, shuffle, seed)| {
            let large = if format == Format::Megatron { Dtype::Int32 } else { Dtype::Uint32 };
            let stems = match val_fraction {
                None => vec!["shard".to_owned()],
                Some(_) => vec!["train".into(), "val".into()],
            };
            Plan {
                format,
                dtype: if wide { large } else { Dtype::Uint16 },
                shard_tokens: room.filter(|_| format == Format::Npy),
                append_eot,
                val_fraction,
                shuffle,
                seed,
                stems,
                ..plan(&tokenizer())
            }
        })
}

#[test]
fn equals_the_plain_implementation() {
    let tokenizer = tokenizer();
    let texts = prop::collection::vec(source(), 1..5);
    let cuts = prop::collection::vec(1u64..150, 0..5);
    proptest!(ProptestConfig::with_cases(150), |(
        texts in texts, plan in any_plan(), cuts in cuts, bits in 0u32..4, threads in 1usize..4,
        block_size in 1usize..100,
    )| {
        let corpus = Corpus::new(&texts);
        let mut cuts = cuts;
        cuts.extend([0, u64::MAX]);
        cuts.sort_unstable();
        cuts.dedup();
        let ranges = corpus.ranges(&cuts);
        let out = corpus.directory("parts");
        let splits = assembled(&tokenizer, &ranges, &plan, &out, (bits, true));
        prop_assert_eq!(found(&out, &plan, &splits), expected(&tokenizer, &texts, &plan));
        prop_assert_eq!(problems(&out, &plan, &splits, &tokenizer), Vec::<String>::new());
        let difference =
            compare(&out, &plan, &splits, &tokenizer, &corpus.inputs(), None, &job());
        prop_assert_eq!(difference.unwrap(), None);
        if plan.shuffle {
            let undealt = corpus.directory("undealt");
            let again = assembled(&tokenizer, &ranges, &plan, &undealt, (bits, false));
            prop_assert_eq!(&again, &splits);
            prop_assert_eq!(files(&undealt, &again), files(&out, &splits));
        } else {
            let direct = corpus.directory("direct");
            let once = whole(&tokenizer, &corpus, &plan, &direct, (threads, block_size));
            prop_assert_eq!(&once, &splits);
            prop_assert_eq!(files(&direct, &once), files(&out, &splits));
            let resumed = corpus.directory("resumed");
            let again = continued(&tokenizer, &ranges, &plan, &resumed);
            prop_assert_eq!(&again, &splits);
            prop_assert_eq!(files(&resumed, &again), files(&out, &splits));
        }
    });
}

#[test]
fn large_sources_in_many_blocks() {
    let tokenizer = tokenizer();
    let text = format!("the cat sat on the mat {END} aaaa, größer ").repeat(40_000).into_bytes();
    let texts = vec![text.clone(), Vec::new(), text];
    let corpus = Corpus::new(&texts);
    let plan = Plan { shard_tokens: Some(100_000), ..plan(&tokenizer) };
    let out = corpus.directory("out");
    let splits = whole(&tokenizer, &corpus, &plan, &out, (3, 256 << 10));
    assert!(found(&out, &plan, &splits) == expected(&tokenizer, &texts, &plan));
    assert!(splits[0].shards.len() > 5);
    assert!(splits[0].shards.iter().rev().skip(1).all(|shard| shard.tokens == 100_000));
}

#[test]
fn empty_documents_keep_their_rows() {
    let tokenizer = tokenizer();
    // Also an empty file at the end of a shard: its end belongs to the full shard.
    let texts: Vec<Vec<u8>> =
        ["", "ab", "", "", "c", ""].iter().map(|t| t.as_bytes().into()).collect();
    let corpus = Corpus::new(&texts);
    let plan = Plan { shard_tokens: Some(2), append_eot: false, ..plan(&tokenizer) };
    let out = corpus.directory("out");
    let splits = whole(&tokenizer, &corpus, &plan, &out, (1, 100));
    assert_eq!(found(&out, &plan, &splits), expected(&tokenizer, &texts, &plan));
    let documents: Vec<u64> = splits[0].shards.iter().map(|s| s.documents).collect();
    assert_eq!(documents, [4, 2]);
    let second = fs::read(out.join("shard-00001.docs.npy")).unwrap();
    assert_eq!(numbers(&second[NPY_HEADER_SIZE..], 8), [1, 1]);
}

#[test]
fn a_source_that_changed_is_refused() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat sat on the mat"]);
    let (inputs, plan, out) = (corpus.inputs(), plan(&tokenizer), corpus.directory("out"));
    let sources = inputs.sources().unwrap();
    fs::write(&corpus.paths[0], "the cat").unwrap();
    let range = CorpusRange { inputs: &inputs, sources: &sources, threads: 1, block_size: None };
    let error = encode_range(&tokenizer, &range, &plan, &out, Vec::new(), true, &job());
    assert!(error.unwrap_err().to_string().contains("changed since"));
}
