//! A range of a corpus → the shards of its splits, continued from call to call, or one part.

use std::path::Path;

use serde::Serialize;

use super::pipeline::{Encoded, Target, for_each_block};
use super::plan::Plan;
use super::writer::{OpenShard, Split, SplitWriter};
use crate::base::error::Result;
use crate::base::job::Job;
use crate::corpus::{Context, InOrder, Input, Inputs, Skipped, Source, SourcePosition};
use crate::tokenizer::encode::Tokenizer;

/// A range of a corpus: some sources, or ranges of them.
#[derive(Debug)]
pub struct Range<'a> {
    pub inputs: &'a Inputs,
    /// What the inputs are expected to be.
    pub sources: &'a [Source],
    pub threads: usize,
    /// Bytes of text that are encoded at a time; None for the usual.
    pub block_size: Option<usize>,
}

/// What came of a range.
#[derive(Debug, Serialize)]
pub struct Written {
    /// Of each split, the shards that were closed.
    pub splits: Vec<Split>,
    /// Of each split, the shard that is open; none after the last range.
    pub open: Vec<OpenShard>,
    pub text_bytes: u64,
    pub skipped: Skipped,
}

/// Encodes a range into files in `directory`, continuing with the shards in `open` (none: from the
/// start). The shards are closed if the range is the last. No file is synced.
pub fn encode_range(
    tokenizer: &Tokenizer,
    range: &Range<'_>,
    plan: &Plan,
    directory: &Path,
    mut open: Vec<OpenShard>,
    is_last: bool,
    job: &Job,
) -> Result<Written> {
    open.resize(plan.stems.len(), OpenShard::default());
    let mut writers = Vec::with_capacity(open.len());
    for (split, open) in open.into_iter().enumerate() {
        writers.push(SplitWriter::new(plan, split, directory, open)?);
    }
    let (mut text_bytes, mut skipped) = (0, Skipped::default());
    let mut document = writers.iter().map(SplitWriter::documents).sum();
    let order = plan.order();
    let target = Target {
        tokenizer,
        dtype: plan.dtype,
        end_of_text: plan.end_of_text,
        append: plan.append_eot,
    };
    range.for_each(target, job, |block| {
        let mut start = 0;
        for end in &block.ends {
            let writer = &mut writers[order.split(document)];
            writer.append(&block.ids[start..end.at])?;
            writer.end_document(end.appended)?;
            document += 1;
            start = end.at;
        }
        writers[order.split(document)].append(&block.ids[start..])?;
        text_bytes += block.text;
        for (kind, n) in &block.skipped.0 {
            skipped.add(kind, *n);
        }
        job.read(block.weight, block.text);
        Ok(())
    })?;
    let (mut splits, mut open) = (Vec::new(), Vec::new());
    for writer in writers {
        if is_last {
            splits.push(writer.finish(job)?);
        } else {
            let (made, still_open) = writer.pause()?;
            splits.push(made);
            open.push(still_open);
        }
    }
    Ok(Written { splits, open, text_bytes, skipped })
}

impl Range<'_> {
    fn for_each(
        &self,
        target: Target<'_>,
        job: &Job,
        each: impl FnMut(&Encoded) -> Result<()>,
    ) -> Result<()> {
        let Range { inputs, sources, threads, block_size } = *self;
        let block_size = block_size.unwrap_or(super::pipeline::BLOCK_SIZE).max(1);
        let total = sources.iter().map(Source::weight).sum::<u64>();
        job.set_total(total);
        // A thread that gets no block is not worth its start.
        let known =
            sources.iter().all(Source::is_divisible) && inputs.list.iter().all(Input::is_measured);
        let n_blocks = (total / block_size as u64 + sources.len() as u64).max(1) as usize;
        let context = Context {
            cutter: target.tokenizer.cutter(),
            reading: &inputs.reading,
            block_size,
            open_pieces: true,
            job,
        };
        let blocks = InOrder::new(inputs, sources, context, (0, SourcePosition::default()));
        let threads = if known { threads.min(n_blocks) } else { threads };
        for_each_block(blocks, target, threads, job, each)?;
        job.read_all();
        Ok(())
    }
}
