//! Parts: ids of a range of a corpus that are not in their shards yet.
//!
//! A part is a `.npy` file of ids and one of document ends, as a shard is. Ids after the end of its
//! last document belong to a document that continues in the next part. The documents of all parts
//! are numbered through, which decides their split and order, so a part has to know how many end
//! before it.
//!
//! To be shuffled, a part is *dealt*: written again, a file for each split, in the order of the keys
//! and divided into buckets by their first bits. A shard of shuffled documents is made of some
//! buckets of every part. All numbers are little-endian:
//!
//! ```text
//! table   (buckets + 1) × (u64, u64): stretches and ids before the bucket
//! index   for each stretch: number of the document (u64), ids and flags (u64)
//! ids
//! ```
//!
//! Dealing takes O(n log n) time and 48 bytes of memory for each document of the part.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::npy;
use super::plan::Plan;
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// Bytes of ids that are copied at a time.
pub(super) const COPY_SIZE: u64 = 1 << 20;
const ENDS: u64 = 1 << 63;
const APPENDED: u64 = 1 << 62;

#[derive(Debug, Clone)]
pub struct Part {
    pub ids: PathBuf,
    pub docs: PathBuf,
    pub tokens: u64,
    /// Documents that end in it.
    pub documents: u64,
    /// Of these, the numbers of those whose end-of-text is not in the source.
    pub appended: Vec<u64>,
    /// Documents of the corpus that end before it.
    pub before: u64,
}

/// How much of a split there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    pub tokens: u64,
    /// Documents that end.
    pub documents: u64,
}

/// Ids of a document that lie together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// The number of the document.
    pub number: u64,
    /// Ids before it in the part or bucket.
    pub at: u64,
    pub tokens: u64,
    /// If the document ends with it, whether the last id was appended.
    pub end: Option<bool>,
}

impl Part {
    /// Calls `each` with the stretches of the part in order.
    pub(super) fn for_each_stretch(
        &self,
        mut each: impl FnMut(Stretch) -> Result<()>,
    ) -> Result<()> {
        let mut appended = self.appended.iter().peekable();
        let mut ends = reader(&self.docs, npy::HEADER as u64)?;
        let mut at = 0;
        for number in 0..self.documents {
            let mut end = [0; 8];
            ends.read_exact(&mut end).map_err(|e| Error::io(&self.docs, e))?;
            let end = u64::from_le_bytes(end);
            let tokens = end.checked_sub(at).filter(|_| end <= self.tokens);
            let tokens = tokens.ok_or_else(|| damaged(&self.docs))?;
            let added = appended.next_if(|&&place| place == number).is_some();
            each(Stretch { number: self.before + number, at, tokens, end: Some(added) })?;
            at = end;
        }
        if at == self.tokens {
            return Ok(());
        }
        let number = self.before + self.documents;
        each(Stretch { number, at, tokens: self.tokens - at, end: None })
    }
}

/// Opens a file for reading from a place on.
pub(super) fn reader(path: &Path, from: u64) -> Result<BufReader<File>> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    Ok(BufReader::with_capacity(256 << 10, file))
}

/// Calls `each` with `size` bytes of a reader, some at a time.
pub(super) fn copy(
    input: &mut impl Read,
    path: &Path,
    mut size: u64,
    job: &Job,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut block = vec![0; size.min(COPY_SIZE) as usize];
    while size > 0 {
        job.check()?;
        let some = &mut block[..size.min(COPY_SIZE) as usize];
        input.read_exact(some).map_err(|e| Error::io(path, e))?;
        each(some)?;
        size -= some.len() as u64;
    }
    Ok(())
}

fn damaged(path: &Path) -> Error {
    Error::tokens(format!("{}: damaged", path.display())).with_hint("start again with overwrite=True")
}

