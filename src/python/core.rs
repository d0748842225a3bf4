//! `Core`: the tokenizer as Python sees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use super::convert::{self, Text, special_choice};
use super::gateway::{MIN_GATEWAY_BYTES, run_sized, threads, to_python};
use crate::base::error::{Error, Result};
use crate::base::job::Phase;
use crate::tokenizer::encode::{self, Tokenizer};
use crate::tokenizer::formats;
use crate::tokenizer::spec::{MAX_ID, Merge, MergeRule, Spec, SpecialToken, TokenList};

/// What a token and its merge take in a file, about.
const BYTES_PER_TOKEN: usize = 32;

/// A tokenizer's tables. Immutable, usable from many threads at once.
#[pyclass(frozen, subclass, module = "bytemill._native")]
pub struct Core {
    tokenizer: Arc<Tokenizer>,
}

type Arrays<'py, T> = (Bound<'py, PyArray1<u32>>, Bound<'py, T>);

impl Core {
    pub fn new(tokenizer: Tokenizer) -> Self {
        Core { tokenizer: Arc::new(tokenizer) }
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn encoded(
        &self,
        py: Python<'_>,
        text: &Text<'_>,
        special: &Bound<'_, PyAny>,
        threads: Option<i64>,
    ) -> PyResult<Vec<u32>> {
        let recognise = special_choice(&self.tokenizer, special)?;
        let text = text.bytes();
        if text.len() < MIN_GATEWAY_BYTES {
            // Without a job, which would cost more than encoding a short text.
            let mut ids = Vec::new();
            self.tokenizer.encode(text, &recognise, &mut ids).map_err(|e| to_python(py, e))?;
            return Ok(ids);
        }
        let (tokenizer, threads) = (&self.tokenizer, self::threads(py, threads)?);
        run_sized(py, text.len(), Phase::Encode, |job| {
            tokenizer.encode_job(text, &recognise, threads, job)
        })
    }
}

#[pymethods]
impl Core {
    /// Shares the tables of `core`.
    #[new]
    #[pyo3(signature = (core, /))]
    fn py_new(core: &Bound<'_, Core>) -> Self {
        Core { tokenizer: Arc::clone(&core.get().tokenizer) }
    }

    /// A tokenizer from tokens, merges of bytes and special tokens.
    #[staticmethod]
    #[pyo3(signature = (tokens, *, merges, special_tokens, pattern, ignore_merges))]
    fn build(
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        merges: Option<&Bound<'_, PyAny>>,
        special_tokens: &Bound<'_, PyAny>,
        pattern: Vec<String>,
        ignore_merges: bool,
    ) -> PyResult<Self> {
        let mut list = TokenList::default();
        for item in tokens.try_iter()? {
            let (id, token) = item?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            push_token(&mut list, &id, &token)?;
        }
        let spec = spec_of(py, list, merges, special_tokens, pattern, ignore_merges)?;
        built(py, &spec)
    }

    /// A tokenizer as tiktoken has them, from tokens with ranks and special tokens.
    #[staticmethod]
    fn from_ranks(
        py: Python<'_>,
        ranks: &Bound<'_, PyDict>,
        special_tokens: &Bound<'_, PyAny>,
        pattern: Vec<String>,
    ) -> PyResult<Self> {
        let mut list = TokenList::with_capacity(ranks.len());
        for (token, rank) in ranks.iter() {
            push_token(&mut list, &rank, &token)?;
        }
        let spec = spec_of(py, list, None, special_tokens, pattern, true)?;
        built(py, &spec)
    }

