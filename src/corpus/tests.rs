//! Every kind of source against its content: in blocks of any size, from any position on, by any number
//! of workers.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::base::error::Error;
use crate::base::job::{Job, Phase};
use crate::text::cutter::Cutter;

const KINDS: [&str; 4] = ["gz", "zst", "xz", "bz2"];

fn pack(data: &[u8], packing: &str) -> Vec<u8> {
    match packing {
        "gz" => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        "zst" => zstd::stream::encode_all(data, 1).unwrap(),
        "xz" => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        "bz2" => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        _ => data.to_vec(),
    }
}

fn job() -> Job {
    Job::new(Phase::Count, 0)
}

fn cutter() -> Cutter {
    Cutter::new(&["gpt2"], &["<|end|>"]).unwrap()
}

/// What blocks contain: running text joined, `End` where a file or member ends, documents.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Text(Vec<u8>),
    End,
    Document(Vec<u8>),
}

fn add(items: &mut Vec<Item>, text: BlockText<'_>) {
    match text {
        BlockText::Running { text, end } => {
            match items.last_mut() {
                Some(Item::Text(before)) => before.extend_from_slice(text),
                _ => items.push(Item::Text(text.to_vec())),
            }
            if end == BlockEnd::EndOfText {
                items.push(Item::End);
            }
        }
        BlockText::Documents(documents) => {
            items.extend(documents.iter().map(|text| Item::Document(text.to_vec())));
        }
    }
}

type Start = (usize, SourcePosition);
type Read = (Vec<Item>, Skipped, Vec<(Start, Vec<Item>)>);

/// Everything from a position on, and the positions at which blocks end with what follows them.
fn read(inputs: &Inputs, block_size: usize, from: Start) -> crate::Result<Read> {
    let cutter = cutter();
    let sources = inputs.sources()?;
    let context = Context {
        cutter: &cutter,
        reading: &inputs.reading,
        block_size,
        open_pieces: false,
        job: &job(),
    };
    let mut blocks = InOrder::new(inputs, &sources, context, from);
    let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
    let mut blocks_seen = Vec::new();
    while let Some(mut block) = blocks.next_block()? {
        let mut items = Vec::new();
        block.read(&context, &mut buffers, &mut skipped, &mut |text| {
            add(&mut items, text);
            Ok(())
        })?;
        let after = match block.ends_source {
            true => (block.number + 1, SourcePosition::default()),
            false => (block.number, block.after),
        };
        blocks_seen.push((after, items));
    }
    let joined = |blocks: &[(Start, Vec<Item>)]| {
        let mut all: Vec<Item> = Vec::new();
        for item in blocks.iter().flat_map(|(_, items)| items) {
            match (all.last_mut(), item) {
                (Some(Item::Text(before)), Item::Text(more)) => before.extend_from_slice(more),
                _ => all.push(item.clone()),
            }
        }
        all
    };
    let all = joined(&blocks_seen);
    let rests =
        (0..blocks_seen.len()).map(|i| (blocks_seen[i].0, joined(&blocks_seen[i + 1..]))).collect();
    Ok((all, skipped, rests))
}

