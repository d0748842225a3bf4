//! Chunks of text → ids, on several threads, in the order of the text.
//!
//! Workers take chunks in turn, encode each into a buffer of bytes in their final width and put it
//! into its slot; the caller's thread takes the slots in order. There are a few more slots than
//! workers: whoever is ahead waits, so memory does not depend on the length of the text.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::manifest::Dtype;
use crate::corpus::{InOrder, Part};
use crate::encode::{Recognise, Tokenizer};
use crate::error::{Error, Result};
use crate::job::Job;

/// Text of a chunk: its ids, four bytes each, stay in a processor's own cache until they are
/// narrowed.
pub const CHUNK_SIZE: usize = 256 << 10;

/// The ids of a chunk.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The ids, as they are written.
    pub ids: Vec<u8>,
    /// Where in `ids` documents end: behind every end-of-text.
    pub ends: Vec<usize>,
    /// The number of the source.
    pub source: usize,
    /// Where in the source the chunk ends.
    pub offset: u64,
    /// Bytes of text.
    pub size: u64,
    /// Whether the source ends here.
    pub last: bool,
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
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| work(&reader, &queue, target, job))).collect();
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
        let failed = workers.into_iter().filter_map(|worker| worker.join().err()).count();
        match result {
            Ok(()) if failed > 0 => {
                Err(Error::tokenizer("an encoding thread failed; this is a bug in bytemill"))
            }
            other => other,
        }
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
    let (mut text, mut ids) = (Vec::new(), Vec::new());
    loop {
        let (number, part, mut encoded) = {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            if reader.ended {
                return;
            }
            let number = reader.next;
            // Whoever waits here lets nobody else pass, and nobody could.
            let Some(buffer) = queue.buffer_for(number) else { return };
            match job.check().and_then(|()| reader.chunks.next_part()) {
                Ok(Some(part)) => {
                    reader.next += 1;
                    (number, part, buffer)
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
            }
        };
        let result = encode(&part, target, &mut text, &mut ids, &mut encoded, job);
        queue.put(number, result.map(|()| encoded));
    }
}

fn encode(
    part: &Part<'_>,
    target: Target<'_>,
    text: &mut Vec<u8>,
    ids: &mut Vec<u32>,
    encoded: &mut Encoded,
    job: &Job,
) -> Result<()> {
    part.read(text)?;
    ids.clear();
    job.check()?;
    target.tokenizer.encode(text, &Recognise::All, ids)?;
    let width = target.dtype.width();
    encoded.ends.clear();
    if let Some(end_of_text) = target.end_of_text {
        ends_of(ids, end_of_text, width, &mut encoded.ends);
    }
    narrow(ids, width, &mut encoded.ids);
    encoded.source = part.number;
    encoded.offset = part.chunk.end();
    encoded.size = part.chunk.size();
    encoded.last = part.last;
    Ok(())
}

/// The places, in bytes, behind every `end_of_text`.
fn ends_of(ids: &[u32], end_of_text: u32, width: usize, ends: &mut Vec<usize>) {
    // Most blocks have none, which is seen many ids at a time.
    for (number, block) in ids.chunks(64).enumerate() {
        if block.contains(&end_of_text) {
            let found = block.iter().enumerate().filter(|&(_, &id)| id == end_of_text);
            ends.extend(found.map(|(i, _)| (number * 64 + i + 1) * width));
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