    /// A tokenizer from the contents of its files, each with a name for messages.
    #[staticmethod]
    fn read(
        py: Python<'_>,
        kind: &str,
        files: Vec<(String, PyBackedBytes)>,
        pattern: Vec<String>,
        special_tokens: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let specials = special_list(special_tokens)?;
        let [first, rest @ ..] = &files[..] else {
            return Err(to_python(py, Error::Bug("no tokenizer file was given".to_owned())));
        };
        let size = files.iter().map(|(_, data)| data.len()).sum();
        run_sized(py, size, Phase::Encode, |_| {
            let spec = match (kind, rest) {
                ("huggingface", []) => formats::read_tokenizer_json(&first.1),
                ("tiktoken", []) => formats::read_tiktoken(&first.1, &pattern, &specials),
                ("minbpe", []) => formats::read_minbpe(&first.1),
                ("gpt2", [merges]) => formats::read_gpt2(&first.1, &merges.1, &pattern, &specials),
                _ => Err(Error::Bug(format!("{} files of the kind {kind:?}", files.len()))),
            };
            spec.and_then(|spec| Tokenizer::new(&spec)).map(Core::new).map_err(
                |error| match error {
                    // These formats have no pattern, so a wrong one is the caller's.
                    error @ Error::Config(_) if matches!(kind, "tiktoken" | "gpt2") => error,
                    error => error.blaming_file(Error::Tokenizer).in_file(&first.0),
                },
            )
        })
    }

    /// The most bytes of the caches of a thread that encodes.
    fn cache_limit(&self) -> usize {
        self.tokenizer.cache_bytes()
    }

    /// Sets the most bytes of the caches, and empties them.
    fn set_cache_limit(&self, limit: usize) {
        self.tokenizer.set_cache_bytes(limit);
    }

