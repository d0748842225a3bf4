//! Documents → the files of a split.
//!
//! A shard is full after exactly `shard_tokens` ids, wherever documents end: the shard of an id is
//! found by a division, all shards but the last have the same size, and a document longer than a
//! shard is no special case. A full shard is closed when the next id comes, so that the end of an
//! empty document after its last id still belongs to it.
//!
//! Megatron-LM's index lists the documents of a `.bin` file. All numbers are little-endian:
//!
//! ```text
//! "MMIDIDX\0\0"     9 bytes
//! 1                 u64, the version
//! type of an id     u8: 8 for uint16, 4 for int32
//! n                 u64, sequences; here, a document is one
//! n + 1             u64, entries of the last list
//! lengths           n × i32, in ids
//! offsets           n × i64, in bytes from the start of the .bin file
//! documents         (n + 1) × i64: 0, 1 … n
//! ```

use super::append::Append;
use super::plan::{Dtype, Format, NPY_HEADER_SIZE, Plan, npy_header};
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// A further file of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Companion {
    pub file: String,
    pub bytes: u64,
    /// In hexadecimal.
    pub crc32: String,
}

/// A file of ids, as the manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    pub file: String,
    pub tokens: u64,
    /// Documents that end in it.
    pub documents: u64,
    pub bytes: u64,
    pub crc32: String,
    /// Where documents end: ids from the start of the shard.
    pub docs: Companion,
    /// Megatron's index.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub index: Option<Companion>,
}

/// Shards of a split in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Split {
    /// The numbers (from 0, in this split) of documents whose end-of-text is not in the source.
    pub appended: Vec<u64>,
    pub shards: Vec<Shard>,
}

/// The state of an unfinished shard, from which a later call continues.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpenShard {
    pub number: u64,
    pub tokens: u64,
    pub documents: u64,
    /// Checksums of what is after the headers.
    pub ids_crc32: u32,
    pub docs_crc32: u32,
    /// Documents of the split that end in earlier shards.
    pub before: u64,
}

/// Writes the files of a split.
#[derive(Debug)]
pub struct SplitWriter<'a> {
    plan: &'a Plan,
    split: usize,
    directory: &'a Path,
    /// Ids per shard.
    room: u64,
    made: Split,
    open: OpenShard,
    ids: Append,
    docs: Append,
}

impl<'a> SplitWriter<'a> {
    /// Continues the shard `open`, which is new if it has neither ids nor documents.
    pub fn new(plan: &'a Plan, split: usize, directory: &'a Path, open: OpenShard) -> Result<Self> {
        let (ids, docs) = if (open.tokens, open.documents) == (0, 0) {
            create(plan, split, open.number, directory)?
        } else {
            restore(plan, split, &open, directory)?
        };
        let room = plan.shard_tokens.unwrap_or(u64::MAX);
        Ok(SplitWriter { plan, split, directory, room, made: Split::default(), open, ids, docs })
    }

    /// Documents of the split that have ended.
    pub fn documents(&self) -> u64 {
        self.open.before + self.open.documents
    }

    /// Appends ids, given in their final width, to the document that has not ended yet.
    pub fn append(&mut self, mut ids: &[u8]) -> Result<()> {
        let width = self.plan.dtype.width();
        while !ids.is_empty() {
            if self.open.tokens == self.room {
                let number = self.open.number + 1;
                let (ids, docs) = create(self.plan, self.split, number, self.directory)?;
                let ids = std::mem::replace(&mut self.ids, ids);
                let docs = std::mem::replace(&mut self.docs, docs);
                let next = OpenShard { number, before: self.documents(), ..OpenShard::default() };
                let open = std::mem::replace(&mut self.open, next);
                self.made.shards.push(close(self.plan, &open, ids, docs)?);
            }
            let n = (ids.len() / width).min((self.room - self.open.tokens) as usize);
            let (here, rest) = ids.split_at(n * width);
            self.ids.write(here)?;
            self.open.tokens += n as u64;
            ids = rest;
        }
        Ok(())
    }

    /// Ends the document; `appended` if its last id is not in the source.
    pub fn end_document(&mut self, appended: bool) -> Result<()> {
        self.docs.write(&self.open.tokens.to_le_bytes())?;
        if appended {
            self.made.appended.push(self.documents());
        }
        self.open.documents += 1;
        Ok(())
    }

    /// Returns the closed shards and the state of the open one.
    pub fn pause(mut self) -> Result<(Split, OpenShard)> {
        self.open.ids_crc32 = self.ids.flush()?;
        self.open.docs_crc32 = self.docs.flush()?;
        Ok((self.made, self.open))
    }

