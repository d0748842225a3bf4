//! What a tokenizer consists of, and what does not depend on how text is encoded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

use super::single::SingleTokens;
use super::worker::{Merger, Worker};
use super::{cache, short_merge};
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::memory::reserve;
use crate::base::table::Table;
use crate::text::cutter::Cutter;
use crate::text::pattern::Pattern;
use crate::text::specials::{Segment, Specials};
use crate::tokenizer::merge;
use crate::tokenizer::spec::{MergeRule, Spec};
use crate::tokenizer::vocab::Vocab;

/// Idle workers that are kept.
const MAX_POOLED: usize = 16;
/// Up to this many special tokens are looked up by linear search.
const MAX_LINEAR: usize = 8;

/// A tokenizer: text ↔ ids.
#[derive(Debug)]
pub struct Tokenizer {
    pub(super) vocab: Vocab,
    /// Cuts at every special token.
    pub(super) cutter: Cutter,
    pub(super) ignore_merges: bool,
    /// Tokens that their bytes do not merge into. With `ignore_merges`, a piece with these bytes
    /// becomes the token nevertheless.
    pub(super) whole: Table<u32>,
    pub(super) single: OnceLock<SingleTokens>,
    fingerprint: OnceLock<String>,
    pool: Mutex<Vec<Worker>>,
    /// The limit of a worker's caches, in bytes.
    cache_bytes: AtomicUsize,
}

/// Which special tokens are recognized in text.
#[derive(Debug, Clone)]
pub enum Recognise {
    /// All of them.
    All,
    /// None: they are plain text.
    Nothing,
    /// Any of them in the text is an error.
    Refuse,
    /// Those that the subset finds, by number in [`Vocab::specials`].
    Some(Subset),
}

/// Some of the special tokens.
#[derive(Debug, Clone)]
pub struct Subset {
    pub(super) finder: Specials,
    numbers: Vec<usize>,
}

impl Tokenizer {
    /// A tokenizer from plain data, checked.
    pub fn new(spec: &Spec) -> Result<Self> {
        let vocab = Vocab::new(spec)?;
        let texts: Vec<&str> = vocab.specials().iter().map(|s| s.text.as_str()).collect();
        let cutter =
            Cutter { specials: Specials::new(&texts)?, pattern: Pattern::new(&spec.pattern)? };
        let mut tokenizer = Tokenizer {
            vocab,
            cutter,
            ignore_merges: spec.ignore_merges,
            whole: Table::default(),
            single: OnceLock::new(),
            fingerprint: OnceLock::new(),
            pool: Mutex::new(Vec::new()),
            cache_bytes: AtomicUsize::new(cache::DEFAULT_BYTES),
        };
        if spec.ignore_merges {
            for rank in tokenizer.vocab.unmade() {
                *tokenizer.whole.value_mut(tokenizer.vocab.rank_bytes(rank)) = rank;
            }
        }
        Ok(tokenizer)
    }

    /// The tokenizer as plain data.
    pub fn spec(&self) -> Spec {
        Spec {
            pattern: self.cutter.pattern.stages().to_vec(),
            tokens: self.vocab.token_list(),
            merges: self.vocab.merge_rule(),
            specials: self.vocab.specials().to_vec(),
            ignore_merges: self.ignore_merges,
        }
    }

    /// The vocabulary.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The pattern and the special tokens.
    pub fn cutter(&self) -> &Cutter {
        &self.cutter
    }

    /// Whether a piece that is a token becomes that token regardless of the merges.
    pub fn ignore_merges(&self) -> bool {
        self.ignore_merges
    }

