//! A range of a corpus → the shards of its splits, continued from call to call, or one part.
//!
//! Blocks of text are encoded on several threads, into ids of their final width, and written in the
//! order of the text.

use super::plan::{Dtype, Plan};
use super::writer::{OpenShard, Split, SplitWriter};
use crate::base::error::Result;
use crate::base::job::{Job, OnThread, Phase};
use crate::base::threads::ordered;
use crate::corpus::{
    Block, BlockBuffers, BlockEnd, BlockText, Context, InOrder, Input, Inputs, Skipped, Source,
    SourcePosition,
};
use crate::tokenizer::encode::{OpenPiece, Recognise, Tokenizer};
use serde::Serialize;
use std::path::Path;

/// A range of a corpus: some sources, or ranges of them.
#[derive(Debug)]
pub struct CorpusRange<'a> {
    pub inputs: &'a Inputs,
    /// The expected state of the inputs.
    pub sources: &'a [Source],
    pub threads: usize,
    /// Bytes of text that are encoded at a time; None for the default.
    pub block_size: Option<usize>,
}

/// The result of a range.
#[derive(Debug, Serialize)]
pub struct Written {
    /// By split, the shards that were closed.
    pub splits: Vec<Split>,
    /// By split, the open shard; empty after the last range.
    pub open: Vec<OpenShard>,
    pub text_bytes: u64,
    pub skipped: Skipped,
}

/// Encodes a range into files in `directory`, continuing the shards in `open` (empty for the first
/// range). The last range closes its shards. No file is synced.
pub fn encode_range(
    tokenizer: &Tokenizer,
    range: &CorpusRange<'_>,
    plan: &Plan,
    directory: &Path,
    mut open: Vec<OpenShard>,
    is_last: bool,
    job: &Job,
) -> Result<Written> {
    open.resize(plan.stems.len(), OpenShard::default());
    let mut writers = Vec::with_capacity(open.len());
    for (split, open) in open.into_iter().enumerate() {
        writers.push(SplitWriter::new(plan, split, directory, open)?);
    }
    let (mut text_bytes, mut skipped) = (0, Skipped::default());
    let mut document = writers.iter().map(SplitWriter::documents).sum();
    let order = plan.order();
    let encoder = BlockEncoder {
        tokenizer,
        dtype: plan.dtype,
        end_of_text: plan.end_of_text,
        append: plan.append_eot,
    };
    range.for_each(encoder, job, |block| {
        let mut start = 0;
        for end in &block.ends {
            let writer = &mut writers[order.split(document)];
            writer.append(&block.ids[start..end.at])?;
            writer.end_document(end.appended)?;
            document += 1;
            start = end.at;
        }
        writers[order.split(document)].append(&block.ids[start..])?;
        text_bytes += block.text;
        for (kind, n) in &block.skipped.0 {
            skipped.add(kind, *n);
        }
        job.read(block.weight, block.text);
        Ok(())
    })?;
    let (mut splits, mut open) = (Vec::new(), Vec::new());
    for writer in writers {
        if is_last {
            splits.push(writer.finish(job)?);
        } else {
            let (made, still_open) = writer.pause()?;
            splits.push(made);
            open.push(still_open);
        }
    }
    Ok(Written { splits, open, text_bytes, skipped })
}

impl CorpusRange<'_> {
    fn for_each(
        &self,
        encoder: BlockEncoder<'_>,
        job: &Job,
        each: impl FnMut(&EncodedBlock) -> Result<()>,
    ) -> Result<()> {
        let CorpusRange { inputs, sources, threads, block_size } = *self;
        let block_size = block_size.unwrap_or(ENCODE_BLOCK_SIZE).max(1);
        let total = sources.iter().map(Source::weight).sum::<u64>();
        job.set_total(total);
        // More threads than blocks would only cost their start.
        let known =
            sources.iter().all(Source::is_divisible) && inputs.list.iter().all(Input::is_measured);
        let n_blocks = (total / block_size as u64 + sources.len() as u64).max(1) as usize;
        let context = Context {
            cutter: encoder.tokenizer.cutter(),
            reading: &inputs.reading,
            block_size,
            open_pieces: true,
            job,
        };
        let blocks = InOrder::new(inputs, sources, context, (0, SourcePosition::default()));
        let threads = if known { threads.min(n_blocks) } else { threads };
        encoder.tokenizer.expect_text(total as usize, threads);
        for_each_block(blocks, encoder, threads, job, each)?;
        job.read_all();
        Ok(())
    }
}

/// Bytes of text of a block: its ids, four bytes each, stay in a core's own cache until they are
/// narrowed.
const ENCODE_BLOCK_SIZE: usize = 256 << 10;

/// A block after encoding.
#[derive(Debug, Default)]
struct EncodedBlock {
    /// The ids in their final width.
    pub ids: Vec<u8>,
    /// Where documents end: after every end-of-text, and at the end of every text or record.
    pub ends: Vec<DocumentEnd>,
    /// Bytes of the source that were read.
    pub weight: u64,
    /// Bytes of text that were encoded.
    pub text: u64,
    pub skipped: Skipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DocumentEnd {
    /// The byte after its last id.
    pub at: usize,
    /// Whether that id is an end-of-text that is not in the source.
    pub appended: bool,
}

/// The options of encoding.
#[derive(Debug, Clone, Copy)]
struct BlockEncoder<'a> {
    pub tokenizer: &'a Tokenizer,
    /// A type that all ids of the tokenizer fit into.
    pub dtype: Dtype,
    /// The id that ends documents.
    pub end_of_text: Option<u32>,
    /// Whether documents that do not end in it get one.
    pub append: bool,
}

