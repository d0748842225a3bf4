//! `Counts` and `learn`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::convert::Text;
use super::gateway::{run, threads, to_python};
use super::tokenizer::Core;
use crate::corpus::Cutter;
use crate::counts::{CHUNK_SIZE, Counts as Inner};
use crate::encode::Tokenizer;
use crate::error::Error;
use crate::job::{Job, Phase};
use crate::learn as learning;
use crate::merges::{Options, TieBreak};

/// How often each piece occurs.
#[pyclass(frozen, module = "bytemill._native")]
pub struct Counts {
    inner: Mutex<Inner>,
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Counts {
    #[new]
    #[pyo3(signature = (pattern, special_tokens, threads=None))]
    fn new(
        py: Python<'_>,
        pattern: Vec<String>,
        special_tokens: Vec<String>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let cutter = Cutter::new(&pattern, &special_tokens).map_err(|e| to_python(py, e))?;
        let threads = self::threads(py, threads)?;
        Ok(Counts { inner: Mutex::new(Inner::new(cutter, threads)) })
    }

    /// Counts files.
    #[pyo3(signature = (paths, progress=None, chunk_size=None))]
    fn add_files(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        progress: Option<&Bound<'_, PyAny>>,
        chunk_size: Option<usize>,
    ) -> PyResult<()> {
        let chunk_size = chunk_size.unwrap_or(CHUNK_SIZE).max(1);
        let job = Job::new(Phase::Count, 0);
        run(py, &job, progress, |job| self.lock().add_files(&paths, chunk_size, job))
    }

    /// Counts texts.
    fn add_texts(&self, py: Python<'_>, texts: Vec<Text<'_>>) -> PyResult<()> {
        let slices: Vec<&[u8]> = texts.iter().map(Text::bytes).collect();
        let job = Job::new(Phase::Count, 0);
        run(py, &job, None, |job| self.lock().add_texts(&slices, job))
    }

    /// Every piece with its count, in byte order.
    fn items<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, u64)> {
        let list = self.lock().sorted();
        list.iter().map(|(piece, count)| (PyBytes::new(py, piece), count)).collect()
    }

    #[getter]
    fn bytes_read(&self) -> u64 {
        self.lock().bytes_read()
    }

    /// How many pieces were counted, the same one every time it occurs.
    #[getter]
    fn total(&self) -> u64 {
        self.lock().sorted().iter().map(|(_, count)| count).sum()
    }

    fn __len__(&self) -> usize {
        self.lock().n_pieces()
    }
}

/// Learns a tokenizer from counts.
#[pyfunction]
#[pyo3(signature = (counts, *, vocab_size, special_tokens, tie_break, min_frequency,
                    min_piece_count, max_token_length, extend_from, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn learn(
    py: Python<'_>,
    counts: &Bound<'_, Counts>,
    vocab_size: usize,
    special_tokens: Vec<String>,
    tie_break: &str,
    min_frequency: u64,
    min_piece_count: u64,
    max_token_length: Option<usize>,
    extend_from: Option<&Bound<'_, Core>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Core> {
    let tie_break = match tie_break {
        "bytes" => TieBreak::Bytes,
        "huggingface" => TieBreak::HuggingFace,
        other => {
            let error = Error::config(format!("tie_break={other:?} is not known"))
                .with_hint("use \"bytes\" or \"huggingface\"");
            return Err(to_python(py, error));
        }
    };
    let options = Options {
        tie_break,
        min_frequency,
        max_token_length: max_token_length.unwrap_or(usize::MAX),
        ..Options::default()
    };
    let counts = counts.get();
    let base = extend_from.map(|core| core.get().tokenizer());
    let job = Job::new(Phase::Merge, 0);
    run(py, &job, progress, |job| {
        let mut counts = counts.lock();
        let spec = match base {
            None => learning::learn(
                &mut counts,
                vocab_size,
                &special_tokens,
                min_piece_count,
                &options,
                job,
            ),
            Some(base) => learning::extend(
                base,
                &mut counts,
                vocab_size,
                &special_tokens,
                min_piece_count,
                &options,
                job,
            ),
        }?;
        Tokenizer::new(&spec)
    })
    .map(Core::new)
}