    /// SHA-256, in hexadecimal, over everything that determines the ids of a text.
    pub fn fingerprint(&self) -> &str {
        // Computed on first use, because it is rarely needed.
        self.fingerprint.get_or_init(|| {
            let mut hasher = Sha256::new();
            hasher.update(b"bytemill tokenizer 1\0");
            for stage in self.cutter.pattern.stages() {
                hasher.update((stage.len() as u64).to_le_bytes());
                hasher.update(stage);
            }
            hasher.update([u8::from(self.ignore_merges)]);
            self.vocab.digest(&mut hasher);
            files::hex(&hasher.finalize())
        })
    }

    /// Recognizes only these special tokens.
    pub fn recognise_some<S: AsRef<str>>(&self, texts: &[S]) -> Result<Recognise> {
        let specials = self.vocab.specials();
        let mut by_text = HashMap::new();
        if texts.len() > MAX_LINEAR {
            by_text.extend(specials.iter().zip(0..).map(|(special, i)| (special.text.as_str(), i)));
        }
        let mut numbers = Vec::with_capacity(texts.len());
        for text in texts {
            let text = text.as_ref();
            let number = if texts.len() > MAX_LINEAR {
                by_text.get(text).copied()
            } else {
                specials.iter().position(|special| special.text == text)
            };
            numbers.push(number.ok_or_else(|| {
                Error::tokenizer(format!("{text:?} is not a special token of this tokenizer"))
            })?);
        }
        Ok(Recognise::Some(Subset { finder: Specials::new(texts)?, numbers }))
    }

    pub(super) fn worker(&self) -> Worker {
        let pooled = self.pool.try_lock().ok().and_then(|mut pool| pool.pop());
        let fits = |worker: &Worker| worker.cache_bytes() == self.cache_bytes();
        pooled.filter(fits).unwrap_or_else(|| Worker::new(self.cache_bytes()))
    }

    /// A worker whose cache is sized for a text of this length.
    pub(super) fn worker_for(&self, n_bytes: usize) -> Worker {
        let mut worker = self.worker();
        worker.cache.expect_text(n_bytes);
        worker
    }

    /// Makes the caches of `n_threads` threads large enough for a text of this length.
    pub fn expect_text(&self, n_bytes: usize, n_threads: usize) {
        let workers: Vec<Worker> = (0..n_threads).map(|_| self.worker_for(n_bytes)).collect();
        workers.into_iter().for_each(|worker| self.give_back(worker));
    }

    /// The most memory that the caches of an encoding thread take, in bytes.
    pub fn cache_bytes(&self) -> usize {
        self.cache_bytes.load(Relaxed)
    }

    /// Changes the limit and empties the caches.
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.cache_bytes.store(bytes, Relaxed);
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn give_back(&self, mut worker: Worker) {
        worker.trim();
        if let Ok(mut pool) = self.pool.try_lock()
            && pool.len() < MAX_POOLED
        {
            pool.push(worker);
        }
    }

    /// The special tokens of `text` that are recognized, and the plain stretches between them.
    pub(super) fn segments<'t>(
        &self,
        text: &'t [u8],
        recognise: &Recognise,
        mut emit: impl FnMut(Segment<'t>) -> Result<()>,
    ) -> Result<()> {
        match recognise {
            Recognise::All => self.cutter.specials.segments(text, emit),
            Recognise::Nothing if text.is_empty() => Ok(()),
            Recognise::Nothing => emit(Segment::Plain(0, text)),
            Recognise::Refuse => match self.cutter.specials.find(text, 0) {
                None if text.is_empty() => Ok(()),
                None => emit(Segment::Plain(0, text)),
                Some(found) => Err(self.refused(found.index, found.start)),
            },
            Recognise::Some(subset) => subset.finder.segments(text, |segment| {
                emit(match segment {
                    Segment::Special(mut found) => {
                        found.index = subset.numbers[found.index];
                        Segment::Special(found)
                    }
                    plain => plain,
                })
            }),
        }
    }

    pub(super) fn refused(&self, number: usize, at: usize) -> Error {
        let text = &self.vocab.specials()[number].text;
        Error::tokenizer(format!("the text holds the special token {text:?} at byte {at}"))
            .with_hint(
                "special=\"all\" encodes it as the special token, special=\"none\" as plain text",
            )
    }

