//! Comparison of decoded tokens with their sources.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::plan::{NPY_HEADER_SIZE, Order, Plan};
use super::writer::Split;
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::job::Job;
use crate::corpus::{BlockBuffers, BlockText, Context, InOrder, Inputs, Skipped};
use crate::tokenizer::encode::Tokenizer;

/// Ids that are decoded at a time.
const IDS_PER_READ: u64 = 64 << 10;

/// Decodes all documents in the order of the corpus and returns the first difference from the sources.
/// Takes 24 bytes of memory for each shuffled document.
pub fn compare(
    directory: &Path,
    plan: &Plan,
    splits: &[Split],
    tokenizer: &Tokenizer,
    inputs: &Inputs,
    text_bytes: Option<u64>,
    job: &Job,
) -> Result<Option<String>> {
    let order = plan.order();
    let mut splits: Vec<SplitReader<'_>> =
        splits.iter().map(|split| SplitReader::new(directory, plan, split)).collect();
    let n_documents = splits.iter().map(|split| split.documents).sum();
    let places = plan.shuffle.then(|| places(&order, n_documents, splits.len()));
    let sources = inputs.sources()?;
    let context = Context {
        cutter: tokenizer.cutter(),
        reading: &inputs.reading,
        block_size: IDS_PER_READ as usize * 4,
        open_pieces: true,
        job,
    };
    let blocks = InOrder::new(inputs, &sources, context, (0, Default::default()));
    let mut texts = SourceTexts { blocks, inputs, buffer: Vec::new(), start: 0, source: 0, at: 0 };
    let (mut taken, mut text, mut decoded) = (vec![0u64; splits.len()], Vec::new(), 0);
    for number in 0..n_documents {
        let split = order.split(number);
        let place = places.as_ref().map_or(taken[split], |places| places[number as usize]);
        taken[split] += 1;
        let reader = &mut splits[split];
        if place >= reader.documents {
            return Ok(Some(
                "the split of the documents does not match val_fraction and seed".into(),
            ));
        }
        let (mut start, mut end) = (reader.end_of(place)?, reader.end_of(place + 1)?);
        if reader.split.appended.binary_search(&place).is_ok() {
            end = end.saturating_sub(1).max(start);
        }
        while start < end {
            job.check()?;
            let ids = reader.ids(start, (end - start).min(IDS_PER_READ))?;
            start += ids.len() as u64;
            text.clear();
            tokenizer.vocab().decode(&ids, &mut text)?;
            decoded += text.len() as u64;
            job.advance(text.len() as u64);
            if let Some(difference) = texts.expect(&text)? {
                return Ok(Some(format!("document {number}: {difference}")));
            }
        }
    }
    let missing = texts.expect_end()?;
    Ok(missing.or_else(|| {
        let stated = text_bytes.filter(|&stated| stated != decoded)?;
        Some(format!("manifest.json states {stated} bytes of text, the ids decode to {decoded}"))
    }))
}

/// By the number of a document, its position in its shuffled split.
fn places(order: &Order, n_documents: u64, n_splits: usize) -> Vec<u64> {
    let mut places = vec![0; n_documents as usize];
    for split in 0..n_splits {
        let mut keys: Vec<(u64, u64)> = (0..n_documents)
            .filter(|&number| order.split(number) == split)
            .map(|number| (order.key(number), number))
            .collect();
        keys.sort_unstable();
        for (place, (_, number)) in keys.into_iter().enumerate() {
            places[number as usize] = place as u64;
        }
    }
    places
}

/// The documents of a split by position.
struct SplitReader<'a> {
    directory: &'a Path,
    plan: &'a Plan,
    split: &'a Split,
    /// Ids before each shard, and documents that end before it.
    before: Vec<(u64, u64)>,
    documents: u64,
    /// The file that was read last.
    open: Option<(String, File)>,
}

impl<'a> SplitReader<'a> {
    fn new(directory: &'a Path, plan: &'a Plan, split: &'a Split) -> Self {
        let mut sum = (0, 0);
        let mut before = Vec::with_capacity(split.shards.len());
        for shard in &split.shards {
            before.push(sum);
            sum = (sum.0 + shard.tokens, sum.1 + shard.documents);
        }
        SplitReader { directory, plan, split, before, documents: sum.1, open: None }
    }

