//! Arguments from Python: text, ids, special tokens.

use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};

use super::gateway::{run_sized, to_python};
use crate::base::error::{Error, Result};
use crate::base::job::Phase;
use crate::tokenizer::encode::{Recognise, Tokenizer};
use crate::tokenizer::vocab::{Id, Vocab};

/// A `str` or `bytes` argument, borrowed.
pub enum Text<'py> {
    /// A string that Python holds as UTF-8 or has converted to it.
    Str(Bound<'py, PyString>),
    /// `bytes` or `bytearray`.
    Bytes(PyBackedBytes),
}

impl<'py> Text<'py> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            // `of` has called this once without an error; Python keeps the result.
            Text::Str(text) => text.to_str().map_or(&[], str::as_bytes),
            Text::Bytes(bytes) => bytes,
        }
    }

    fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return match text.to_str() {
                Ok(_) => Ok(Text::Str(text.clone())),
                Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(value.py()) => {
                    without_surrogates(text).map(Text::Str)
                }
                Err(error) => Err(error),
            };
        }
        if let Ok(bytes) = value.extract::<PyBackedBytes>() {
            return Ok(Text::Bytes(bytes));
        }
        if let Ok(view) = value.cast::<pyo3::types::PyMemoryView>() {
            let bytes =
                PyBytes::new(value.py(), &view.call_method0("tobytes")?.extract::<Vec<u8>>()?);
            return Ok(Text::Bytes(bytes.extract()?));
        }
        Err(PyTypeError::new_err(format!(
            "text must be str or bytes, not {}",
            value.get_type().name()?
        )))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Text::of(&value)
    }
}

/// A string with lone surrogates has no UTF-8. As in tiktoken, a pair of surrogates becomes its
/// character, and a lone one U+FFFD.
fn without_surrogates<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    let encoded = text.call_method1("encode", ("utf-16", "surrogatepass"))?;
    let decoded = encoded.call_method1("decode", ("utf-16", "replace"))?;
    Ok(decoded.cast_into::<PyString>()?)
}

/// The special tokens that a call recognizes.
pub fn special_choice(tokenizer: &Tokenizer, special: &Bound<'_, PyAny>) -> PyResult<Recognise> {
    let py = special.py();
    if let Ok(word) = special.cast::<PyString>() {
        return match word.to_str()? {
            "all" => Ok(Recognise::All),
            "none" => Ok(Recognise::Nothing),
            "error" => Ok(Recognise::Refuse),
            other => Err(to_python(
                py,
                Error::config(format!("special={other:?} is not \"all\", \"none\" or \"error\""))
                    .with_hint("to recognize some special tokens only, give a set of them"),
            )),
        };
    }
    let refuse = |value: &Bound<'_, PyAny>, rule: &str| match value.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("{rule}, not {kind}")),
        Err(error) => error,
    };
    let Ok(items) = special.try_iter() else {
        let rule = "special must be \"all\", \"none\", \"error\" or a set of special tokens";
        return Err(refuse(special, rule));
    };
    let mut texts = Vec::new();
    for item in items {
        let item = item?;
        let Ok(text) = item.extract::<String>() else {
            return Err(refuse(&item, "special tokens must be str"));
        };
        texts.push(text);
    }
    texts.sort_unstable();
    texts.dedup();
    tokenizer.recognise_some(&texts).map_err(|error| to_python(py, error))
}

/// Ids to decode.
pub enum Ids<'py> {
    /// A contiguous array, borrowed.
    Wide(numpy::PyReadonlyArray1<'py, u32>),
    /// A contiguous array, borrowed.
    Narrow(numpy::PyReadonlyArray1<'py, u16>),
    /// Anything else, copied.
    Copied(Vec<u32>),
}

/// Ids that are decoded between two checks for cancellation.
const IDS_PER_CHECK: usize = 1 << 18;

impl Ids<'_> {
    /// Decodes into the value that `make` creates, given the number of bytes and a function that writes
    /// them.
    pub fn decode<B>(
        &self,
        py: Python<'_>,
        vocab: &Vocab,
        make: impl FnOnce(usize, &dyn Fn(&mut [u8]) -> PyResult<()>) -> PyResult<B>,
    ) -> PyResult<B> {
        match self {
            Ids::Wide(array) => decode_ids(py, vocab, array.as_slice().unwrap_or_default(), make),
            Ids::Narrow(array) => decode_ids(py, vocab, array.as_slice().unwrap_or_default(), make),
            Ids::Copied(ids) => decode_ids(py, vocab, ids, make),
        }
    }
}

