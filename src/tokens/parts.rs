//! Parts that were encoded apart: what lies where in them.
//!
//! A part is a directory of tokens itself, of some sources or of ranges of them; what it holds
//! behind the end of its last document belongs to a document that goes on in the next part. The
//! documents of all parts are numbered through, which decides on their split and order, so a part
//! has to be told how many end before it.
//!
//! To be shuffled, a part is *dealt*: written anew, a file for each split, in the order of the keys
//! and parted into buckets by their first bits. Whoever makes a shard of shuffled documents reads
//! some buckets of every part. All numbers are little-endian:
//!
//! ```text
//! table   (buckets + 1) × (u64, u64): stretches and ids before the bucket
//! index   for each stretch: number of the document (u64), ids and flags (u64)
//! ids
//! ```

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::append::sync_directory;
use super::journal::Journal;
use super::manifest::{Manifest, Plan};
use super::npy;
use super::order::Order;
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::corpus::Skipped;

/// Bytes of ids that are copied at a time.
pub(super) const BLOCK: u64 = 1 << 20;
/// The file that says that a part was dealt.
const DEALT: &str = "dealt.json";
const ENDS: u64 = 1 << 63;
const APPENDED: u64 = 1 << 62;

/// How much of a split there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Share {
    /// Ids.
    pub tokens: u64,
    /// Documents that end.
    pub documents: u64,
}

/// Ids of a document that lie together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// The number of the document.
    pub number: u64,
    /// Ids before it in the part, or in what was read of it.
    pub at: u64,
    /// Its ids.
    pub tokens: u64,
    /// If the document ends with it, whether the last id was appended.
    pub end: Option<bool>,
}

/// What tells a plan from others.
pub(super) fn plan_id(plan: &Plan) -> String {
    // Plans always have a JSON form.
    let digest = Sha256::digest(serde_json::to_vec(plan).unwrap_or_default());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The plan that work in progress follows. A task that comes too late, when other work has begun,
/// must not meddle with that.
pub(super) fn planned(partial: &Path, id: &str) -> Result<Plan> {
    match Journal::plan(partial)? {
        Some(plan) if plan_id(&plan) == id => Ok(plan),
        _ => Err(Error::tokens(format!("{}: this work was given up", partial.display()))),
    }
}

/// The manifest of a part, which must have been made for this plan.
pub(super) fn opened(part: &Path, plan: &Plan) -> Result<Manifest> {
    let manifest = Manifest::read(part)?;
    let Plan { tokenizer, dtype, end_of_text, append_eot, .. } = &manifest.plan;
    plan.check_tokenizer(&tokenizer.fingerprint, part)?;
    if dtype.width() != plan.dtype.width()
        || *end_of_text != plan.end_of_text
        || *append_eot != plan.append_eot
        || manifest.splits.len() != 1
        || manifest.splits[0].shards.len() != 1
    {
        return Err(Error::tokens(format!("{}: a part made otherwise", part.display()))
            .with_hint("begin anew: overwrite=True"));
    }
    Ok(manifest)
}

/// What is in a part, of how many bytes of text, and what was skipped. Its files may be gone.
pub fn facts(part: &Path) -> Result<(Share, u64, Skipped)> {
    let manifest = Manifest::read(part)?;
    let (tokens, documents) = manifest
        .splits
        .iter()
        .fold((0, 0), |(t, d), split| (t + split.tokens, d + split.documents));
    Ok((Share { tokens, documents }, manifest.text_bytes.unwrap_or(0), manifest.skipped))
}

/// Calls `each` with the stretches of a part in order; `first` documents end before it.
pub(super) fn for_each_stretch(
    part: &Path,
    manifest: &Manifest,
    first: u64,
    mut each: impl FnMut(Stretch) -> Result<()>,
) -> Result<()> {
    let split = &manifest.splits[0];
    let (shard, mut appended) = (&split.shards[0], split.appended.iter().peekable());
    let path = part.join(&shard.docs.file);
    let mut ends = reader(&path, npy::HEADER as u64)?;
    let mut at = 0;
    for number in 0..shard.documents {
        let mut end = [0; 8];
        ends.read_exact(&mut end).map_err(|e| Error::io(&path, e))?;
        let tokens = u64::from_le_bytes(end).checked_sub(at).ok_or_else(|| damaged(&path))?;
        let added = appended.next_if(|&&place| place == number).is_some();
        each(Stretch { number: first + number, at, tokens, end: Some(added) })?;
        at += tokens;
    }
    match shard.tokens.checked_sub(at) {
        None => Err(damaged(&path)),
        Some(0) => Ok(()),
        Some(tokens) => each(Stretch { number: first + shard.documents, at, tokens, end: None }),
    }
}

/// The file of ids of a part, and where in it they begin.
pub(super) fn ids_of(part: &Path, manifest: &Manifest) -> (PathBuf, u64) {
    (part.join(&manifest.splits[0].shards[0].file), manifest.plan.header() as u64)
}

/// Opens a file for reading on from a place.
pub(super) fn reader(path: &Path, from: u64) -> Result<BufReader<File>> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    Ok(BufReader::with_capacity(256 << 10, file))
}

