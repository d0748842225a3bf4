//! Tokens on disk: `encode_files`, the same by several processes (`Assembly`, `deal_part`,
//! `assemble_shard`), `open_manifest`, `verify_tokens`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;

use super::corpus::InputsOrPaths;
use super::gateway::{run, threads, to_python};
use super::tokenizer::Core;
use crate::base::error::Error;
use crate::base::job::{Job, Phase};
use crate::corpus::Skipped;
use crate::tokens::{self, Dtype, Existing, Format, Manifest, Manner, Options, Recipe};

/// Encodes files into a directory of tokens.
#[pyfunction]
#[pyo3(signature = (core, paths, out, *, format, dtype, shard_tokens, end_of_text, append_eot,
                    val_fraction, shuffle, seed, existing, tokenizer_file=None, threads=None,
                    progress=None, chunk_size=None, journal_every=None))]
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
    tokenizer_file: Option<&[u8]>,
    threads: Option<i64>,
    progress: Option<&Bound<'_, PyAny>>,
    chunk_size: Option<usize>,
    journal_every: Option<u64>,
) -> PyResult<()> {
    let (format, dtype) = parsed(py, format, dtype)?;
    let options = Options {
        format,
        dtype,
        shard_tokens,
        end_of_text,
        append_eot,
        val_fraction,
        shuffle,
        seed,
        tokenizer_file: tokenizer_file.map(<[u8]>::to_vec),
    };
    let usual = Manner::default();
    let manner = Manner {
        threads: self::threads(py, threads)?,
        existing: self::existing(existing),
        chunk_size: chunk_size.unwrap_or(usual.chunk_size),
        journal_every: journal_every.unwrap_or(usual.journal_every),
        ..usual
    };
    let tokenizer = core.get().tokenizer();
    let job = Job::new(Phase::Encode, 0);
    run(py, &job, progress, |job| {
        tokens::encode_files(tokenizer, &paths.0, &out, &options, &manner, job)
    })
}

fn existing(name: &str) -> Existing {
    match name {
        "resume" => Existing::Resume,
        "overwrite" => Existing::Overwrite,
        _ => Existing::Refuse,
    }
}

fn parsed(py: Python<'_>, format: &str, dtype: Option<&str>) -> PyResult<(Format, Option<Dtype>)> {
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
    Ok((format, dtype))
}

/// A directory of tokens that several processes make, for the one that directs them.
#[pyclass(frozen, module = "bytemill._native")]
pub struct Assembly {
    inner: tokens::Assembly,
}

#[pymethods]
impl Assembly {
    /// Takes a directory; None if what is asked for is there already.
    #[staticmethod]
    #[pyo3(signature = (core, paths, out, *, format, dtype, shard_tokens, end_of_text, append_eot,
                        val_fraction, shuffle, seed, existing, tokenizer_file=None))]
    #[allow(clippy::too_many_arguments)]
    fn begin(
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
        tokenizer_file: Option<&[u8]>,
    ) -> PyResult<Option<Self>> {
        let (format, dtype) = parsed(py, format, dtype)?;
        let options = Options {
            format,
            dtype,
            shard_tokens,
            end_of_text,
            append_eot,
            val_fraction,
            shuffle,
            seed,
            tokenizer_file: tokenizer_file.map(<[u8]>::to_vec),
        };
        let (tokenizer, existing) = (core.get().tokenizer(), self::existing(existing));
        let begun =
            py.detach(|| tokens::Assembly::begin(tokenizer, &paths.0, &out, &options, existing));
        let begun = begun.map_err(|error| to_python(py, error))?;
        Ok(begun.map(|inner| Assembly { inner }))
    }

    /// What tells this work from other in the same place.
    #[getter]
    fn id(&self) -> String {
        self.inner.id()
    }

    /// Puts so many shards of each split, which are all there, in their place, and the manifest.
    fn commit(
        &self,
        py: Python<'_>,
        n_shards: Vec<usize>,
        text_bytes: u64,
        skipped: BTreeMap<String, u64>,
    ) -> PyResult<()> {
        py.detach(|| self.inner.commit(&n_shards, text_bytes, Skipped(skipped)))
            .map_err(|error| to_python(py, error))
    }
}

/// Ids and documents.
type Share = (u64, u64);

/// What is in a part: ids, documents, bytes of text, and what was skipped.
#[pyfunction]
#[pyo3(signature = (part, /))]
pub fn part_facts(
    py: Python<'_>,
    part: PathBuf,
) -> PyResult<(u64, u64, u64, BTreeMap<String, u64>)> {
    let facts = py.detach(|| tokens::facts(&part)).map_err(|error| to_python(py, error))?;
    let (share, text_bytes, skipped) = facts;
    Ok((share.tokens, share.documents, text_bytes, skipped.0))
}

/// How much of each split is in each bucket of a part before which `first` documents end; if they
/// are to be shuffled, it is dealt out into those.
#[pyfunction]
#[pyo3(signature = (partial, id, part, first, bits, /))]
pub fn deal_part(
    py: Python<'_>,
    partial: PathBuf,
    id: &str,
    part: PathBuf,
    first: u64,
    bits: u32,
) -> PyResult<Vec<Vec<Share>>> {
    let job = Job::new(Phase::Shuffle, 0);
    let dealt =
        run(py, &job, None, |job| tokens::deal(&partial, id, &part, first, bits.min(32), job))?;
    let plain = |shares: &Vec<tokens::Share>| {
        shares.iter().map(|share| (share.tokens, share.documents)).collect()
    };
    Ok(dealt.iter().map(plain).collect())
}

/// Makes a shard of parts (with the documents that end before each) or of buckets of them (bits,
/// first, last), before which so many ids and documents of its split come.
#[pyfunction]
#[pyo3(signature = (partial, id, split, number, parts, buckets, before, /))]
#[allow(clippy::too_many_arguments)]
pub fn assemble_shard(
    py: Python<'_>,
    partial: PathBuf,
    id: &str,
    split: usize,
    number: usize,
    parts: Vec<(PathBuf, u64)>,
    buckets: Option<(u32, usize, usize)>,
    before: Share,
) -> PyResult<()> {
    let before = tokens::Share { tokens: before.0, documents: before.1 };
    let recipe = Recipe { split, number, parts, buckets, before };
    let job = Job::new(Phase::Encode, 0);
    run(py, &job, None, |job| tokens::assemble(&partial, id, &recipe, job))
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
