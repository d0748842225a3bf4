//! Work that stops somewhere, and goes on to the same bytes.

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::*;

const RESUME: Manner = Manner {
    threads: 2,
    existing: Existing::Resume,
    chunk_size: 10,
    journal_every: 0,
    sort_bytes: 100,
};

/// Takes a file away, and puts it back as it was.
struct Vanished {
    path: PathBuf,
    text: Vec<u8>,
    modified: SystemTime,
}

impl Vanished {
    fn new(path: &Path) -> Self {
        let modified = fs::metadata(path).unwrap().modified().unwrap();
        let vanished = Vanished { path: path.into(), text: fs::read(path).unwrap(), modified };
        fs::remove_file(path).unwrap();
        vanished
    }

    fn back(self) {
        fs::write(&self.path, &self.text).unwrap();
        File::options().write(true).open(&self.path).unwrap().set_modified(self.modified).unwrap();
    }
}

/// Replaces a source by a directory between planning and reading: an error in the middle.
fn stopped_at(corpus: &Corpus, tokenizer: &Tokenizer, options: &Options, source: usize) -> Error {
    let plan = plan(tokenizer, &corpus.inputs(), options).unwrap();
    let vanished = Vanished::new(&corpus.paths[source]);
    let (directory, task) = Directory::take(&corpus.out(), &plan, Existing::Resume).unwrap();
    let (journal, state) = match task {
        Task::Nothing => panic!("nothing to do"),
        Task::Begin => (Journal::create(&directory.partial, &plan).unwrap(), None),
        Task::GoOn => Journal::resume(&directory.partial).unwrap(),
    };
    let job = job();
    let work = Work {
        tokenizer,
        inputs: &corpus.inputs(),
        plan: &plan,
        partial: &directory.partial,
        manner: &RESUME,
        job: &job,
    };
    let error = work.run(journal, state).unwrap_err();
    vanished.back();
    error
}

/// Adds what a kill may leave beyond the last entry of the journal.
fn add_debris(partial: &Path) {
    for (name, mut data) in files(partial) {
        // Shards that are closed have their header, and are not written to any more.
        if name.ends_with(".npy") && data[0] != 0 {
            continue;
        }
        let torn: &[u8] = if name == "journal.jsonl" { b"{\"place\":{\"sou" } else { b"debris" };
        data.extend(torn);
        fs::write(partial.join(name), data).unwrap();
    }
    fs::write(partial.join("shard-00099.npy"), "debris").unwrap();
}

#[test]
fn a_source_that_vanished_is_no_loss() {
    let tokenizer = tokenizer();
    let texts = prop::collection::vec(source(), 3..6);
    proptest!(ProptestConfig::with_cases(40), |(texts in texts, options in any_options())| {
        let corpus = Corpus::new(&texts);
        for source in 0..texts.len() {
            let error = stopped_at(&corpus, &tokenizer, &options, source);
            prop_assert!(matches!(error, Error::Io { .. }), "{}", error);
            prop_assert!(!corpus.out().join("manifest.json").exists());
            add_debris(&corpus.out().join(".partial"));
        }
        corpus.encode(&tokenizer, &options, &RESUME).unwrap();
        let resumed = files(&corpus.out());
        prop_assert_eq!(found(&corpus.out()), expected(&tokenizer, &texts, &options));
        let overwrite = Manner { existing: Existing::Overwrite, ..Manner::default() };
        corpus.encode(&tokenizer, &options, &overwrite).unwrap();
        prop_assert_eq!(files(&corpus.out()), resumed);
    });
}

#[test]
fn moving_into_place_can_stop_anywhere() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat sat on the mat, the cats sat there"]);
    corpus.encode(&tokenizer, &options(), &Manner::default()).unwrap();
    let whole = files(&corpus.out());
    let (partial, out) = (corpus.out().join(".partial"), corpus.out());
    // The first `n` files have been moved; those that are there are of an older, longer run.
    for n in 0..whole.len() {
        fs::create_dir(&partial).unwrap();
        for (name, _) in whole.iter().skip(n) {
            fs::rename(out.join(name), partial.join(name)).unwrap();
            if name != "manifest.json" {
                fs::write(out.join(name), "old").unwrap();
            }
        }
        if !partial.join("manifest.json").exists() {
            fs::rename(out.join("manifest.json"), partial.join("manifest.json")).unwrap();
        }
        fs::write(out.join("shard-00077.npy"), "old").unwrap();
        let replaced = r#"{"kind": "bytemill tokens", "splits": [{"shards": [
            {"file": "shard-00077.npy"}, {"file": "../0.txt"}, {"file": "notes.txt"}]}]}"#;
        fs::write(partial.join("replaced.json"), replaced).unwrap();
        fs::write(out.join("notes.txt"), "not ours").unwrap();
        fs::write(out.join("shard-00078.npy"), "not ours").unwrap();
        let error = corpus.encode(&tokenizer, &options(), &Manner::default()).unwrap_err();
        assert!(error.to_string().contains("interrupted run"), "{error}");
        let overwrite = Manner { existing: Existing::Overwrite, ..Manner::default() };
        if n % 2 == 0 {
            corpus.encode(&tokenizer, &options(), &RESUME).unwrap();
        } else {
            // Completes the moving, too, and then meets what is not ours.
            let error = corpus.encode(&tokenizer, &options(), &overwrite).unwrap_err();
            assert!(error.to_string().contains("such as shard-00078.npy"), "{error}");
        }
        assert!(corpus.paths[0].exists());
        fs::remove_file(out.join("notes.txt")).unwrap();
        fs::remove_file(out.join("shard-00078.npy")).unwrap();
        assert_eq!(files(&out), whole);
        corpus.encode(&tokenizer, &options(), &overwrite).unwrap();
        assert_eq!(files(&out), whole);
    }
}

