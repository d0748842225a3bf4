//! Any journal, or any edit of a real one, in a directory of unfinished tokens: resuming is
//! refused, or gives what undisturbed work gives, byte for byte.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Unstructured};
use bytemill::Tokenizer;
use bytemill::internals::corpus::{Input, Inputs, Kind, Location, Reading, Source, Storage};
use bytemill::{Error, Result};
use bytemill::internals::tokens::{Existing, Format, Manner, Options, encode_files};
use bytemill_fuzz::{edit, job, scratch_directory, small_tokenizer};
use libfuzzer_sys::fuzz_target;

const JOURNAL: &str = "journal.jsonl";

/// A source that cannot be read any more after some time.
#[derive(Debug)]
struct Failing {
    data: Vec<u8>,
    reads_left: AtomicU64,
}

impl Storage for Failing {
    fn size(&self) -> u64 {
        self.data.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let left = self.reads_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| Error::corpus("unplugged"))?;
        let start = offset as usize;
        buffer.copy_from_slice(&self.data[start..start + buffer.len()]);
        Ok(())
    }

    fn check(&self, _: &Source) -> Result<()> {
        Ok(())
    }

    fn stride(&self) -> usize {
        64
    }
}

type Files = BTreeMap<String, Vec<u8>>;

struct Case {
    tokenizer: Tokenizer,
    options: Options,
    /// Unfinished work, and what it becomes.
    partial: Files,
    whole: Files,
    out: PathBuf,
}

fn inputs(reads: u64) -> Inputs {
    let text = b"the cat sat on the mat<|end|>a dog, \xff and 12345 birds\n".repeat(6);
    let list = (0..3).map(|i| {
        let data = text[..text.len() - 7 * i].to_vec();
        let size = data.len() as u64;
        let (path, version) = (format!("source-{i}"), String::new());
        let source =
            Source { path, size, mtime_ns: 1, version, format: String::new(), range: None };
        let reads_left = AtomicU64::new(if i == 2 { reads } else { u64::MAX });
        let location = Location::Storage(Arc::new(Failing { data, reads_left }), source);
        Input { name: format!("source-{i}"), location, kind: Kind::TEXT, range: None }
    });
    Inputs { list: list.collect(), reading: Reading::default() }
}

fn encode(case: &Case, reads: u64) -> Result<()> {
    let manner = Manner {
        threads: 1,
        existing: Existing::Resume,
        chunk_size: 40,
        journal_every: 0,
        sort_bytes: 200,
    };
    encode_files(&case.tokenizer, &inputs(reads), &case.out, &case.options, &manner, &job())
}

/// The files of a directory, which need not exist.
fn files(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.expect("a file"));
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((name, fs::read(entry.path()).ok()?))
    };
    entries.filter_map(file).collect()
}

fn case(shuffle: bool) -> Case {
    let options = Options {
        tokenizer_file: None,
        format: Format::Shards,
        dtype: None,
        shard_tokens: 50,
        end_of_text: Some("<|end|>".into()),
        append_eot: true,
        val_fraction: Some(0.2),
        shuffle,
        seed: 3,
    };
    let out = scratch_directory("journals").join(if shuffle { "shuffled" } else { "plain" });
    let (tokenizer, partial, whole) = (small_tokenizer(), Files::new(), Files::new());
    let mut case = Case { tokenizer, options, partial, whole, out };
    encode(&case, u64::MAX).expect("tokens");
    case.whole = files(&case.out);
    fs::remove_dir_all(&case.out).expect("removed");
    encode(&case, 5).expect_err("unplugged");
    case.partial = files(&case.out.join(".partial"));
    assert!(case.partial[JOURNAL].split(|&byte| byte == b'\n').count() > 2, "some entries");
    case
}

static CASES: LazyLock<[Case; 2]> = LazyLock::new(|| [case(false), case(true)]);

#[derive(Arbitrary, Debug)]
struct Edits(Vec<(u16, u8, Vec<u8>)>);

fuzz_target!(|data: &[u8]| {
    let Some((&kind, rest)) = data.split_first() else { return };
    let case = &CASES[usize::from(kind & 1)];
    let journal = if kind & 2 == 0 {
        rest.to_vec()
    } else {
        let Ok(Edits(edits)) = Edits::arbitrary_take_rest(Unstructured::new(rest)) else { return };
        edit(&case.partial[JOURNAL], &edits)
    };
    let _ = fs::remove_dir_all(&case.out);
    let partial = case.out.join(".partial");
    fs::create_dir_all(&partial).expect("a directory");
    for (name, content) in &case.partial {
        fs::write(partial.join(name), if name == JOURNAL { &journal } else { content })
            .expect("a file");
    }
    match encode(case, u64::MAX) {
        Ok(()) => assert!(files(&case.out) == case.whole, "resumed to other tokens"),
        Err(Error::Tokens(_) | Error::Config(_) | Error::Corpus(_)) => {}
        Err(error) => panic!("{error:?}"),
    }
});