struct Files {
    folder: TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = files.iter().map(|(name, _)| folder.path().join(name)).collect();
        for (path, (_, data)) in paths.iter().zip(files) {
            std::fs::write(path, data).unwrap();
        }
        Files { folder, paths }
    }

    fn inputs(&self) -> Inputs {
        Inputs::of_files(&self.paths)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn skipping(mut inputs: Inputs) -> Inputs {
    inputs.reading.on_error = OnError::Skip;
    inputs
}

fn texts(items: &[Item]) -> Vec<String> {
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    let shown = |item: &Item| match item {
        Item::Text(data) | Item::Document(data) => Some(text(data)),
        Item::End => None,
    };
    items.iter().filter_map(shown).collect()
}

/// A tar archive of plain files.
fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, data) in members {
        let mut head = [0u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        head[156] = b'0';
        head[257..263].copy_from_slice(b"ustar\0");
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().map(|&byte| u32::from(byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(data);
        out.resize(out.len().div_ceil(512) * 512, 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn lines(texts: &[String]) -> Vec<u8> {
    let line = |text: &String| serde_json::json!({"id": 1, "text": text}).to_string() + "\n";
    texts.iter().map(line).collect::<String>().into_bytes()
}

fn rows(texts: &[String]) -> Vec<u8> {
    let row = |text: &String| format!("1,\"{}\"\r\n", text.replace('"', "\"\""));
    ("id,text\r\n".to_owned() + &texts.iter().map(row).collect::<String>()).into_bytes()
}

fn some_texts() -> impl Strategy<Value = Vec<String>> {
    let word = prop::sample::select(vec![
        "the", " cat", "\n", "\"", ",", "\\", "<|end|>", "é", "12", "\t", " ", "sat on", "😀",
    ]);
    let text = prop::collection::vec(word, 0..12).prop_map(|words| words.concat());
    prop::collection::vec(text, 0..8)
}

/// A pipe whose bytes arrive at intervals.
#[derive(Debug)]
struct Drops(Mutex<Vec<Option<Vec<u8>>>>);

impl Drops {
    fn new(mut drops: Vec<Option<Vec<u8>>>) -> Arc<Self> {
        drops.reverse();
        Arc::new(Drops(Mutex::new(drops)))
    }
}

impl Pipe for Drops {
    fn begin(&self) -> crate::Result<()> {
        Ok(())
    }

    fn next(&self, _: std::time::Duration) -> crate::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().pop().unwrap_or(Some(Vec::new())))
    }
}

fn piped(name: &str, data: &[u8]) -> Location {
    let path = Path::new(name);
    let source = Source { size: 0, mtime_ns: 0, ..Source::of_file(path).unwrap() };
    let drops = data.chunks(7).flat_map(|some| [None, Some(some.to_vec())]).collect();
    Location::Pipe(Drops::new(drops), source)
}

#[test]
fn waiting_for_a_pipe_can_be_stopped() {
    let (stopped, passed) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let drops = Drops::new(vec![Some(b"a".to_vec()), None, Some(b"b".to_vec()), None]);
    let mut input = bytes::PipeReader::open(drops, Arc::clone(&stopped), passed).unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(&mut input, &mut byte).unwrap();
    assert_eq!(byte, *b"a");
    stopped.store(true, Relaxed);
    let error = std::io::Read::read(&mut input, &mut byte).unwrap_err();
    let failure = reading::ReadFailure::of_io(error);
    assert!(matches!(failure, reading::ReadFailure::Stop(Error::Interrupted)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_kind_in_any_blocks_from_any_position(
        texts in some_texts(),
        block_size in prop_oneof![1usize..40, 40usize..4000],
        packing in prop::sample::select(vec!["", "gz", "zst", "xz", "bz2"]),
        in_two in any::<bool>(),
    ) {
        let whole = texts.concat().into_bytes();
        let member = |i: usize| format!("d/{i}.txt");
        let names: Vec<String> = (0..texts.len()).map(member).collect();
        let members: Vec<(&str, &[u8])> =
            names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
        let documents: Vec<Item> =
            texts.iter().map(|text| Item::Document(text.clone().into_bytes())).collect();
        let files: Vec<Item> = texts
            .iter()
            .flat_map(|text| [Item::Text(text.clone().into_bytes()), Item::End])
            .collect();
        let one = vec![Item::Text(whole.clone()), Item::End];
        for (format, content, expected) in [
            ("txt", whole, &one),
            ("jsonl", lines(&texts), &documents),
            ("csv", rows(&texts), &documents),
            ("tar", tar(&members), &files),
        ] {
            let name = if packing.is_empty() { format.to_owned() } else { format!("{format}.{packing}") };
            let (first, second) = content.split_at(if in_two { content.len() / 2 } else { 0 });
            let mut data = pack(second, packing);
            if in_two {
                // Concatenated members, frames and streams are one text.
                data = [pack(first, packing), data].concat();
            }
            let name = format!("a.{name}");
            let files = Files::new(&[(&name, data), ("last.txt", b"last".to_vec())]);
            let mut expected = expected.clone();
            expected.extend([Item::Text(b"last".to_vec()), Item::End]);
            let (found, skipped, rests) = read(&files.inputs(), block_size, Default::default()).unwrap();
            prop_assert_eq!(&found, &expected, "{}", name);
            prop_assert!(skipped.is_empty());
            for (place, rest) in rests {
                let (again, _, _) = read(&files.inputs(), block_size + 3, place).unwrap();
                prop_assert_eq!(again, rest, "{} from {:?}", name, place);
            }
            let mut inputs = files.inputs();
            inputs.list[0].location = piped(&inputs.list[0].name, &std::fs::read(&inputs.list[0].name).unwrap());
            let (found, _, _) = read(&inputs, block_size, Default::default()).unwrap();
            prop_assert_eq!(&found, &expected, "{} by a pipe", name);
            // In any order, by several workers.
            let (inputs, cutter) = (files.inputs(), cutter());
            let context = Context { cutter: &cutter, reading: &inputs.reading, block_size, open_pieces: false, job: &job() };
            let reader = AnyOrder::new(&inputs, context);
            let found = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
                        while let Some(mut block) = reader.next().unwrap() {
                            block.read(&context, &mut buffers, &mut skipped, &mut |text| {
                                match text {
                                    BlockText::Running { text, .. } => found.lock().unwrap().extend_from_slice(text),
                                    BlockText::Documents(documents) => found.lock().unwrap().extend(documents.concat()),
                                }
                                Ok(())
                            }).unwrap();
                        }
                    });
                }
            });
            let sorted = |mut bytes: Vec<u8>| { bytes.sort_unstable(); bytes };
            let all: Vec<u8> = [texts.concat().into_bytes(), b"last".to_vec()].concat();
            prop_assert_eq!(sorted(found.into_inner().unwrap()), sorted(all));
        }
    }

    /// Ranges that cover a file have its content, wherever one ends and the next begins.
    #[test]
    fn ranges_add_up(texts in some_texts(), cuts in prop::collection::vec(0u64..400, 0..6), block_size in 1usize..60) {
        for (name, data) in [("a.txt", texts.concat().into_bytes()), ("a.jsonl", lines(&texts))] {
            let files = Files::new(&[(name, data.clone())]);
            let (whole, _, _) = read(&files.inputs(), 1 << 20, Default::default()).unwrap();
            let mut cuts = cuts.clone();
            cuts.extend([0, u64::MAX]);
            cuts.sort_unstable();
            // No plan has empty ranges; an empty file belongs to the range that starts at 0.
            cuts.dedup();
            let mut inputs = files.inputs();
            let one = inputs.list.pop().unwrap();
            for range in cuts.windows(2) {
                inputs.list.push(Input { range: Some((range[0], range[1])), ..one.clone() });
            }
            let (items, _, _) = read(&inputs, block_size, Default::default()).unwrap();
            prop_assert_eq!(items, whole, "{} {:?}", name, cuts);
        }
    }

    /// Separators end documents as `split` has them, in any blocks and ranges, from any position on.
    #[test]
    fn documents_between_separators(
        items in prop::collection::vec(
            prop::sample::select(vec!["a", "b", "ab", "aaaa", "\n", "\n\n\n", "aba", "<|end|>", "é 1"]),
            0..40,
        ),
        separator in prop::sample::select(vec!["\n", "\n\n", "aba", "aa", "<|end|>", "a\nb"]),
        block_size in prop_oneof![1usize..40, 40usize..400],
        packing in prop::sample::select(vec!["", "gz", "bz2"]),
        cuts in prop::collection::vec(0u64..80, 0..6),
        max_document in prop_oneof![Just(usize::MAX), 1usize..12],
    ) {
        let text = items.concat();
        let (short, long): (Vec<&str>, Vec<&str>) = text
            .split(separator)
            .filter(|document| !document.is_empty())
            .partition(|document| document.len() <= max_document);
        let expected: Vec<Item> =
            short.iter().map(|document| Item::Document(document.as_bytes().to_vec())).collect();
        let with = |mut inputs: Inputs| {
            inputs.reading.separator = Some(separator.as_bytes().to_vec());
            inputs.reading.max_document = max_document;
            skipping(inputs)
        };
        let data = text.as_bytes();
        let file = Files::new(&[("a.txt", data.to_vec())]);
        let in_tar = pack(&tar(&[("b.txt", data)]), packing);
        let name = |name: &str| if packing.is_empty() { name.to_owned() } else { format!("{name}.{packing}") };
        let packed = Files::new(&[(&name("a.txt"), pack(data, packing))]);
        let archive = Files::new(&[(&name("a.tar"), in_tar)]);
        let mut piped_inputs = file.inputs();
        piped_inputs.list[0].location = piped(&piped_inputs.list[0].name, data);
        let mut ranges = file.inputs();
        let one = ranges.list.pop().unwrap();
        let mut cuts = cuts;
        cuts.extend([0, u64::MAX]);
        cuts.sort_unstable();
        cuts.dedup();
        for range in cuts.windows(2) {
            ranges.list.push(Input { range: Some((range[0], range[1])), ..one.clone() });
        }
        for inputs in [file.inputs(), packed.inputs(), archive.inputs(), piped_inputs, ranges] {
            let is_pipe = matches!(inputs.list[0].location, Location::Pipe(..));
            let inputs = with(inputs);
            let (found, skipped, rests) = read(&inputs, block_size, Default::default()).unwrap();
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(skipped.0.get("too_long").copied().unwrap_or(0), long.len() as u64);
            for (place, rest) in rests.into_iter().filter(|_| !is_pipe) {
                let (again, _, _) = read(&inputs, block_size + 3, place).unwrap();
                prop_assert_eq!(again, rest, "from {:?}", place);
            }
        }
    }

    /// However a file is damaged, reading it ends with an error or with skipped records counted.
    #[test]
    fn damage_is_reported(
        texts in some_texts(),
        name in prop::sample::select(vec!["a.jsonl", "a.csv", "a.tar", "a.jsonl.gz", "a.txt.zst", "a.csv.xz", "a.tar.bz2", "a.zip", "a.tar.gz"]),
        at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let (format, packing) = name[2..].split_once('.').unwrap_or((&name[2..], ""));
        let content = match format {
            "jsonl" => lines(&texts),
            "csv" => rows(&texts),
            "zip" => stored_zip(&[("a.txt", texts.concat().as_bytes())]),
            "tar" => tar(&[("a.txt", texts.concat().as_bytes())]),
            _ => texts.concat().into_bytes(),
        };
        let mut data = pack(&content, packing);
        if cut {
            data.truncate(at.index(data.len().max(1)));
        } else if !data.is_empty() {
            let at = at.index(data.len());
            data[at] = byte;
        }
        let files = Files::new(&[(name, data)]);
        let stop = read(&files.inputs(), 64, Default::default());
        let (found, skipped, _) = read(&skipping(files.inputs()), 64, Default::default()).unwrap();
        match stop {
            Ok((items, strays, _)) => {
                // A damaged name may exclude a member from the corpus.
                prop_assert!(strays.0.keys().all(|kind| kind == "stray_file"), "{:?}", strays);
                prop_assert_eq!(strays, skipped.clone());
                prop_assert_eq!(&items, &found);
            }
            Err(error) => {
                prop_assert!(matches!(error, Error::Corpus(_)), "{}", error);
                prop_assert!(error.to_string().contains("hint: "), "{}", error);
                prop_assert!(!skipped.is_empty(), "{}", error);
            }
        }
        // The same for any block size.
        for block_size in [1, 1000] {
            let (again, counted, _) = read(&skipping(files.inputs()), block_size, Default::default()).unwrap();
            prop_assert_eq!((&again, &counted), (&found, &skipped));
        }
    }
}

