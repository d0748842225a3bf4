//! How many tokens a corpus has for every size of the vocabulary, in one pass.
//!
//! A smaller vocabulary is the bytes and the first merges. Encoding always applies the merge of the
//! lowest rank; so with the first merges alone it takes the same steps, until only later merges are
//! left. A step therefore happens with every vocabulary that holds the
//! highest rank so far, and with no smaller one. (With learned merges, each step has a higher rank than
//! the one before; a file may list them in any order.)

use std::cell::Cell;

use super::tokenizer::Tokenizer;
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::learn::counts::{Counts, for_each};
use crate::tokenizer::merge::{self, Merges, Scratch};
use crate::tokenizer::vocab::PairRanks;

/// Merges a piece and counts, by rank, the tokens that the merges save.
struct Counted<'a> {
    pairs: &'a PairRanks,
    /// By rank: how many tokens fewer there are if the vocabulary includes it.
    saved: &'a [Cell<u64>],
    /// How often the piece occurs.
    count: u64,
    /// The highest rank so far.
    highest: Cell<u32>,
    /// The rank of the token that the piece becomes regardless of the merges.
    whole: u32,
}

impl Counted<'_> {
    fn save(&self, rank: u32, n: u64) {
        let saved = &self.saved[rank as usize];
        // Only forged counts can overflow.
        saved.set(saved.get().saturating_add(self.count.saturating_mul(n)));
    }
}

impl Merges for Counted<'_> {
    fn rank(&self, left: u32, right: u32) -> u32 {
        self.pairs.get(left, right)
    }

    /// Called once for each merge, in their order.
    fn result(&self, rank: u32) -> u32 {
        self.highest.set(self.highest.get().max(rank));
        self.save(self.highest.get().min(self.whole), 1);
        rank
    }
}

impl Tokenizer {
    /// The number of tokens that the counted pieces become, by the number of tokens of the vocabulary
    /// besides the bytes: first without any, last with all.
    pub fn tokens_by_size(&self, counts: &mut Counts, job: &Job) -> Result<Vec<u64>> {
        let stages = self.cutter.pattern.stages();
        if counts.pattern() != stages {
            return Err(Error::config(format!(
                "counts of pattern {} do not fit a tokenizer of pattern {}",
                counts.pattern().join(" "),
                stages.join(" ")
            ))
            .with_hint("count with the tokenizer's own pattern"));
        }
        let saved = vec![Cell::new(0); self.vocab.n_ranks()];
        let (mut tokens, mut scratch) = (Vec::new(), Scratch::default());
        let mut left = 0u64;
        for_each(&mut counts.cursor(job)?, job, |piece, count| {
            if piece.len() >= merge::NONE as usize {
                return Err(Error::tokenizer("a piece of 4 GiB or more cannot be encoded"));
            }
            let whole = if self.ignore_merges { self.vocab.rank_of(piece) } else { None };
            let merges = Counted {
                pairs: self.vocab.pairs(),
                saved: &saved,
                count,
                highest: Cell::new(0),
                whole: whole.unwrap_or(merge::NONE),
            };
            tokens.clear();
            tokens.extend(piece.iter().map(|&byte| u32::from(byte)));
            left = left.saturating_add(count.saturating_mul(piece.len() as u64));
            merge::merge(&mut tokens, &merges, &mut scratch);
            scratch.trim();
            if let Some(rank) = whole {
                merges.save(rank, tokens.len() as u64 - 1);
            }
            Ok(())
        })?;
        let mut by_size = Vec::with_capacity(self.vocab.n_ranks() - 255);
        by_size.push(left);
        for saved in &saved[256..] {
            left = left.saturating_sub(saved.get());
            by_size.push(left);
        }
        Ok(by_size)
    }
}
