//! Parts: the encoded ids of a range of a corpus, before they are in shards.
//!
//! Like a shard, a part is a `.npy` file of ids and one of document ends. Ids after the end of its
//! last document belong to a document that continues in the next part. Documents are numbered across
//! all parts, and the number determines split and order, so a part records how many end before it.
//!
//! Shuffled documents are divided into buckets by the first bits of their keys; a shard consists of some
//! buckets of every part. If the parts are few and small, their documents are read one by one in the
//! order of the keys. Otherwise that would read all over the disk, so each part is *dealt* first:
//! written again, one file per split, in the order of the keys. All numbers are little-endian:
//!
//! ```text
//! table   (buckets + 1) × (u64, u64): slices and ids before the bucket
//! index   per slice: number of the document (u64), ids and flags (u64)
//! ids
//! ```
//!
//! Dealing takes O(n log n) time and 48 bytes of memory for each document of the part.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::plan::{NPY_HEADER_SIZE, Order, Plan};
use crate::base::error::{Error, Result};
use crate::base::files::{self, little_endian};
use crate::base::job::Job;

/// Bytes of ids that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
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

/// An amount of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    pub tokens: u64,
    /// Documents that end.
    pub documents: u64,
}

/// Consecutive ids of one document.
#[derive(Debug, Clone, Copy)]
pub(super) struct DocumentSlice {
    /// The number of the document.
    pub number: u64,
    /// Its place: the number of ids before it in the part or bucket.
    pub at: u64,
    pub tokens: u64,
    /// If the document ends here, whether its last id was appended.
    pub end: Option<bool>,
}

impl Part {
    /// Calls `each` with the slices of the part in order.
    pub(super) fn for_each_slice(
        &self,
        mut each: impl FnMut(DocumentSlice) -> Result<()>,
    ) -> Result<()> {
        let mut appended = self.appended.iter().peekable();
        let mut ends = reader(&self.docs, NPY_HEADER_SIZE as u64)?;
        let mut at = 0;
        for number in 0..self.documents {
            let mut end = [0; 8];
            ends.read_exact(&mut end).map_err(|e| Error::io(&self.docs, e))?;
            let end = u64::from_le_bytes(end);
            let tokens = end.checked_sub(at).filter(|_| end <= self.tokens);
            let tokens = tokens.ok_or_else(|| damaged_part(&self.docs))?;
            let added = appended.next_if(|&&other| other == number).is_some();
            each(DocumentSlice { number: self.before + number, at, tokens, end: Some(added) })?;
            at = end;
        }
        if at == self.tokens {
            return Ok(());
        }
        let number = self.before + self.documents;
        each(DocumentSlice { number, at, tokens: self.tokens - at, end: None })
    }

    /// The documents of a bucket of a split, where they are in the part.
    pub(super) fn bucket(
        &self,
        order: &Order,
        split: usize,
        bucket: usize,
        bits: u32,
    ) -> Result<Bucket> {
        let (mut slices, mut tokens) = (Vec::new(), 0);
        self.for_each_slice(|slice| {
            let number = slice.number;
            if order.split(number) == split && bucket_of(order.key(number), bits) == bucket {
                tokens += slice.tokens;
                slices.push(slice);
            }
            Ok(())
        })?;
        Ok(Bucket { slices, start: NPY_HEADER_SIZE as u64, tokens })
    }
}

/// Opens a file at an offset.
pub(super) fn reader(path: &Path, from: u64) -> Result<BufReader<File>> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    Ok(BufReader::with_capacity(256 << 10, file))
}

/// Calls `each` with `size` bytes of a file, up to [`COPY_BYTES`] at a time. `read` fills a slice, given
/// the number of bytes before it.
pub(super) fn copy_bytes(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    path: &Path,
    size: u64,
    buffer: &mut Vec<u8>,
    job: &Job,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut done = 0;
    while done < size {
        job.check()?;
        let n = (size - done).min(COPY_BYTES) as usize;
        if buffer.len() < n {
            buffer.resize(n, 0);
        }
        read(&mut buffer[..n], done).map_err(|e| Error::io(path, e))?;
        job.advance(n as u64);
        each(&buffer[..n])?;
        done += n as u64;
    }
    Ok(())
}

fn damaged_part(path: &Path) -> Error {
    Error::tokens(format!("{}: damaged", path.display()))
        .with_hint("start again with overwrite=True")
}

