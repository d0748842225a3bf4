//! What the files of tokens depend on besides the corpus and the tokenizer: format, id type, split,
//! order.
//!
//! The split of a document and its position are functions of the seed and of the document's number in
//! the corpus (from 0, in the order of the sources), so they depend neither on threads nor on other
//! documents:
//!
//! ```text
//! mix(x)        SplitMix64's output function
//! draw(d, n)    mix(mix(seed + d) + n · 0x9E3779B97F4A7C15), all modulo 2^64
//! split         val if floor(draw(1, n) / 2^11) < floor(val_fraction · 2^53), else train
//! order         by draw(2, n), of equal ones by n
//! ```

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `.npy` files, several per split if `shard_tokens` is set.
    Npy,
    /// One file of ids without a header, for nanoGPT.
    Bin,
    /// `.bin` and `.idx`, for Megatron-LM.
    Megatron,
}

/// The type of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    Uint16,
    Uint32,
    /// What Megatron-LM uses instead of `uint32`.
    Int32,
}

impl Dtype {
    /// Bytes of an id.
    pub fn width(self) -> usize {
        if self == Dtype::Uint16 { 2 } else { 4 }
    }

    /// The name of the type in a numpy header.
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
    /// A type that all ids of the tokenizer fit into.
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
    /// The seed of the order and the split.
    pub seed: u64,
    /// By split, the prefix of its file names.
    pub stems: Vec<String>,
}

impl Plan {
    pub fn order(&self) -> Order {
        Order::new(self.seed, self.val_fraction)
    }

    /// Bytes before the ids of a file.
    pub fn header_size(&self) -> usize {
        if self.format == Format::Npy { NPY_HEADER_SIZE } else { 0 }
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

/// The split and the position of documents.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    split: u64,
    shuffle: u64,
    /// A document is for validation if its draw, of 53 bits, is below this.
    val: u64,
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's output function.
fn splitmix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Order {
    /// `val_fraction` is from 0 to 1.
    pub fn new(seed: u64, val_fraction: Option<f64>) -> Self {
        Order {
            split: splitmix(seed.wrapping_add(1)),
            shuffle: splitmix(seed.wrapping_add(2)),
            val: (val_fraction.unwrap_or(0.0) * (1u64 << 53) as f64) as u64,
        }
    }

    /// The split of a document: 0, or 1 for validation.
    pub fn split(&self, number: u64) -> usize {
        usize::from(
            splitmix(self.split.wrapping_add(number.wrapping_mul(GOLDEN_GAMMA))) >> 11 < self.val,
        )
    }

    /// The sort key of a document in its shuffled split.
    pub fn key(&self, number: u64) -> u64 {
        splitmix(self.shuffle.wrapping_add(number.wrapping_mul(GOLDEN_GAMMA)))
    }
}

/// The size of the header that numpy writes for an array of one dimension.
pub const NPY_HEADER_SIZE: usize = 128;

/// The header of a `.npy` file with `len` values of a type (`<u2`): the bytes that `numpy.save` writes.
pub fn npy_header(descr: &str, len: u64) -> [u8; NPY_HEADER_SIZE] {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len},), }}");
    // Version 1.0, and the length of the rest of the header.
    let mut header = [b' '; NPY_HEADER_SIZE];
    header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    header[8..10].copy_from_slice(&((NPY_HEADER_SIZE - 10) as u16).to_le_bytes());
    header[10..10 + text.len()].copy_from_slice(text.as_bytes());
    header[NPY_HEADER_SIZE - 1] = b'\n';
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_on_disk_depend_on_these_numbers() {
        let order = Order::new(7, Some(0.25));
        let splits: Vec<usize> = (0..16).map(|n| order.split(n)).collect();
        assert_eq!(splits, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(splitmix(GOLDEN_GAMMA), 0xE220_A839_7B1D_CDAF, "the first number of SplitMix64");
        assert_eq!(order.key(0), splitmix(splitmix(9)));
        assert_eq!(order.key(1), splitmix(splitmix(9).wrapping_add(GOLDEN_GAMMA)));
    }

    #[test]
    fn fractions_are_met() {
        for fraction in [0.0, 0.001, 0.1, 0.5, 1.0] {
            let order = Order::new(1, Some(fraction));
            let n = (0..100_000).map(|n| order.split(n)).sum::<usize>() as f64;
            assert!((n - fraction * 1e5).abs() < 500.0, "{fraction}: {n}");
        }
        assert_eq!(Order::new(1, None).split(3), 0);
    }

    #[test]
    fn the_longest_header_fits() {
        let header = npy_header("<u8", u64::MAX);
        assert!(header.ends_with(b" \n"));
        assert!(String::from_utf8_lossy(&header[10..]).contains("(18446744073709551615,), }  "));
    }
}
