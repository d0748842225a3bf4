//! `Inputs`: the sources of a corpus, some of which Python objects read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList};

use super::arrow::Column;
use super::convert::Text;
use super::gateway::{POLL_INTERVAL, to_python};
use crate::base::error::{Error, Result};
use crate::base::job::{Job, Phase};
use crate::base::threads::background;
use crate::corpus::{
    self, BlockBuffers, Choice, Chosen, Context, FileKind, GivenRows, InOrder, Input, Location,
    Nulls, OnError, Pipe, Reading, RowBatch, RowBatches, RowSource, Skipped, Source,
    SourcePosition, Storage, ended_early,
};
use crate::text::cutter::Cutter;

/// The sources of a corpus.
#[pyclass(name = "Inputs", frozen, module = "bytemill._native")]
pub struct PyInputs {
    inner: Arc<corpus::Inputs>,
}

/// `bytemill.corpus.places.Entry`, as far as reading depends on it.
#[derive(FromPyObject)]
struct EntryArgument<'py> {
    /// For results and messages.
    name: String,
    format: String,
    /// None for all.
    range: Option<(u64, u64)>,
    /// None for a local file.
    reader: Option<Bound<'py, PyAny>>,
    /// The path of a local file; None if it is the name.
    path: Option<PathBuf>,
}

/// `bytemill._options.Reading`.
#[derive(FromPyObject)]
struct ReadingArgument {
    text_field: String,
    on_error: String,
    null: String,
    separator: Option<String>,
    max_document: Option<usize>,
    max_ratio: Option<u64>,
    max_window: Option<u64>,
    include: Vec<String>,
    exclude: Vec<String>,
}

impl ReadingArgument {
    fn checked(self) -> Result<Reading> {
        let default = Reading::default();
        let on_error = match self.on_error.as_str() {
            "stop" => OnError::Stop,
            "skip" => OnError::Skip,
            other => {
                return Err(Error::config(format!("on_error={other:?} is not known"))
                    .with_hint("use \"stop\" or \"skip\""));
            }
        };
        let nulls = match self.null.as_str() {
            "keep" => Nulls::Keep,
            "skip" => Nulls::Skip,
            "error" => Nulls::Error,
            other => {
                return Err(Error::config(format!("null={other:?} is not known"))
                    .with_hint("use \"keep\", \"skip\" or \"error\""));
            }
        };
        let separator = self.separator.map(String::into_bytes);
        if separator.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::config("separator must not be empty"));
        }
        let reading = Reading {
            on_error,
            nulls,
            separator,
            max_document: self.max_document.unwrap_or(default.max_document),
            max_ratio: self.max_ratio.unwrap_or(default.max_ratio),
            max_window: self.max_window.unwrap_or(default.max_window),
            choice: Choice { include: self.include, exclude: self.exclude },
            ..default
        };
        Ok(reading.with_field(&self.text_field))
    }
}

#[pymethods]
impl PyInputs {
    #[new]
    fn new(
        py: Python<'_>,
        entries: Vec<EntryArgument<'_>>,
        reading: ReadingArgument,
    ) -> PyResult<Self> {
        let reading = reading.checked().map_err(|error| to_python(py, error))?;
        let list = entries.into_iter().map(|entry| input(py, entry)).collect::<PyResult<_>>()?;
        Ok(PyInputs { inner: Arc::new(corpus::Inputs { list, reading }) })
    }

    fn __len__(&self) -> usize {
        self.inner.list.len()
    }

    #[getter]
    fn formats(&self) -> Vec<String> {
        self.inner.list.iter().map(|input| input.kind.to_string()).collect()
    }

