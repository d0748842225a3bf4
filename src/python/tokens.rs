//! Tokens on disk: the loops over ids. Plans, manifests and directories are in Python.
//!
//! What Python stores as JSON (results, sources, shards) crosses as JSON.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::core::Core;
use super::corpus::InputsOrPaths;
use super::gateway::{run, threads};
use crate::base::error::{Error, Result};
use crate::base::job::{Job, Phase};
use crate::tokens::{self, Content, Dtype, Format, Part, ShardSource, Share, ShuffledParts};

/// `bytemill.tokens.plan.Plan`, as far as the loops depend on it.
#[derive(FromPyObject)]
pub struct PlanArgument {
    format: String,
    dtype: String,
    max_id: u32,
    end_of_text: Option<u32>,
    append_eot: bool,
    shard_tokens: Option<u64>,
    val_fraction: Option<f64>,
    shuffle: bool,
    seed: u64,
    stems: Vec<String>,
}

impl PlanArgument {
    fn checked(self) -> Result<tokens::Plan> {
        // Python checks options and manifests before.
        let unknown = |what: &str| Error::Bug(format!("a plan with the unknown value {what:?}"));
        Ok(tokens::Plan {
            format: match self.format.as_str() {
                "shards" | "npy" => Format::Npy,
                "bin" => Format::Bin,
                "megatron" => Format::Megatron,
                other => return Err(unknown(other)),
            },
            dtype: match self.dtype.as_str() {
                "uint16" => Dtype::Uint16,
                "uint32" => Dtype::Uint32,
                "int32" => Dtype::Int32,
                other => return Err(unknown(other)),
            },
            max_id: self.max_id,
            end_of_text: self.end_of_text,
            append_eot: self.append_eot,
            shard_tokens: self.shard_tokens,
            val_fraction: self.val_fraction,
            shuffle: self.shuffle,
            seed: self.seed,
            stems: self.stems,
        })
    }
}

/// `bytemill.tokens.parts.Part`.
#[derive(FromPyObject)]
pub struct PartArgument {
    ids: PathBuf,
    docs: PathBuf,
    tokens: u64,
    documents: u64,
    appended: Vec<u64>,
    before: u64,
}

impl From<PartArgument> for Part {
    fn from(part: PartArgument) -> Self {
        let PartArgument { ids, docs, tokens, documents, appended, before } = part;
        Part { ids, docs, tokens, documents, appended, before }
    }
}

/// `bytemill.tokens.parts.ShardSource`.
#[derive(FromPyObject)]
pub struct ShardSourceArgument {
    split: usize,
    number: u64,
    before: (u64, u64),
    parts: Vec<PartArgument>,
    /// Files of dealt parts instead of `parts`.
    dealt: Option<Vec<PathBuf>>,
    /// The number of bits of a key that select a bucket, the first and the last bucket.
    buckets: Option<(u32, usize, usize)>,
}

impl ShardSourceArgument {
    fn checked(self) -> Result<ShardSource> {
        let ShardSourceArgument {
            split,
            number,
            before: (tokens, documents),
            parts,
            dealt,
            buckets,
        } = self;
        let parts = parts.into_iter().map(Part::from).collect();
        let content = match (buckets, dealt) {
            (None, None) => Content::Parts(parts),
            (None, Some(_)) => return Err(Error::Bug("dealt parts without buckets".to_owned())),
            (Some((bits, first, last)), dealt) => Content::Buckets {
                parts: dealt.map_or(ShuffledParts::Whole(parts), ShuffledParts::Dealt),
                bits: checked_bits(bits)?,
                first,
                last,
            },
        };
        Ok(ShardSource { split, number, content, before: Share { tokens, documents } })
    }
}

/// The bits of a key that select a bucket.
fn checked_bits(bits: u32) -> Result<u32> {
    if bits <= 32 { Ok(bits) } else { Err(Error::Bug(format!("buckets of {bits} bits"))) }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::tokens(format!("damaged: {error}")))
}

fn as_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Bug(error.to_string()))
}

/// `bytemill._options.EncodeRange`.
#[derive(FromPyObject)]
pub struct EncodeRange {
    inputs: InputsOrPaths,
    sources: String,
    open: String,
    is_last: bool,
    threads: Option<i64>,
    block_size: Option<usize>,
}

