//! Tokens ↔ ids: a checked [`Spec`](crate::tokenizer::spec::Spec) as tables.
//!
//! Internally, tokens are numbered by *rank*: the 256 bytes, then the result of each merge in the
//! order of the merges, then tokens that no merge creates. A rank identifies both a token and the
//! position of its merge, so one lookup of a pair gives its result and its priority. Ids are
//! translated to ranks on the way in and back on the way out.
//!
//! One merge per token is enough, even if a file lists several that create the same token (as files
//! converted from tiktoken ranks do). What happens inside a range of text that becomes a token
//! depends on that range alone, as long as nothing merges across its ends; if something did, the
//! range would not become that token. So in every text the last merge of a token is the one that
//! happens when the token's own bytes are encoded by themselves; the others never happen and are
//! dropped.
//!
//! Building takes time linear in the bytes of the tokens for a list of merges; for merges by rank,
//! each token is encoded once. Memory is linear in the bytes and the number of tokens.

mod build;
mod joins;
mod made;
mod pair_ranks;

pub use joins::Joins;
pub use pair_ranks::PairRanks;

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::base::error::{Error, Result};
use crate::base::table::{Key, Table};
use crate::tokenizer::merge::NONE;
use crate::tokenizer::spec::{Merge, MergeRule, SpecialToken, TokenList};

/// Ranks have 21 bits in [`PairRanks`].
pub const MAX_TOKENS: usize = 1 << 21;

/// The tables of a vocabulary.
#[derive(Debug)]
pub struct Vocab {
    /// All token bytes by rank, end to end.
    bytes: Vec<u8>,
    /// By rank, where a token starts; one more at the end.
    starts: Vec<u32>,
    /// Rank → id.
    ids: Vec<u32>,
    /// Id → rank of the token, or the number of the special token + [`Vocab::n_ranks`].
    ranks: IdMap,
    /// Token bytes → rank + 1 (0: none).
    lookup: Table<u32>,
    /// The merges in order: ranks of left and right; the result of the `i`th has rank 256 + i.
    merges: Vec<(u32, u32)>,
    pairs: PairRanks,
    /// Bytes of the longest token.
    longest: usize,
    /// By rank, whether the bytes of the token merge into it. Computed on first use.
    made: OnceLock<Vec<bool>>,
    /// Built for the first long piece.
    joins: OnceLock<Joins>,
    /// Built when ids are first decoded.
    token_bytes: OnceLock<TokenBytes>,
    specials: Vec<SpecialToken>,
}

/// Id → a number. Ids are nearly always dense; the map is for those that are not.
#[derive(Debug)]
enum IdMap {
    Dense(Vec<u32>),
    Sparse(std::collections::HashMap<u32, u32>),
}

impl IdMap {
    fn new(entries: Vec<(u32, u32)>) -> Self {
        let largest = entries.iter().map(|&(id, _)| id as usize).max().unwrap_or(0);
        if largest < entries.len() * 4 + (1 << 16) {
            let mut dense = vec![NONE; largest + 1];
            for (id, value) in entries {
                dense[id as usize] = value;
            }
            IdMap::Dense(dense)
        } else {
            IdMap::Sparse(entries.into_iter().collect())
        }
    }

    #[inline]
    fn get(&self, id: u32) -> Option<u32> {
        match self {
            IdMap::Dense(values) => values.get(id as usize).copied().filter(|&value| value != NONE),
            IdMap::Sparse(values) => values.get(&id).copied(),
        }
    }
}

impl Vocab {
    /// The number of ordinary tokens.
    pub fn n_ranks(&self) -> usize {
        self.ids.len()
    }

    /// The number of tokens, including special ones.
    pub fn len(&self) -> usize {
        self.ids.len() + self.specials.len()
    }

    pub fn max_id(&self) -> u32 {
        let special = self.specials.iter().map(|special| special.id);
        self.ids.iter().copied().chain(special).max().unwrap_or(0)
    }

    /// Where long pieces can be cut. Building this takes milliseconds, once, which pays only if there
    /// is `much` text; otherwise None unless it has been built.
    pub fn joins(&self, much: bool) -> Option<&Joins> {
        if much {
            Some(self.joins.get_or_init(|| Joins::new(|| self.rank_tokens())))
        } else {
            self.joins.get()
        }
    }

