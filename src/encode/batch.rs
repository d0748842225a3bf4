//! Many texts at once, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use super::{Recognise, Tokenizer};
use crate::error::{Error, Result};
use crate::job::Job;

/// Texts are handed to threads in groups of about this many bytes.
const GROUP: usize = 256 << 10;

/// A group of texts, encoded.
struct Encoded {
    number: usize,
    ids: Vec<u32>,
    /// How many ids each text has.
    lengths: Vec<u64>,
}

impl Tokenizer {
    /// The ids of all texts end to end, and where each text's ids begin (one more at the end).
    pub fn encode_batch(
        &self,
        texts: &[&[u8]],
        recognise: &Recognise,
        threads: usize,
        job: &Job,
    ) -> Result<(Vec<u32>, Vec<u64>)> {
        let groups = groups_of(texts);
        let threads = threads.min(groups.len()).max(1);
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<Encoded>> {
            let mut worker = self.worker();
            let mut results = Vec::new();
            loop {
                let number = next.fetch_add(1, Relaxed);
                let Some(&(start, end)) = groups.get(number) else { break };
                job.check()?;
                let mut ids = Vec::new();
                let mut lengths = Vec::with_capacity(end - start);
                for (i, text) in (start..end).zip(&texts[start..end]) {
                    let before = ids.len();
                    self.encode_with(&mut worker, text, recognise, &mut ids)
                        .map_err(|error| error.in_file(&format!("text {i}")))?;
                    lengths.push((ids.len() - before) as u64);
                    job.advance(text.len() as u64);
                }
                results.push(Encoded { number, ids, lengths });
            }
            self.give_back(worker);
            Ok(results)
        };
        let mut results = if threads == 1 {
            work()?
        } else {
            thread::scope(|scope| {
                let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                let mut all = Vec::with_capacity(groups.len());
                let mut failed = None;
                for handle in handles {
                    match handle.join() {
                        Ok(Ok(part)) => all.extend(part),
                        Ok(Err(error)) => failed = failed.or(Some(error)),
                        Err(_) => {
                            failed = failed.or(Some(Error::tokenizer(
                                "an encoding thread failed; this is a bug in bytemill",
                            )));
                        }
                    }
                }
                failed.map_or(Ok(all), Err)
            })?
        };
        results.sort_unstable_by_key(|group| group.number);
        let mut ids = Vec::with_capacity(results.iter().map(|group| group.ids.len()).sum());
        let mut offsets = Vec::with_capacity(texts.len() + 1);
        let mut end = 0;
        offsets.push(0);
        for group in results {
            ids.extend_from_slice(&group.ids);
            offsets.extend(group.lengths.iter().map(|length| {
                end += length;
                end
            }));
        }
        Ok((ids, offsets))
    }
}

/// Ranges of texts of about [`GROUP`] bytes each.
fn groups_of(texts: &[&[u8]]) -> Vec<(usize, usize)> {
    let mut groups = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (i, text) in texts.iter().enumerate() {
        size += text.len() + 64;
        if size >= GROUP {
            groups.push((start, i + 1));
            (start, size) = (i + 1, 0);
        }
    }
    if start < texts.len() {
        groups.push((start, texts.len()));
    }
    groups
}
