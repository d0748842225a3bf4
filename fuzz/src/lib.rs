//! Shared by the fuzz targets: a corpus in memory, read in every way that must give the same
//! documents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytemill::internals::Cutter;
use bytemill::internals::corpus::{
    BlockBuffers, BlockEnd, BlockText, Context, FileKind, InOrder, Input, Inputs, Location,
    OnError, Pipe, Reading, Source, SourcePosition, Storage,
};
use bytemill::internals::{Job, Phase};
use bytemill::{Error, Result};

/// A file in memory.
#[derive(Debug)]
pub struct Memory(pub Vec<u8>);

impl Storage for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).expect("an offset in memory");
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
        Ok(())
    }

    fn check(&self, _: &Source) -> Result<()> {
        Ok(())
    }

    fn stride(&self) -> usize {
        4096
    }
}

/// A pipe that gives the same bytes a few at a time; the first are last in the list.
#[derive(Debug)]
struct Chunks(Mutex<Vec<Vec<u8>>>);

impl Pipe for Chunks {
    fn begin(&self) -> Result<()> {
        Ok(())
    }

    fn next(&self, _: Duration) -> Result<Option<Vec<u8>>> {
        Ok(Some(self.0.lock().expect("one thread").pop().unwrap_or_default()))
    }
}

/// What a corpus holds: stretches of one text are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Text(Vec<u8>),
    EndOfText,
    Document(Vec<u8>),
}

/// Parts in order, and how many records were skipped, by reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    pub parts: Vec<Part>,
    pub skipped: BTreeMap<String, u64>,
}

impl Found {
    pub fn documents(&self) -> Vec<&[u8]> {
        let document = |part| match part {
            &Part::Document(ref text) => Some(&text[..]),
            _ => None,
        };
        self.parts.iter().filter_map(document).collect()
    }

    pub fn n_bytes(&self) -> usize {
        let size = |part: &Part| match part {
            Part::Text(text) | Part::Document(text) => text.len(),
            Part::EndOfText => 0,
        };
        self.parts.iter().map(size).sum()
    }

    fn push(&mut self, part: Part) {
        match (self.parts.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(more)) => before.extend(more),
            (_, part) => self.parts.push(part),
        }
    }

    /// Appends what was found after this.
    pub fn extend(&mut self, other: &Found) {
        other.parts.iter().for_each(|part| self.push(part.clone()));
        for (reason, n) in &other.skipped {
            *self.skipped.entry(reason.clone()).or_default() += n;
        }
    }
}

pub fn job() -> Job {
    Job::new(Phase::Count, 0)
}

static CUTTER: LazyLock<Cutter> =
    LazyLock::new(|| Cutter::new(&["gpt2"], &["<|end|>"]).expect("a cutter"));

fn source(data: &[u8]) -> Source {
    Source {
        path: "corpus".into(),
        size: data.len() as u64,
        mtime_ns: 0,
        version: String::new(),
        format: String::new(),
        range: None,
    }
}

fn inputs(location: Location, kind: FileKind, reading: &Reading) -> Inputs {
    let input = Input { name: "corpus".into(), location, kind, range: None };
    Inputs { list: vec![input], reading: reading.clone() }
}

fn stored(data: &[u8], kind: FileKind, reading: &Reading) -> Inputs {
    let location = Location::Storage(Arc::new(Memory(data.to_vec())), source(data));
    inputs(location, kind, reading)
}

fn piped(data: &[u8], kind: FileKind, reading: &Reading) -> Inputs {
    // Few chunks, so that large data is not slow; of lengths that divide no buffer.
    let size = (data.len() / 50).max(7);
    let chunks = data.chunks(size).rev().map(<[u8]>::to_vec).collect();
    let location = Location::Pipe(Arc::new(Chunks(Mutex::new(chunks))), source(b""));
    inputs(location, kind, reading)
}

/// The blocks from a position on: where each ends, and what it holds.
fn blocks(
    inputs: &Inputs,
    block_size: usize,
    from: SourcePosition,
) -> Result<Vec<(SourcePosition, Found)>> {
    let job = job();
    let sources = inputs.sources()?;
    let context = Context {
        cutter: &CUTTER,
        reading: &inputs.reading,
        block_size,
        open_pieces: false,
        job: &job,
    };
    let mut in_order = InOrder::new(inputs, &sources, context, (0, from));
    let mut buffers = BlockBuffers::default();
    let mut blocks = Vec::new();
    while let Some(mut block) = in_order.next_block()? {
        let mut skipped = Default::default();
        let mut found = Found::default();
        block.read(&context, &mut buffers, &mut skipped, &mut |text| {
            match text {
                BlockText::Running { text, end } => {
                    found.push(Part::Text(text.to_vec()));
                    if end == BlockEnd::EndOfText {
                        found.push(Part::EndOfText);
                    }
                }
                BlockText::Documents(documents) => {
                    documents.iter().for_each(|text| found.push(Part::Document(text.to_vec())));
                }
            }
            Ok(())
        })?;
        found.skipped = skipped.0;
        blocks.push((block.after, found));
    }
    Ok(blocks)
}