    /// The ordinary tokens by rank.
    fn rank_tokens(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.n_ranks() as u32).map(|rank| self.rank_bytes(rank))
    }

    fn token_bytes(&self) -> &TokenBytes {
        self.token_bytes.get_or_init(|| {
            let ordinary = self.ids.iter().copied().zip(self.rank_tokens());
            let special = self.specials.iter().map(|s| (s.id, s.text.as_bytes()));
            match self.ranks {
                IdMap::Dense(_) => TokenBytes::new(|| ordinary.clone().chain(special.clone())),
                IdMap::Sparse(_) => TokenBytes::default(),
            }
        })
    }

    /// The bytes of an ordinary token.
    #[inline]
    pub fn rank_bytes(&self, rank: u32) -> &[u8] {
        let rank = rank as usize;
        &self.bytes[self.starts[rank] as usize..self.starts[rank + 1] as usize]
    }

    /// The id of an ordinary token.
    #[inline]
    pub fn rank_id(&self, rank: u32) -> u32 {
        self.ids[rank as usize]
    }

    /// Rank → id.
    pub fn rank_ids(&self) -> &[u32] {
        &self.ids
    }

    #[inline]
    pub fn pairs(&self) -> &PairRanks {
        &self.pairs
    }

    /// Bytes of the longest ordinary token.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// The merges in order, as ranks; the result of the `i`th has rank 256 + i.
    pub fn merges(&self) -> &[(u32, u32)] {
        &self.merges
    }

    /// By rank, whether the bytes of the token merge into it.
    pub fn made(&self) -> &[bool] {
        self.made.get_or_init(|| made::made(self.rank_tokens(), &self.merges, &self.pairs))
    }

    /// The ranks of tokens that their bytes do not merge into.
    pub fn unmade(&self) -> impl Iterator<Item = u32> {
        (0..).zip(self.made()).filter(|(_, made)| !**made).map(|(rank, _)| rank)
    }

    pub fn specials(&self) -> &[SpecialToken] {
        &self.specials
    }

    /// The rank of the token with these bytes.
    pub fn rank_of(&self, token: &[u8]) -> Option<u32> {
        self.lookup.get(token).map(|rank| rank - 1)
    }

    /// Prefetches what [`Vocab::made_rank`] looks up.
    pub fn prefetch(&self, hash: u64) {
        self.lookup.prefetch(hash);
    }

    /// The rank of the token that a short string merges into, if it is one token.
    pub fn made_rank(&self, key: Key, hash: u64) -> Option<u32> {
        let rank = self.lookup.get_short(key, hash)? - 1;
        self.made()[rank as usize].then_some(rank)
    }

    /// The id of the token, ordinary or special, with these bytes.
    pub fn id_of(&self, token: &[u8]) -> Option<u32> {
        self.rank_of(token).map(|rank| self.rank_id(rank)).or_else(|| {
            let special = self.specials.iter().find(|special| special.text.as_bytes() == token)?;
            Some(special.id)
        })
    }

    /// The bytes of the token with this id, ordinary or special.
    #[inline]
    pub fn id_bytes(&self, id: u32) -> Option<&[u8]> {
        let rank = self.ranks.get(id)?;
        if (rank as usize) < self.n_ranks() {
            Some(self.rank_bytes(rank))
        } else {
            let special = self.specials.get(rank as usize - self.n_ranks())?;
            Some(special.text.as_bytes())
        }
    }

    /// The error for an id that is not in the vocabulary.
    pub fn unknown_id(&self, id: impl std::fmt::Display, at: usize) -> Error {
        Error::tokenizer(format!(
            "id {id} at position {at} is not in the vocabulary (largest id: {})",
            self.max_id()
        ))
        .with_hint("were these ids made with another tokenizer?")
    }

    /// The tokens as plain data, in the order of ids.
    pub fn token_list(&self) -> TokenList {
        let mut order: Vec<u32> = (0..self.n_ranks() as u32).collect();
        order.sort_unstable_by_key(|&rank| self.rank_id(rank));
        let mut list = TokenList::with_capacity(order.len());
        for rank in order {
            list.push(self.rank_id(rank), self.rank_bytes(rank));
        }
        list
    }

    /// The merges as plain data.
    pub fn merge_rule(&self) -> MergeRule {
        let id = |rank: u32| self.rank_id(rank);
        let merge = |(i, &(left, right)): (usize, &(u32, u32))| Merge {
            left: id(left),
            right: id(right),
            result: id(256 + i as u32),
        };
        MergeRule::List(self.merges.iter().enumerate().map(merge).collect())
    }

    /// Adds everything that determines the ids of a text to a hash.
    pub fn digest(&self, hasher: &mut Sha256) {
        let mut put = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        put(&(self.n_ranks() as u64).to_le_bytes());
        for rank in 0..self.n_ranks() as u32 {
            put(self.rank_bytes(rank));
            put(&self.rank_id(rank).to_le_bytes());
        }
        put(&(self.merges.len() as u64).to_le_bytes());
        for (left, right) in &self.merges {
            put(&left.to_le_bytes());
            put(&right.to_le_bytes());
        }
        let mut specials: Vec<_> = self.specials.iter().collect();
        specials.sort_unstable_by_key(|special| special.id);
        for special in specials {
            put(special.text.as_bytes());
            put(&special.id.to_le_bytes());
        }
    }
}