    /// Closes the last shard.
    pub fn finish(mut self, job: &Job) -> Result<Split> {
        let docs_path = self.docs.path().to_owned();
        let mut last = close(self.plan, &self.open, self.ids, self.docs)?;
        if self.plan.format == Format::Megatron {
            let name = format!("{}.idx", self.plan.stem(self.split, self.open.number));
            let mut index = Append::create(self.directory.join(&name), 0)?;
            let documents = self.open.documents;
            write_megatron_index(&mut index, &docs_path, documents, self.plan.dtype, job)?;
            let (bytes, crc32) = index.finish(&[])?;
            last.index = Some(Companion { file: name, bytes, crc32 });
        }
        self.made.shards.push(last);
        Ok(self.made)
    }
}

fn create(plan: &Plan, split: usize, number: u64, directory: &Path) -> Result<(Append, Append)> {
    let ids = Append::create(directory.join(plan.ids_name(split, number)), plan.header_size())?;
    let docs = directory.join(format!("{}.docs.npy", plan.stem(split, number)));
    Ok((ids, Append::create(docs, NPY_HEADER_SIZE)?))
}

fn restore(
    plan: &Plan,
    split: usize,
    open: &OpenShard,
    directory: &Path,
) -> Result<(Append, Append)> {
    let ids = directory.join(plan.ids_name(split, open.number));
    let len = open.tokens.saturating_mul(plan.dtype.width() as u64);
    let ids = Append::restore(ids, plan.header_size(), len, open.ids_crc32)?;
    let docs = directory.join(format!("{}.docs.npy", plan.stem(split, open.number)));
    let len = open.documents.saturating_mul(8);
    Ok((ids, Append::restore(docs, NPY_HEADER_SIZE, len, open.docs_crc32)?))
}

fn close(plan: &Plan, open: &OpenShard, ids: Append, docs: Append) -> Result<Shard> {
    let name = |path: &Path| {
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let (file, docs_file) = (name(ids.path()), name(docs.path()));
    let header = npy_header(plan.dtype.descr(), open.tokens);
    let (bytes, crc32) = ids.finish(&header[..plan.header_size()])?;
    let (docs_bytes, docs_crc32) = docs.finish(&npy_header("<u8", open.documents))?;
    Ok(Shard {
        file,
        tokens: open.tokens,
        documents: open.documents,
        bytes,
        crc32,
        docs: Companion { file: docs_file, bytes: docs_bytes, crc32: docs_crc32 },
        index: None,
    })
}

/// Writes Megatron's index of the documents whose ends are in the file `docs`.
fn write_megatron_index(
    index: &mut Append,
    docs: &Path,
    n_documents: u64,
    dtype: Dtype,
    job: &Job,
) -> Result<()> {
    let code = if dtype == Dtype::Uint16 { 8u8 } else { 4 };
    index.write(b"MMIDIDX\0\0")?;
    index.write(&1u64.to_le_bytes())?;
    index.write(&[code])?;
    index.write(&n_documents.to_le_bytes())?;
    index.write(&(n_documents + 1).to_le_bytes())?;
    for_each_end(docs, job, |number, start, end| {
        let length = i32::try_from(end - start).map_err(|_| {
            Error::config(format!(
                "document {number} has {} ids, more than Megatron's index can hold",
                end - start
            ))
            .with_hint("write another format, or split the document")
        })?;
        index.write(&length.to_le_bytes())
    })?;
    let width = dtype.width() as u64;
    for_each_end(docs, job, |_, start, _| index.write(&(start * width).to_le_bytes()))?;
    for number in 0..=n_documents {
        index.write(&number.to_le_bytes())?;
    }
    Ok(())
}

fn for_each_end(
    docs: &Path,
    job: &Job,
    mut each: impl FnMut(u64, u64, u64) -> Result<()>,
) -> Result<()> {
    let failed = |e| Error::io(docs, e);
    let mut file = File::open(docs).map_err(failed)?;
    file.seek(SeekFrom::Start(NPY_HEADER_SIZE as u64)).map_err(failed)?;
    let mut input = BufReader::with_capacity(64 << 10, file);
    let (mut number, mut start, mut value) = (0, 0, [0; 8]);
    loop {
        match input.read_exact(&mut value) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(failed(e)),
        }
        if number % (1 << 16) == 0 {
            job.check()?;
        }
        let end = u64::from_le_bytes(value);
        each(number, start, end)?;
        (number, start) = (number + 1, end);
    }
}
