//! Documents in another order, in bounded memory.
//!
//! Documents are written into buckets by the first bits of their key; then each bucket is read,
//! sorted by key and handed on. A bucket that is too large for memory is first parted by further
//! bits. What comes out is in the order of the keys, whatever the buckets.
//!
//! A document is one or more parts, which follow each other in its bucket: number of the document
//! (u64), ids in the part (u32), flags (u32), ids. The last part has no ids.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append::Append;
use super::documents::Sink;
use super::journal::Entry;
use super::manifest::Plan;
use super::order::Order;
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// What is sorted in memory at once.
pub const MOST: u64 = 24 << 20;
/// Bits of the key by which a bucket that is too large is parted.
const MORE_BITS: u32 = 4;
/// Ids of a part.
const PART: usize = 1 << 24;
const PART_HEAD: usize = 16;
const LAST: u32 = 1;
const APPENDED: u32 = 2;

/// Documents on their way.
pub struct Buckets {
    order: Order,
    bits: u32,
    width: usize,
    /// By split, then by the first bits of the key.
    files: Vec<Vec<Append>>,
}

impl Buckets {
    /// Buckets that are new, or as long as they were.
    pub fn new(
        plan: &Plan,
        directory: &Path,
        lengths: Option<&[Vec<u64>]>,
        job: &Job,
    ) -> Result<Self> {
        let bits = bits(plan);
        let bucket = |split: usize, number: usize| {
            let path = path(directory, split, number);
            match lengths {
                None => Append::create(path, 0),
                Some(lengths) => {
                    let length = lengths.get(split).and_then(|of_split| of_split.get(number));
                    Append::restore(path, 0, length.copied().unwrap_or(u64::MAX), job)
                }
            }
        };
        let files = (0..plan.splits().len())
            .map(|split| (0..1 << bits).map(|number| bucket(split, number)).collect())
            .collect::<Result<_>>()?;
        let order = Order::new(plan.seed, plan.val_fraction);
        Ok(Buckets { order, bits, width: plan.dtype.width(), files })
    }

    fn put(&mut self, number: u64, ids: &[u8], flags: u32) -> Result<()> {
        let bucket = (u128::from(self.order.key(number)) >> (64 - self.bits)) as usize;
        let file = &mut self.files[self.order.split(number)][bucket];
        let mut head = [0; PART_HEAD];
        head[..8].copy_from_slice(&number.to_le_bytes());
        head[8..12].copy_from_slice(&((ids.len() / self.width) as u32).to_le_bytes());
        head[12..].copy_from_slice(&flags.to_le_bytes());
        file.write(&head)?;
        file.write(ids)
    }
}

/// Enough buckets for one to fit into memory if a token has three bytes, and not too many files.
fn bits(plan: &Plan) -> u32 {
    let text: u64 = plan.sources.iter().map(|source| source.size).sum();
    let ids = text / 3 * plan.dtype.width() as u64;
    (ids / (MOST / 2) + 1).next_power_of_two().ilog2().min(6)
}

fn path(directory: &Path, split: usize, number: usize) -> PathBuf {
    directory.join(format!("bucket-{split}-{number:02}"))
}

/// The size of all buckets.
pub fn size(plan: &Plan, directory: &Path) -> Result<u64> {
    let mut size = 0;
    for split in 0..plan.splits().len() {
        for number in 0..1 << bits(plan) {
            let path = path(directory, split, number);
            size += fs::metadata(&path).map_err(|e| Error::io(&path, e))?.len();
        }
    }
    Ok(size)
}

impl Sink for Buckets {
    fn append(&mut self, number: u64, ids: &[u8]) -> Result<()> {
        ids.chunks(PART * self.width).try_for_each(|part| self.put(number, part, 0))
    }

    fn end(&mut self, number: u64, appended: bool) -> Result<()> {
        self.put(number, &[], if appended { LAST | APPENDED } else { LAST })
    }

    fn state(&mut self) -> Result<(Entry, Vec<Arc<File>>)> {
        let mut files = Vec::new();
        for file in self.files.iter_mut().flatten() {
            files.push(file.flush()?);
        }
        let lengths =
            self.files.iter().map(|split| split.iter().map(Append::len).collect()).collect();
        Ok((Entry { buckets: lengths, ..Entry::default() }, files))
    }
}

/// Who gets the documents in their order.
pub trait Receiver {
    /// Some ids of the document.
    fn ids(&mut self, ids: &[u8]) -> Result<()>;
    /// The document ends.
    fn end(&mut self, appended: bool) -> Result<()>;
}

/// Gives the documents of a split, but for the first `skip`, in order; no more than `most` bytes
/// are sorted at once.
pub fn gather(
    plan: &Plan,
    directory: &Path,
    split: usize,
    skip: u64,
    most: u64,
    receiver: &mut dyn Receiver,
    job: &Job,
) -> Result<()> {
    let order = Order::new(plan.seed, plan.val_fraction);
    let bits = bits(plan);
    let mut work = Work { order, width: plan.dtype.width(), skip, most, receiver, job };
    (0..1 << bits).try_for_each(|number| work.bucket(&path(directory, split, number), bits))
}

