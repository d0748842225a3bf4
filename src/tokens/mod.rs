//! Files → ids on disk: shards, where documents end, and a manifest.
//!
//! ```text
//! sources ─► chunks ─► ids ─► documents ─► shards ─► manifest
//!            in order  several              (by way of buckets, if they are shuffled)
//!                      threads
//! ```
//!
//! The ids are those of each text or record encoded as one, with special tokens where they stand; a
//! document ends behind every end-of-text and with its text or record. What is written depends on the
//! sources, the tokenizer and the options that a [`Plan`] holds, and on nothing else: not on
//! threads, chunks, or how often the work was interrupted. Memory is constant.
//!
//! - `pipeline`, `documents`: chunks → ids → documents
//! - `work`: from the first to the last of it
//! - `parts`, `assembly`: the same by many processes, on many machines
//! - `order`, `shuffle`: which split, and which order
//! - `shards`, `append`, `npy`, `megatron`: the files
//! - `journal`, `directory`: surviving anything
//! - `manifest`: what is there
//! - `verify`: whether it is so

mod append;
mod assembly;
mod directory;
mod documents;
mod journal;
mod manifest;
mod megatron;
mod npy;
mod order;
mod parts;
mod pipeline;
mod shards;
mod shuffle;
mod sources;
mod verify;
mod work;

pub use assembly::{Assembly, Recipe, assemble};
pub use directory::Existing;
pub use manifest::{Dtype, Format, Manifest, Plan};
pub use megatron::SMALL_VOCAB;
pub use parts::{Share, deal, facts};
pub use verify::verify;

use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::corpus::{Inputs, Reading, Source};
use crate::tokenizer::encode::Tokenizer;
use directory::{Directory, Task};
use journal::Journal;
use manifest::TokenizerMark;
use work::Work;

/// What to write.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the files are laid out.
    pub format: Format,
    /// The type of an id; None for the smallest that holds all of the tokenizer's.
    pub dtype: Option<Dtype>,
    /// Ids of a shard, where there are shards.
    pub shard_tokens: u64,
    /// The special token that ends documents.
    pub end_of_text: Option<String>,
    /// Whether a source that does not end in it gets one.
    pub append_eot: bool,
    /// The share of documents for validation.
    pub val_fraction: Option<f64>,
    /// Whether to shuffle documents.
    pub shuffle: bool,
    /// What the order and the split depend on.
    pub seed: u64,
    /// The content of `tokenizer.json`, if the directory is to have one.
    pub tokenizer_file: Option<Vec<u8>>,
}

/// How to go about it: nothing that shows in what is written.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// How many threads encode.
    pub threads: usize,
    /// What to do with what is there already.
    pub existing: Existing,
    /// Text that is encoded at a time.
    pub chunk_size: usize,
    /// The journal is written no more often than every so many bytes.
    pub journal_every: u64,
    /// Bytes of documents that are sorted at once.
    pub sort_bytes: u64,
}

impl Default for Manner {
    fn default() -> Self {
        Manner {
            threads: 1,
            existing: Existing::Refuse,
            chunk_size: pipeline::CHUNK_SIZE,
            journal_every: 16 << 20,
            sort_bytes: shuffle::MOST,
        }
    }
}

/// Encodes files into a directory of tokens, which nobody else may write into meanwhile.
pub fn encode_files(
    tokenizer: &Tokenizer,
    inputs: &Inputs,
    out: &Path,
    options: &Options,
    manner: &Manner,
    job: &Job,
) -> Result<()> {
    let plan = plan(tokenizer, inputs, options)?;
    let (directory, task) = Directory::take(out, &plan, manner.existing)?;
    let (journal, state) = match task {
        Task::Nothing => return Ok(()),
        Task::Begin => (Journal::create(&directory.partial, &plan)?, None),
        Task::GoOn => Journal::resume(&directory.partial)?,
    };
    let work = Work { tokenizer, inputs, plan: &plan, partial: &directory.partial, manner, job };
    let manifest = work.run(journal, state)?;
    job.check()?;
    directory.finish(manifest, options.tokenizer_file.as_deref())
}

/// What is to be written, checked.
fn plan(tokenizer: &Tokenizer, inputs: &Inputs, options: &Options) -> Result<Plan> {
    let vocab = tokenizer.vocab();
    let end_of_text = match &options.end_of_text {
        None if options.append_eot => {
            return Err(Error::config("append_eot needs a special token that ends documents"));
        }
        None => None,
        Some(text) => {
            let found = vocab.specials().iter().find(|special| special.text == *text);
            Some(found.map(|special| special.id).ok_or_else(|| {
                Error::config(format!("{text:?} is not a special token of the tokenizer"))
            })?)
        }
    };
    let mark = TokenizerMark {
        fingerprint: tokenizer.fingerprint().to_owned(),
        vocab_size: vocab.len() as u64,
        max_id: vocab.max_id(),
    };
    let dtype = dtype(options, &mark)?;
    if options.val_fraction.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(Error::config("val_fraction is not between 0 and 1"));
    }
    if options.shard_tokens == 0 {
        return Err(Error::config("shard_tokens=0 cannot be").with_hint("use 1 or more"));
    }
    let sources = inputs.sources()?;
    let by_seed = options.shuffle || options.val_fraction.is_some();
    Ok(Plan {
        format: options.format,
        dtype,
        tokenizer: mark,
        end_of_text,
        append_eot: options.append_eot,
        shard_tokens: (options.format == Format::Shards).then_some(options.shard_tokens),
        val_fraction: options.val_fraction,
        shuffle: options.shuffle,
        seed: if by_seed { options.seed } else { 0 },
        reading: reading(&sources, &inputs.reading),
        sources,
    })
}

/// How sources are read matters unless they are text and nothing else.
fn reading(sources: &[Source], reading: &Reading) -> Option<Reading> {
    let plain = sources.iter().all(|source| source.format.is_empty());
    (!plain || reading.on_error != Reading::default().on_error).then(|| reading.clone())
}

fn dtype(options: &Options, mark: &TokenizerMark) -> Result<Dtype> {
    let megatron = options.format == Format::Megatron;
    // Megatron-LM chooses by the size of the vocabulary, and has no unsigned type of four bytes.
    let small = if megatron {
        u64::from(mark.max_id) + 1 < SMALL_VOCAB
    } else {
        mark.max_id <= Dtype::Uint16.max_id()
    };
    let large = if megatron { Dtype::Int32 } else { Dtype::Uint32 };
    let dtype = options.dtype.unwrap_or(if small { Dtype::Uint16 } else { large });
    if dtype != Dtype::Uint16 && dtype != large {
        let (given, known) = if megatron { ("uint32", "int32") } else { ("int32", "uint32") };
        return Err(Error::config(format!("dtype={given:?} does not go with this format"))
            .with_hint(format!("use \"uint16\" or \"{known}\"")));
    }
    if mark.max_id > dtype.max_id() {
        return Err(Error::config(format!(
            "ids up to {} do not fit in dtype={:?}",
            mark.max_id,
            if dtype == Dtype::Uint16 { "uint16" } else { "int32" }
        ))
        .with_hint("without dtype=, the smallest that fits is taken"));
    }
    Ok(dtype)
}

#[cfg(test)]
mod tests;