/// Encodes a range of a corpus into files in a directory; returns what was written, as JSON.
#[pyfunction]
#[pyo3(signature = (core, plan, range, directory, progress=None))]
pub fn encode_range(
    py: Python<'_>,
    core: &Bound<'_, Core>,
    plan: PlanArgument,
    range: EncodeRange,
    directory: PathBuf,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let tokenizer = core.get().tokenizer();
    let EncodeRange { inputs, sources, open, is_last, threads, block_size } = range;
    let threads = self::threads(py, threads)?;
    run(py, &Job::new(Phase::Encode, 0), progress, |job| {
        let (sources, open): (Vec<_>, _) = (parsed(&sources)?, parsed(&open)?);
        let range =
            tokens::CorpusRange { inputs: &inputs.0, sources: &sources, threads, block_size };
        let plan = plan.checked()?;
        let written =
            tokens::encode_range(tokenizer, &range, &plan, &directory, open, is_last, job)?;
        as_json(&written)
    })
}

/// Ids and documents of each split in each of `1 << bits` buckets of a part. The part is dealt into
/// `outputs`, one file per split, or not at all.
#[pyfunction]
#[pyo3(signature = (plan, part, outputs, bits, progress=None))]
pub fn deal_part(
    py: Python<'_>,
    plan: PlanArgument,
    part: PartArgument,
    outputs: Vec<PathBuf>,
    bits: u32,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Vec<(u64, u64)>>> {
    let shares = run(py, &Job::new(Phase::Shuffle, 0), progress, |job| {
        tokens::deal(&plan.checked()?, &part.into(), &outputs, checked_bits(bits)?, job)
    })?;
    let plain = |of_split: Vec<Share>| {
        of_split.iter().map(|share| (share.tokens, share.documents)).collect()
    };
    Ok(shares.into_iter().map(plain).collect())
}

/// Assembles a shard from parts, or from buckets of dealt parts; returns what was written, as JSON.
#[pyfunction]
#[pyo3(signature = (plan, source, directory, progress=None))]
pub fn assemble_shard(
    py: Python<'_>,
    plan: PlanArgument,
    source: ShardSourceArgument,
    directory: PathBuf,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    run(py, &Job::new(Phase::Shuffle, 0), progress, |job| {
        as_json(&tokens::assemble(&plan.checked()?, &source.checked()?, &directory, job)?)
    })
}

/// The problems of a shard of the manifest, and the number of documents without an end-of-text.
#[pyfunction]
#[pyo3(signature = (directory, plan, shard, core=None, progress=None))]
pub fn check_shard(
    py: Python<'_>,
    directory: PathBuf,
    plan: PlanArgument,
    shard: &str,
    core: Option<&Bound<'_, Core>>,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Vec<String>, u64)> {
    let tokenizer = core.map(|core| core.get().tokenizer());
    run(py, &Job::new(Phase::Verify, 0), progress, |job| {
        tokens::check_shard(&directory, &plan.checked()?, &parsed(shard)?, tokenizer, job)
    })
}

/// `bytemill._options.TokensOnDisk`.
#[derive(FromPyObject)]
pub struct TokensOnDisk {
    directory: PathBuf,
    splits: String,
    text_bytes: Option<u64>,
}

/// The first difference between the inputs and the text that the tokens decode to.
#[pyfunction]
#[pyo3(signature = (core, plan, tokens, inputs, progress=None))]
pub fn compare_with_sources(
    py: Python<'_>,
    core: &Bound<'_, Core>,
    plan: PlanArgument,
    tokens: TokensOnDisk,
    inputs: InputsOrPaths,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<String>> {
    let tokenizer = core.get().tokenizer();
    let TokensOnDisk { directory, splits, text_bytes } = tokens;
    run(py, &Job::new(Phase::Verify, 0), progress, |job| {
        let (plan, splits): (_, Vec<_>) = (plan.checked()?, parsed(&splits)?);
        tokens::compare(&directory, &plan, &splits, tokenizer, &inputs.0, text_bytes, job)
    })
}