/// A zip archive of stored files.
fn stored_zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut listing) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let offset = out.len() as u32;
        let size = (data.len() as u32).to_le_bytes();
        let crc = crc32fast::hash(data).to_le_bytes();
        let fields = [&[0; 8][..], &crc, &size, &size, &(name.len() as u32).to_le_bytes()].concat();
        out.extend([b"PK\x03\x04\x14\0", &fields[..], name.as_bytes(), data].concat());
        listing.extend(
            [
                b"PK\x01\x02\x14\0\x14\0",
                &fields[..],
                &[0; 10],
                &offset.to_le_bytes(),
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let (start, size) = (out.len() as u32, listing.len() as u32);
    out.extend(listing);
    out.extend(
        [b"PK\x05\x06\0\0\0\0\0\0\0\0", &size.to_le_bytes()[..], &start.to_le_bytes(), &[0, 0]]
            .concat(),
    );
    out
}

#[test]
fn members_of_a_zip() {
    let gz = pack(b"{\"text\":\"three\"}\n", "gz");
    let zip = stored_zip(&[
        ("a.txt", b"one"),
        ("d/.hidden", b"no"),
        (".git/x", b"no"),
        ("d/", b""),
        ("d/b.jsonl.gz", &gz),
    ]);
    let files = Files::new(&[("a.zip", zip)]);
    let (items, _, _) = read(&files.inputs(), 1 << 20, Default::default()).unwrap();
    assert_eq!(texts(&items), ["one", "three"]);
    assert!(files.path().exists());
}

#[test]
fn bad_records_are_reported_and_counted() {
    let data = b"{\"text\":\"one\"}\nnot json\n\n{\"texts\":1}\n{\"text\":2}\n{\"text\":null}\n[]\n{\"text\":\"\xff\"}\n{\"text\":\"two\"}";
    for name in ["a.jsonl", "a.jsonl.gz"] {
        let packing = name.strip_prefix("a.jsonl.").unwrap_or("");
        let files = Files::new(&[(name, pack(data, packing))]);
        let error = read(&files.inputs(), 1 << 20, Default::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("{name}: line 2 (byte 15): not JSON")), "{error}");
        for block_size in [1, 20, 1 << 20] {
            let (items, skipped, _) =
                read(&skipping(files.inputs()), block_size, Default::default()).unwrap();
            assert_eq!(texts(&items), ["one", "two"]);
            let counts: Vec<(&str, u64)> =
                skipped.0.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
            assert_eq!(
                counts,
                [("invalid_json", 1), ("invalid_utf8", 1), ("missing_field", 2), ("wrong_type", 2)]
            );
        }
    }
}

