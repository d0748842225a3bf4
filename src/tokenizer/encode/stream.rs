//! Text that comes in parts, encoded as if it were one.

use std::sync::Arc;

use super::cache;
use super::tokenizer::{Recognise, Tokenizer};
use super::window::OpenPiece;
use super::worker::Worker;
use crate::base::error::Result;
use crate::text::cutter::Cutter;
use crate::text::specials::Specials;

/// With fewer bytes, searching for a cut again is not worth it.
const PATIENCE: usize = 4096;
/// After this many bytes without a cut, one inside a piece is used.
const NO_CUT_FOR_LONG: usize = 64 << 10;

/// Encodes a text that comes in parts.
///
/// Text whose ids no longer depend on what follows is encoded and its ids are returned; the rest
/// (usually less than a line, and a small part of a very long piece) is kept. Text whose pattern has no
/// safe cuts (a regular expression) is encoded only at special tokens and at the end.
#[derive(Debug)]
pub struct Stream {
    tokenizer: Arc<Tokenizer>,
    recognise: Recognise,
    /// Cuts with the special tokens that are recognized.
    cutter: Cutter,
    /// None after work that ran out of memory: the state of a worker is inconsistent then.
    worker: Option<Worker>,
    /// The piece that the buffer begins in, if it began in an earlier part.
    piece: OpenPiece,
    buffer: Vec<u8>,
    /// A cut is searched for once the buffer has this many bytes. Doubled when none is found, so that
    /// one endless piece is not searched again and again.
    threshold: usize,
    /// Bytes encoded so far, for positions in errors.
    taken: usize,
}

impl Stream {
    /// An empty stream.
    pub fn new(tokenizer: Arc<Tokenizer>, recognise: Recognise) -> Result<Self> {
        let specials = match &recognise {
            Recognise::All | Recognise::Refuse => tokenizer.cutter().specials.clone(),
            Recognise::Nothing => Specials::new::<&str>(&[])?,
            Recognise::Some(subset) => subset.finder.clone(),
        };
        let cutter = Cutter { specials, pattern: tokenizer.cutter().pattern.clone() };
        Ok(Stream {
            piece: OpenPiece::new(&tokenizer),
            tokenizer,
            recognise,
            cutter,
            worker: None,
            buffer: Vec::new(),
            threshold: PATIENCE,
            taken: 0,
        })
    }

    /// Takes more text; appends the ids that are final to `ids`.
    pub fn push(&mut self, text: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        self.buffer.extend_from_slice(text);
        if self.buffer.len() < self.threshold {
            return Ok(());
        }
        if let Some(cut) = self.certain() {
            self.encode(cut, false, ids)?;
            self.threshold = PATIENCE;
        } else if let Some(cut) = self.inside() {
            self.encode(cut, true, ids)?;
            self.threshold = NO_CUT_FOR_LONG;
        } else {
            self.threshold = self.buffer.len() * 2;
        }
        Ok(())
    }

    /// Ends the text; appends the remaining ids to `ids`. The stream starts afresh.
    pub fn finish(&mut self, ids: &mut Vec<u32>) -> Result<()> {
        self.encode(self.buffer.len(), false, ids)?;
        self.threshold = PATIENCE;
        self.taken = 0;
        Ok(())
    }

    /// The number of bytes that it holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.len() + self.piece.held()
    }

    /// The end of the text in the buffer whose ids are final.
    fn certain(&self) -> Option<usize> {
        self.cutter.cut_before(&self.buffer)
    }

    /// A position inside a very long piece.
    fn inside(&self) -> Option<usize> {
        let n = self.buffer.len();
        if n < NO_CUT_FOR_LONG { None } else { self.cutter.inside_after(&self.buffer, n / 2) }
    }

    fn encode(&mut self, upto: usize, goes_on: bool, ids: &mut Vec<u32>) -> Result<()> {
        let text = &self.buffer[..upto];
        if matches!(self.recognise, Recognise::Refuse)
            && let Some(found) = self.cutter.specials.find(text, 0)
        {
            return Err(self.tokenizer.refused(found.index, self.taken + found.start));
        }
        if goes_on || !self.piece.is_empty() {
            let Stream { tokenizer, recognise, piece, .. } = self;
            tokenizer.encode_stretch(text, recognise, goes_on, piece, ids)?;
        } else {
            let worker = self.worker.take();
            let mut worker = worker.unwrap_or_else(|| Worker::new(cache::STREAM_BYTES));
            self.tokenizer.encode_with(&mut worker, text, &self.recognise, ids)?;
            worker.trim();
            self.worker = Some(worker);
        }
        self.buffer.drain(..upto);
        if self.buffer.capacity() > 16 * PATIENCE {
            self.buffer.shrink_to(self.buffer.len().max(PATIENCE));
        }
        self.taken += upto;
        Ok(())
    }
}
