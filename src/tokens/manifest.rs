//! `manifest.json`: what a directory of tokens holds and what it was made from.
//!
//! Nothing in it depends on when, where, by how many threads or in how many attempts it was made.
//! A manifest that was read has been checked: names are those that the writer gives, so none leads
//! out of the directory, and sizes and sums agree with each other.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::append::hex;
use super::npy;
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::corpus::{Reading, Skipped, Source};

/// The name of the file.
pub const NAME: &str = "manifest.json";
/// The name of the file of the tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";
const KIND: &str = "bytemill tokens";
const VERSION: u32 = 1;
/// Far more than any manifest: what is not one must not fill the memory.
const MAX_SIZE: u64 = 2 << 30;

/// How the files are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Many `.npy` files of the same number of ids.
    Shards,
    /// One `.npy` file.
    Npy,
    /// One file of ids and nothing else, as nanoGPT reads.
    Bin,
    /// `.bin` and `.idx` as Megatron-LM reads.
    Megatron,
}

/// The type of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Two bytes.
    Uint16,
    /// Four bytes.
    Uint32,
    /// Four bytes; what Megatron-LM has in place of `uint32`.
    Int32,
}

impl Dtype {
    /// Bytes of an id.
    pub fn width(self) -> usize {
        if self == Dtype::Uint16 { 2 } else { 4 }
    }

    /// The largest id it can hold.
    pub fn max_id(self) -> u32 {
        match self {
            Dtype::Uint16 => u32::from(u16::MAX),
            Dtype::Uint32 => u32::MAX,
            Dtype::Int32 => i32::MAX as u32,
        }
    }

    /// numpy's name for its bytes.
    pub fn descr(self) -> &'static str {
        match self {
            Dtype::Uint16 => "<u2",
            Dtype::Uint32 => "<u4",
            Dtype::Int32 => "<i4",
        }
    }
}

/// The tokenizer that ids are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerMark {
    /// Its fingerprint.
    pub fingerprint: String,
    /// How many tokens it has.
    pub vocab_size: u64,
    /// Its largest id.
    pub max_id: u32,
}

/// All that decides which bytes are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How the files are laid out.
    pub format: Format,
    /// The type of an id.
    pub dtype: Dtype,
    /// The tokenizer.
    pub tokenizer: TokenizerMark,
    /// The id that ends documents.
    pub end_of_text: Option<u32>,
    /// Whether sources that do not end in it get one.
    pub append_eot: bool,
    /// Ids of a shard; none in formats of one file.
    pub shard_tokens: Option<u64>,
    /// The share of documents for validation.
    pub val_fraction: Option<f64>,
    /// Whether documents are in another order than in the sources.
    pub shuffle: bool,
    /// What that order and the split depend on.
    pub seed: u64,
    /// How records are read, if there are any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reading: Option<Reading>,
    /// The files that the ids are of.
    pub sources: Vec<Source>,
}

impl Plan {
    /// The names of the splits.
    pub fn splits(&self) -> &'static [&'static str] {
        if self.val_fraction.is_some() { &["train", "val"] } else { &["all"] }
    }

    /// The bytes before the ids of a file.
    pub fn header(&self) -> usize {
        match self.format {
            Format::Shards | Format::Npy => npy::HEADER,
            Format::Bin | Format::Megatron => 0,
        }
    }

    /// The name of a file without its end.
    pub fn stem(&self, split: usize, number: usize) -> String {
        let split = self.splits()[split];
        match self.format {
            Format::Shards if split == "all" => format!("shard-{number:05}"),
            Format::Shards => format!("{split}-{number:05}"),
            _ if split == "all" => "tokens".to_owned(),
            _ => split.to_owned(),
        }
    }

    /// The name of a file of ids.
    pub fn ids_name(&self, split: usize, number: usize) -> String {
        let end = if self.header() > 0 { "npy" } else { "bin" };
        format!("{}.{end}", self.stem(split, number))
    }

    /// Refuses a tokenizer that is not the one that the ids are of.
    pub fn check_tokenizer(&self, fingerprint: &str, place: &Path) -> Result<()> {
        if self.tokenizer.fingerprint == fingerprint {
            return Ok(());
        }
        let short = |text: &str| text.chars().take(12).collect::<String>();
        Err(Error::tokens(format!(
            "{}: made with the tokenizer {}…, not with {}…",
            place.display(),
            short(&self.tokenizer.fingerprint),
            short(fingerprint)
        ))
        .with_hint("use the tokenizer that the tokens were made with, or encode again"))
    }
}

/// A file beside the ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    /// Its name.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its checksum: CRC-32, in hexadecimal.
    pub crc32: String,
}

impl Companion {
    /// What is to be known of a file that holds `data`.
    pub fn of(file: &str, data: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(data);
        Companion { file: file.to_owned(), bytes: data.len() as u64, crc32: hex(hasher) }
    }
}

/// A file of ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its name.
    pub file: String,
    /// How many ids it has.
    pub tokens: u64,
    /// How many documents end in it.
    pub documents: u64,
    /// Its size.
    pub bytes: u64,
    /// Its checksum: CRC-32, in hexadecimal.
    pub crc32: String,
    /// Where documents end: ids from the start of the shard.
    pub docs: Companion,
    /// Megatron's index.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub index: Option<Companion>,
}