    /// The contents of the files of this kind.
    fn write<'py>(&self, py: Python<'py>, kind: &str) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let tokenizer = &self.tokenizer;
        let files =
            run_sized(py, BYTES_PER_TOKEN * tokenizer.vocab().len(), Phase::Encode, |_| {
                let spec = tokenizer.spec();
                match kind {
                    "huggingface" => formats::write_tokenizer_json(&spec).map(|file| vec![file]),
                    "gpt2" => formats::write_gpt2(&spec).map(|(vocab, merges)| vec![vocab, merges]),
                    "tiktoken" => formats::write_tiktoken(&spec).map(|file| vec![file]),
                    "minbpe" => formats::write_minbpe(&spec).map(|file| vec![file]),
                    _ => Err(Error::config(format!("unknown kind of tokenizer file {kind:?}"))),
                }
            })?;
        Ok(files.iter().map(|file| PyBytes::new(py, file)).collect())
    }

    /// The ids of a text.
    ///
    /// `special` selects the special tokens that are recognized: `"all"`, `"none"` (they are plain text:
    /// for untrusted input), `"error"` (they are refused), or a set of them.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: Text<'py>,
        special: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.encoded(py, &text, special, None)?)
    }

    /// The ids of a text as a numpy array; a long text is encoded by several threads.
    #[pyo3(signature = (text, special, threads=None))]
    fn encode_array<'py>(
        &self,
        py: Python<'py>,
        text: Text<'py>,
        special: &Bound<'py, PyAny>,
        threads: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        Ok(self.encoded(py, &text, special, threads)?.into_pyarray(py))
    }

    /// The ids of many texts end to end, and the start of each.
    #[pyo3(signature = (texts, special, threads=None))]
    fn encode_flat<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<Text<'py>>,
        special: &Bound<'py, PyAny>,
        threads: Option<i64>,
    ) -> PyResult<Arrays<'py, PyArray1<u64>>> {
        let recognise = special_choice(&self.tokenizer, special)?;
        let threads = self::threads(py, threads)?;
        let slices: Vec<&[u8]> = texts.iter().map(Text::bytes).collect();
        let (tokenizer, size) = (&self.tokenizer, texts.iter().map(|t| t.bytes().len() + 64).sum());
        let (ids, offsets) = run_sized(py, size, Phase::Encode, |job| {
            tokenizer.encode_batch(&slices, &recognise, threads, job)
        })?;
        Ok((ids.into_pyarray(py), offsets.into_pyarray(py)))
    }

    /// The ids of a text, and for each its start and end in bytes, and in characters.
    fn encode_spans<'py>(
        &self,
        py: Python<'py>,
        text: Text<'py>,
        special: &Bound<'py, PyAny>,
    ) -> PyResult<Arrays<'py, PyArray2<u64>>> {
        let recognise = special_choice(&self.tokenizer, special)?;
        let (tokenizer, text) = (&self.tokenizer, text.bytes());
        let (ids, flat) = run_sized(py, text.len(), Phase::Encode, |job| {
            let (ids, spans) = tokenizer.encode_spans(text, &recognise, job)?;
            let flat: Vec<u64> = spans
                .iter()
                .flat_map(|span| [span.bytes.0, span.bytes.1, span.chars.0, span.chars.1])
                .map(|offset| offset as u64)
                .collect();
            Ok((ids, flat))
        })?;
        let table = flat.into_pyarray(py).reshape([ids.len(), 4])?;
        Ok((ids.into_pyarray(py), table))
    }

    /// The ids of bytes that are one piece, whatever the pattern says.
    #[pyo3(signature = (piece, /))]
    fn encode_piece<'py>(&self, py: Python<'py>, piece: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let tokenizer = &self.tokenizer;
        let ids = run_sized(py, piece.len(), Phase::Encode, |_| {
            let mut ranks = Vec::new();
            if !piece.is_empty() {
                tokenizer.piece_ranks(piece, &mut ranks)?;
            }
            Ok(ranks.into_iter().map(|rank| tokenizer.vocab().rank_id(rank)).collect::<Vec<u32>>())
        })?;
        PyList::new(py, ids)
    }

    /// The number of ids of a text.
    fn count(&self, py: Python<'_>, text: Text<'_>, special: &Bound<'_, PyAny>) -> PyResult<usize> {
        Ok(self.encoded(py, &text, special, None)?.len())
    }

    /// The bytes of ids.
    fn decode_bytes<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let vocab = self.tokenizer.vocab();
        convert::ids_to_decode(vocab, ids)?
            .decode(py, vocab, |len, write| PyBytes::new_with(py, len, write))
    }

    /// The text of ids; invalid UTF-8 becomes U+FFFD.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        ids: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyString>> {
        let vocab = self.tokenizer.vocab();
        let bytes = convert::ids_to_decode(vocab, ids)?.decode(py, vocab, |len, write| {
            let mut bytes = vec![0; len];
            write(&mut bytes)?;
            Ok(bytes)
        })?;
        let text =
            run_sized(py, bytes.len(), Phase::Encode, |_| Ok(String::from_utf8_lossy(&bytes)))?;
        Ok(PyString::new(py, &text))
    }

    /// The bytes of a token.
    #[pyo3(signature = (id, /))]
    fn token_bytes<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let vocab = self.tokenizer.vocab();
        let id = convert::id(vocab, id, 0)?;
        match vocab.id_bytes(id) {
            Some(bytes) => Ok(PyBytes::new(py, bytes)),
            None => Err(to_python(py, Error::tokenizer(format!("there is no token with id {id}")))),
        }
    }

    /// The id of a token, ordinary or special.
    #[pyo3(signature = (token, /))]
    fn token_id(&self, py: Python<'_>, token: Text<'_>) -> PyResult<u32> {
        self.tokenizer.vocab().id_of(token.bytes()).ok_or_else(|| {
            let shown = String::from_utf8_lossy(token.bytes()).into_owned();
            to_python(py, Error::tokenizer(format!("there is no token {shown:?}")))
        })
    }

    /// An encoder for a text that arrives bit by bit.
    fn stream(&self, py: Python<'_>, special: &Bound<'_, PyAny>) -> PyResult<PyStream> {
        let recognise = special_choice(&self.tokenizer, special)?;
        let inner = encode::Stream::new(Arc::clone(&self.tokenizer), recognise)
            .map_err(|e| to_python(py, e))?;
        Ok(PyStream { inner: Mutex::new(inner), pending: AtomicUsize::new(0) })
    }

    /// The tokenizer that learning fewer merges would have given: a prefix of the vocabulary.
    fn core_with_vocab_size(&self, py: Python<'_>, vocab_size: usize) -> PyResult<Core> {
        let tokenizer = &self.tokenizer;
        run_sized(py, BYTES_PER_TOKEN * tokenizer.vocab().len(), Phase::Encode, |_| {
            tokenizer.with_vocab_size(vocab_size).map(Core::new)
        })
    }

    /// The ids of tokens whose own bytes do not merge into them.
    fn unreachable(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let (tokenizer, n) = (&self.tokenizer, self.tokenizer.vocab().len());
        run_sized(py, 8 * n, Phase::Encode, |_| Ok(tokenizer.unreachable()))
    }

    /// Id → bytes of every token, including special ones, in the order of ids. A new dictionary each
    /// time; for one token, use `token_bytes`.
    #[getter]
    fn vocab<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let vocab = self.tokenizer.vocab();
        let mut all: Vec<(u32, &[u8])> = (0..vocab.n_ranks() as u32)
            .map(|rank| (vocab.rank_id(rank), vocab.rank_bytes(rank)))
            .chain(vocab.specials().iter().map(|s| (s.id, s.text.as_bytes())))
            .collect();
        all.sort_unstable_by_key(|&(id, _)| id);
        let dict = PyDict::new(py);
        for (id, bytes) in all {
            dict.set_item(id, PyBytes::new(py, bytes))?;
        }
        Ok(dict)
    }

    /// The merges in order.
    #[getter]
    fn merges<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let vocab = self.tokenizer.vocab();
        let bytes = |rank| PyBytes::new(py, vocab.rank_bytes(rank));
        vocab.merges().iter().map(|&(left, right)| (bytes(left), bytes(right))).collect()
    }

    /// Special tokens and their ids, in the order of ids.
    #[getter]
    fn special_tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut specials: Vec<&SpecialToken> = self.tokenizer.vocab().specials().iter().collect();
        specials.sort_by_key(|special| special.id);
        let dict = PyDict::new(py);
        for special in specials {
            dict.set_item(&special.text, special.id)?;
        }
        Ok(dict)
    }

    /// The split pattern: a name or a regular expression, or a list of them.
    #[getter]
    fn pattern<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.tokenizer.cutter().pattern.stages() {
            [only] => Ok(PyString::new(py, only).into_any()),
            several => Ok(PyList::new(py, several)?.into_any()),
        }
    }

    /// Whether a piece that is a token becomes that token regardless of the merges.
    #[getter]
    fn ignore_merges(&self) -> bool {
        self.tokenizer.ignore_merges()
    }

    /// SHA-256 of everything that determines the ids of a text.
    #[getter]
    fn fingerprint(&self) -> &str {
        self.tokenizer.fingerprint()
    }

    #[getter]
    fn max_id(&self) -> u32 {
        self.tokenizer.vocab().max_id()
    }

    fn __len__(&self) -> usize {
        self.tokenizer.vocab().len()
    }
}

