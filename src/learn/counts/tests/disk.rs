//! Counts on disk against counts in memory; counts files, intact and damaged.

use crate::base::error::Error;
use std::fs;
use std::path::Path;

use super::*;
use crate::base::job::Phase;

fn limited(cutter: Cutter, threads: usize, available: u64, directory: &Path) -> Counts {
    let mut counts = Counts::new(cutter, threads);
    counts.set_limit(Some(Limit { available, total: available }));
    counts.set_spill_dir(directory.to_owned());
    counts
}

fn cutter() -> Cutter {
    Cutter::new(&["gpt2"], &["<|end|>", "x y"]).unwrap()
}

/// Text of many different words.
fn many_words(n: u64, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut text = Vec::new();
    for i in 0..n {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let word = if i % 3 == 0 { state >> 60 } else { state >> 30 };
        text.extend(format!(" w{word:x}").bytes());
        if i % 100 == 0 {
            text.extend(b" quitealongwordofmorethanfifteenbytes");
            text.extend(format!("{:x}", state >> 50).bytes().map(|b| b | 0x40));
        }
    }
    text
}

fn saved(counts: &mut Counts, directory: &Path) -> Vec<u8> {
    let path = directory.join("saved.counts");
    counts.save(&path, &job()).unwrap();
    fs::read(path).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

proptest! {
    #[test]
    fn a_limit_changes_nothing(
        texts in prop::collection::vec(text(), 1..6),
        threads in 1usize..4,
        available in prop_oneof![0u64..100, Just(9_000_000u64), Just(20_000_000)],
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut free = Counts::new(cutter(), threads);
        let mut tight = limited(cutter(), threads, available, directory.path());
        for text in &texts {
            free.add_texts(&[text], &job()).unwrap();
            tight.add_texts(&[text], &job()).unwrap();
        }
        prop_assert_eq!(counted(&mut free), counted(&mut tight));
        prop_assert_eq!(free.stats(&job()).unwrap(), tight.stats(&job()).unwrap());
        prop_assert_eq!(free.top(5, &job()).unwrap(), tight.top(5, &job()).unwrap());
        prop_assert_eq!(saved(&mut free, directory.path()), saved(&mut tight, directory.path()));
        drop(tight);
        prop_assert_eq!(names(directory.path()), ["saved.counts"]);
    }
}

#[test]
fn many_runs_are_merged_in_passes() {
    let directory = tempfile::tempdir().unwrap();
    let mut free = Counts::new(cutter(), 2);
    let mut tight = limited(cutter(), 2, 0, directory.path());
    for seed in 0..150 {
        let text = many_words(100, seed);
        free.add_texts(&[&text], &job()).unwrap();
        tight.add_texts(&[&text], &job()).unwrap();
    }
    assert_eq!(tight.runs.len(), 149);
    assert_eq!(counted(&mut free), counted(&mut tight));
    assert_eq!(tight.runs.len(), 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    tight.clear();
    assert!(names(directory.path()).is_empty());
}

#[test]
fn files_under_a_limit_stay_within_it() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    fs::write(&corpus, many_words(1_000_000, 1)).unwrap();
    let available = 14 << 20;
    let mut free = Counts::new(cutter(), 2);
    let mut tight = limited(cutter(), 2, available, directory.path());
    let paths = [corpus];
    free.add_corpus(&Inputs::of_files(&paths), BLOCK_SIZE, &job()).unwrap();
    tight.add_corpus(&Inputs::of_files(&paths), BLOCK_SIZE, &job()).unwrap();
    assert!(tight.runs.len() > 2, "{}", tight.runs.len());
    let held: usize = tight.tables.iter().map(Table::heap_bytes).sum();
    assert!(held as u64 <= available, "{held}");
    assert!(free.sorted(&job()).unwrap().iter().eq(tight.sorted(&job()).unwrap().iter()));
    // The memory for merging does not fit.
    let error = tight.pieces(1, false, &job()).unwrap_err().to_string();
    assert!(error.contains("the limit is 15 MB") && error.contains("min_piece_count="), "{error}");
    let least = error.split("min_piece_count=").nth(1).unwrap().split(' ').next().unwrap();
    let least: u64 = least.parse().unwrap();
    assert!(tight.pieces(least - 1, false, &job()).is_err());
    let mut expected = free.pieces(least, false, &job()).unwrap();
    expected.sort();
    assert!(tight.pieces(least, false, &job()).unwrap().iter().eq(expected.iter()));
    assert!(!tight.pieces(least, true, &job()).unwrap().is_empty());
    assert_eq!(names(directory.path()), ["corpus.txt"]);
}

#[test]
fn a_block_too_large_for_the_limit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    fs::write(&corpus, b"some words ".repeat(1 << 20)).unwrap();
    let regex = Cutter::new::<_, &str>(&[r"\S+|\s"], &[]).unwrap();
    let mut counts = limited(regex, 2, 10 << 20, directory.path());
    let error = counts
        .add_corpus(&Inputs::of_files(&[corpus]), BLOCK_SIZE, &job())
        .unwrap_err()
        .to_string();
    assert!(error.contains("corpus.txt: 12 MB without a position"), "{error}");
}