/// Encodes blocks with `threads` workers and passes them to `each` in order.
fn for_each_block(
    mut blocks: InOrder<'_>,
    encoder: BlockEncoder<'_>,
    threads: usize,
    job: &Job,
    each: impl FnMut(&EncodedBlock) -> Result<()>,
) -> Result<()> {
    let context = blocks.context();
    let next = || {
        job.check()?;
        // The worker that has the beginning of an open piece gets the next block too.
        Ok(blocks.next_block()?.map(|block| {
            let is_open = block.is_open();
            (block, is_open)
        }))
    };
    let new_worker = || EncodeWorker {
        _job: job.on_this_thread(),
        encoder,
        buffers: BlockBuffers::default(),
        piece: OpenPiece::new(encoder.tokenizer),
        ids: Vec::new(),
        ends: Vec::new(),
    };
    let work = |worker: &mut EncodeWorker<'_>, block, encoded: &mut EncodedBlock| {
        job.check()?;
        worker.encode(block, &context, encoded)
    };
    ordered(threads, next, new_worker, work, each)
}

/// The state that a worker reuses between blocks.
struct EncodeWorker<'a> {
    _job: OnThread,
    encoder: BlockEncoder<'a>,
    buffers: BlockBuffers,
    /// The piece that the last block ended in.
    piece: OpenPiece,
    ids: Vec<u32>,
    /// As in [`EncodedBlock`], but in ids.
    ends: Vec<DocumentEnd>,
}

impl EncodeWorker<'_> {
    fn encode(
        &mut self,
        mut block: Block<'_>,
        context: &Context<'_>,
        encoded: &mut EncodedBlock,
    ) -> Result<()> {
        let EncodeWorker { encoder, buffers, piece, ids, ends, .. } = self;
        ids.clear();
        ends.clear();
        encoded.skipped = Skipped::default();
        let mut n_bytes = 0;
        block.read(context, buffers, &mut encoded.skipped, &mut |text| match text {
            BlockText::Running { text, end } => {
                n_bytes += text.len() as u64;
                let before = ids.len();
                let goes_on = end == BlockEnd::InsidePiece;
                encoder.tokenizer.encode_stretch(text, &Recognise::All, goes_on, piece, ids)?;
                encoder.find_ends(ids, before, end == BlockEnd::EndOfText, ends);
                Ok(())
            }
            BlockText::Documents(documents) => {
                n_bytes += documents.iter().map(|text| text.len() as u64).sum::<u64>();
                // A separate job, so that progress is reported by block.
                let silent = Job::new(Phase::Encode, 0);
                let (all, offsets) =
                    encoder.tokenizer.encode_batch(&documents, &Recognise::All, 1, &silent)?;
                for bounds in offsets.windows(2) {
                    let before = ids.len();
                    ids.extend_from_slice(&all[bounds[0] as usize..bounds[1] as usize]);
                    encoder.find_ends(ids, before, true, ends);
                }
                Ok(())
            }
        })?;
        let width = encoder.dtype.width();
        encoded.ends.clear();
        encoded.ends.extend(ends.iter().map(|end| DocumentEnd { at: end.at * width, ..*end }));
        narrow(ids, width, &mut encoded.ids);
        (encoded.weight, encoded.text) = (block.weight, n_bytes);
        Ok(())
    }
}

impl BlockEncoder<'_> {
    /// Finds the ends of documents in the ids from `before` on. At the `last` ids of a text or record
    /// a document ends, unless one has just ended.
    fn find_ends(
        &self,
        ids: &mut Vec<u32>,
        before: usize,
        last: bool,
        ends: &mut Vec<DocumentEnd>,
    ) {
        if let Some(end_of_text) = self.end_of_text {
            // Most chunks contain none, which is checked with vector instructions.
            for (number, some) in ids[before..].chunks(64).enumerate() {
                if some.contains(&end_of_text) {
                    let found = some.iter().enumerate().filter(|&(_, &id)| id == end_of_text);
                    let position = |i: usize| before + number * 64 + i + 1;
                    ends.extend(
                        found.map(|(i, _)| DocumentEnd { at: position(i), appended: false }),
                    );
                }
            }
        }
        // An empty text is a document too, so that documents keep their numbers.
        let open = ids.len() == before || ends.last().is_none_or(|end| end.at < ids.len());
        if last && open {
            let appended = self.end_of_text.filter(|_| self.append);
            ids.extend(appended);
            ends.push(DocumentEnd { at: ids.len(), appended: appended.is_some() });
        }
    }
}

fn narrow(ids: &[u32], width: usize, out: &mut Vec<u8>) {
    out.resize(ids.len() * width, 0);
    if width == 2 {
        for (bytes, &id) in out.chunks_exact_mut(2).zip(ids) {
            bytes.copy_from_slice(&(id as u16).to_le_bytes());
        }
    } else {
        for (bytes, &id) in out.chunks_exact_mut(4).zip(ids) {
            bytes.copy_from_slice(&id.to_le_bytes());
        }
    }
}
