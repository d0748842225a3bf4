//! Directories that are not what they say, by accident or by intent.

use super::*;

fn finished(tokenizer: &Tokenizer, options: &Options) -> Corpus {
    let corpus = Corpus::new(&[format!("the cat {END} sat on the mat {END}"), "there".into()]);
    corpus.encode(tokenizer, options, &Manner::default()).unwrap();
    corpus
}

#[test]
fn every_flipped_bit_is_found() {
    let tokenizer = tokenizer();
    for format in [Format::Shards, Format::Npy, Format::Bin, Format::Megatron] {
        let corpus = finished(&tokenizer, &Options { format, ..options() });
        for (name, data) in files(&corpus.out()) {
            if name == "manifest.json" {
                continue;
            }
            for at in 0..data.len() {
                let mut changed = data.clone();
                changed[at] ^= 1 << (at % 8);
                fs::write(corpus.out().join(&name), &changed).unwrap();
                let problems = corpus.verify(&tokenizer);
                assert!(problems.iter().any(|p| p.contains(&name)), "{name} {at}: {problems:?}");
            }
            for size in [0, data.len() - 1] {
                fs::write(corpus.out().join(&name), &data[..size]).unwrap();
                assert!(corpus.verify(&tokenizer)[0].contains("bytes, not"));
            }
            fs::remove_file(corpus.out().join(&name)).unwrap();
            assert!(corpus.verify(&tokenizer)[0].starts_with(&name));
            fs::write(corpus.out().join(&name), &data).unwrap();
        }
        assert_eq!(corpus.verify(&tokenizer), Vec::<String>::new());
    }
}

/// Changes ids or ends of documents, and the checksums with them.
fn forged(corpus: &Corpus, change: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) -> Vec<String> {
    let out = corpus.out();
    let (ids_path, docs_path) = (out.join("tokens.npy"), out.join("tokens.docs.npy"));
    let mut ids = fs::read(&ids_path).unwrap();
    let mut docs = fs::read(&docs_path).unwrap();
    change(&mut ids, &mut docs);
    fs::write(&ids_path, &ids).unwrap();
    fs::write(&docs_path, &docs).unwrap();
    let mut manifest = Manifest::read(&out).unwrap();
    let crc32 = |data: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(data);
        append::hex(hasher)
    };
    manifest.splits[0].shards[0].crc32 = crc32(&ids);
    manifest.splits[0].shards[0].docs.crc32 = crc32(&docs);
    fs::write(out.join("manifest.json"), manifest.to_json()).unwrap();
    corpus.verify(&tokenizer())
}

#[test]
fn what_is_wrong_with_right_checksums_is_found() {
    let tokenizer = tokenizer();
    let npy = Options { format: Format::Npy, ..options() };
    let forged = |change: fn(&mut Vec<u8>, &mut Vec<u8>)| {
        let problems = forged(&finished(&tokenizer, &npy), change);
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].clone()
    };
    const FIRST: usize = npy::HEADER;
    assert!(forged(|ids, _| ids[FIRST + 1] = 200).contains("the id number 0, is not in the voc"));
    // Another letter: only the source knows.
    assert!(forged(|ids, _| ids[FIRST] ^= 1).contains("0.txt has at byte"));
    assert!(forged(|_, docs| docs[FIRST] += 1).contains("end-of-texts between"));
    assert!(forged(|_, docs| docs[FIRST] = 255).contains("document 0 ends at 255"));
    assert!(forged(|_, docs| docs[FIRST + 8] = 0).contains("document 1 ends at 0"));
}

#[test]
fn hostile_manifests_are_refused() {
    let tokenizer = tokenizer();
    let corpus = finished(&tokenizer, &options());
    let path = corpus.out().join("manifest.json");
    let whole = fs::read_to_string(&path).unwrap();
    let refused = |text: &str| {
        fs::write(&path, text).unwrap();
        let error = Manifest::read(&corpus.out()).unwrap_err();
        assert!(matches!(error, Error::Tokens(_)), "{error}");
        error.to_string()
    };
    for text in ["", "{", "[]", "null", "{\"kind\": \"bytemill tokens\"}", "\u{0}\u{1}"] {
        refused(text);
    }
    assert!(refused(&whole.replace("\"version\": 1", "\"version\": 2")).contains("version 2"));
    for (from, to) in [
        ("\"shard-00000.npy\"", "\"../shard-00000.npy\""),
        ("\"shard-00000.npy\"", "\"/etc/passwd\""),
        ("\"shard-00001.npy\"", "\"shard-00000.npy\""),
        ("\"shard-00000.docs.npy\"", "\"shard-00001.docs.npy\""),
        ("\"uint16\"", "\"uint32\""),
        ("\"uint16\"", "\"int32\""),
        ("\"uint16\"", "\"float64\""),
        ("\"format\": \"shards\"", "\"format\": \"bin\""),
        ("\"shard_tokens\": 7", "\"shard_tokens\": 8"),
        ("\"shard_tokens\": 7", "\"shard_tokens\": 0"),
        ("\"shard_tokens\": 7", "\"shard_tokens\": null"),
        ("\"tokens\": 7", "\"tokens\": 18446744073709551615"),
        ("\"tokens\": 7", "\"tokens\": -1"),
        ("\"documents\": 1", "\"documents\": 4611686018427387904"),
        ("\"documents\": 3", "\"documents\": 4"),
        ("\"bytes\": 142", "\"bytes\": 143"),
        ("\"val_fraction\": null", "\"val_fraction\": 0.5"),
        ("\"name\": \"all\"", "\"name\": \"train\""),
        ("\"max_id\": 277", "\"max_id\": 70000"),
    ] {
        let changed = whole.replacen(from, to, 1);
        assert_ne!(changed, whole, "{from}");
        refused(&changed);
    }
    let appended = whole.replace("\"appended\": [\n        2\n      ]", "\"appended\": [3]");
    assert_ne!(appended, whole);
    assert!(refused(&appended).contains("appended"));
    fs::write(&path, &whole).unwrap();
    Manifest::read(&corpus.out()).unwrap();
}

#[test]
fn any_manifest_is_read_or_refused() {
    let tokenizer = tokenizer();
    let corpus = finished(&tokenizer, &options());
    let path = corpus.out().join("manifest.json");
    let whole = fs::read(&path).unwrap();
    proptest!(ProptestConfig::with_cases(300), |(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>())| {
        let mut data = whole.clone();
        let at = at.index(data.len());
        if cut { data.truncate(at) } else { data[at] = byte }
        fs::write(&path, &data).unwrap();
        match Manifest::read(&corpus.out()) {
            Ok(_) => { let _ = verify(&corpus.out(), Some(&tokenizer), Some(&corpus.inputs()), &job()); }
            Err(error) => prop_assert!(matches!(error, Error::Tokens(_)), "{}", error),
        }
    });
}