#[test]
fn a_stopped_job_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut counts = limited(cutter(), 1, 0, directory.path());
    for seed in 0..3 {
        counts.add_texts(&[&many_words(20_000, seed)], &job()).unwrap();
    }
    let stopped = Job::new(Phase::Count, 0);
    stopped.stop();
    let target = directory.path().join("a.counts");
    assert!(matches!(counts.save(&target, &stopped), Err(Error::Interrupted)));
    drop(counts);
    assert!(names(directory.path()).is_empty());
}

#[test]
fn sums_of_files_are_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut whole = Counts::new(cutter(), 2);
    let mut parts = Vec::new();
    for seed in 0..4 {
        let text = many_words(2000, seed);
        whole.add_texts(&[&text], &job()).unwrap();
        let mut part = Counts::new(cutter(), 2);
        part.add_texts(&[&text], &job()).unwrap();
        let path = directory.path().join(format!("{seed}.counts"));
        part.save(&path, &job()).unwrap();
        // Two stay in memory, two on disk.
        parts.push(if seed < 2 { part } else { Counts::open(&path, 2, &job()).unwrap() });
    }
    let mut sum = parts.pop().unwrap();
    sum.set_spill_dir(directory.path().to_owned());
    for part in &mut parts {
        sum.merge(part, &job()).unwrap();
    }
    assert_eq!(sum.bytes_read(), whole.bytes_read());
    assert_eq!(saved(&mut sum, directory.path()), saved(&mut whole, directory.path()));
    // The others are as they were, and more can be added.
    let n_pieces = parts[0].stats(&job()).unwrap().n_pieces;
    assert_eq!(n_pieces, counted(&mut parts[0]).len() as u64);
    sum.add_texts(&[b"once more"], &job()).unwrap();
    whole.add_texts(&[b"once more"], &job()).unwrap();
    assert_eq!(counted(&mut sum), counted(&mut whole));

    let other = Cutter::new(&["cl100k"], &["<|end|>"]).unwrap();
    let error = sum.merge(&mut Counts::new(other, 1), &job()).unwrap_err().to_string();
    assert!(error.contains("pattern cl100k and special tokens <|end|>"), "{error}");
    assert!(error.contains("pattern gpt2 and special tokens <|end|> x y"), "{error}");
}

