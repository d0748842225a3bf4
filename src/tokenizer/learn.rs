//! Counts → tokenizer: merges with ids in their order, so that a smaller vocabulary is a prefix of a
//! larger one.

use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::base::threads;
use crate::learn::counts::Counts;
use crate::learn::merges::{self, Base, ByteBase, Options};
use crate::tokenizer::encode::Tokenizer;
use crate::tokenizer::spec::{MAX_ID, Merge, MergeRule, Spec, SpecialToken};

static EVERY_BYTE: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = byte as u8;
        byte += 1;
    }
    bytes
};

/// The tokenizer to learn.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    /// The number of ids: bytes, merges and special tokens.
    pub vocab_size: usize,
    pub special_tokens: &'a [String],
    /// Rarer pieces are ignored.
    pub min_piece_count: u64,
    /// Whether the counts are dropped before merging.
    pub free_counts: bool,
    pub merging: Options,
}

impl<'a> Target<'a> {
    /// All pieces, with the default options of merging.
    pub fn new(vocab_size: usize, special_tokens: &'a [String]) -> Self {
        Target {
            vocab_size,
            special_tokens,
            min_piece_count: 1,
            free_counts: false,
            merging: Options::default(),
        }
    }
}

/// Learns a tokenizer: the bytes, the merges, the special tokens last.
pub fn learn(counts: &mut Counts, target: &Target<'_>, job: &Job) -> Result<Spec> {
    let merges = merges_for(counts, target, 256 + target.special_tokens.len(), &ByteBase, job)?;
    spec(counts.pattern(), &merges, target.special_tokens)
}

/// Learns merges until the vocabulary has `vocab_size` ids, of which `taken` are in use already.
fn merges_for(
    counts: &mut Counts,
    target: &Target<'_>,
    taken: usize,
    base: &(dyn Base + Sync),
    job: &Job,
) -> Result<Vec<(u32, u32)>> {
    let room = room(target.vocab_size, taken)?;
    let pieces = counts.pieces(target.min_piece_count, target.free_counts, job)?;
    let n_merges = target.merging.n_merges.min(room);
    // Merging threads spin, so all of them wait if one waits for a core.
    let threads = counts.threads().min(threads::available());
    job.set_total(n_merges as u64);
    merges::learn_merges(pieces, base, &Options { n_merges, threads, ..target.merging }, job)
}

/// The tokenizer of these merges: the bytes, the merges in order, the special tokens.
pub fn spec(
    pattern: Vec<String>,
    merges: &[(u32, u32)],
    special_tokens: &[String],
) -> Result<Spec> {
    let mut spec = Spec { pattern, ..Spec::default() };
    for byte in 0..=255u8 {
        spec.tokens.push(u32::from(byte), &[byte]);
    }
    add_merges(&mut spec, EVERY_BYTE.chunks(1), merges, |rank| rank)?;
    let first = spec.tokens.len() as u32;
    spec.specials = special_tokens
        .iter()
        .zip(first..)
        .map(|(text, id)| SpecialToken { text: text.clone(), id, control: true })
        .collect();
    Ok(spec)
}

/// Learns further merges on top of a tokenizer. Ordinary tokens keep their ids and the new ones
/// follow them; special tokens with higher ids move after the new ones.
pub fn extend(
    tokenizer: &Tokenizer,
    counts: &mut Counts,
    target: &Target<'_>,
    job: &Job,
) -> Result<Spec> {
    let mut spec = tokenizer.spec();
    let known = |text: &String| spec.specials.iter().any(|special| special.text == *text);
    let new: Vec<String> =
        target.special_tokens.iter().filter(|text| !known(text)).cloned().collect();
    let taken = tokenizer.vocab().len() + new.len();
    let merges = merges_for(counts, target, taken, &Extended(tokenizer), job)?;
    let vocab = tokenizer.vocab();
    let next = vocab.rank_ids().iter().max().map_or(0, |id| id + 1);
    let n_new = (merges.len() + spec.specials.len() + new.len()) as u64;
    if u64::from(next) + n_new > u64::from(MAX_ID) + 1 {
        return Err(Error::tokenizer(format!(
            "{n_new} ids from {next} on would exceed {MAX_ID}, the largest possible"
        )));
    }
    let n_known = vocab.n_ranks() as u32;
    let id_of = |rank: u32| {
        if rank < n_known { vocab.rank_id(rank) } else { next + (rank - n_known) }
    };
    add_merges(&mut spec, (0..n_known).map(|rank| vocab.rank_bytes(rank)), &merges, id_of)?;
    spec.specials.sort_by_key(|special| special.id);
    let mut free = next + merges.len() as u32;
    for special in spec.specials.iter_mut().filter(|special| special.id >= next) {
        special.id = free;
        free += 1;
    }
    for (text, id) in new.into_iter().zip(free..) {
        spec.specials.push(SpecialToken { text, id, control: true });
    }
    Ok(spec)
}

fn room(vocab_size: usize, taken: usize) -> Result<usize> {
    vocab_size.checked_sub(taken).ok_or_else(|| {
        Error::config(format!("vocab_size={vocab_size} is less than the {taken} ids already taken"))
    })
}

/// Appends merges, given as ranks, and the tokens that they create. `known` are the bytes of the
/// existing tokens, by rank.
fn add_merges<'a>(
    spec: &mut Spec,
    known: impl Iterator<Item = &'a [u8]>,
    merges: &[(u32, u32)],
    id_of: impl Fn(u32) -> u32,
) -> Result<()> {
    let MergeRule::List(list) = &mut spec.merges else {
        return Err(Error::Bug("merges by rank were extended".to_owned()));
    };
    // All tokens by rank, end to end.
    let (mut bytes, mut ends) = (Vec::new(), vec![0]);
    for token in known {
        bytes.extend_from_slice(token);
        ends.push(bytes.len());
    }
    for &(left, right) in merges {
        let rank = ends.len() as u32 - 1;
        let start = bytes.len();
        for rank in [left, right] {
            bytes.extend_from_within(ends[rank as usize]..ends[rank as usize + 1]);
        }
        ends.push(bytes.len());
        spec.tokens.push(id_of(rank), &bytes[start..]);
        list.push(Merge { left: id_of(left), right: id_of(right), result: id_of(rank) });
    }
    Ok(())
}

/// A tokenizer that is extended: ids of merging are its ranks.
struct Extended<'a>(&'a Tokenizer);

impl Base for Extended<'_> {
    fn tokens(&self) -> Vec<Vec<u8>> {
        let vocab = self.0.vocab();
        (0..vocab.n_ranks() as u32).map(|rank| vocab.rank_bytes(rank).to_vec()).collect()
    }

    fn segment(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<()> {
        self.0.piece_ranks(piece, out)
    }

    fn contains(&self, token: &[u8]) -> bool {
        self.0.vocab().rank_of(token).is_some()
    }
}
