//! All PyO3 code: the module `bytemill._native`.
//!
//! Text is borrowed, arrays are passed without a copy, and every call that may take long goes through
//! [`gateway::run`], which releases the GIL, checks for Ctrl-C and converts errors. More than a few
//! options cross as one Python object (`bytemill._options`) whose attributes are read by name; unknown
//! values are errors. Policy (defaults, paths, messages about usage) is in the Python package.

mod arrow;
mod convert;
mod core;
mod corpus;
mod counts;
mod gateway;
mod passes;
mod step;
mod tokens;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::base::error::Error;
use crate::base::job::Phase;
use crate::text::pattern::{self, Pattern};
use crate::tokenizer::formats::{self, TokenizerFormat};
use convert::Text;
use gateway::{run_sized, to_python};

/// The canonical name of a pattern given by name or by a known spelling.
#[pyfunction]
#[pyo3(signature = (pattern, /))]
fn known_pattern(pattern: &str) -> Option<&'static str> {
    pattern::known(pattern)
}

/// The stage for a regular expression of a file or of another library, which must not read like a name.
#[pyfunction]
#[pyo3(signature = (regex, /))]
fn regex_stage(py: Python<'_>, regex: &str) -> PyResult<String> {
    formats::regex_stage(regex).map_err(|error| to_python(py, error))
}

/// The regular expression of a named pattern, in tiktoken's spelling.
#[pyfunction]
#[pyo3(signature = (name, /))]
fn pattern_regex(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    pattern::tiktoken_regex(name).ok_or_else(|| {
        let error = Error::config(format!("unknown pattern {name:?}"))
            .with_hint(format!("known are {}", pattern::NAMES.join(", ")));
        to_python(py, error)
    })
}

/// The pieces of a text.
#[pyfunction]
#[pyo3(signature = (pattern, text, /))]
fn split<'py>(
    py: Python<'py>,
    pattern: Vec<String>,
    text: Text<'py>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let pattern = Pattern::new(&pattern).map_err(|e| to_python(py, e))?;
    let text = text.bytes();
    let sizes = run_sized(py, text.len(), Phase::Encode, |_| {
        let mut sizes = Vec::new();
        pattern.split(text, |piece| sizes.push(piece.len()))?;
        Ok(sizes)
    })?;
    let mut rest = text;
    let piece = |size| {
        let (piece, later) = rest.split_at(size);
        rest = later;
        PyBytes::new(py, piece)
    };
    Ok(sizes.into_iter().map(piece).collect())
}

/// The number of threads of calls that do not set it.
#[pyfunction]
fn default_threads(py: Python<'_>) -> PyResult<usize> {
    gateway::threads(py, None)
}

/// The kind of a tokenizer file, by its content.
#[pyfunction]
#[pyo3(signature = (data, /))]
fn recognise(data: &[u8]) -> Option<&'static str> {
    formats::recognise(data).map(|kind| match kind {
        TokenizerFormat::TokenizerJson => "huggingface",
        TokenizerFormat::Gpt2Vocab => "gpt2-vocab",
        TokenizerFormat::Gpt2Merges => "gpt2-merges",
        TokenizerFormat::Tiktoken => "tiktoken",
        TokenizerFormat::Minbpe => "minbpe",
    })
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    crate::base::job::set_caller_check(gateway::check_signals);
    crate::base::memory::limit_arenas();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("UNICODE_VERSION", pattern::UNICODE_VERSION)?;
    module.add("MAX_TOKENS", crate::tokenizer::vocab::MAX_TOKENS)?;
    module.add("PATTERNS", PyTuple::new(py, pattern::NAMES)?)?;
    module.add_function(wrap_pyfunction!(known_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(regex_stage, module)?)?;
    module.add_function(wrap_pyfunction!(pattern_regex, module)?)?;
    module.add_function(wrap_pyfunction!(split, module)?)?;
    module.add_function(wrap_pyfunction!(default_threads, module)?)?;
    module.add_function(wrap_pyfunction!(recognise, module)?)?;
    module.add_function(wrap_pyfunction!(corpus::input_format, module)?)?;
    module.add_function(wrap_pyfunction!(corpus::named_format, module)?)?;
    module.add_function(wrap_pyfunction!(corpus::is_about, module)?)?;
    module.add_function(wrap_pyfunction!(corpus::chosen_by, module)?)?;
    module.add_function(wrap_pyfunction!(corpus::not_text, module)?)?;
    module.add_function(wrap_pyfunction!(counts::learn, module)?)?;
    module.add_function(wrap_pyfunction!(counts::tokens_by_size, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::encode_range, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::deal_part, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::assemble_shard, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::check_shard, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::compare_with_sources, module)?)?;
    module.add_class::<core::Core>()?;
    module.add_class::<core::PyStream>()?;
    module.add_class::<corpus::PyInputs>()?;
    module.add_class::<corpus::PyTexts>()?;
    module.add_class::<counts::PyCounts>()?;
    module.add_class::<counts::CountsIterator>()?;
    module.add_class::<passes::Passes>()?;
    module.add_class::<step::LMDecoder>()?;
    Ok(())
}