#[test]
fn rows_without_the_column_or_truncated() {
    let files = Files::new(&[(
        "a.csv",
        b"id,text\n1,one\n2\n3,\"three\"\n4,\"never closed\n5,five".to_vec(),
    )]);
    let (items, skipped, _) = read(&skipping(files.inputs()), 10, Default::default()).unwrap();
    assert_eq!(texts(&items), ["one", "three"]);
    assert_eq!(skipped.0["missing_field"], 1);
    assert_eq!(skipped.0["invalid_csv"], 1);
    let mut inputs = files.inputs();
    inputs.reading = Reading::default().with_field("body");
    let error = read(&inputs, 1 << 20, Default::default()).unwrap_err().to_string();
    assert!(error.contains("row 2 (byte 8)") && error.contains("columns are id, text"), "{error}");
}

#[test]
fn a_byte_order_mark_before_a_quoted_name_is_skipped() {
    let data = b"\xef\xbb\xbf\"id, or name\",text\n1,one\n2,two\n".to_vec();
    let files = Files::new(&[("a.csv", data)]);
    for block_size in [1, 1 << 20] {
        let (items, _, rests) = read(&files.inputs(), block_size, Default::default()).unwrap();
        assert_eq!(texts(&items), ["one", "two"]);
        for (place, rest) in rests {
            assert_eq!(read(&files.inputs(), 3, place).unwrap().0, rest);
        }
    }
}