struct Work<'a> {
    order: Order,
    width: usize,
    skip: u64,
    most: u64,
    receiver: &'a mut dyn Receiver,
    job: &'a Job,
}

/// A part without its ids.
struct Part {
    number: u64,
    size: usize,
    flags: u32,
}

impl Part {
    fn of(head: &[u8; PART_HEAD], width: usize) -> Self {
        let [a, b, c, d, e, f, g, h, n0, n1, n2, n3, f0, f1, f2, f3] = *head;
        Part {
            number: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            size: u32::from_le_bytes([n0, n1, n2, n3]) as usize * width,
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
        }
    }
}

impl Work<'_> {
    /// Gives the documents of a bucket, whose keys agree in their first `bits` bits.
    fn bucket(&mut self, path: &Path, bits: u32) -> Result<()> {
        let failed = |e| Error::io(path, e);
        let size = fs::metadata(path).map_err(failed)?.len();
        if size <= self.most {
            let data = fs::read(path).map_err(failed)?;
            return self.sorted(&data, path);
        }
        let (mut first, mut alike, mut documents) = (None, true, 0);
        self.for_each_part(path, |_, part, _| {
            alike &= *first.get_or_insert(part.number) == part.number;
            documents += u64::from(part.flags & LAST);
            Ok(())
        })?;
        if documents <= self.skip {
            self.skip -= documents;
            self.job.advance(size);
            return Ok(());
        }
        if alike || bits >= 64 {
            // One document, or keys that are all the same: then they are in order already.
            return self.for_each_part(path, |work, part, ids| work.give(&part, ids));
        }
        self.parted(path, bits)
    }

    /// Parts a bucket by further bits.
    fn parted(&mut self, path: &Path, bits: u32) -> Result<()> {
        let sub = |number: usize| {
            let mut name = path.file_name().unwrap_or_default().to_os_string();
            name.push(format!("-{number:x}"));
            path.with_file_name(name)
        };
        let mut files: Vec<Append> =
            (0..1 << MORE_BITS).map(|n| Append::create(sub(n), 0)).collect::<Result<_>>()?;
        self.for_each_part(path, |work, part, ids| {
            let key = work.order.key(part.number);
            let file = &mut files[(key << bits >> (64 - MORE_BITS)) as usize];
            file.write(&part.number.to_le_bytes())?;
            file.write(&((part.size / work.width) as u32).to_le_bytes())?;
            file.write(&part.flags.to_le_bytes())?;
            file.write(ids)
        })?;
        for mut file in files {
            file.flush()?;
            let path = file.path().to_owned();
            drop(file);
            self.bucket(&path, bits + MORE_BITS)?;
            fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
        }
        Ok(())
    }

    /// Gives the documents of a bucket that is in memory.
    fn sorted(&mut self, data: &[u8], path: &Path) -> Result<()> {
        let mut documents: Vec<(u64, u64, usize, usize)> = Vec::new();
        let (mut at, mut start) = (0, 0);
        while at < data.len() {
            let head = data[at..].first_chunk::<PART_HEAD>().ok_or_else(|| cut_short(path))?;
            let part = Part::of(head, self.width);
            at += PART_HEAD + part.size;
            if part.flags & LAST != 0 {
                let key = self.order.key(part.number);
                documents.push((key, part.number, start, at.min(data.len())));
                start = at;
            }
        }
        documents.sort_unstable();
        for (_, _, start, end) in documents {
            let mut at = start;
            while let Some(head) = data[at..end].first_chunk::<PART_HEAD>() {
                let part = Part::of(head, self.width);
                let ids = data.get(at + PART_HEAD..at + PART_HEAD + part.size);
                self.give(&part, ids.ok_or_else(|| cut_short(path))?)?;
                at += PART_HEAD + part.size;
            }
        }
        Ok(())
    }

    fn give(&mut self, part: &Part, ids: &[u8]) -> Result<()> {
        self.job.check()?;
        self.job.advance((PART_HEAD + ids.len()) as u64);
        let last = part.flags & LAST != 0;
        if self.skip > 0 {
            self.skip -= u64::from(last);
            return Ok(());
        }
        self.receiver.ids(ids)?;
        if last { self.receiver.end(part.flags & APPENDED != 0) } else { Ok(()) }
    }

    fn for_each_part(
        &mut self,
        path: &Path,
        mut each: impl FnMut(&mut Self, Part, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let failed = |e| Error::io(path, e);
        let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let mut left = fs::metadata(path).map_err(failed)?.len();
        let (mut head, mut ids) = ([0; PART_HEAD], Vec::new());
        while left > 0 {
            input.read_exact(&mut head).map_err(failed)?;
            let part = Part::of(&head, self.width);
            left =
                left.checked_sub((PART_HEAD + part.size) as u64).ok_or_else(|| cut_short(path))?;
            ids.resize(part.size, 0);
            input.read_exact(&mut ids).map_err(failed)?;
            self.job.check()?;
            each(self, part, &ids)?;
        }
        Ok(())
    }
}

fn cut_short(path: &Path) -> Error {
    Error::tokens(format!("{}: ends within a document", path.display()))
        .with_hint("begin anew: overwrite=True")
}