    /// The number of ids in the first `n` documents.
    fn end_of(&mut self, n: u64) -> Result<u64> {
        let Some(number) = n.checked_sub(1) else { return Ok(0) };
        let shard = self.before.partition_point(|before| before.1 <= number) - 1;
        let (tokens, documents) = self.before[shard];
        let mut value = [0; 8];
        let name = &self.split.shards[shard].docs.file;
        self.read(name, NPY_HEADER_SIZE as u64 + (number - documents) * 8, &mut value)?;
        Ok(tokens + u64::from_le_bytes(value))
    }

    /// Up to `n` ids from `start` on, as far as their shard goes.
    fn ids(&mut self, start: u64, n: u64) -> Result<Vec<u32>> {
        let shard = self.before.partition_point(|before| before.0 <= start) - 1;
        let first = start - self.before[shard].0;
        let entry = &self.split.shards[shard];
        let width = self.plan.dtype.width();
        let mut bytes = vec![0; n.min(entry.tokens - first) as usize * width];
        self.read(&entry.file, self.plan.header_size() as u64 + first * width as u64, &mut bytes)?;
        Ok(bytes.chunks_exact(width).map(|id| files::little_endian(id) as u32).collect())
    }

    fn read(&mut self, name: &str, at: u64, into: &mut [u8]) -> Result<()> {
        let path = self.directory.join(name);
        let failed = |e| Error::io(&path, e);
        let (_, file) = match self.open.take_if(|(open, _)| open == name) {
            Some(open) => self.open.insert(open),
            None => self.open.insert((name.to_owned(), files::open(&path, Error::tokens)?)),
        };
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(into)).map_err(failed)
    }
}

/// The texts of the sources, end to end.
struct SourceTexts<'a> {
    blocks: InOrder<'a>,
    inputs: &'a Inputs,
    /// Text that was read; from `start` on it is not compared yet.
    buffer: Vec<u8>,
    start: usize,
    /// The source of the buffer, and the number of its bytes that were compared.
    source: usize,
    at: u64,
}

impl SourceTexts<'_> {
    /// Up to `n` bytes; empty after the last source.
    fn read(&mut self, n: usize) -> Result<&[u8]> {
        let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
        while self.start == self.buffer.len() {
            let Some(mut block) = self.blocks.next_block()? else { return Ok(&[]) };
            if block.number != self.source {
                (self.source, self.at) = (block.number, 0);
            }
            self.buffer.clear();
            self.start = 0;
            let (context, buffer) = (self.blocks.context(), &mut self.buffer);
            block.read(&context, &mut buffers, &mut skipped, &mut |text| {
                match text {
                    BlockText::Running { text, .. } => buffer.extend_from_slice(text),
                    BlockText::Documents(documents) => {
                        documents.iter().for_each(|text| buffer.extend_from_slice(text));
                    }
                }
                Ok(())
            })?;
        }
        let end = (self.start + n).min(self.buffer.len());
        Ok(&self.buffer[self.start..end])
    }

    fn pass(&mut self, n: usize) {
        self.start += n;
        self.at += n as u64;
    }

    /// Compares the next bytes with `text`; returns the difference.
    fn expect(&mut self, mut text: &[u8]) -> Result<Option<String>> {
        while !text.is_empty() {
            let there = self.read(text.len())?;
            if there.is_empty() {
                return Ok(Some("has more text than the sources".into()));
            }
            let n = there.len();
            let same = there.iter().zip(text).take_while(|(a, b)| a == b).count();
            self.pass(same);
            if same < n {
                let (name, at) = (self.name(), self.at);
                return Ok(Some(format!("decodes to other bytes than {name} has at byte {at}")));
            }
            text = &text[n..];
        }
        Ok(None)
    }

    fn name(&self) -> &str {
        self.inputs.list.get(self.source).map_or("", |input| &input.name)
    }

    fn expect_end(&mut self) -> Result<Option<String>> {
        if self.read(1)?.is_empty() {
            return Ok(None);
        }
        let (name, at) = (self.name(), self.at);
        Ok(Some(format!("{name}: the text from byte {at} on is missing in the tokens")))
    }
}