fn damaged(path: &Path) -> Error {
    Error::tokens(format!("{}: damaged", path.display())).with_hint("begin anew: overwrite=True")
}

#[derive(Serialize, Deserialize, PartialEq)]
struct Dealt {
    first: u64,
    bits: u32,
    shares: Vec<Vec<Share>>,
}

/// How much of each split is in each bucket of a part, of which there are `1 << bits`; `first`
/// documents end before the part, and `id` is that of the plan. If documents are to be shuffled,
/// the part is dealt, and its files go; unless that was done before.
pub fn deal(
    partial: &Path,
    id: &str,
    part: &Path,
    first: u64,
    bits: u32,
    job: &Job,
) -> Result<Vec<Vec<Share>>> {
    let done = || {
        let dealt: Dealt = serde_json::from_slice(&fs::read(part.join(DEALT)).ok()?).ok()?;
        ((dealt.first, dealt.bits) == (first, bits)).then_some(dealt.shares)
    };
    match done() {
        Some(shares) => Ok(shares),
        // If it fails because somebody else was at it, too, and quicker, that is no failure.
        None => deal_anew(partial, id, part, first, bits, job).or_else(|e| done().ok_or(e)),
    }
}

fn deal_anew(
    partial: &Path,
    id: &str,
    part: &Path,
    first: u64,
    bits: u32,
    job: &Job,
) -> Result<Vec<Vec<Share>>> {
    let plan = planned(partial, id)?;
    let manifest = opened(part, &plan)?;
    let order = Order::new(plan.seed, plan.val_fraction);
    let n_buckets = 1 << bits;
    let mut shares = vec![vec![Share::default(); n_buckets]; plan.splits().len()];
    let mut dealt: Vec<Vec<(u64, Stretch)>> = vec![Vec::new(); plan.splits().len()];
    for_each_stretch(part, &manifest, first, |stretch| {
        let (split, key) = (order.split(stretch.number), order.key(stretch.number));
        let bucket = if plan.shuffle { bucket_of(key, bits) } else { 0 };
        shares[split][bucket].tokens += stretch.tokens;
        shares[split][bucket].documents += u64::from(stretch.end.is_some());
        if plan.shuffle {
            dealt[split].push((key, stretch));
        }
        Ok(())
    })?;
    let (ids, header) = ids_of(part, &manifest);
    for (split, mut stretches) in dealt.into_iter().enumerate().filter(|_| plan.shuffle) {
        stretches.sort_unstable_by_key(|(key, stretch)| (*key, stretch.number));
        let width = plan.dtype.width() as u64;
        write_dealt(&dealt_path(part, split), &stretches, bits, (&ids, header), width, job)?;
    }
    let dealt = Dealt { first, bits, shares };
    // Numbers always have a JSON form.
    write_whole(&part.join(DEALT), &serde_json::to_vec(&dealt).unwrap_or_default())?;
    if plan.shuffle {
        manifest.files().for_each(|(name, _)| drop(fs::remove_file(part.join(name))));
    }
    Ok(dealt.shares)
}