#[test]
fn records_that_are_too_long_are_skipped() {
    let long = "x".repeat(300_000);
    let texts_given = vec!["one".to_owned(), long, "two".to_owned()];
    for (name, data, kept) in [
        ("a.jsonl", lines(&texts_given), vec!["one", "two"]),
        ("a.jsonl.zst", pack(&lines(&texts_given), "zst"), vec!["one", "two"]),
        ("a.csv", rows(&texts_given), vec!["one", "two"]),
    ] {
        let files = Files::new(&[(name, data)]);
        let mut inputs = files.inputs();
        inputs.reading.max_document = 1000;
        let error = read(&inputs, 1 << 20, Default::default()).unwrap_err().to_string();
        assert!(error.contains("longer than 1000 bytes"), "{error}");
        for block_size in [1, 200, 1 << 20] {
            let (items, skipped, _) =
                read(&skipping(inputs.clone()), block_size, Default::default()).unwrap();
            assert_eq!(texts(&items), kept, "{name} {block_size}");
            assert_eq!(skipped.0["too_long"], 1, "{name}");
        }
    }
}

#[test]
fn bombs_are_stopped() {
    let zeros = " ".repeat(20 << 20).into_bytes();
    for packing in KINDS {
        let files = Files::new(&[(&format!("a.txt.{packing}"), pack(&zeros, packing))]);
        let mut inputs = files.inputs();
        inputs.reading.max_ratio = 100;
        let error = match read(&inputs, 1 << 20, Default::default()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{packing}: read to its end"),
        };
        assert!(error.contains("times its size") && error.contains("max_ratio"), "{error}");
        inputs.reading.max_ratio = u64::MAX;
        let (items, _, _) = read(&inputs, 1 << 20, Default::default()).unwrap();
        assert!(items == [Item::Text(zeros.clone()), Item::End]);
    }
}