    /// Leaves the ranks of one piece in `merger.tokens`.
    pub(super) fn merge_piece(&self, merger: &mut Merger, piece: &[u8]) -> Result<()> {
        if let Some(rank) = self.whole(piece) {
            merger.tokens.clear();
            merger.tokens.push(rank);
            return Ok(());
        }
        self.merge_bytes(merger, piece)
    }

    /// The token that a piece becomes regardless of the merges.
    #[inline]
    pub(super) fn whole(&self, piece: &[u8]) -> Option<u32> {
        if self.whole.is_empty() { None } else { self.whole.get(piece) }
    }

    /// Leaves the ranks of a piece in `merger.tokens`, by the merges alone.
    pub(super) fn merge_bytes(&self, merger: &mut Merger, piece: &[u8]) -> Result<()> {
        let Merger { small, tokens, scratch } = merger;
        tokens.clear();
        if piece.len() <= short_merge::MAX_LENGTH {
            small.merge(piece, self.vocab.pairs());
            tokens.extend_from_slice(&small.ranks[..small.n]);
            return Ok(());
        }
        if piece.len() >= merge::NONE as usize {
            return Err(Error::tokenizer(format!(
                "a piece of {} bytes is too long; less than 4 GiB can be encoded",
                piece.len()
            )));
        }
        reserve(tokens, piece.len());
        tokens.extend(piece.iter().map(|&byte| u32::from(byte)));
        merge::merge(tokens, self.vocab.pairs(), scratch);
        Ok(())
    }

    /// Writes the ranks of a piece: for learning further merges on top.
    pub fn piece_ranks(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()> {
        let mut worker = self.worker();
        let result = self.merge_piece(worker.merger(), piece);
        out.extend_from_slice(&worker.merger().tokens);
        self.give_back(worker);
        result
    }

    /// The ids of tokens that no text encodes to, because their bytes do not merge into them.
    pub fn unreachable(&self) -> Vec<u32> {
        if self.ignore_merges {
            return Vec::new();
        }
        self.vocab.unmade().map(|rank| self.vocab.rank_id(rank)).collect()
    }

    /// The tokenizer that learning fewer merges would give.
    pub fn with_vocab_size(&self, vocab_size: usize) -> Result<Self> {
        let n_specials = self.vocab.specials().len();
        let canonical = (0..self.vocab.n_ranks() as u32)
            .all(|rank| self.vocab.rank_id(rank) == rank)
            && self.vocab.merges().len() + 256 == self.vocab.n_ranks();
        if !canonical {
            return Err(Error::tokenizer(
                "only the vocabulary of a tokenizer whose ids are the bytes and then the merges in \
                 order can be shortened",
            )
            .with_hint("one learned by bytemill is such a tokenizer"));
        }
        let least = 256 + n_specials;
        if vocab_size < least || vocab_size > self.vocab.len() {
            return Err(Error::config(format!(
                "vocab_size={vocab_size} is not between {least} (256 bytes and {n_specials} \
                 special tokens) and {} (the present size)",
                self.vocab.len()
            )));
        }
        let n_tokens = vocab_size - n_specials;
        let mut spec = self.spec();
        let mut tokens = crate::tokenizer::spec::TokenList::with_capacity(n_tokens);
        for (id, token) in spec.tokens.iter().take(n_tokens) {
            tokens.push(id, token);
        }
        spec.tokens = tokens;
        if let MergeRule::List(merges) = &mut spec.merges {
            merges.truncate(n_tokens - 256);
        }
        // Special tokens are last, in the same order.
        spec.specials.sort_by_key(|special| special.id);
        for (special, id) in spec.specials.iter_mut().zip(n_tokens as u32..) {
            special.id = id;
        }
        Tokenizer::new(&spec)
    }
}