fn bucket_of(key: u64, bits: u32) -> usize {
    (u128::from(key) >> (64 - bits)) as usize
}

fn dealt_path(part: &Path, split: usize) -> PathBuf {
    part.join(format!("dealt-{split}"))
}

fn write_dealt(
    path: &Path,
    stretches: &[(u64, Stretch)],
    bits: u32,
    (ids, header): (&Path, u64),
    width: u64,
    job: &Job,
) -> Result<()> {
    let temporary = unused_beside(path);
    let failed = |e| Error::io(path, e);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary).map_err(failed)?);
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
    let read = |e| Error::io(ids, e);
    let (mut input, mut block) = (File::open(ids).map_err(read)?, Vec::new());
    for (_, stretch) in stretches {
        input.seek(SeekFrom::Start(header + stretch.at * width)).map_err(read)?;
        let mut left = stretch.tokens * width;
        while left > 0 {
            job.check()?;
            block.resize(left.min(BLOCK) as usize, 0);
            input.read_exact(&mut block).map_err(read)?;
            out.write_all(&block).map_err(failed)?;
            left -= block.len() as u64;
        }
    }
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().and_then(|()| fs::rename(&temporary, path)).map_err(failed)
}

/// Reads a bucket of a part that was dealt: its stretches, whose places are those in `ids`, to
/// which the ids are appended.
pub(super) fn read_bucket(
    part: &Path,
    split: usize,
    bucket: usize,
    bits: u32,
    width: u64,
    ids: &mut Vec<u8>,
) -> Result<Vec<Stretch>> {
    let path = dealt_path(part, split);
    let failed = |e| Error::io(&path, e);
    let mut file = File::open(&path).map_err(failed)?;
    let mut read = |from: u64, into: &mut [u8]| {
        file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(into)).map_err(failed)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let index = ((1u64 << bits) + 1) * 16;
    let (mut here, mut last) = ([0; 32], [0; 8]);
    read(bucket as u64 * 16, &mut here)?;
    read(index - 16, &mut last)?;
    let [first, before, end, after] = [0, 8, 16, 24].map(|at| number(&here[at..at + 8]));
    let n = end.checked_sub(first).ok_or_else(|| damaged(&path))?;
    let tokens = after.checked_sub(before).ok_or_else(|| damaged(&path))?;
    let mut records = vec![0; n as usize * 16];
    read(index + first * 16, &mut records)?;
    let start = ids.len();
    ids.resize(start + (tokens * width) as usize, 0);
    read(index + number(&last) * 16 + before * width, &mut ids[start..])?;
    let mut at = start as u64 / width;
    let stretch = |record: &[u8]| {
        let packed = number(&record[8..]);
        let tokens = packed & !(ENDS | APPENDED);
        let end = (packed & ENDS != 0).then_some(packed & APPENDED != 0);
        let stretch = Stretch { number: number(&record[..8]), at, tokens, end };
        at += tokens;
        stretch
    };
    let stretches: Vec<Stretch> = records.chunks_exact(16).map(stretch).collect();
    if at * width != ids.len() as u64 {
        return Err(damaged(&path));
    }
    Ok(stretches)
}

/// A name beside `path` that nobody uses, on whatever machine.
pub(super) fn unused_beside(path: &Path) -> PathBuf {
    use std::hash::{BuildHasher, RandomState};
    let chance = RandomState::new().hash_one(std::process::id());
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{chance:016x}.tmp"));
    path.with_file_name(name)
}

/// Writes a small file that is whole or not there.
pub(super) fn write_whole(path: &Path, data: &[u8]) -> Result<()> {
    let temporary = unused_beside(path);
    let failed = |e| Error::io(path, e);
    let mut file = File::create(&temporary).map_err(failed)?;
    file.write_all(data)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(failed)?;
    path.parent().into_iter().for_each(sync_directory);
    Ok(())
}
