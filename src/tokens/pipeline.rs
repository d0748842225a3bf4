//! Blocks of text → ids, on several threads, in the order of the text.
//!
//! Each block becomes bytes in their final width, ready to be written.

use super::plan::Dtype;
use crate::base::error::Result;
use crate::base::job::{Job, OnThread, Phase};
use crate::base::threads::ordered;
use crate::corpus::{Block, BlockBuffers, BlockEnd, BlockText, Context, InOrder, Skipped};
use crate::tokenizer::encode::{OpenPiece, Recognise, Tokenizer};

/// Bytes of text of a block: its ids, four bytes each, stay in a processor's own cache until they are
/// narrowed.
pub const BLOCK_SIZE: usize = 256 << 10;

/// The ids of a block.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The ids, as they are written.
    pub ids: Vec<u8>,
    /// Where in `ids` documents end: after every end-of-text, and with every text or record.
    pub ends: Vec<End>,
    /// Bytes of the source that were read.
    pub weight: u64,
    /// Bytes of text that the ids are of.
    pub text: u64,
    /// Records that were skipped.
    pub skipped: Skipped,
}

/// Where a document ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The byte after its last id.
    pub at: usize,
    /// Whether that id is an end-of-text that is not in the source.
    pub appended: bool,
}

/// What the ids are to be.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// What encodes.
    pub tokenizer: &'a Tokenizer,
    /// The type of an id; all of the tokenizer's fit.
    pub dtype: Dtype,
    /// The id that ends documents.
    pub end_of_text: Option<u32>,
    /// Whether documents that do not end in it get one.
    pub append: bool,
}

/// Encodes blocks with `threads` workers and hands them to `each` in order.
pub fn for_each_block(
    mut blocks: InOrder<'_>,
    target: Target<'_>,
    threads: usize,
    job: &Job,
    each: impl FnMut(&Encoded) -> Result<()>,
) -> Result<()> {
    let context = blocks.context();
    let next = || {
        job.check()?;
        // The rest of an open piece is for the worker that has its beginning.
        Ok(blocks.next_block()?.map(|block| {
            let is_open = block.is_open();
            (block, is_open)
        }))
    };
    let new_worker = || Worker {
        _job: job.on_this_thread(),
        target,
        buffers: BlockBuffers::default(),
        piece: OpenPiece::new(target.tokenizer),
        ids: Vec::new(),
        ends: Vec::new(),
    };
    let work = |worker: &mut Worker<'_>, block, encoded: &mut Encoded| {
        job.check()?;
        worker.encode(block, &context, encoded)
    };
    ordered(threads, next, new_worker, work, each)
}

/// What a worker reuses from block to block.
struct Worker<'a> {
    _job: OnThread,
    target: Target<'a>,
    buffers: BlockBuffers,
    /// The piece that the last block ended inside of.
    piece: OpenPiece,
    ids: Vec<u32>,
    /// As in [`Encoded`], in ids.
    ends: Vec<End>,
}

impl Worker<'_> {
    fn encode(
        &mut self,
        mut block: Block<'_>,
        context: &Context<'_>,
        encoded: &mut Encoded,
    ) -> Result<()> {
        let Worker { target, buffers, piece, ids, ends, .. } = self;
        ids.clear();
        ends.clear();
        encoded.skipped = Skipped::default();
        let mut n_bytes = 0;
        block.read(context, buffers, &mut encoded.skipped, &mut |text| match text {
            BlockText::Running { text, end } => {
                n_bytes += text.len() as u64;
                let before = ids.len();
                let goes_on = end == BlockEnd::InsidePiece;
                target.tokenizer.encode_stretch(text, &Recognise::All, goes_on, piece, ids)?;
                target.find_ends(ids, before, end == BlockEnd::EndOfText, ends);
                Ok(())
            }
            BlockText::Documents(documents) => {
                n_bytes += documents.iter().map(|text| text.len() as u64).sum::<u64>();
                // A job of its own, which is never stopped: a block is soon done.
                let unseen = Job::new(Phase::Encode, 0);
                let (all, offsets) =
                    target.tokenizer.encode_batch(&documents, &Recognise::All, 1, &unseen)?;
                for bounds in offsets.windows(2) {
                    let before = ids.len();
                    ids.extend_from_slice(&all[bounds[0] as usize..bounds[1] as usize]);
                    target.find_ends(ids, before, true, ends);
                }
                Ok(())
            }
        })?;
        let width = target.dtype.width();
        encoded.ends.clear();
        encoded.ends.extend(ends.iter().map(|end| End { at: end.at * width, ..*end }));
        narrow(ids, width, &mut encoded.ids);
        (encoded.weight, encoded.text) = (block.weight, n_bytes);
        Ok(())
    }
}

impl Target<'_> {
    /// Notes where documents end in the ids from `before` on. If they are the `last` of a text or
    /// record, a document ends with them, unless one has just ended.
    fn find_ends(&self, ids: &mut Vec<u32>, before: usize, last: bool, ends: &mut Vec<End>) {
        if let Some(end_of_text) = self.end_of_text {
            // Most stretches of ids have none, which is seen many ids at a time.
            for (number, some) in ids[before..].chunks(64).enumerate() {
                if some.contains(&end_of_text) {
                    let found = some.iter().enumerate().filter(|&(_, &id)| id == end_of_text);
                    let place = |i: usize| before + number * 64 + i + 1;
                    ends.extend(found.map(|(i, _)| End { at: place(i), appended: false }));
                }
            }
        }
        // An empty text is a document too: otherwise the numbers of later documents would change.
        let open = ids.len() == before || ends.last().is_none_or(|end| end.at < ids.len());
        if last && open {
            let appended = self.end_of_text.filter(|_| self.append);
            ids.extend(appended);
            ends.push(End { at: ids.len(), appended: appended.is_some() });
        }
    }
}

/// Ids as bytes of their final width.
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
