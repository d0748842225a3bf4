//! What the files of tokens depend on, beside the corpus and the tokenizer.

use super::npy;
use super::order::Order;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `.npy` files, several where `shard_tokens` is given.
    Npy,
    /// One file of ids and nothing else, as nanoGPT reads.
    Bin,
    /// `.bin` and `.idx` as Megatron-LM reads.
    Megatron,
}

/// The type of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    Uint16,
    Uint32,
    /// What Megatron-LM has in place of `uint32`.
    Int32,
}

impl Dtype {
    /// Bytes of an id.
    pub fn width(self) -> usize {
        if self == Dtype::Uint16 { 2 } else { 4 }
    }

    /// numpy's name for it.
    pub fn descr(self) -> &'static str {
        match self {
            Dtype::Uint16 => "<u2",
            Dtype::Uint32 => "<u4",
            Dtype::Int32 => "<i4",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub format: Format,
    /// All ids of the tokenizer fit.
    pub dtype: Dtype,
    /// The largest id of the tokenizer.
    pub max_id: u32,
    /// The id that ends documents.
    pub end_of_text: Option<u32>,
    /// Whether texts and records that do not end in it get one.
    pub append_eot: bool,
    /// Ids of a shard; None if a split is one file.
    pub shard_tokens: Option<u64>,
    /// The share of documents for validation.
    pub val_fraction: Option<f64>,
    pub shuffle: bool,
    /// What the order and the split depend on.
    pub seed: u64,
    /// Of each split, what the names of its files begin with.
    pub stems: Vec<String>,
}

impl Plan {
    pub fn order(&self) -> Order {
        Order::new(self.seed, self.val_fraction)
    }

    /// Bytes before the ids of a file.
    pub fn header(&self) -> usize {
        if self.format == Format::Npy { npy::HEADER } else { 0 }
    }

    /// The name of a file without its extension.
    pub fn stem(&self, split: usize, number: u64) -> String {
        let stem = &self.stems[split];
        match self.shard_tokens {
            Some(_) => format!("{stem}-{number:05}"),
            None => stem.clone(),
        }
    }

    /// The name of a file of ids.
    pub fn ids_name(&self, split: usize, number: u64) -> String {
        let extension = if self.format == Format::Npy { "npy" } else { "bin" };
        format!("{}.{extension}", self.stem(split, number))
    }
}