    /// The text of each source in blocks, up to its limit in bytes.
    fn texts(
        &self,
        py: Python<'_>,
        special_tokens: Vec<String>,
        limits: Vec<u64>,
        block_size: usize,
    ) -> PyResult<PyTexts> {
        let cutter =
            Cutter::new(&["gpt2"], &special_tokens).map_err(|error| to_python(py, error))?;
        let inputs = Arc::clone(&self.inner);
        let (sender, blocks) = sync_channel(2);
        let skipped = Arc::new(Mutex::new(Skipped::default()));
        let shared = Arc::clone(&skipped);
        background(move || {
            let send = |block| sender.send(Ok(block)).is_ok();
            if let Err(error) = read_up_to(&inputs, &cutter, &limits, block_size, &shared, send) {
                // The receiver may be gone.
                let _ = sender.send(Err(error));
            }
        })
        .map_err(|error| to_python(py, error))?;
        Ok(PyTexts { blocks: Mutex::new(blocks), skipped, file_bytes: AtomicU64::new(0) })
    }
}

/// The number of the source, the offset in its text, the documents or the running text, and the number
/// of stored bytes that were read for them.
type TextBlock = (usize, u64, Vec<Vec<u8>>, u64);

fn read_up_to(
    inputs: &corpus::Inputs,
    cutter: &Cutter,
    limits: &[u64],
    block_size: usize,
    all_skipped: &Mutex<Skipped>,
    mut each: impl FnMut(TextBlock) -> bool,
) -> Result<()> {
    let sources = inputs.sources()?;
    let job = &Job::new(Phase::Count, 0);
    let context = Context {
        cutter,
        reading: &inputs.reading,
        block_size: block_size.max(1),
        open_pieces: false,
        job,
    };
    let (mut buffers, mut skipped) = (BlockBuffers::default(), Skipped::default());
    for (number, &limit) in limits.iter().enumerate() {
        let mut blocks =
            InOrder::new(inputs, &sources, context, (number, SourcePosition::default()));
        let mut given = 0;
        while given < limit
            && let Some(mut block) = blocks.next_block()?
            && block.number == number
        {
            let mut texts = Vec::new();
            let start = given;
            block.read(&context, &mut buffers, &mut skipped, &mut |text| {
                match text {
                    corpus::BlockText::Running { text, .. } => texts.push(text.to_vec()),
                    corpus::BlockText::Documents(documents) => {
                        texts.extend(documents.iter().map(|text| text.to_vec()));
                    }
                }
                Ok(())
            })?;
            all_skipped.lock().unwrap_or_else(PoisonError::into_inner).take(&mut skipped);
            // Text is cut at the limit; a document is returned whole or not at all.
            let mut left = limit - given;
            texts.retain_mut(|text| {
                let fits = left > 0;
                if sources[number].format.is_empty() && inputs.reading.separator.is_none() {
                    text.truncate(left as usize);
                }
                left = left.saturating_sub(text.len() as u64);
                fits
            });
            given += texts.iter().map(|text| text.len() as u64).sum::<u64>();
            if !each((number, start, texts, block.weight)) {
                return Ok(());
            }
            if block.ends_source {
                break;
            }
        }
    }
    Ok(())
}

/// An iterator over blocks of text.
#[pyclass(name = "Texts", frozen, module = "bytemill._native")]
pub struct PyTexts {
    blocks: Mutex<Receiver<Result<TextBlock>>>,
    skipped: Arc<Mutex<Skipped>>,
    file_bytes: AtomicU64,
}

#[pymethods]
impl PyTexts {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// The number of records skipped so far, by reason.
    #[getter]
    fn skipped(&self) -> BTreeMap<String, u64> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The number of stored bytes read so far.
    #[getter]
    fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Relaxed)
    }

    #[allow(clippy::type_complexity)]
    fn __next__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(usize, u64, Vec<Bound<'py, PyBytes>>)>> {
        let next = || {
            let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.recv_timeout(POLL_INTERVAL)
        };
        let next = loop {
            match py.detach(next) {
                // The source may be slow.
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                other => break other,
            }
        };
        match next {
            Err(_) => Ok(None),
            Ok(Err(error)) => Err(to_python(py, error)),
            Ok(Ok((number, offset, texts, weight))) => {
                let texts = texts.iter().map(|text| PyBytes::new(py, text)).collect();
                self.file_bytes.fetch_add(weight, Relaxed);
                Ok(Some((number, offset, texts)))
            }
        }
    }
}