impl Shard {
    /// Its files: name and size.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        let beside = [Some(&self.docs), self.index.as_ref()].into_iter().flatten();
        let beside = beside.map(|companion| (companion.file.as_str(), companion.bytes));
        std::iter::once((self.file.as_str(), self.bytes)).chain(beside)
    }
}

/// The documents of a split, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// `all`, or `train` and `val`.
    pub name: String,
    /// Ids of all shards.
    pub tokens: u64,
    /// Documents of all shards.
    pub documents: u64,
    /// The numbers (from 0, in this split) of documents whose end-of-text is not in the source.
    pub appended: Vec<u64>,
    /// The shards in order.
    pub shards: Vec<Shard>,
}

/// What a directory of tokens holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    kind: String,
    version: u32,
    /// What it was made from, and how.
    #[serde(flatten)]
    pub plan: Plan,
    /// Bytes of text that the ids are of: of documents, decompressed and without the markup of
    /// records. None in manifests that do not say so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text_bytes: Option<u64>,
    /// The tokenizer itself; none in tokens of earlier versions and in parts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokenizer_file: Option<Companion>,
    /// Records that were left out, by what was wrong with them.
    #[serde(skip_serializing_if = "Skipped::is_empty", default)]
    pub skipped: Skipped,
    /// What came of it.
    pub splits: Vec<Split>,
}

impl Manifest {
    /// A manifest of finished work.
    pub fn new(plan: Plan, text_bytes: u64, skipped: Skipped, splits: Vec<Split>) -> Self {
        let (kind, text_bytes) = (KIND.to_owned(), Some(text_bytes));
        let tokenizer_file = None;
        Manifest { kind, version: VERSION, plan, text_bytes, tokenizer_file, skipped, splits }
    }

    /// The file.
    pub fn to_json(&self) -> Vec<u8> {
        // Strings, numbers and lists of them always have a JSON form.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads and checks the manifest of a directory.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(NAME);
        Manifest::parse(&read(&path)?, &path)
    }

    /// The same, where there must be one.
    pub fn read_whole(directory: &Path) -> Result<Self> {
        match Manifest::read(directory) {
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound && directory.is_dir() =>
            {
                Err(missing(directory))
            }
            // Rather than that there is no manifest.
            Err(Error::Io { source, .. }) if !directory.exists() => {
                Err(Error::io(directory, source))
            }
            other => other,
        }
    }

    /// Reads the manifest of finished tokens, of which every file of ids must have its size.
    pub fn open(directory: &Path) -> Result<Self> {
        let manifest = Manifest::read_whole(directory)?;
        for (name, size) in manifest.shard_files() {
            let path = directory.join(name);
            let wrong = match std::fs::metadata(&path) {
                Ok(metadata) if !metadata.is_file() => "not a regular file".to_owned(),
                Ok(metadata) if metadata.len() == size => continue,
                Ok(metadata) => format!("{} bytes, not {size}", metadata.len()),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => "missing".to_owned(),
                Err(e) => return Err(Error::io(&path, e)),
            };
            return Err(Error::tokens(format!("{}: {wrong}", path.display()))
                .with_hint("bytemill verify tells all that is wrong"));
        }
        Ok(manifest)
    }

    fn parse(data: &[u8], path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Mark {
            kind: String,
            version: u32,
        }
        match serde_json::from_slice(data) {
            Ok(Mark { kind, version: VERSION }) if kind == KIND => {}
            Ok(Mark { kind, version }) if kind == KIND => {
                return Err(Error::tokens(format!(
                    "{}: tokens of version {version}, not {VERSION}",
                    path.display()
                ))
                .with_hint("use the bytemill that made them, or encode again"));
            }
            _ => return Err(foreign(path)),
        }
        let manifest: Manifest =
            serde_json::from_slice(data).map_err(|e| damaged(path, &e.to_string()))?;
        match manifest.contradiction() {
            Some(what) => Err(damaged(path, &what)),
            None => Ok(manifest),
        }
    }

