//! Comparison of the files of a shard with the manifest.
//!
//! Files are read, not mapped: a file that is truncated meanwhile is reported, whereas with a map it
//! would kill the process.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crc32fast::Hasher;

use super::append::{crc_hex, hash_rest};
use super::plan::{NPY_HEADER_SIZE, Plan, npy_header};
use super::writer::{Companion, Shard};
use crate::base::error::{Error, Result};
use crate::base::files::little_endian;
use crate::base::job::Job;
use crate::tokenizer::encode::Tokenizer;

/// All problems of a shard, and the number of documents that end in it without an end-of-text. With a
/// tokenizer, ids must be in its vocabulary.
pub fn check_shard(
    directory: &Path,
    plan: &Plan,
    shard: &Shard,
    tokenizer: Option<&Tokenizer>,
    job: &Job,
) -> Result<(Vec<String>, u64)> {
    let mut check = ShardCheck { directory, plan, tokenizer, job, found: Vec::new() };
    let unended = check.shard(shard)?;
    Ok((check.found, unended))
}

struct ShardCheck<'a> {
    directory: &'a Path,
    plan: &'a Plan,
    tokenizer: Option<&'a Tokenizer>,
    job: &'a Job,
    found: Vec<String>,
}

impl ShardCheck<'_> {
    /// Returns the number of documents that end without an end-of-text.
    fn shard(&mut self, shard: &Shard) -> Result<u64> {
        let docs_header = npy_header("<u8", shard.documents);
        let docs = Companion::clone(&shard.docs);
        let mut ends = EndsState::default();
        let tokens = shard.tokens;
        let sound = self.file(&docs, &docs_header, |check, bytes| {
            check.ends(&docs.file, bytes, tokens, &mut ends);
            Ok(())
        })?;
        let ids_header = npy_header(self.plan.dtype.descr(), shard.tokens);
        let ids_header = &ids_header[..self.plan.header_size()];
        let ids =
            Companion { file: shard.file.clone(), bytes: shard.bytes, crc32: shard.crc32.clone() };
        let mut walk =
            if sound { EndsReader::open(&self.directory.join(&docs.file)) } else { None };
        let mut at = 0;
        let mut reported = false;
        self.file(&ids, ids_header, |check, bytes| {
            check.ids(&ids.file, bytes, at, walk.as_mut(), &mut reported);
            at += (bytes.len() / check.plan.dtype.width()) as u64;
            Ok(())
        })?;
        if let Some(index) = &shard.index {
            self.file(&index.clone(), &[], |_, _| Ok(()))?;
        }
        Ok(walk.map_or(0, |walk| walk.unended))
    }

    /// Checks size, header and checksum of a file; calls `each` with the bytes after the header.
    /// Returns whether the file has no problem so far.
    fn file(
        &mut self,
        file: &Companion,
        header: &[u8],
        mut each: impl FnMut(&mut Self, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let path = self.directory.join(&file.file);
        let before = self.found.len();
        let opened = match std::fs::metadata(&path) {
            Ok(there) if !there.is_file() => Err("not a regular file".to_owned()),
            Ok(there) if there.len() != file.bytes => {
                Err(format!("{} bytes, not {}", there.len(), file.bytes))
            }
            other => other.and_then(|_| File::open(&path)).map_err(|error| error.to_string()),
        };
        let mut input = match opened {
            Ok(input) => input,
            Err(what) => {
                self.found.push(format!("{}: {what}", file.file));
                return Ok(false);
            }
        };
        let mut start = vec![0; header.len()];
        let (mut hasher, job) = (Hasher::new(), self.job);
        let read = input.read_exact(&mut start).map_err(|e| Error::io(&path, e)).and_then(|()| {
            hasher.update(&start);
            job.advance(start.len() as u64);
            if start != header {
                self.found.push(format!("{}: the header does not match the manifest", file.file));
            }
            hash_rest(
                &mut input,
                &mut hasher,
                |bytes| {
                    job.check()?;
                    job.advance(bytes.len() as u64);
                    each(self, bytes)
                },
                &path,
            )
        });
        match read {
            Ok(()) if crc_hex(hasher) != file.crc32 => {
                self.found.push(format!("{}: the checksum does not match", file.file));
            }
            Ok(()) => {}
            // A failing disk is a finding too.
            Err(Error::Io { source, .. }) => self.found.push(format!("{}: {source}", file.file)),
            Err(error) => return Err(error),
        }
        Ok(self.found.len() == before)
    }

    fn ends(&mut self, name: &str, bytes: &[u8], tokens: u64, ends: &mut EndsState) {
        for end in bytes.chunks_exact(8).map(little_endian) {
            if (end < ends.last || end > tokens) && !ends.reported {
                ends.reported = true;
                self.found.push(format!(
                    "{name}: document {} ends at {end}, after {tokens} or before {}",
                    ends.n, ends.last
                ));
            }
            ends.last = end;
            ends.n += 1;
        }
    }

    fn ids(
        &mut self,
        name: &str,
        bytes: &[u8],
        at: u64,
        walk: Option<&mut EndsReader>,
        reported: &mut bool,
    ) {
        let width = self.plan.dtype.width();
        let id_at = |i: usize| little_endian(&bytes[i * width..(i + 1) * width]) as u32;
        let n = bytes.len() / width;
        let known = |id: u32| match self.tokenizer {
            Some(tokenizer) => tokenizer.vocab().id_bytes(id).is_some(),
            None => id <= self.plan.max_id,
        };
        if !*reported && let Some(i) = (0..n).find(|&i| !known(id_at(i))) {
            *reported = true;
            let (id, place) = (id_at(i), at + i as u64);
            self.found
                .push(format!("{name}: id {id} at position {place} is not in the vocabulary"));
        }
        let (Some(walk), Some(end_of_text)) = (walk, self.plan.end_of_text) else { return };
        let n_marks = (0..n).filter(|&i| id_at(i) == end_of_text).count();
        let ended = walk.ends_in(at, at + n as u64, |i| id_at(i) == end_of_text);
        if n_marks != ended && !*reported {
            *reported = true;
            self.found.push(format!(
                "{name}: of {n_marks} end-of-text ids between the positions {at} and {}, {ended} end a document",
                at + n as u64
            ));
        }
    }
}

#[derive(Default)]
struct EndsState {
    last: u64,
    n: u64,
    reported: bool,
}

/// Reads the ends of documents along with their ids.
struct EndsReader {
    input: BufReader<File>,
    next: Option<u64>,
    /// Documents without an end-of-text at their end.
    unended: u64,
}

impl EndsReader {
    fn open(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        file.seek(SeekFrom::Start(NPY_HEADER_SIZE as u64)).ok()?;
        let mut walk = EndsReader { input: BufReader::new(file), next: None, unended: 0 };
        walk.advance();
        Some(walk)
    }

    fn advance(&mut self) {
        let mut value = [0; 8];
        self.next = self.input.read_exact(&mut value).ok().map(|()| u64::from_le_bytes(value));
    }

    /// The number of documents that end after an end-of-text between the ids `start` and `stop`.
    fn ends_in(&mut self, start: u64, stop: u64, is_mark: impl Fn(usize) -> bool) -> usize {
        let (mut ended, mut last) = (0, None);
        while let Some(end) = self.next.filter(|&end| end <= stop) {
            // A second document that ends there is empty.
            let fresh = end > start && last != Some(end);
            if fresh && is_mark((end - 1 - start) as usize) {
                ended += 1;
            } else {
                self.unended += 1;
            }
            last = Some(end);
            self.advance();
        }
        ended
    }
}