fn input(py: Python<'_>, entry: EntryArgument<'_>) -> PyResult<Input> {
    let EntryArgument { name, format, range, reader, path } = entry;
    let kind = FileKind::parse(&format).map_err(|error| to_python(py, error))?;
    let location = match reader {
        // The name is not the path if the path is not UTF-8.
        None => Location::File(path.unwrap_or_else(|| PathBuf::from(&name))),
        Some(reader) => {
            let source = Source {
                path: name.clone(),
                size: reader.getattr("size")?.extract()?,
                mtime_ns: reader.getattr("mtime_ns")?.extract()?,
                version: reader.getattr("version")?.extract()?,
                format: String::new(),
                range: None,
            };
            if reader.hasattr("next_bytes")? {
                Location::Pipe(Arc::new(PyPipe { reader: reader.unbind() }), source)
            } else if reader.hasattr("read_range")? {
                let (size, reader) = (source.size, reader.unbind());
                Location::Storage(Arc::new(PyStorage { name: name.clone(), size, reader }), source)
            } else {
                Location::Rows(Arc::new(PyRows { reader: reader.unbind() }), source)
            }
        }
    };
    Ok(Input { name, location, kind, range })
}

/// An argument that is `Inputs`, or a list of paths whose formats follow from their names.
pub struct InputsOrPaths(pub Arc<corpus::Inputs>);

impl<'a, 'py> FromPyObject<'a, 'py> for InputsOrPaths {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(inputs) = value.cast::<PyInputs>() {
            return Ok(InputsOrPaths(Arc::clone(&inputs.get().inner)));
        }
        let paths: Vec<PathBuf> = value.extract()?;
        Ok(InputsOrPaths(Arc::new(corpus::Inputs::of_files(&paths))))
    }
}

/// The format of a file by `format`, or by its name if that is None.
#[pyfunction]
#[pyo3(signature = (name, format=None, /))]
pub fn input_format(py: Python<'_>, name: &str, format: Option<&str>) -> PyResult<String> {
    let kind = match format {
        None => FileKind::of_name(name),
        Some(format) => FileKind::parse(format).map_err(|error| to_python(py, error))?,
    };
    Ok(kind.to_string())
}

/// The format of a file by its name, or None if its extension is unknown.
#[pyfunction]
#[pyo3(signature = (name, /))]
pub fn named_format(name: &str) -> Option<String> {
    FileKind::named(name).map(|kind| kind.to_string())
}

/// Whether a file describes a corpus rather than belonging to it.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub fn is_about(path: &str) -> bool {
    corpus::is_about(path)
}

/// The decision of globs on a file: `"included"`, `"not included"`, `"excluded"`, or None.
#[pyfunction]
#[pyo3(signature = (path, include, exclude, /))]
pub fn chosen_by(path: &str, include: Vec<String>, exclude: Vec<String>) -> Option<&'static str> {
    match (Choice { include, exclude }).of(path) {
        Chosen::Included => Some("included"),
        Chosen::NotIncluded => Some("not included"),
        Chosen::Excluded => Some("excluded"),
        Chosen::Open => None,
    }
}

/// Why a file that begins with `head` is not text, or None if it is.
#[pyfunction]
#[pyo3(signature = (head, /))]
pub fn not_text(head: &[u8]) -> Option<&'static str> {
    corpus::not_text(head).map(|(what, _)| what)
}

fn foreign(error: PyErr) -> Error {
    Error::Foreign(Box::new(error))
}

/// Bytes that a Python object reads in ranges.
#[derive(Debug)]
struct PyStorage {
    name: String,
    size: u64,
    reader: Py<PyAny>,
}

impl Storage for PyStorage {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        Python::attach(|py| {
            let end = offset + buffer.len() as u64;
            let data = self.reader.bind(py).call_method1("read_range", (offset, end));
            let data = data.and_then(|data| Ok(data.cast_into::<PyBytes>()?)).map_err(foreign)?;
            let data = data.as_bytes();
            if data.len() != buffer.len() {
                return Err(ended_early(&self.name, offset, buffer.len()));
            }
            buffer.copy_from_slice(data);
            Ok(())
        })
    }

    fn check(&self, _: &Source) -> Result<()> {
        Python::attach(|py| self.reader.bind(py).call_method0("check").map(|_| ()).map_err(foreign))
    }

    fn stride(&self) -> usize {
        // The cost of a request hardly depends on its size.
        8 << 20
    }
}