/// An integer type of ids.
pub trait Id: Copy {
    fn id(self) -> u32;
}

impl Id for u32 {
    #[inline(always)]
    fn id(self) -> u32 {
        self
    }
}

impl Id for u16 {
    #[inline(always)]
    fn id(self) -> u32 {
        u32::from(self)
    }
}

/// Bytes that are copied at once.
const COPY_SIZE: usize = 16;

/// The bytes of each token by id, for decoding.
#[derive(Debug, Default)]
struct TokenBytes {
    /// `start << 32 | length`; 0 if the id is unknown, since no token is empty.
    by_id: Vec<u64>,
    /// All tokens end to end, and [`COPY_SIZE`] zeros.
    bytes: Vec<u8>,
}

impl TokenBytes {
    /// Empty if the tokens have 4 GiB or more together.
    fn new<'a, T: Iterator<Item = (u32, &'a [u8])>>(tokens: impl Fn() -> T) -> Self {
        let (mut n_bytes, mut n_ids) = (0, 0);
        for (id, token) in tokens() {
            n_bytes += token.len();
            n_ids = n_ids.max(id as usize + 1);
        }
        let mut table = TokenBytes::default();
        if u32::try_from(n_bytes).is_err() {
            return table;
        }
        table.by_id.resize(n_ids, 0);
        table.bytes.reserve(n_bytes + COPY_SIZE);
        for (id, token) in tokens() {
            table.by_id[id as usize] = (table.bytes.len() as u64) << 32 | token.len() as u64;
            table.bytes.extend_from_slice(token);
        }
        table.bytes.resize(n_bytes + COPY_SIZE, 0);
        table
    }
}

impl Vocab {
    /// The number of bytes that `ids` decode to. The error for an unknown id names its position; the
    /// first of `ids` is at position `first`.
    pub fn decoded_len(&self, ids: &[impl Id], first: usize) -> Result<usize> {
        let table = self.token_bytes();
        let mut len = 0;
        for (at, id) in (first..).zip(ids.iter().map(|id| id.id())) {
            let place = table.by_id.get(id as usize).copied().unwrap_or(0);
            if place == 0 {
                // The table may be empty (`TokenBytes::new`).
                let token = self.id_bytes(id).ok_or_else(|| self.unknown_id(id, at))?;
                len += token.len();
            }
            len += place as u32 as usize;
        }
        Ok(len)
    }

    /// Writes the bytes of `ids` to `out`, which has the length [`Vocab::decoded_len`].
    ///
    /// A token takes one lookup and one copy of sixteen bytes, whatever its length: the next token
    /// overwrites the excess. Only longer tokens, and the last few, are copied at their exact length.
    pub fn decode_into(&self, ids: &[impl Id], out: &mut [u8]) {
        let table = self.token_bytes();
        let mut at = 0;
        for id in ids.iter().map(|id| id.id()) {
            let place = table.by_id.get(id as usize).copied().unwrap_or(0);
            let (start, length) = ((place >> 32) as usize, place as u32 as usize);
            let bytes = table.bytes.get(start..start + COPY_SIZE);
            if (1..=COPY_SIZE).contains(&length)
                && let Some(bytes) = bytes
                && let Some(to) = out.get_mut(at..at + COPY_SIZE)
            {
                to.copy_from_slice(bytes);
                at += length;
            } else {
                let token = self.id_bytes(id).unwrap_or_default();
                // The caller may have changed the ids since; no byte outside of `out` is written.
                let Some(to) = out.get_mut(at..at + token.len()) else { return };
                to.copy_from_slice(token);
                at += token.len();
            }
        }
    }

    /// Appends the bytes of `ids` to `out`.
    pub fn decode(&self, ids: &[impl Id], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + self.decoded_len(ids, 0)?, 0);
        self.decode_into(ids, &mut out[start..]);
        Ok(())
    }
}
