//! Blocks of text → ids, on several threads, in the order of the text.
//!
//! Workers take chunks in turn, encode each into a buffer of bytes in their final width and put it
//! into its slot; the caller's thread takes the slots in order. There are a few more slots than
//! workers: whoever is ahead waits, so memory does not depend on the length of the text.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::manifest::Dtype;
use crate::base::error::Result;
use crate::base::job::{Job, Phase};
use crate::base::memory::{caught, error_of, spawn};
use crate::corpus::{Block, Context, InOrder, Position, Scratch, Skipped, StretchEnd, Text};
use crate::tokenizer::encode::{OpenPiece, Recognise, Tokenizer};

/// Text of a chunk: its ids, four bytes each, stay in a processor's own cache until they are
/// narrowed.
pub const CHUNK_SIZE: usize = 256 << 10;

/// The ids of a block.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The ids, as they are written.
    pub ids: Vec<u8>,
    /// Where in `ids` documents end: behind every end-of-text, and with every text or record.
    pub ends: Vec<End>,
    /// The source in which the next block begins, and where.
    pub next: (usize, Position),
    /// Whether that is inside a piece, of which the last ids are yet to come.
    pub is_open: bool,
    /// Bytes of the source that were read.
    pub weight: u64,
    /// Bytes of text that the ids are of.
    pub text: u64,
    /// Records that were left out.
    pub skipped: Skipped,
}

/// Where a document ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The byte behind its last id.
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

/// Encodes chunks with `threads` workers and hands them to `each` in order.
pub fn for_each_chunk(
    chunks: InOrder<'_>,
    target: Target<'_>,
    threads: usize,
    job: &Job,
    mut each: impl FnMut(&Encoded) -> Result<()>,
) -> Result<()> {
    let n_slots = 2 * threads + 2;
    let reader = Mutex::new(Reader { chunks, next: 0, ended: false });
    let queue = Queue {
        state: Mutex::new(State {
            slots: (0..n_slots).map(|_| None).collect(),
            spare: Vec::new(),
            taken: 0,
            over: false,
            workers: threads,
        }),
        filled: Condvar::new(),
        freed: Condvar::new(),
    };
    thread::scope(|scope| {
        let over = Over(&queue);
        let mut workers = Vec::new();
        for _ in 0..threads {
            match spawn(scope, || work(&reader, &queue, target, job)) {
                Ok(worker) => workers.push(worker),
                // Where there is no room for another thread, those there are do all.
                Err(_) if !workers.is_empty() => drop(Left(&queue)),
                Err(error) => return Err(error),
            }
        }
        let result = loop {
            match queue.take() {
                Ok(Some(encoded)) => {
                    if let Err(error) = each(&encoded) {
                        break Err(error);
                    }
                    queue.give_back(encoded);
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(over);
        // All of them are waited for, whoever fails.
        let failed = workers.into_iter().filter_map(|worker| worker.join().err()).last();
        result.and(failed.map_or(Ok(()), |cause| Err(error_of(cause.as_ref()))))
    })
}

struct Reader<'a> {
    chunks: InOrder<'a>,
    next: u64,
    ended: bool,
}

struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    freed: Condvar,
}

struct State {
    /// Chunk `n` is in slot `n % slots.len()`.
    slots: Vec<Option<Result<Encoded>>>,
    /// Buffers to be used again.
    spare: Vec<Encoded>,
    /// How many chunks were taken.
    taken: u64,
    /// Nobody wants any more.
    over: bool,
    workers: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until chunk `number` has a slot and gives a buffer for it, or None if all is over.
    fn buffer_for(&self, number: u64) -> Option<Encoded> {
        let mut state = self.lock();
        while !state.over && number >= state.taken + state.slots.len() as u64 {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.over { None } else { Some(state.spare.pop().unwrap_or_default()) }
    }

    fn put(&self, number: u64, encoded: Result<Encoded>) {
        let mut state = self.lock();
        let n_slots = state.slots.len() as u64;
        state.slots[(number % n_slots) as usize] = Some(encoded);
        self.filled.notify_one();
    }

    /// The next chunk, or None when no worker is left to bring it.
    fn take(&self) -> Result<Option<Encoded>> {
        let mut state = self.lock();
        loop {
            let slot = (state.taken % state.slots.len() as u64) as usize;
            if let Some(encoded) = state.slots[slot].take() {
                return encoded.map(Some);
            }
            if state.workers == 0 {
                return Ok(None);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, encoded: Encoded) {
        let mut state = self.lock();
        state.taken += 1;
        state.spare.push(encoded);
        self.freed.notify_one();
    }
}

/// Tells the workers that all is over, however the taking of chunks ended.
struct Over<'a>(&'a Queue);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.freed.notify_all();
    }
}

/// Tells whoever waits for chunks that a worker has left, however that came.
struct Left<'a>(&'a Queue);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.0.filled.notify_all();
    }
}

fn work(reader: &Mutex<Reader<'_>>, queue: &Queue, target: Target<'_>, job: &Job) {
    let _left = Left(queue);
    let _job = job.on_this_thread();
    let mut worker = Worker {
        target,
        scratch: Scratch::default(),
        piece: OpenPiece::new(target.tokenizer),
        ids: Vec::new(),
        ends: Vec::new(),
    };
    let lock = || reader.lock().unwrap_or_else(PoisonError::into_inner);
    let mut held = None;
    loop {
        let mut reader = held.take().unwrap_or_else(lock);
        if reader.ended {
            return;
        }
        let number = reader.next;
        // The lock is held while waiting; no other worker could make progress anyway.
        let Some(mut encoded) = queue.buffer_for(number) else { return };
        let next = || job.check().and_then(|()| reader.chunks.next_block());
        let (block, context) = match caught(next) {
            Ok(Some(block)) => {
                reader.next += 1;
                (block, reader.chunks.context())
            }
            Ok(None) => {
                reader.ended = true;
                return;
            }
            Err(error) => {
                reader.ended = true;
                queue.put(number, Err(error));
                return;
            }
        };
        // The rest of an open piece is for the worker that has its beginning.
        held = block.is_open().then_some(reader);
        let encode = || job.check().and_then(|()| worker.encode(block, &context, &mut encoded));
        let result = caught(encode);
        queue.put(number, result.map(|()| encoded));
    }
}

/// What a worker reuses from block to block.
struct Worker<'a> {
    target: Target<'a>,
    scratch: Scratch,
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
        let Worker { target, scratch, piece, ids, ends } = self;
        ids.clear();
        ends.clear();
        encoded.skipped = Skipped::default();
        let mut n_bytes = 0;
        block.read(context, scratch, &mut encoded.skipped, &mut |text| match text {
            Text::Stretch { text, end } => {
                n_bytes += text.len() as u64;
                let before = ids.len();
                let goes_on = end == StretchEnd::Inside;
                target.tokenizer.encode_stretch(text, &Recognise::All, goes_on, piece, ids)?;
                target.find_ends(ids, before, end == StretchEnd::Text, ends);
                Ok(())
            }
            Text::Documents(documents) => {
                n_bytes += documents.iter().map(|text| text.len() as u64).sum::<u64>();
                // Nobody looks at this job: a block is soon done.
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
        encoded.next = match block.ends_source {
            true => (block.number + 1, Position::default()),
            false => (block.number, block.after),
        };
        encoded.is_open = block.is_open();
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
        // What is empty is a document, too, or those behind it would move up.
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
