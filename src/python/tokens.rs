//! Tokens on disk: `encode_files`, `open_manifest`, `verify_tokens`.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::corpus::InputsOrPaths;
use super::gateway::{run, threads, to_python};
use super::tokenizer::Core;
use crate::error::Error;
use crate::job::{Job, Phase};
use crate::tokens::{self, Dtype, Existing, Format, Manifest, Manner, Options};

/// Encodes files into a directory of tokens; with `parts`, joins those, which are the tokens of
/// the files in order.
#[pyfunction]
#[pyo3(signature = (core, paths, out, *, format, dtype, shard_tokens, end_of_text, append_eot,
                    val_fraction, shuffle, seed, existing, threads=None, progress=None,
                    chunk_size=None, journal_every=None, parts=None))]
#[allow(clippy::too_many_arguments)]
pub fn encode_files(
    py: Python<'_>,
    core: &Bound<'_, Core>,
    paths: InputsOrPaths,
    out: PathBuf,
    format: &str,
    dtype: Option<&str>,
    shard_tokens: u64,
    end_of_text: Option<String>,
    append_eot: bool,
    val_fraction: Option<f64>,
    shuffle: bool,
    seed: u64,
    existing: &str,
    threads: Option<i64>,
    progress: Option<&Bound<'_, PyAny>>,
    chunk_size: Option<usize>,
    journal_every: Option<u64>,
    parts: Option<Vec<PathBuf>>,
) -> PyResult<()> {
    let unknown = |name: &str, value: &str, known: &str| {
        let error = Error::config(format!("{name}={value:?} is not known"));
        to_python(py, error.with_hint(format!("use {known}")))
    };
    let format = match format {
        "shards" => Format::Shards,
        "npy" => Format::Npy,
        "bin" => Format::Bin,
        "megatron" => Format::Megatron,
        other => return Err(unknown("format", other, "shards, npy, bin or megatron")),
    };
    let dtype = match dtype {
        None => None,
        Some("uint16") => Some(Dtype::Uint16),
        Some("uint32") => Some(Dtype::Uint32),
        Some("int32") => Some(Dtype::Int32),
        Some(other) => return Err(unknown("dtype", other, "uint16 or uint32")),
    };
    let existing = match existing {
        "resume" => Existing::Resume,
        "overwrite" => Existing::Overwrite,
        _ => Existing::Refuse,
    };
    let options = Options {
        format,
        dtype,
        shard_tokens,
        end_of_text,
        append_eot,
        val_fraction,
        shuffle,
        seed,
    };
    let usual = Manner::default();
    let manner = Manner {
        threads: self::threads(py, threads)?,
        existing,
        chunk_size: chunk_size.unwrap_or(usual.chunk_size),
        journal_every: journal_every.unwrap_or(usual.journal_every),
        ..usual
    };
    let tokenizer = core.get().tokenizer();
    let job = Job::new(Phase::Encode, 0);
    run(py, &job, progress, |job| match &parts {
        None => tokens::encode_files(tokenizer, &paths.0, &out, &options, &manner, job),
        Some(parts) => tokens::join_parts(tokenizer, &paths.0, parts, &out, &options, &manner, job),
    })
}

/// The manifest of a directory of tokens as JSON, checked, with files of the sizes that it says.
#[pyfunction]
#[pyo3(signature = (directory, /))]
pub fn open_manifest(py: Python<'_>, directory: PathBuf) -> PyResult<String> {
    let manifest = py.detach(|| Manifest::open(&directory)).map_err(|e| to_python(py, e))?;
    Ok(String::from_utf8_lossy(&manifest.to_json()).into_owned())
}

/// Everything that is wrong with a directory of tokens.
#[pyfunction]
#[pyo3(signature = (directory, core=None, sources=None, progress=None))]
pub fn verify_tokens(
    py: Python<'_>,
    directory: PathBuf,
    core: Option<&Bound<'_, Core>>,
    sources: Option<InputsOrPaths>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<String>> {
    let tokenizer = core.map(|core| core.get().tokenizer());
    let job = Job::new(Phase::Verify, 0);
    run(py, &job, progress, |job| {
        tokens::verify(&directory, tokenizer, sources.as_ref().map(|inputs| inputs.0.as_ref()), job)
    })
}
