//! Pieces longer than a block: read, encoded and written in slices.

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

fn large_shards(tokenizer: &Tokenizer) -> Plan {
    Plan { shard_tokens: Some(1_000_000), ..plan(tokenizer) }
}

#[test]
fn long_pieces_equal_the_plain_implementation() {
    let tokenizer = tokenizer();
    let texts = long_texts();
    let corpus = Corpus::new(&texts);
    let plan = large_shards(&tokenizer);
    let expected = expected(&tokenizer, &texts, &plan);
    for (threads, block_size) in [(1, 10_000), (3, 30_001), (2, 256 << 10)] {
        let out = corpus.directory(&format!("{threads}"));
        let splits = whole(&tokenizer, &corpus, &plan, &out, (threads, block_size));
        assert!(found(&out, &plan, &splits) == expected, "{threads} {block_size}");
        assert_eq!(problems(&out, &plan, &splits, &tokenizer), Vec::<String>::new());
    }
    // Ranges that end inside a piece, too.
    let out = corpus.directory("ranges");
    let ranges = corpus.ranges(&[0, 60_000, 160_001, 200_000, u64::MAX]);
    let splits = continued(&tokenizer, &ranges, &plan, &out);
    assert!(found(&out, &plan, &splits) == expected);
}

#[test]
fn long_pieces_of_compressed_files_equal_the_plain_implementation() {
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
    let plan = large_shards(&tokenizer);
    let expected = expected(&tokenizer, &texts, &plan);
    // Smaller than the files, and larger: then one worker opens a file and reads it all.
    for (threads, block_size) in [(1, 500), (3, 20_000)] {
        let out = corpus.directory(&format!("{threads}"));
        let splits = whole(&tokenizer, &corpus, &plan, &out, (threads, block_size));
        assert!(found(&out, &plan, &splits) == expected, "{threads} {block_size}");
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
            block_size: 1000,
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
