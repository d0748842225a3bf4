//! `Counts`, and the functions of them: `learn`, `tokens_by_size`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::convert::Text;
use super::core::Core;
use super::corpus::InputsOrPaths;
use super::gateway::{run, threads, to_python};
use crate::base::error::{Error, Result};
use crate::base::job::{Job, Phase};
use crate::learn::counts::{BLOCK_SIZE, Counts, Cursor, Limit, SortedCounts, Stats};
use crate::learn::merges::{MAX_TOKEN_LENGTH, Options, TieBreak};
use crate::text::cutter::Cutter;
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::learn::{self as learning, Target};

/// How often each piece occurs.
#[pyclass(name = "Counts", frozen, module = "bytemill._native")]
pub struct PyCounts {
    inner: Mutex<Counts>,
}

impl PyCounts {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyCounts {
    #[new]
    #[pyo3(signature = (pattern, special_tokens, threads=None))]
    fn new(
        py: Python<'_>,
        pattern: Vec<String>,
        special_tokens: Vec<String>,
        threads: Option<i64>,
    ) -> PyResult<Self> {
        let cutter = Cutter::new(&pattern, &special_tokens).map_err(|e| to_python(py, e))?;
        let inner = Counts::new(cutter, self::threads(py, threads)?);
        Ok(PyCounts { inner: Mutex::new(inner) })
    }

    /// Opens a counts file.
    #[staticmethod]
    #[pyo3(signature = (path, threads=None, progress=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<i64>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let threads = self::threads(py, threads)?;
        let job = Job::new(Phase::Gather, 0);
        let inner = run(py, &job, progress, |job| Counts::open(&path, threads, job))?;
        Ok(PyCounts { inner: Mutex::new(inner) })
    }

    /// Limits memory to `available` bytes beyond what the process uses now; `total` is the limit that
    /// the user set, for messages. Counts that do not fit go to `spill_dir`.
    #[pyo3(signature = (available, total, spill_dir=None))]
    fn set_limit(&self, py: Python<'_>, available: u64, total: u64, spill_dir: Option<PathBuf>) {
        py.detach(|| {
            let mut inner = self.lock();
            inner.set_limit(Some(Limit { available, total }));
            if let Some(directory) = spill_dir {
                inner.set_spill_dir(directory);
            }
        });
    }

    /// Counts files.
    #[pyo3(signature = (paths, progress=None, block_size=None))]
    fn add_files(
        &self,
        py: Python<'_>,
        paths: InputsOrPaths,
        progress: Option<&Bound<'_, PyAny>>,
        block_size: Option<usize>,
    ) -> PyResult<()> {
        let block_size = block_size.unwrap_or(BLOCK_SIZE).max(1);
        let job = Job::new(Phase::Count, 0);
        run(py, &job, progress, |job| self.lock().add_corpus(&paths.0, block_size, job))
    }

    /// Counts texts.
    fn add_texts(&self, py: Python<'_>, texts: Vec<Text<'_>>) -> PyResult<()> {
        let slices: Vec<&[u8]> = texts.iter().map(Text::bytes).collect();
        let job = Job::new(Phase::Count, 0);
        run(py, &job, None, |job| self.lock().add_texts(&slices, job))
    }

    /// Adds other counts to these.
    #[pyo3(signature = (other, progress=None))]
    fn merge(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, PyCounts>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        if slf.is(other) {
            let error = Error::config("counts cannot be merged with themselves");
            return Err(to_python(py, error));
        }
        let (this, other) = (slf.get(), other.get());
        let job = Job::new(Phase::Gather, 0);
        run(py, &job, progress, |job| {
            // Always locked in the order of addresses: two threads that merge crosswise would deadlock.
            let (mut this, mut other) = if std::ptr::from_ref(this) < std::ptr::from_ref(other) {
                let first = this.lock();
                (first, other.lock())
            } else {
                let first = other.lock();
                (this.lock(), first)
            };
            this.merge(&mut other, job)
        })
    }