    /// What in the manifest cannot be as it says.
    pub fn contradiction(&self) -> Option<String> {
        let Plan { format, dtype, shard_tokens, val_fraction, .. } = self.plan;
        if (format == Format::Shards) != shard_tokens.is_some() || shard_tokens == Some(0) {
            return Some("shard_tokens does not go with the format".into());
        }
        if (dtype == Dtype::Int32 && format != Format::Megatron)
            || (dtype == Dtype::Uint32 && format == Format::Megatron)
        {
            return Some("dtype does not go with the format".into());
        }
        if self.plan.tokenizer.max_id > dtype.max_id() {
            return Some("the ids of the tokenizer do not fit in dtype".into());
        }
        if val_fraction.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Some("val_fraction is not between 0 and 1".into());
        }
        if !self.splits.iter().map(|split| split.name.as_str()).eq(self
            .plan
            .splits()
            .iter()
            .copied())
        {
            return Some("the splits are not those that val_fraction gives".into());
        }
        if self.tokenizer_file.as_ref().is_some_and(|file| file.file != TOKENIZER) {
            return Some("the tokenizer has a name that it cannot have".into());
        }
        (0..self.splits.len()).find_map(|number| self.contradiction_in(number))
    }

    fn contradiction_in(&self, split: usize) -> Option<String> {
        let plan = &self.plan;
        let Split { name, tokens, documents, appended, shards } = &self.splits[split];
        let room = plan.shard_tokens.unwrap_or(u64::MAX);
        for (number, shard) in shards.iter().enumerate() {
            let stem = plan.stem(split, number);
            let index = shard.index.as_ref().map(|index| index.file.as_str());
            let wanted = (plan.format == Format::Megatron).then(|| format!("{stem}.idx"));
            if shard.file != plan.ids_name(split, number)
                || shard.docs.file != format!("{stem}.docs.npy")
                || index != wanted.as_deref()
            {
                return Some(format!("file {number} of {name} has a name that it cannot have"));
            }
            let full = number + 1 == shards.len() || shard.tokens == room;
            let bytes = shard.tokens.checked_mul(plan.dtype.width() as u64);
            let docs = shard.documents.checked_mul(8);
            if !full
                || shard.tokens > room
                || bytes.and_then(|n| n.checked_add(plan.header() as u64)) != Some(shard.bytes)
                || docs.and_then(|n| n.checked_add(npy::HEADER as u64)) != Some(shard.docs.bytes)
            {
                return Some(format!("{}: tokens, documents and bytes do not agree", shard.file));
            }
        }
        let sum = |of: fn(&Shard) -> u64| {
            shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(of(shard)))
        };
        if sum(|shard| shard.tokens) != Some(*tokens)
            || sum(|shard| shard.documents) != Some(*documents)
        {
            return Some(format!("the totals of {name} are not the sums of its shards"));
        }
        if shards.is_empty() {
            return Some(format!("{name} has no file"));
        }
        let ordered = appended.windows(2).all(|pair| pair[0] < pair[1]);
        if !ordered || appended.last().is_some_and(|last| last >= documents) {
            return Some(format!("the appended of {name} are not documents in order"));
        }
        None
    }

    /// All files but the manifest: name and size.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        let tokenizer = self.tokenizer_file.iter().map(|file| (file.file.as_str(), file.bytes));
        self.shard_files().chain(tokenizer)
    }

    /// The files of ids and those beside them: name and size.
    pub fn shard_files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.splits.iter().flat_map(|split| &split.shards).flat_map(Shard::files)
    }
}

/// Whether a name is one that a manifest of ours could give to a file.
pub fn is_possible(name: &str) -> bool {
    let stem = [".docs.npy", ".npy", ".bin", ".idx"].iter().find_map(|end| name.strip_suffix(end));
    let numbered = |stem: &str| {
        let number = ["shard-", "train-", "val-"].iter().find_map(|split| stem.strip_prefix(split));
        number.is_some_and(|n| n.len() >= 5 && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name == TOKENIZER
        || stem.is_some_and(|stem| matches!(stem, "tokens" | "train" | "val") || numbered(stem))
}

/// The files that a manifest of ours names, of any version and however little else it makes sense:
/// what may be deleted if the tokens are replaced. The manifest of somebody else is refused.
pub fn named(path: &Path) -> Result<BTreeSet<String>> {
    let found: serde_json::Value =
        serde_json::from_slice(&read(path)?).map_err(|_| foreign(path))?;
    if found["kind"] != KIND {
        return Err(foreign(path));
    }
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let shards = list(&found["splits"]).into_iter().flat_map(|split| list(&split["shards"]));
    let mut names: Vec<serde_json::Value> = shards
        .flat_map(|shard| {
            let beside = ["docs", "index"].map(|which| shard[which]["file"].clone());
            beside.into_iter().chain([shard["file"].clone()])
        })
        .collect();
    names.push(found["tokenizer_file"]["file"].clone());
    let names = names.iter().filter_map(|name| name.as_str());
    Ok(names.filter(|name| is_possible(name)).map(str::to_owned).collect())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file = files::open(path, Error::tokens)?;
    let failed = |e| Error::io(path, e);
    if file.metadata().map_err(failed)?.len() > MAX_SIZE {
        return Err(damaged(path, "too large for a manifest"));
    }
    let mut data = Vec::new();
    file.read_to_end(&mut data).map_err(failed)?;
    Ok(data)
}

fn foreign(path: &Path) -> Error {
    Error::tokens(format!("{}: not a manifest of tokens", path.display()))
        .with_hint("bytemill encode -o makes directories of tokens")
}

fn missing(directory: &Path) -> Error {
    let place = directory.display();
    if directory.join(super::directory::PARTIAL).exists() {
        return Error::tokens(format!("{place}: the tokens are not finished"))
            .with_hint("encode with resume=True to continue");
    }
    Error::tokens(format!("{place}: not a directory of tokens: it has no {NAME}"))
        .with_hint("bytemill encode -o makes directories of tokens")
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::tokens(format!("{}: damaged: {what}", path.display()))
        .with_hint("encode again; overwrite=True replaces what is there")
}