fn decode_ids<I: Id + Sync, B>(
    py: Python<'_>,
    vocab: &Vocab,
    ids: &[I],
    make: impl FnOnce(usize, &dyn Fn(&mut [u8]) -> PyResult<()>) -> PyResult<B>,
) -> PyResult<B> {
    let chunks = || ids.chunks(IDS_PER_CHECK);
    let sizes = run_sized(py, ids.len(), Phase::Encode, |job| {
        let mut first = 0;
        chunks()
            .map(|chunk| {
                job.check()?;
                let size = vocab.decoded_len(chunk, first);
                first += chunk.len();
                size
            })
            .collect::<Result<Vec<usize>>>()
    })?;
    let size: usize = sizes.iter().sum();
    make(size, &|out| {
        run_sized(py, size, Phase::Encode, |job| {
            let mut rest = out;
            for (chunk, &size) in chunks().zip(&sizes) {
                job.check()?;
                let (here, later) = rest.split_at_mut(size);
                vocab.decode_into(chunk, here);
                rest = later;
            }
            Ok(())
        })
    })
}

/// Ids from a list, a numpy array or any other iterable of integers; a contiguous array is borrowed.
pub fn ids_to_decode<'py>(vocab: &Vocab, value: &Bound<'py, PyAny>) -> PyResult<Ids<'py>> {
    if value.get_type().name()?.to_string_lossy() == "ndarray" {
        if let Ok(array) = value.extract::<numpy::PyReadonlyArray1<'_, u32>>()
            && array.as_slice().is_ok()
        {
            return Ok(Ids::Wide(array));
        }
        if let Ok(array) = value.extract::<numpy::PyReadonlyArray1<'_, u16>>()
            && array.as_slice().is_ok()
        {
            return Ok(Ids::Narrow(array));
        }
    }
    ids(vocab, value).map(Ids::Copied)
}

/// Ids from a list, a numpy array or any other iterable of integers, copied.
pub fn ids(vocab: &Vocab, value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    if let Ok(list) = value.cast::<PyList>() {
        let mut ids = Vec::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            ids.push(id(vocab, &item, at)?);
        }
        return Ok(ids);
    }
    // Recognised by name, because asking numpy would import it.
    if value.get_type().name()?.to_string_lossy() == "ndarray" {
        if let Ok(array) = value.extract::<numpy::PyReadonlyArray1<'_, u32>>() {
            return Ok(array.as_array().iter().copied().collect());
        }
        if let Ok(array) = value.extract::<numpy::PyReadonlyArray1<'_, u16>>() {
            return Ok(array.as_array().iter().map(|&id| u32::from(id)).collect());
        }
        return ids(vocab, &value.call_method0("tolist")?);
    }
    let mut ids = Vec::new();
    for (at, item) in value.try_iter()?.enumerate() {
        ids.push(id(vocab, &item?, at)?);
    }
    Ok(ids)
}

/// An id; `at` is its position, for messages.
pub fn id(vocab: &Vocab, value: &Bound<'_, PyAny>, at: usize) -> PyResult<u32> {
    if let Ok(id) = value.extract::<u32>() {
        return Ok(id);
    }
    let py = value.py();
    if value.is_instance_of::<PyInt>() || value.hasattr("__index__")? {
        return Err(to_python(py, vocab.unknown_id(value.str()?, at)));
    }
    Err(PyTypeError::new_err(format!(
        "an id must be an integer, not {} (at position {at})",
        value.get_type().name()?
    )))
}