/// Encodes a text that arrives bit by bit.
#[pyclass(name = "Stream", frozen, module = "bytemill._native")]
pub struct PyStream {
    inner: Mutex<encode::Stream>,
    /// Bytes added since a call returned ids, which the next call may have to encode.
    pending: AtomicUsize,
}

impl PyStream {
    /// Adds `n_bytes` of text and returns ids by `work`.
    fn with<'py>(
        &self,
        py: Python<'py>,
        n_bytes: usize,
        work: impl FnOnce(&mut encode::Stream, &mut Vec<u32>) -> Result<()> + Send,
    ) -> PyResult<Bound<'py, PyList>> {
        let pending = self.pending.fetch_add(n_bytes, Relaxed) + n_bytes;
        let ids = run_sized(py, pending, Phase::Encode, |_| {
            let mut ids = Vec::new();
            work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner), &mut ids)?;
            Ok(ids)
        })?;
        if !ids.is_empty() {
            self.pending.store(0, Relaxed);
        }
        PyList::new(py, ids)
    }
}

#[pymethods]
impl PyStream {
    /// Adds text; returns the ids that no further text can change.
    #[pyo3(signature = (text, /))]
    fn push<'py>(&self, py: Python<'py>, text: Text<'py>) -> PyResult<Bound<'py, PyList>> {
        let text = text.bytes();
        self.with(py, text.len(), |stream, ids| stream.push(text, ids))
    }

