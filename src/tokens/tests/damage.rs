//! Files of shards that are damaged, by accident or on purpose.

use super::*;

fn finished(tokenizer: &Tokenizer, plan: &Plan) -> (Corpus, PathBuf, Vec<Split>) {
    let corpus = Corpus::new(&[format!("the cat {END} sat on the mat {END}"), "there".into()]);
    let out = corpus.directory("out");
    let splits = whole(tokenizer, &corpus, plan, &out, (1, 1000));
    (corpus, out, splits)
}

#[test]
fn every_flipped_bit_is_found() {
    let tokenizer = tokenizer();
    for (format, room) in
        [(Format::Npy, Some(7)), (Format::Npy, None), (Format::Bin, None), (Format::Megatron, None)]
    {
        let plan = Plan { format, shard_tokens: room, ..plan(&tokenizer) };
        let (_corpus, out, splits) = finished(&tokenizer, &plan);
        let problems = || problems(&out, &plan, &splits, &tokenizer);
        for (name, data) in files(&out, &splits) {
            for at in 0..data.len() {
                let mut changed = data.clone();
                changed[at] ^= 1 << (at % 8);
                fs::write(out.join(&name), &changed).unwrap();
                assert!(problems().iter().any(|p| p.contains(&name)), "{name} {at}");
            }
            for size in [0, data.len() - 1] {
                fs::write(out.join(&name), &data[..size]).unwrap();
                assert!(problems()[0].contains("bytes, not"));
            }
            fs::remove_file(out.join(&name)).unwrap();
            assert!(problems()[0].starts_with(&name));
            fs::write(out.join(&name), &data).unwrap();
        }
        assert_eq!(problems(), Vec::<String>::new());
    }
}

/// Changes ids or ends of documents, and the checksums with them.
fn forged(change: fn(&mut Vec<u8>, &mut Vec<u8>)) -> String {
    let tokenizer = tokenizer();
    let plan = Plan { shard_tokens: None, stems: vec!["tokens".into()], ..plan(&tokenizer) };
    let (corpus, out, mut splits) = finished(&tokenizer, &plan);
    let mut ids = fs::read(out.join("tokens.npy")).unwrap();
    let mut docs = fs::read(out.join("tokens.docs.npy")).unwrap();
    change(&mut ids, &mut docs);
    fs::write(out.join("tokens.npy"), &ids).unwrap();
    fs::write(out.join("tokens.docs.npy"), &docs).unwrap();
    let crc32 = |data: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(data);
        append::crc_hex(hasher)
    };
    splits[0].shards[0].crc32 = crc32(&ids);
    splits[0].shards[0].docs.crc32 = crc32(&docs);
    let mut found = problems(&out, &plan, &splits, &tokenizer);
    if found.is_empty() {
        let inputs = corpus.inputs();
        found.extend(compare(&out, &plan, &splits, &tokenizer, &inputs, None, &job()).unwrap());
    }
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn wrong_content_with_correct_checksums_is_found() {
    const FIRST: usize = plan::NPY_HEADER_SIZE;
    assert!(forged(|ids, _| ids[FIRST + 1] = 200).contains("at position 0 is not in the voc"));
    // Another letter: only the comparison with the source finds it.
    assert!(forged(|ids, _| ids[FIRST] ^= 1).contains("0.txt has at byte"));
    assert!(forged(|_, docs| docs[FIRST] += 1).contains("end-of-text ids between"));
    assert!(forged(|_, docs| docs[FIRST] = 255).contains("document 0 ends at 255"));
    assert!(forged(|_, docs| docs[FIRST + 8] = 0).contains("document 1 ends at 0"));
}