#[test]
fn an_added_file_lives_as_long_as_the_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("part.counts");
    let (one, two) = (many_words(3000, 1), many_words(3000, 2));
    let mut whole = Counts::new(cutter(), 2);
    whole.add_texts(&[&one, &two], &job()).unwrap();
    let mut part = Counts::new(cutter(), 1);
    part.add_texts(&[&one], &job()).unwrap();
    part.save(&path, &job()).unwrap();

    let mut other = Counts::new(Cutter::new::<_, &str>(&["gpt2"], &[]).unwrap(), 1);
    other.take_file(&path, &job()).unwrap_err();
    let mut counts = limited(cutter(), 1, 20_000_000, directory.path());
    counts.take_file(&path, &job()).unwrap();
    assert!(!path.exists());
    let mut cursor = counts.cursor(&job()).unwrap();
    assert_eq!(counted(&mut counts), counted(&mut part));
    counts.add_texts(&[&two], &job()).unwrap();
    assert_eq!(counted(&mut counts), counted(&mut whole));
    counts.clear();
    // A cursor keeps its file.
    let mut n_pieces = 0;
    sorted::for_each(&mut cursor, &job(), |_, _| {
        n_pieces += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(n_pieces, counted(&mut part).len());
    drop((cursor, counts));
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn sweeping_keeps_foreign_directories() {
    let directory = tempfile::tempdir().unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                spill::sweep(directory.path());
            }
        });
        for _ in 0..500 {
            let mut counts = limited(cutter(), 1, 0, directory.path());
            let result = counts.add_texts(&[b"a b", b"c"], &job());
            done.store(result.is_err(), Relaxed);
            result.unwrap();
            assert_eq!(counted(&mut counts).len(), 3);
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn order_of_special_tokens_does_not_matter() {
    let one = Counts::new(Cutter::new(&["gpt2"], &["b", "a"]).unwrap(), 1);
    let two = Counts::new(Cutter::new(&["gpt2"], &["a", "b"]).unwrap(), 1);
    assert_eq!(one.fingerprint(), two.fingerprint());
    assert_eq!(
        file::fingerprint(&["gpt2".into()], &["<|endoftext|>".into()]),
        "159b4ff5ada6d0b63a5983c40d8292fdd02c76a8b3329a381fa40729bd1d8834"
    );
}

/// Any damage is an error that names the file, never a panic or wrong counts.
#[test]
fn damage_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.counts");
    let mut counts = Counts::new(cutter(), 1);
    counts.add_texts(&[b"some words, some more words <|end|> the end"], &job()).unwrap();
    counts.save(&path, &job()).unwrap();
    let whole = fs::read(&path).unwrap();
    let refused = |data: &[u8]| {
        fs::write(&path, data).unwrap();
        let error = Counts::open(&path, 1, &job()).unwrap_err();
        assert!(matches!(error, Error::Corpus(_) | Error::Config(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("a.counts: ") && message.contains("hint: "), "{message}");
        message
    };
    for length in 0..whole.len() {
        refused(&whole[..length]);
    }
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            refused(&damaged);
        }
    }
    assert!(refused(&[&whole[..], b"x"].concat()).contains("a.counts: "));
    let mut newer = whole.clone();
    newer[8] = 2;
    assert!(refused(&newer).contains("version must be 1, got 2"));
    assert!(
        refused(b"just some text, and long enough to hold a checksum").contains("not a counts")
    );
    fs::write(&path, &whole).unwrap();
    assert_eq!(counted(&mut Counts::open(&path, 1, &job()).unwrap()), counted(&mut counts));
}

/// A file with a correct checksum but invalid content, which no version of ours writes.
#[test]
fn forged_files_are_refused() {
    struct List(Vec<(&'static [u8], u64)>, usize);
    impl SortedCounts for List {
        fn advance(&mut self) -> Result<bool> {
            self.1 += 1;
            Ok(self.1 <= self.0.len())
        }
        fn piece(&self) -> &[u8] {
            self.0[self.1 - 1].0
        }
        fn count(&self) -> u64 {
            self.0[self.1 - 1].1
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.counts");
    let header = file::Header {
        pattern: vec!["gpt2".into()],
        special_tokens: vec![],
        fingerprint: file::fingerprint(&["gpt2".into()], &[]),
        bytes_read: 9,
        skipped: Skipped::default(),
        n_pieces: 2,
        total: 3,
    };
    let open = |pieces: &[(&'static [u8], u64)]| {
        file::write(&path, &header, &mut List(pieces.to_vec(), 0), &job()).unwrap();
        Counts::open(&path, 1, &job()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(open(&[(b"a", 1), (b"b", 2)]), Ok(()));
    for (pieces, named) in [
        (&[(&b"b"[..], 1), (&b"a"[..], 2)][..], "out of order"),
        (&[(b"a", 1), (b"a", 2)], "impossible lengths"),
        (&[(b"a", 1), (b"b", 0)], "a count of zero"),
        (&[(b"a", 1), (b"b", 1)], "do not add up"),
        (&[(b"a", 1)], "unexpected end"),
        (&[(b"a", 1), (b"b", 1), (b"c", 1)], "trailing bytes"),
        (&[(b"a", u64::MAX), (b"b", u64::MAX)], "2^63"),
        (&[(b"", 1), (b"b", 2)], "impossible lengths"),
    ] {
        let error = open(pieces).unwrap_err();
        assert!(error.contains(named) && error.contains("a.counts"), "{error}");
    }
}