#[test]
fn bombs_of_many_small_members_are_stopped() {
    // Each is small enough to pass the limit for single members.
    let gz = pack(&b" ".repeat(3 << 20), "gz");
    let names: Vec<String> = (0..8).map(|n| format!("{n}.txt.gz")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &gz[..])).collect();
    let files = Files::new(&[("a.zip", stored_zip(&members))]);
    let mut inputs = files.inputs();
    inputs.reading.max_ratio = 10;
    let error = match read(&inputs, 1 << 20, Default::default()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("read to its end"),
    };
    assert!(error.contains("times its size"), "{error}");
    // The same records are skipped from any position at which reading resumes.
    let skipping_inputs = skipping(inputs.clone());
    let (_, skipped, places) = read(&skipping_inputs, 10_000, Default::default()).unwrap();
    assert_eq!(skipped.0["too_packed"], 3);
    for (place, behind) in places.iter().take(5) {
        let (found, _, _) = read(&skipping_inputs, 10_000, *place).unwrap();
        assert!(!found.is_empty() && found == *behind);
    }
    inputs.reading.max_ratio = u64::MAX;
    assert_eq!(read(&inputs, 1 << 20, Default::default()).unwrap().1, Skipped::default());
}

#[test]
fn a_window_that_is_too_large_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"some text").unwrap();
    let files = Files::new(&[("a.txt.zst", encoder.finish().unwrap())]);
    let mut inputs = files.inputs();
    read(&inputs, 1 << 20, Default::default()).unwrap();
    inputs.reading.max_window = 1 << 20;
    let error = read(&inputs, 1 << 20, Default::default()).unwrap_err().to_string();
    assert!(error.contains("max_window"), "{error}");
}

