//! Whether the files of a shard are what the manifest says.
//!
//! Files are read, not mapped: if one is truncated meanwhile, that is a finding, where a map would
//! end the process.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crc32fast::Hasher;

use super::append::{hash_rest, hex};
use super::npy;
use super::plan::Plan;
use super::writer::{Companion, Shard};
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::tokenizer::encode::Tokenizer;

/// Everything that is wrong with a shard, and the number of documents that end in it without an
/// end-of-text. With a tokenizer, ids must be of its vocabulary.
pub fn check_shard(
    directory: &Path,
    plan: &Plan,
    shard: &Shard,
    tokenizer: Option<&Tokenizer>,
    job: &Job,
) -> Result<(Vec<String>, u64)> {
    let mut check = Check { directory, plan, tokenizer, job, found: Vec::new() };
    let unended = check.shard(shard)?;
    Ok((check.found, unended))
}

struct Check<'a> {
    directory: &'a Path,
    plan: &'a Plan,
    tokenizer: Option<&'a Tokenizer>,
    job: &'a Job,
    found: Vec<String>,
}

impl Check<'_> {
    /// Checks a shard; gives the number of documents that end in it without an end-of-text.
    fn shard(&mut self, shard: &Shard) -> Result<u64> {
        let docs_header = npy::header("<u8", shard.documents);
        let docs = Companion::clone(&shard.docs);
        let mut ends = Ends::default();
        let tokens = shard.tokens;
        let sound = self.file(&docs, &docs_header, |check, block| {
            check.ends(&docs.file, block, tokens, &mut ends);
            Ok(())
        })?;
        let ids_header = npy::header(self.plan.dtype.descr(), shard.tokens);
        let ids_header = &ids_header[..self.plan.header()];
        let ids =
            Companion { file: shard.file.clone(), bytes: shard.bytes, crc32: shard.crc32.clone() };
        let mut walk = if sound { Walk::open(&self.directory.join(&docs.file)) } else { None };
        let mut at = 0;
        let mut told = false;
        self.file(&ids, ids_header, |check, block| {
            check.ids(&ids.file, block, at, walk.as_mut(), &mut told);
            at += (block.len() / check.plan.dtype.width()) as u64;
            Ok(())
        })?;
        if let Some(index) = &shard.index {
            self.file(&index.clone(), &[], |_, _| Ok(()))?;
        }
        Ok(walk.map_or(0, |walk| walk.unended))
    }

    /// Checks size, header and checksum of a file; `each` sees what is behind the header. Gives
    /// whether all is well so far.
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
                |block| {
                    job.check()?;
                    job.advance(block.len() as u64);
                    each(self, block)
                },
                &path,
            )
        });
        match read {
            Ok(()) if hex(hasher) != file.crc32 => {
                self.found.push(format!("{}: the checksum does not match", file.file));
            }
            Ok(()) => {}
            // A failing disk is what this is for.
            Err(Error::Io { source, .. }) => self.found.push(format!("{}: {source}", file.file)),
            Err(error) => return Err(error),
        }
        Ok(self.found.len() == before)
    }

    fn ends(&mut self, name: &str, block: &[u8], tokens: u64, ends: &mut Ends) {
        for end in block.chunks_exact(8).map(number) {
            if (end < ends.last || end > tokens) && !ends.told {
                ends.told = true;
                self.found.push(format!(
                    "{name}: document {} ends at {end}, behind {tokens} or before {}",
                    ends.n, ends.last
                ));
            }
            ends.last = end;
            ends.n += 1;
        }
    }

    fn ids(&mut self, name: &str, block: &[u8], at: u64, walk: Option<&mut Walk>, told: &mut bool) {
        let width = self.plan.dtype.width();
        let id_at = |i: usize| number(&block[i * width..(i + 1) * width]) as u32;
        let n = block.len() / width;
        let known = |id: u32| match self.tokenizer {
            Some(tokenizer) => tokenizer.vocab().id_bytes(id).is_some(),
            None => id <= self.plan.max_id,
        };
        if !*told && let Some(i) = (0..n).find(|&i| !known(id_at(i))) {
            *told = true;
            let (id, place) = (id_at(i), at + i as u64);
            self.found
                .push(format!("{name}: {id}, the id number {place}, is not in the vocabulary"));
        }
        let (Some(walk), Some(end_of_text)) = (walk, self.plan.end_of_text) else { return };
        let n_marks = (0..n).filter(|&i| id_at(i) == end_of_text).count();
        let ended = walk.ends_in(at, at + n as u64, |i| id_at(i) == end_of_text);
        if n_marks != ended && !*told {
            *told = true;
            self.found.push(format!(
                "{name}: of {n_marks} end-of-texts between the ids {at} and {}, {ended} end a document",
                at + n as u64
            ));
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[derive(Default)]
struct Ends {
    last: u64,
    n: u64,
    told: bool,
}

/// Goes through the ends of documents beside their ids.
struct Walk {
    input: BufReader<File>,
    next: Option<u64>,
    /// Documents without an end-of-text at their end.
    unended: u64,
}

impl Walk {
    fn open(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        file.seek(SeekFrom::Start(npy::HEADER as u64)).ok()?;
        let mut walk = Walk { input: BufReader::new(file), next: None, unended: 0 };
        walk.advance();
        Some(walk)
    }

    fn advance(&mut self) {
        let mut value = [0; 8];
        self.next = self.input.read_exact(&mut value).ok().map(|()| u64::from_le_bytes(value));
    }

    /// How many documents end behind an end-of-text between the ids `start` and `stop`.
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
