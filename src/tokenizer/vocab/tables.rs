//! The tables of a vocabulary, and what they answer.

use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use super::joins::Joins;
use super::pair_ranks::PairRanks;
use super::places::Places;
use crate::base::error::Error;
use crate::base::table::Table;
use crate::tokenizer::merge::NONE;
use crate::tokenizer::spec::{Merge, MergeRule, SpecialToken, TokenList};

/// Ranks have 21 bits in the table of pairs.
pub const MAX_TOKENS: usize = 1 << 21;

/// The tokens of a tokenizer.
#[derive(Debug)]
pub struct Vocab {
    /// All token bytes by rank, end to end.
    pub(super) bytes: Vec<u8>,
    /// By rank, where a token starts; one more at the end.
    pub(super) starts: Vec<u32>,
    /// Rank → id.
    pub(super) ids: Vec<u32>,
    /// Id → rank of the token, or the number of the special token + [`Vocab::n_ranks`].
    pub(super) ranks: IdMap,
    /// Token bytes → rank + 1 (0: none).
    pub(super) lookup: Table<u32>,
    /// The merges in order: ranks of left and right; the result of the `i`th has rank 256 + i.
    pub(super) merges: Vec<(u32, u32)>,
    pub(super) pairs: PairRanks,
    /// Bytes of the longest token.
    pub(super) longest: usize,
    /// Made when the first long piece comes.
    pub(super) joins: OnceLock<Joins>,
    /// Made when ids are decoded.
    pub(super) places: OnceLock<Places>,
    pub(super) specials: Vec<SpecialToken>,
}

/// Ids are dense nearly always; a map is for those that are not.
#[derive(Debug)]
pub(super) enum IdMap {
    Dense(Vec<u32>),
    Sparse(std::collections::HashMap<u32, u32>),
}

impl IdMap {
    pub(super) fn new(entries: Vec<(u32, u32)>) -> Self {
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
    pub(super) fn get(&self, id: u32) -> Option<u32> {
        match self {
            IdMap::Dense(values) => values.get(id as usize).copied().filter(|&value| value != NONE),
            IdMap::Sparse(values) => values.get(&id).copied(),
        }
    }
}

impl Vocab {
    /// How many ordinary tokens there are.
    pub fn n_ranks(&self) -> usize {
        self.ids.len()
    }

    /// How many tokens there are, special ones included.
    pub fn len(&self) -> usize {
        self.ids.len() + self.specials.len()
    }

    /// Never: the bytes are always there.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The largest id.
    pub fn max_id(&self) -> u32 {
        let special = self.specials.iter().map(|special| special.id);
        self.ids.iter().copied().chain(special).max().unwrap_or(0)
    }

    /// Where long pieces can be cut. To find out takes some milliseconds, once, which is only worth
    /// it where there is `much` text.
    pub fn joins(&self, much: bool) -> Option<&Joins> {
        if much {
            Some(self.joins.get_or_init(|| Joins::new(|| self.rank_tokens())))
        } else {
            self.joins.get()
        }
    }

    /// The ordinary tokens by rank.
    fn rank_tokens(&self) -> impl Iterator<Item = &[u8]> + Clone {
        (0..self.n_ranks() as u32).map(|rank| self.rank_bytes(rank))
    }

    /// Where the bytes of tokens are; found out when ids are first decoded.
    pub(super) fn places(&self) -> &Places {
        self.places.get_or_init(|| {
            let ordinary = self.ids.iter().copied().zip(self.rank_tokens());
            let special = self.specials.iter().map(|s| (s.id, s.text.as_bytes()));
            match self.ranks {
                IdMap::Dense(_) => Places::new(|| ordinary.clone().chain(special.clone())),
                IdMap::Sparse(_) => Places::default(),
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

    /// Rank → id, for translating many.
    pub fn rank_ids(&self) -> &[u32] {
        &self.ids
    }

    /// What pairs of ranks become.
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

    /// The ranks of tokens that are neither bytes nor made by a merge.
    pub fn without_merge(&self) -> impl Iterator<Item = u32> + use<> {
        256 + self.merges.len() as u32..self.n_ranks() as u32
    }

    /// The special tokens.
    pub fn specials(&self) -> &[SpecialToken] {
        &self.specials
    }

    /// The rank of the token with these bytes.
    pub fn rank_of(&self, token: &[u8]) -> Option<u32> {
        self.lookup.get(token).map(|rank| rank - 1)
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

    /// Adds everything that decides which ids a text gets to a hash.
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