fn joined<'f>(founds: impl IntoIterator<Item = &'f Found>) -> Found {
    let mut all = Found::default();
    founds.into_iter().for_each(|found| all.extend(found));
    all
}

/// Reads data as a corpus in blocks of about `block_size` bytes.
pub fn read(data: &[u8], kind: FileKind, reading: &Reading, block_size: usize) -> Result<Found> {
    let blocks = blocks(&stored(data, kind, reading), block_size, SourcePosition::default())?;
    Ok(joined(blocks.iter().map(|(_, found)| found)))
}

/// Reads data, skipping unreadable records, in every way that must agree: in one block and in
/// many, through a pipe, from the end of any block on, and with an error in place of skipping.
/// None if the corpus is refused as a whole.
pub fn read_in_every_way(
    data: &[u8],
    kind: FileKind,
    reading: &Reading,
    block_size: usize,
) -> Option<Found> {
    let skip = Reading { on_error: OnError::Skip, ..reading.clone() };
    let stop = Reading { on_error: OnError::Stop, ..reading.clone() };
    let whole = read(data, kind, &skip, 1 << 30);
    let stopped = read(data, kind, &stop, block_size);
    let found = match whole {
        Ok(found) => found,
        Err(error) => {
            known(&error);
            known(&stopped.expect_err("an error that cannot be skipped"));
            return None;
        }
    };
    match stopped {
        Ok(all) => assert_eq!(all, found),
        Err(error) => {
            known(&error);
            assert!(!found.skipped.is_empty(), "skipped silently: {error}");
        }
    }
    let inputs = stored(data, kind, &skip);
    let in_blocks =
        blocks(&inputs, block_size, SourcePosition::default()).expect("as in one block");
    assert_eq!(joined(in_blocks.iter().map(|(_, found)| found)), found, "in blocks");
    for i in [0, in_blocks.len() / 2] {
        let Some((after, _)) = in_blocks.get(i) else { continue };
        let is_last = i + 1 == in_blocks.len();
        if is_last || *after == SourcePosition::default() {
            continue;
        }
        let rest = blocks(&inputs, block_size + 3, *after).expect("the rest as before");
        let expected = joined(in_blocks[i + 1..].iter().map(|(_, found)| found));
        assert_eq!(joined(rest.iter().map(|(_, found)| found)).parts, expected.parts, "{after:?}");
    }
    if kind.format != bytemill::internals::corpus::FileFormat::Zip {
        let by_pipe = blocks(&piped(data, kind, &skip), block_size, SourcePosition::default());
        let by_pipe = by_pipe.expect("as from storage");
        assert_eq!(joined(by_pipe.iter().map(|(_, found)| found)), found, "through a pipe");
    }
    Some(found)
}

/// Invalid input must be a corpus error with a hint.
pub fn known(error: &Error) {
    assert!(matches!(error, Error::Corpus(_)), "{error:?}");
    assert!(error.to_string().contains("hint: "), "{error}");
}

/// Writes bytes over others, at positions modulo the length.
pub fn patch(data: &mut [u8], patches: &[(u16, u8)]) {
    for &(at, byte) in patches.iter().take(8) {
        if let Some(target) = (usize::from(at)).checked_rem(data.len()) {
            data[target] = byte;
        }
    }
}

/// A directory of this process that is removed when it ends normally.
pub fn scratch_directory(target: &str) -> PathBuf {
    let name = format!("bytemill-fuzz-{target}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).expect("a buffers directory");
    path
}

/// Replaces bytes: each edit has a position, the number of bytes to remove, and their replacement.
pub fn edit(data: &[u8], edits: &[(u16, u8, Vec<u8>)]) -> Vec<u8> {
    let mut data = data.to_vec();
    for (at, n, new) in edits.iter().take(4) {
        let start = usize::from(*at) % (data.len() + 1);
        let end = (start + usize::from(*n)).min(data.len());
        data.splice(start..end, new.iter().copied());
    }
    data
}