#[test]
fn what_is_there_is_respected() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat", "sat"]);
    let encode = |existing, options: &Options| {
        corpus.encode(&tokenizer, options, &Manner { existing, ..Manner::default() })
    };
    fs::create_dir(corpus.out()).unwrap();
    fs::write(corpus.out().join("notes.txt"), "not ours").unwrap();
    for existing in [Existing::Refuse, Existing::Resume, Existing::Overwrite] {
        encode(existing, &options()).unwrap_err();
        assert_eq!(files(&corpus.out()).len(), 1);
    }
    fs::remove_file(corpus.out().join("notes.txt")).unwrap();
    encode(Existing::Refuse, &options()).unwrap();
    let whole = files(&corpus.out());
    let error = encode(Existing::Refuse, &options()).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    encode(Existing::Resume, &options()).unwrap();
    let other = Options { append_eot: false, ..options() };
    let error = encode(Existing::Resume, &other).unwrap_err().to_string();
    assert!(error.contains("other options"), "{error}");
    assert_eq!(files(&corpus.out()), whole);
    encode(Existing::Overwrite, &Options { format: Format::Bin, ..options() }).unwrap();
    let names: Vec<String> = files(&corpus.out()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["manifest.json", "tokens.bin", "tokens.docs.npy"]);
}

#[test]
fn files_of_others_are_never_overwritten() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat", "sat"]);
    let out = corpus.out();
    let bin = Options { format: Format::Bin, val_fraction: Some(0.5), ..options() };
    let overwrite = || {
        let manner = Manner { existing: Existing::Overwrite, ..Manner::default() };
        corpus.encode(&tokenizer, &bin, &manner)
    };
    let foreign = [
        ("manifest.json", r#"{"files": ["train.bin"]}"#),
        ("manifest.json", "not JSON"),
        ("train.bin", "not ours"),
        ("tokenizer.json", "{}"),
        (".partial/notes.txt", "not ours"),
    ];
    for (name, content) in foreign {
        fs::create_dir_all(out.join(".partial")).unwrap();
        fs::write(out.join(name), content).unwrap();
        let error = overwrite().unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), content);
        fs::remove_dir_all(&out).unwrap();
    }
    // Beside tokens, too, if they could be in the way.
    overwrite().unwrap();
    fs::write(out.join("tokens.bin"), "not ours").unwrap();
    assert!(overwrite().unwrap_err().to_string().contains("such as tokens.bin"));
    fs::rename(out.join("tokens.bin"), out.join("notes.bin")).unwrap();
    overwrite().unwrap();
    assert_eq!(fs::read(out.join("notes.bin")).unwrap(), b"not ours");
    // A manifest of ours may be of another version, or contradict itself.
    let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
    let changed = manifest.replace("\"version\": 1", "\"version\": 99");
    fs::write(out.join("manifest.json"), changed).unwrap();
    overwrite().unwrap();
    assert_eq!(fs::read_to_string(out.join("manifest.json")).unwrap(), manifest);
}

#[test]
fn the_tokenizer_goes_with_the_tokens() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat", "sat"]);
    let out = corpus.out();
    let data = crate::tokenizer::formats::write_tokenizer_json(&tokenizer.spec()).unwrap();
    let carrying = Options { tokenizer_file: Some(data.clone()), ..options() };
    stopped_at(&corpus, &tokenizer, &carrying, 1);
    corpus.encode(&tokenizer, &carrying, &RESUME).unwrap();
    assert_eq!(fs::read(out.join("tokenizer.json")).unwrap(), data);
    let verified = || verify(&out, None, Some(&corpus.inputs()), &job());
    assert_eq!(verified().unwrap(), Vec::<String>::new());
    // Another one, with its own checksum, is not the tokens' own.
    let smaller = crate::tokenizer::formats::write_tokenizer_json(
        &tokenizer.with_vocab_size(270).unwrap().spec(),
    );
    let other = Options { tokenizer_file: Some(smaller.unwrap()), ..options() };
    let overwrite = Manner { existing: Existing::Overwrite, ..Manner::default() };
    corpus.encode(&tokenizer, &other, &overwrite).unwrap();
    let problems = verified().unwrap();
    assert_eq!(problems, ["tokenizer.json: not the tokenizer that the manifest names"]);
    fs::write(out.join("tokenizer.json"), "{}").unwrap();
    assert!(verified().unwrap()[0].starts_with("tokenizer.json: 2 bytes, not"));
    // Tokens of earlier versions have none, and what is left of a newer one goes.
    corpus.encode(&tokenizer, &options(), &overwrite).unwrap();
    assert!(!out.join("tokenizer.json").exists());
    assert!(matches!(verified(), Err(Error::Config(_))));
    assert_eq!(corpus.verify(&tokenizer), Vec::<String>::new());
}

