//! Parts that were encoded apart → tokens as if they had been encoded in one go.
//!
//! A part is a directory of tokens itself, of some sources or of ranges of them; what it holds
//! behind the end of its last document belongs to a document that goes on in the next part. Parts
//! are joined in the order of the corpus, which numbers their documents, so the splits, the order
//! and the shards are those that one process would have made.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::directory::{Directory, Task};
use super::documents::{Direct, Sink};
use super::journal::Journal;
use super::manifest::{Manifest, Plan};
use super::npy;
use super::shuffle::Buckets;
use super::work::Work;
use super::{Manner, Options, plan};
use crate::corpus::{Inputs, Skipped};
use crate::encode::Tokenizer;
use crate::error::{Error, Result};
use crate::job::Job;

/// Bytes of ids that are copied at a time.
const BLOCK: u64 = 1 << 20;

/// Joins the tokens of parts, which together are those of `inputs`, in a directory.
pub fn join_parts(
    tokenizer: &Tokenizer,
    inputs: &Inputs,
    parts: &[PathBuf],
    out: &Path,
    options: &Options,
    manner: &Manner,
    job: &Job,
) -> Result<()> {
    let plan = plan(tokenizer, inputs, options)?;
    let (directory, task) = Directory::take(out, &plan, manner.existing)?;
    if task == Task::Nothing {
        return Ok(());
    }
    // Copying is quick: what an interrupted one left is made anew.
    let journal = Journal::create(&directory.partial, &plan)?;
    let work = Work { tokenizer, inputs, plan: &plan, partial: &directory.partial, manner, job };
    let mut copy = Copy { plan: &plan, document: 0, skipped: Skipped::default(), job };
    let splits = if plan.shuffle {
        let mut buckets = Buckets::new(&plan, &directory.partial, None, job)?;
        copy.parts(parts, &mut buckets)?;
        buckets.state()?;
        drop(buckets);
        work.gather(journal, None, copy.document)?
    } else {
        let mut direct = Direct::new(&plan, &directory.partial, None, job)?;
        copy.parts(parts, &mut direct)?;
        direct.into_splits()
    };
    let manifest = work.finish(splits, copy.skipped)?;
    job.check()?;
    directory.finish(&manifest)
}

struct Copy<'a> {
    plan: &'a Plan,
    /// The number of the document that comes next, or goes on.
    document: u64,
    skipped: Skipped,
    job: &'a Job,
}

impl Copy<'_> {
    fn parts(&mut self, parts: &[PathBuf], sink: &mut dyn Sink) -> Result<()> {
        let manifests: Vec<Manifest> =
            parts.iter().map(|part| Manifest::open(part)).collect::<Result<_>>()?;
        let bytes = |manifest: &Manifest| manifest.files().map(|(_, size)| size).sum::<u64>();
        self.job.set_total(manifests.iter().map(bytes).sum());
        for (part, mut manifest) in parts.iter().zip(manifests) {
            self.check(part, &manifest)?;
            self.part(part, &manifest, sink)?;
            self.skipped.take(&mut manifest.skipped);
            self.job.advance(bytes(&manifest));
        }
        Ok(())
    }

    /// A part that was made otherwise must not get in.
    fn check(&self, part: &Path, manifest: &Manifest) -> Result<()> {
        let Plan { tokenizer, dtype, end_of_text, append_eot, .. } = &manifest.plan;
        self.plan.check_tokenizer(&tokenizer.fingerprint, part)?;
        if dtype.width() != self.plan.dtype.width()
            || *end_of_text != self.plan.end_of_text
            || *append_eot != self.plan.append_eot
            || manifest.splits.len() != 1
        {
            return Err(Error::tokens(format!("{}: a part made otherwise", part.display()))
                .with_hint("begin anew: overwrite=True (--overwrite)"));
        }
        Ok(())
    }

    fn part(&mut self, part: &Path, manifest: &Manifest, sink: &mut dyn Sink) -> Result<()> {
        let (plan, width) = (&manifest.plan, self.plan.dtype.width() as u64);
        let split = &manifest.splits[0];
        let (mut number, mut appended) = (0, split.appended.iter().peekable());
        for shard in &split.shards {
            let path = part.join(&shard.file);
            let mut ids = opened(&path, plan.header() as u64)?;
            let docs = part.join(&shard.docs.file);
            let mut ends = opened(&docs, npy::HEADER as u64)?;
            let mut at = 0;
            for _ in 0..shard.documents {
                let mut end = [0; 8];
                ends.read_exact(&mut end).map_err(|e| Error::io(&docs, e))?;
                let end = u64::from_le_bytes(end);
                self.copy(&mut ids, &path, end.saturating_sub(at) * width, sink)?;
                at = end;
                let added = appended.next_if(|&&place| place == number).is_some();
                sink.end(self.document, added)?;
                (self.document, number) = (self.document + 1, number + 1);
            }
            self.copy(&mut ids, &path, shard.tokens.saturating_sub(at) * width, sink)?;
        }
        Ok(())
    }

    /// Copies so many bytes of ids.
    fn copy(
        &mut self,
        ids: &mut impl Read,
        path: &Path,
        mut left: u64,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let mut buffer = Vec::new();
        while left > 0 {
            self.job.check()?;
            let n = left.min(BLOCK);
            buffer.resize(n as usize, 0);
            ids.read_exact(&mut buffer).map_err(|e| Error::io(path, e))?;
            sink.append(self.document, &buffer)?;
            left -= n;
        }
        Ok(())
    }
}

fn opened(path: &Path, header: u64) -> Result<BufReader<File>> {
    let failed = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(header)).map_err(failed)?;
    Ok(BufReader::with_capacity(256 << 10, file))
}