/// How much of each split is in each of `1 << bits` buckets of a part. If documents are shuffled,
/// the part is dealt into `outputs`, one for each split.
pub fn deal(
    plan: &Plan,
    part: &Part,
    outputs: &[PathBuf],
    bits: u32,
    job: &Job,
) -> Result<Vec<Vec<Share>>> {
    let order = plan.order();
    let mut shares = vec![vec![Share::default(); 1 << bits]; plan.stems.len()];
    let mut dealt: Vec<Vec<(u64, Stretch)>> = vec![Vec::new(); plan.stems.len()];
    part.for_each_stretch(|stretch| {
        let (split, key) = (order.split(stretch.number), order.key(stretch.number));
        let share = &mut shares[split][bucket_of(key, bits)];
        share.tokens += stretch.tokens;
        share.documents += u64::from(stretch.end.is_some());
        if plan.shuffle {
            dealt[split].push((key, stretch));
        }
        Ok(())
    })?;
    for (output, mut stretches) in outputs.iter().zip(dealt) {
        stretches.sort_unstable_by_key(|(key, stretch)| (*key, stretch.number));
        write_dealt(output, &stretches, bits, part, plan.dtype.width() as u64, job)?;
    }
    Ok(shares)
}

fn bucket_of(key: u64, bits: u32) -> usize {
    (u128::from(key) >> (64 - bits)) as usize
}

fn write_dealt(
    path: &Path,
    stretches: &[(u64, Stretch)],
    bits: u32,
    part: &Part,
    width: u64,
    job: &Job,
) -> Result<()> {
    let failed = |e| Error::io(path, e);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
    let (mut n, mut tokens) = (0, 0);
    for bucket in 0..=1usize << bits {
        while n < stretches.len() && bucket_of(stretches[n].0, bits) < bucket {
            tokens += stretches[n].1.tokens;
            n += 1;
        }
        out.write_all(&(n as u64).to_le_bytes()).map_err(failed)?;
        out.write_all(&tokens.to_le_bytes()).map_err(failed)?;
    }
    for (_, stretch) in stretches {
        let flags = match stretch.end {
            None => 0,
            Some(false) => ENDS,
            Some(true) => ENDS | APPENDED,
        };
        out.write_all(&stretch.number.to_le_bytes()).map_err(failed)?;
        out.write_all(&(stretch.tokens | flags).to_le_bytes()).map_err(failed)?;
    }
    let read = |e| Error::io(&part.ids, e);
    let mut input = File::open(&part.ids).map_err(read)?;
    for (_, stretch) in stretches {
        let from = npy::HEADER as u64 + stretch.at * width;
        input.seek(SeekFrom::Start(from)).map_err(read)?;
        copy(&mut input, &part.ids, stretch.tokens * width, job, |some| {
            job.advance(some.len() as u64);
            out.write_all(some).map_err(failed)
        })?;
    }
    out.flush().map_err(failed)
}

/// What a dealt part has of a bucket.
pub(super) struct Bucket {
    pub stretches: Vec<Stretch>,
    /// Where in the file its ids begin.
    pub start: u64,
    pub tokens: u64,
}

pub(super) fn read_bucket(path: &Path, bucket: usize, bits: u32, width: u64) -> Result<Bucket> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut read = |from: u64, into: &mut [u8]| {
        file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(into)).map_err(failed)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let index = ((1u64 << bits) + 1) * 16;
    let (mut here, mut all) = ([0; 32], [0; 8]);
    read(bucket as u64 * 16, &mut here)?;
    read(index - 16, &mut all)?;
    let [first, before, end, after] = [0, 8, 16, 24].map(|at| number(&here[at..at + 8]));
    let sizes = end.checked_sub(first).zip(after.checked_sub(before));
    let (n, tokens) = sizes.ok_or_else(|| damaged(path))?;
    let mut records = vec![0; n as usize * 16];
    read(index + first * 16, &mut records)?;
    let mut at = 0;
    let stretch = |record: &[u8]| {
        let packed = number(&record[8..]);
        let tokens = packed & !(ENDS | APPENDED);
        let end = (packed & ENDS != 0).then_some(packed & APPENDED != 0);
        let stretch = Stretch { number: number(&record[..8]), at, tokens, end };
        at += tokens;
        stretch
    };
    let stretches: Vec<Stretch> = records.chunks_exact(16).map(stretch).collect();
    if at != tokens {
        return Err(damaged(path));
    }
    Ok(Bucket { stretches, start: index + number(&all) * 16 + before * width, tokens })
}