/// A journal whose entries were changed by `change`, with checksums that are right.
fn forged(partial: &Path, change: impl Fn(&str) -> String) {
    let journal = fs::read_to_string(partial.join("journal.jsonl")).unwrap();
    let mut hasher = crc32fast::Hasher::new();
    let lines = journal.lines().map(|line| {
        let entry = change(&line[12..line.len() - 1]);
        hasher.update(entry.as_bytes());
        format!("[\"{}\",{entry}]\n", append::hex(hasher.clone()))
    });
    fs::write(partial.join("journal.jsonl"), lines.collect::<String>()).unwrap();
}

#[test]
fn a_hand_edited_journal_is_refused() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat sat on the mat, the cats sat there", "on", "the mat"]);
    let partial = corpus.out().join(".partial");
    stopped_at(&corpus, &tokenizer, &options(), 2);
    let left = files(&partial);
    let journal = fs::read_to_string(partial.join("journal.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    assert!(lines.len() >= 3, "{journal}");
    let refused = || {
        let error = corpus.encode(&tokenizer, &options(), &RESUME).unwrap_err();
        assert!(matches!(error, Error::Tokens(_)), "{error}");
        assert!(error.to_string().contains("journal.jsonl: damaged"), "{error}");
        for (name, data) in &left {
            fs::write(partial.join(name), data).unwrap();
        }
    };
    let write = |text: &str| fs::write(partial.join("journal.jsonl"), text).unwrap();
    // Every digit, a line less, lines in another order, an earlier version.
    for (at, _) in journal.match_indices(|c: char| c.is_ascii_digit()) {
        let digit = (journal.as_bytes()[at] - b'0' + 1) % 10;
        write(&format!("{}{digit}{}", &journal[..at], &journal[at + 1..]));
        refused();
    }
    write(&(lines[0].to_owned() + "\n" + &lines[2..].join("\n") + "\n"));
    refused();
    write(&(lines[0].to_owned() + "\n" + lines[2] + "\n" + lines[1] + "\n"));
    refused();
    write("{\"version\":2,\"plan\":{}}\n");
    refused();
    // With checksums that are right, what cannot be.
    for (from, to) in [
        ("\"document\":", "\"document\":9"),
        ("\"source\":", "\"source\":7"),
        ("\"offset\":", "\"offset\":99999"),
        ("\"tokens\":7", "\"tokens\":6"),
        ("\"documents\":", "\"documents\":1844674407370955161"),
        ("shard-00000.npy", "../../0.txt"),
        ("\"appended\":[", "\"appended\":[5,4,"),
    ] {
        assert!(lines[1..].iter().any(|line| line.contains(from)), "{from}: {journal}");
        forged(&partial, |entry| {
            if entry.contains("\"version\"") { entry.into() } else { entry.replace(from, to) }
        });
        refused();
    }
    // As it was, it is followed.
    corpus.encode(&tokenizer, &options(), &RESUME).unwrap();
    assert_eq!(corpus.verify(&tokenizer), Vec::<String>::new());
}

#[test]
fn sources_must_be_what_they_were() {
    let tokenizer = tokenizer();
    let corpus = Corpus::new(&["the cat sat", "on the mat", "there"]);
    stopped_at(&corpus, &tokenizer, &options(), 2);
    let resume = || corpus.encode(&tokenizer, &options(), &RESUME).unwrap_err().to_string();
    let modified = fs::metadata(&corpus.paths[0]).unwrap().modified().unwrap();
    fs::write(&corpus.paths[0], "the dog sat").unwrap();
    let file = File::options().write(true).open(&corpus.paths[0]).unwrap();
    file.set_modified(modified + Duration::from_nanos(1_000_000)).unwrap();
    assert!(resume().contains("0.txt has changed"), "{}", resume());
    fs::write(&corpus.paths[0], "the").unwrap();
    assert!(resume().contains("0.txt has changed"), "{}", resume());
    let some = &corpus.paths[1..];
    let error = encode_files(
        &tokenizer,
        &Inputs::of_files(some),
        &corpus.out(),
        &options(),
        &RESUME,
        &job(),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("0.txt, not"), "{error}");
    let smaller = tokenizer.with_vocab_size(270).unwrap();
    let error = corpus.encode(&smaller, &options(), &RESUME).unwrap_err();
    assert!(matches!(error, Error::Tokens(_)), "{error}");
    assert!(error.to_string().contains("made with the tokenizer"), "{error}");
}