    /// Adds a counts file, which is moved to the spill directory and deleted with the counts.
    #[pyo3(signature = (path, progress=None))]
    fn take_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let job = Job::new(Phase::Gather, 0);
        run(py, &job, progress, |job| self.lock().take_file(&path, job))
    }

    /// Writes a counts file.
    #[pyo3(signature = (path, progress=None))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let job = Job::new(Phase::Gather, 0);
        run(py, &job, progress, |job| self.lock().save(&path, job))
    }

    /// Merges runs on disk, if there are several, which any other use would do first.
    #[pyo3(signature = (progress=None))]
    fn gather(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        if !py.detach(|| self.lock().is_scattered()) {
            return Ok(());
        }
        let job = Job::new(Phase::Gather, 0);
        run(py, &job, progress, |job| self.lock().stats(job).map(|_| ()))
    }

    /// Drops all counts and deletes their files.
    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.lock().clear());
    }

    /// Every piece with its count, in byte order.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let job = Job::new(Phase::Gather, 0);
        let list = run(py, &job, None, |job| self.lock().sorted(job))?;
        Ok(list.iter().map(|(piece, count)| (PyBytes::new(py, piece), count)).collect())
    }

    /// The most common pieces.
    #[pyo3(signature = (n, /))]
    fn top<'py>(&self, py: Python<'py>, n: usize) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let job = Job::new(Phase::Gather, 0);
        let best = run(py, &job, None, |job| self.lock().top(n, job))?;
        Ok(best.iter().map(|(piece, count)| (PyBytes::new(py, piece), *count)).collect())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<CountsIterator> {
        let job = Job::new(Phase::Gather, 0);
        let cursor = run(py, &job, None, |job| self.lock().cursor(job))?;
        Ok(CountsIterator { cursor: Mutex::new(cursor) })
    }

    #[getter]
    fn bytes_read(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().bytes_read())
    }

    #[getter]
    fn pattern(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.lock().pattern())
    }

    /// In byte order.
    #[getter]
    fn special_tokens(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.lock().special_tokens())
    }

    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> String {
        py.detach(|| self.lock().fingerprint())
    }

    /// Skipped records, by reason.
    #[getter]
    fn skipped(&self, py: Python<'_>) -> BTreeMap<String, u64> {
        py.detach(|| self.lock().skipped().0.clone())
    }

    /// The sum of the counts.
    #[getter]
    fn total(&self, py: Python<'_>) -> PyResult<u64> {
        self.stats(py).map(|stats| stats.total)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.stats(py).map(|stats| stats.n_pieces as usize)
    }
}

impl PyCounts {
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        let job = Job::new(Phase::Gather, 0);
        run(py, &job, None, |job| self.lock().stats(job).cloned())
    }
}

/// Iterates over pieces and counts in byte order.
#[pyclass(frozen, module = "bytemill._native")]
pub struct CountsIterator {
    cursor: Mutex<Cursor>,
}

#[pymethods]
impl CountsIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, u64)>> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        match cursor.advance() {
            Ok(true) => Ok(Some((PyBytes::new(py, cursor.piece()), cursor.count()))),
            Ok(false) => Ok(None),
            Err(error) => Err(to_python(py, error)),
        }
    }
}

/// `bytemill._options.LearnOptions`.
#[derive(FromPyObject)]
pub struct LearnOptions<'py> {
    vocab_size: usize,
    special_tokens: Vec<String>,
    tie_break: String,
    min_frequency: u64,
    min_piece_count: u64,
    max_token_length: Option<usize>,
    extend_from: Option<Bound<'py, Core>>,
    free_counts: bool,
}

impl LearnOptions<'_> {
    fn target(&self) -> Result<Target<'_>> {
        let tie_break = match self.tie_break.as_str() {
            "bytes" => TieBreak::Bytes,
            "huggingface" => TieBreak::HuggingFace,
            "rustbpe" => TieBreak::RustBpe,
            // `train_tokenizer` checks it before the corpus is counted.
            other => return Err(Error::Bug(format!("tie_break={other:?} is not known"))),
        };
        Ok(Target {
            vocab_size: self.vocab_size,
            special_tokens: &self.special_tokens,
            min_piece_count: self.min_piece_count,
            free_counts: self.free_counts,
            merging: Options {
                tie_break,
                min_frequency: self.min_frequency,
                max_token_length: self.max_token_length.unwrap_or(MAX_TOKEN_LENGTH),
                ..Options::default()
            },
        })
    }
}

/// Learns a tokenizer from counts.
#[pyfunction]
#[pyo3(signature = (counts, options, progress=None))]
pub fn learn(
    py: Python<'_>,
    counts: &Bound<'_, PyCounts>,
    options: LearnOptions<'_>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Core> {
    let target = options.target().map_err(|error| to_python(py, error))?;
    let base = options.extend_from.as_ref().map(|core| core.get().tokenizer());
    let counts = counts.get();
    let job = Job::new(Phase::Merge, 0);
    run(py, &job, progress, |job| {
        let mut counts = counts.lock();
        let spec = match base {
            None => learning::learn(&mut counts, &target, job),
            Some(base) => learning::extend(base, &mut counts, &target, job),
        }?;
        Tokenizer::new(&spec)
    })
    .map(Core::new)
}

/// The number of tokens of the counted pieces, by the number of merges of the vocabulary.
#[pyfunction]
#[pyo3(signature = (core, counts, /))]
pub fn tokens_by_size<'py>(
    py: Python<'py>,
    core: &Bound<'py, Core>,
    counts: &Bound<'py, PyCounts>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (tokenizer, counts) = (core.get().tokenizer(), counts.get());
    let job = Job::new(Phase::Gather, 0);
    let found = run(py, &job, None, |job| tokenizer.tokens_by_size(&mut counts.lock(), job))?;
    Ok(found.into_pyarray(py))
}