    /// Ends the text; returns the remaining ids.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.with(py, 0, |stream, ids| stream.finish(ids))
    }
}

fn special_list(special_tokens: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Option<u32>)>> {
    special_tokens
        .try_iter()?
        .map(|item| {
            let (text, id) = item?.extract::<(String, Option<Bound<'_, PyAny>>)>()?;
            let id = id.map(|id| new_id(&id)).transpose()?;
            Ok((text, id))
        })
        .collect()
}

/// The id of a token of a vocabulary that is being made.
fn new_id(id: &Bound<'_, PyAny>) -> PyResult<u32> {
    match id.extract::<u32>() {
        Ok(id) if id <= MAX_ID => Ok(id),
        _ if id.is_instance_of::<pyo3::types::PyInt>() => Err(to_python(
            id.py(),
            Error::tokenizer(format!("{id} is not an id"))
                .with_hint(format!("ids are integers from 0 to {MAX_ID}")),
        )),
        Ok(_) | Err(_) => Err(pyo3::exceptions::PyTypeError::new_err(format!(
            "an id must be an integer, not {}",
            id.get_type().name()?
        ))),
    }
}

fn push_token(
    list: &mut TokenList,
    id: &Bound<'_, PyAny>,
    token: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let id = new_id(id)?;
    match token.cast::<PyBytes>() {
        Ok(bytes) => list.push(id, bytes.as_bytes()),
        Err(_) => list.push(id, &token.extract::<Vec<u8>>()?),
    }
    Ok(())
}

fn built(py: Python<'_>, spec: &Spec) -> PyResult<Core> {
    run_sized(py, spec.tokens.n_bytes(), Phase::Encode, |_| Tokenizer::new(spec).map(Core::new))
}

fn spec_of(
    py: Python<'_>,
    tokens: TokenList,
    merges: Option<&Bound<'_, PyAny>>,
    special_tokens: &Bound<'_, PyAny>,
    pattern: Vec<String>,
    ignore_merges: bool,
) -> PyResult<Spec> {
    let specials = special_list(special_tokens)?;
    let mut by_bytes: HashMap<&[u8], u32> = HashMap::new();
    if merges.is_some() || specials.iter().any(|(_, id)| id.is_none()) {
        // Two tokens of the same bytes are refused when the tables are made.
        by_bytes.extend(tokens.iter().map(|(id, token)| (token, id)));
    }
    let mut next = tokens.iter().map(|(id, _)| id + 1).max().unwrap_or(0);
    let mut spec = Spec { pattern, ignore_merges, ..Spec::default() };
    for (text, id) in specials {
        let id = id.or_else(|| by_bytes.get(text.as_bytes()).copied()).unwrap_or(next);
        next = next.max(id.saturating_add(1));
        spec.specials.push(SpecialToken { text, id, control: true });
    }
    spec.merges = match merges {
        None => MergeRule::ByRank,
        Some(merges) => MergeRule::List(merge_list(py, merges, &by_bytes)?),
    };
    spec.tokens = tokens;
    Ok(spec)
}

fn merge_list(
    py: Python<'_>,
    merges: &Bound<'_, PyAny>,
    by_bytes: &HashMap<&[u8], u32>,
) -> PyResult<Vec<Merge>> {
    let mut list = Vec::new();
    for (at, item) in merges.try_iter()?.enumerate() {
        let (left, right) = item?.extract::<(Vec<u8>, Vec<u8>)>()?;
        let find = |token: &[u8], role: &str| {
            by_bytes.get(token).copied().ok_or_else(|| {
                let shown = token.escape_ascii();
                let message = format!("merge {at}: its {role}, b\"{shown}\", is not a token");
                to_python(py, Error::tokenizer(message))
            })
        };
        let merged = [&left[..], &right].concat();
        list.push(Merge {
            left: find(&left, "left part")?,
            right: find(&right, "right part")?,
            result: find(&merged, "result")?,
        });
    }
    Ok(list)
}