#[test]
fn a_changed_file_is_detected() {
    for name in ["a.txt", "a.jsonl", "a.jsonl.gz"] {
        let data = lines(&vec!["some words, here".to_owned(); 30_000]);
        let data = if name.ends_with("gz") { pack(&data, "gz") } else { data };
        let files = Files::new(&[(name, data.clone())]);
        let (inputs, cutter) = (files.inputs(), cutter());
        let sources = inputs.sources().unwrap();
        let context = Context {
            cutter: &cutter,
            reading: &inputs.reading,
            block_size: 1000,
            open_pieces: false,
            job: &job(),
        };
        let mut blocks = InOrder::new(&inputs, &sources, context, Default::default());
        assert!(blocks.next_block().unwrap().is_some());
        std::fs::write(&files.paths[0], [&data[..], b"\n"].concat()).unwrap();
        let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
        let mut rest = || -> crate::Result<()> {
            while let Some(mut block) = blocks.next_block()? {
                block.read(&context, &mut buffers, &mut skipped, &mut |_| Ok(()))?;
            }
            Ok(())
        };
        let error = rest().unwrap_err().to_string();
        assert!(error.contains("changed since"), "{error}");
        let error = read_with(&inputs, &sources).unwrap_err().to_string();
        assert!(error.contains("changed since"), "{error}");
    }
}

fn read_with(inputs: &Inputs, sources: &[Source]) -> crate::Result<()> {
    let cutter = cutter();
    let context = Context {
        cutter: &cutter,
        reading: &inputs.reading,
        block_size: 1000,
        open_pieces: false,
        job: &job(),
    };
    InOrder::new(inputs, sources, context, Default::default()).next_block().map(|_| ())
}

#[test]
fn nulls_are_kept_skipped_or_errors() {
    let lines =
        b"{\"a\":{\"b\":\"x\"}}\n{\"a\":{\"b\":null}}\n{\"a\":null}\n{\"a\":{\"b\":\"\"}}\n";
    let files =
        Files::new(&[("a.jsonl", lines.to_vec()), ("b.csv", b"c,a.b\n1,x\n2\n3,y\n".to_vec())]);
    let with = |nulls: Nulls| {
        let mut inputs = files.inputs();
        inputs.reading = Reading { nulls, ..inputs.reading.with_field("a.b") };
        inputs
    };
    let (found, skipped, _) = read(&with(Nulls::Keep), 7, Default::default()).unwrap();
    assert_eq!(texts(&found), ["x", "", "", "", "x", "", "y"]);
    assert!(skipped.is_empty());
    let (found, skipped, _) = read(&with(Nulls::Skip), 7, Default::default()).unwrap();
    assert_eq!(texts(&found), ["x", "", "x", "y"]);
    assert_eq!(skipped.0["missing_field"], 3);
    let error = read(&with(Nulls::Error), 7, Default::default()).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("null=\"keep\""), "{error}");
    let (found, skipped, _) = read(&skipping(with(Nulls::Error)), 7, Default::default()).unwrap();
    assert_eq!((texts(&found).len(), skipped.0["missing_field"]), (4, 3));
    // A missing field is not null.
    let missing = Files::new(&[("a.jsonl", b"{\"b\":1}".to_vec()), ("b.csv", b"c\n1\n".to_vec())]);
    for place in 0..2 {
        let mut inputs = missing.inputs();
        inputs.list.remove(place);
        inputs.reading.nulls = Nulls::Keep;
        assert!(read(&inputs, 7, Default::default()).is_err());
    }
}

/// Regression: a file that is not text was read as text in ranges.
#[test]
fn a_file_that_is_not_text_is_skipped_once_in_any_ranges() {
    let files = Files::new(&[("a.txt", [&b"PK\x03\x04"[..], &[0; 300]].concat())]);
    let inputs = skipping(files.inputs());
    let (_, expected, _) = read(&inputs, 64, Default::default()).unwrap();
    assert_eq!(expected.0.values().sum::<u64>(), 1);
    let mut cut = inputs;
    let one = cut.list.pop().unwrap();
    for range in [(0, 100), (100, 200), (200, u64::MAX)] {
        cut.list.push(Input { range: Some(range), ..one.clone() });
    }
    let (found, skipped, _) = read(&cut, 64, Default::default()).unwrap();
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(skipped, expected);
}
