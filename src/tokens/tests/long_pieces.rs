//! Pieces longer than a block: read, encoded and written in stretches.

use std::io::Write;

use super::*;
use crate::corpus::{Context, InOrder};

/// Runs longer than the search for a cut, with text around and a special token near the middle.
fn long_texts() -> Vec<Vec<u8>> {
    let runs = ["a", "the", " ", "-", "東", "7"].map(|unit| unit.repeat(150_000 / unit.len()));
    let mut texts: Vec<Vec<u8>> = runs
        .iter()
        .map(|run| format!("the cat{run}! sat{END}on{run}{END}{run} mat").into_bytes())
        .collect();
    texts.push(runs.concat().into_bytes());
    texts.push(b"a".repeat(300_000));
    texts
}

fn large_shards() -> Options {
    Options { shard_tokens: 1_000_000, ..options() }
}

#[test]
fn long_pieces_equal_the_obvious_way() {
    let tokenizer = tokenizer();
    let texts = long_texts();
    let corpus = Corpus::new(&texts);
    let options = large_shards();
    let expected = expected(&tokenizer, &texts, &options);
    for (threads, chunk_size) in [(1, 10_000), (3, 30_001), (2, 256 << 10)] {
        let existing = Existing::Overwrite;
        let manner =
            Manner { threads, chunk_size, existing, journal_every: 0, ..Manner::default() };
        corpus.encode(&tokenizer, &options, &manner).unwrap();
        assert!(found(&corpus.out()) == expected, "{threads} {chunk_size}");
        assert_eq!(corpus.verify(&tokenizer), Vec::<String>::new());
    }
}

#[test]
fn long_pieces_of_packed_files_equal_the_obvious_way() {
    let tokenizer = tokenizer();
    let texts = long_texts();
    let mut corpus = Corpus::new(&texts);
    for (path, text) in corpus.paths.iter_mut().zip(&texts) {
        *path = path.with_extension("txt.gz");
        let level = flate2::Compression::fast();
        let mut file = flate2::write::GzEncoder::new(fs::File::create(&path).unwrap(), level);
        file.write_all(text).unwrap();
        file.finish().unwrap();
    }
    let options = large_shards();
    let expected = expected(&tokenizer, &texts, &options);
    // Smaller than the files, and larger: then one worker opens a file and reads it all.
    for (threads, chunk_size) in [(1, 500), (3, 20_000)] {
        let existing = Existing::Overwrite;
        let manner = Manner { threads, chunk_size, existing, ..Manner::default() };
        corpus.encode(&tokenizer, &options, &manner).unwrap();
        assert!(found(&corpus.out()) == expected, "{threads} {chunk_size}");
    }
}

#[test]
fn blocks_of_a_long_piece_are_small() {
    let tokenizer = tokenizer();
    for (unit, goes_on) in [("a", true), (" ", true), ("-", true), ("'", false)] {
        let corpus = Corpus::new(&[unit.repeat(400_000)]);
        let inputs = corpus.inputs();
        let sources = inputs.sources().unwrap();
        let context = Context {
            cutter: tokenizer.cutter(),
            reading: &inputs.reading,
            chunk_size: 1000,
            open_pieces: true,
            job: &job(),
        };
        let mut blocks = InOrder::new(&inputs, &sources, context, Default::default());
        let mut sizes = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            sizes.push(block.size());
        }
        assert_eq!(sizes.iter().sum::<u64>(), 400_000);
        let largest = sizes.into_iter().max().unwrap();
        assert_eq!(largest < 100_000, goes_on, "{unit:?}: {largest}");
    }
}

/// The journal must not say that the work may be taken up inside a piece.
#[test]
fn work_that_stops_inside_a_piece_is_no_loss() {
    let tokenizer = tokenizer();
    let texts = vec![[&b"the cat "[..], &b"ab".repeat(100_000)].concat()];
    let corpus = Corpus::new(&texts);
    let options = large_shards();
    let manner = Manner {
        threads: 1,
        chunk_size: 1000,
        journal_every: 0,
        existing: Existing::Resume,
        ..Manner::default()
    };
    let plan = plan(&tokenizer, &corpus.inputs(), &options).unwrap();
    // The file is found to have changed when all of it is read.
    let modified = fs::metadata(&corpus.paths[0]).unwrap().modified().unwrap();
    fs::write(&corpus.paths[0], &texts[0][..170_001]).unwrap();
    let (directory, _) = Directory::take(&corpus.out(), &plan, Existing::Resume).unwrap();
    let journal = Journal::create(&directory.partial, &plan).unwrap();
    let (partial, job) = (&directory.partial, job());
    let inputs = corpus.inputs();
    let work = Work {
        tokenizer: &tokenizer,
        inputs: &inputs,
        plan: &plan,
        partial,
        manner: &manner,
        job: &job,
    };
    work.run(journal, None).unwrap_err();
    drop(directory);
    fs::write(&corpus.paths[0], &texts[0]).unwrap();
    let file = fs::File::options().write(true).open(&corpus.paths[0]).unwrap();
    file.set_modified(modified).unwrap();
    corpus.encode(&tokenizer, &options, &manner).unwrap();
    assert!(found(&corpus.out()) == expected(&tokenizer, &texts, &options));
}