/// The share of each split in each of `1 << bits` buckets of a part. The part is dealt into `outputs`,
/// one per split, or not at all.
pub fn deal(
    plan: &Plan,
    part: &Part,
    outputs: &[PathBuf],
    bits: u32,
    job: &Job,
) -> Result<Vec<Vec<Share>>> {
    let order = plan.order();
    let mut shares = vec![vec![Share::default(); 1 << bits]; plan.stems.len()];
    let mut dealt: Vec<Vec<(u64, DocumentSlice)>> = vec![Vec::new(); plan.stems.len()];
    part.for_each_slice(|slice| {
        let (split, key) = (order.split(slice.number), order.key(slice.number));
        let share = &mut shares[split][bucket_of(key, bits)];
        share.tokens += slice.tokens;
        share.documents += u64::from(slice.end.is_some());
        if !outputs.is_empty() {
            dealt[split].push((key, slice));
        }
        Ok(())
    })?;
    for (output, mut slices) in outputs.iter().zip(dealt) {
        slices.sort_unstable_by_key(|(key, slice)| (*key, slice.number));
        write_dealt(output, &slices, bits, part, plan.dtype.width() as u64, job)?;
    }
    Ok(shares)
}

fn bucket_of(key: u64, bits: u32) -> usize {
    (u128::from(key) >> (64 - bits)) as usize
}

fn write_dealt(
    path: &Path,
    slices: &[(u64, DocumentSlice)],
    bits: u32,
    part: &Part,
    width: u64,
    job: &Job,
) -> Result<()> {
    let failed = |e| Error::io(path, e);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
    let (mut n, mut tokens) = (0, 0);
    for bucket in 0..=1usize << bits {
        while n < slices.len() && bucket_of(slices[n].0, bits) < bucket {
            tokens += slices[n].1.tokens;
            n += 1;
        }
        out.write_all(&(n as u64).to_le_bytes()).map_err(failed)?;
        out.write_all(&tokens.to_le_bytes()).map_err(failed)?;
    }
    for (_, slice) in slices {
        let flags = match slice.end {
            None => 0,
            Some(false) => ENDS,
            Some(true) => ENDS | APPENDED,
        };
        out.write_all(&slice.number.to_le_bytes()).map_err(failed)?;
        out.write_all(&(slice.tokens | flags).to_le_bytes()).map_err(failed)?;
    }
    let input = File::open(&part.ids).map_err(|e| Error::io(&part.ids, e))?;
    let mut buffer = Vec::new();
    for (_, slice) in slices {
        let from = NPY_HEADER_SIZE as u64 + slice.at * width;
        let read = |into: &mut [u8], done| files::read_exact_at(&input, into, from + done);
        let size = slice.tokens * width;
        copy_bytes(read, &part.ids, size, &mut buffer, job, |some| {
            out.write_all(some).map_err(failed)
        })?;
    }
    out.flush().map_err(failed)
}

/// A bucket of a part.
pub(super) struct Bucket {
    /// In a part, their places are those in the part; in a dealt one, those in the bucket.
    pub slices: Vec<DocumentSlice>,
    /// Where in the file the place 0 is.
    pub start: u64,
    pub tokens: u64,
}

pub(super) fn read_bucket(path: &Path, bucket: usize, bits: u32, width: u64) -> Result<Bucket> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    let mut read = |from: u64, into: &mut [u8]| {
        file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(into)).map_err(failed)
    };
    let index = ((1u64 << bits) + 1) * 16;
    let (mut here, mut all) = ([0; 32], [0; 8]);
    read(bucket as u64 * 16, &mut here)?;
    read(index - 16, &mut all)?;
    let [first, before, end, after] = [0, 8, 16, 24].map(|at| little_endian(&here[at..at + 8]));
    let sizes = end.checked_sub(first).zip(after.checked_sub(before));
    let (n, tokens) = sizes.ok_or_else(|| damaged_part(path))?;
    let mut records = vec![0; n as usize * 16];
    read(index + first * 16, &mut records)?;
    let mut at = 0;
    let slice = |record: &[u8]| {
        let packed = little_endian(&record[8..]);
        let tokens = packed & !(ENDS | APPENDED);
        let end = (packed & ENDS != 0).then_some(packed & APPENDED != 0);
        let slice = DocumentSlice { number: little_endian(&record[..8]), at, tokens, end };
        at += tokens;
        slice
    };
    let slices: Vec<DocumentSlice> = records.chunks_exact(16).map(slice).collect();
    if at != tokens {
        return Err(damaged_part(path));
    }
    Ok(Bucket { slices, start: index + little_endian(&all) * 16 + before * width, tokens })
}