/// Bytes that a Python object returns as they arrive.
#[derive(Debug)]
struct PyPipe {
    reader: Py<PyAny>,
}

impl Pipe for PyPipe {
    fn begin(&self) -> Result<()> {
        Python::attach(|py| self.reader.bind(py).call_method0("begin").map(|_| ()).map_err(foreign))
    }

    fn next(&self, patience: Duration) -> Result<Option<Vec<u8>>> {
        Python::attach(|py| {
            let next = self.reader.bind(py).call_method1("next_bytes", (patience.as_secs_f64(),));
            let bytes = |next: Bound<'_, PyAny>| match next.is_none() {
                true => Ok(None),
                false => Ok(Some(next.cast_into::<PyBytes>()?.as_bytes().to_vec())),
            };
            next.and_then(bytes).map_err(foreign)
        })
    }
}

/// Rows that a Python object returns in batches.
#[derive(Debug)]
struct PyRows {
    reader: Py<PyAny>,
}

impl RowSource for PyRows {
    fn open(&self, from: SourcePosition) -> Result<RowBatches> {
        Python::attach(|py| {
            let batches =
                self.reader.bind(py).call_method1("batches", (from.section, from.records));
            let batches = batches.and_then(|batches| batches.try_iter()).map_err(foreign)?;
            Ok(Box::new(PyBatches { batches: batches.unbind() }) as RowBatches)
        })
    }
}

struct PyBatches {
    batches: Py<PyIterator>,
}

impl Iterator for PyBatches {
    type Item = Result<GivenRows>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| {
            let next = self.batches.bind(py).clone().next()?;
            Some(next.and_then(|next| given_rows(&next)).map_err(foreign))
        })
    }
}

/// From (texts, row group, rows before, whether the row group ends, weight), or from (reason, row
/// group, records) for a row group that cannot be read.
fn given_rows(value: &Bound<'_, PyAny>) -> PyResult<GivenRows> {
    if let Ok((kind, row_group, n)) = value.extract::<(String, u64, u64)>() {
        let (batch, fault) = (Arc::new(Strings::default()), Some((kind, n)));
        return Ok(GivenRows {
            batch,
            row_group,
            first: 0,
            ends_row_group: true,
            weight: 0,
            fault,
        });
    }
    let (texts, row_group, first, ends_row_group, weight): (Bound<'_, PyAny>, u64, u64, bool, u64) =
        value.extract()?;
    let batch: Arc<dyn RowBatch> = match texts.cast::<PyList>() {
        Ok(list) => Arc::new(Strings::of(list, first)?),
        Err(_) => Arc::new(Column::of(&texts)?),
    };
    Ok(GivenRows { batch, row_group, first, ends_row_group, weight, fault: None })
}

/// Copies of strings, which Python need not hold as UTF-8.
#[derive(Debug, Default)]
struct Strings {
    text: Vec<u8>,
    /// The end of each, and whether it is not `None`.
    ends: Vec<(usize, bool)>,
}

impl Strings {
    fn of(list: &Bound<'_, PyList>, first: u64) -> PyResult<Self> {
        let mut strings = Strings::default();
        for (number, item) in list.iter().enumerate() {
            if !item.is_none() {
                let text: Text<'_> = item.extract().map_err(|_: PyErr| {
                    let number = first + number as u64;
                    match item.get_type().name() {
                        Ok(name) => PyTypeError::new_err(format!(
                            "texts must be str or bytes; item {number} is {name}"
                        )),
                        Err(error) => error,
                    }
                })?;
                strings.text.extend_from_slice(text.bytes());
            }
            strings.ends.push((strings.text.len(), !item.is_none()));
        }
        Ok(strings)
    }
}

impl RowBatch for Strings {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        let start = if row == 0 { 0 } else { self.ends.get(row - 1)?.0 };
        let (end, there) = *self.ends.get(row)?;
        there.then(|| &self.text[start..end])
    }

    fn is_callers_own(&self) -> bool {
        true
    }
}
