//! Checks a [`Spec`] and numbers its tokens by rank.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::pair_ranks::PairRanks;
use super::{IdMap, MAX_TOKENS, Vocab};
use crate::base::error::{Error, Result};
use crate::base::table::Table;
use crate::base::table::seed;
use crate::learn::merges::MAX_TOKEN_LENGTH;
use crate::tokenizer::merge::{self, Merges, NONE, Scratch};
use crate::tokenizer::spec::{MAX_ID, Merge, MergeRule, Spec, TokenList, shown, shown_token};

impl Vocab {
    /// Checks plain data and builds its tables.
    pub fn new(spec: &Spec) -> Result<Self> {
        let tokens = ordinary_tokens(spec)?;
        if tokens.len() + spec.specials.len() > MAX_TOKENS {
            return Err(Error::tokenizer(format!(
                "the vocabulary has {} tokens, more than the {MAX_TOKENS} that are supported",
                tokens.len() + spec.specials.len()
            )));
        }
        let (lookup, bytes) = number_tokens(&tokens)?;
        let merges = match &spec.merges {
            MergeRule::List(list) => listed_merges(&tokens, list)?,
            MergeRule::ByRank => ranked_merges(&tokens, &lookup, &bytes),
        };
        let order = ranks_of(&tokens, &bytes, &merges);
        fill_tables(spec, &tokens, lookup, &merges, &order)
    }
}

/// A merge, by the indices of its tokens in the token list.
#[derive(Debug, Clone, Copy)]
struct IndexedMerge {
    left: u32,
    right: u32,
    result: u32,
}

/// The tokens that are not also special tokens. Checks that special tokens are distinct.
fn ordinary_tokens(spec: &Spec) -> Result<Cow<'_, TokenList>> {
    let mut special_ids = HashMap::new();
    let mut texts = HashSet::new();
    for special in &spec.specials {
        if special.text.is_empty() {
            return Err(Error::tokenizer(format!(
                "the special token with id {} is the empty string",
                special.id
            )));
        }
        if !texts.insert(&special.text) {
            return Err(Error::tokenizer(format!(
                "the special token {:?} occurs twice",
                special.text
            )));
        }
        if special.id > MAX_ID {
            return Err(Error::tokenizer(format!(
                "the special token {} would have the id {}; the largest possible is {MAX_ID}",
                shown(&special.text),
                special.id
            )));
        }
        if let Some(other) = special_ids.insert(special.id, &special.text) {
            return Err(Error::tokenizer(format!(
                "the special tokens {other:?} and {:?} have the same id {}",
                special.text, special.id
            )));
        }
    }
    // Nearly always none is, and nothing has to be copied.
    let range = special_ids.keys().min().zip(special_ids.keys().max());
    let may_be_special = |id: u32| range.is_some_and(|(least, most)| (least..=most).contains(&&id));
    if !spec.tokens.iter().any(|(id, _)| may_be_special(id) && special_ids.contains_key(&id)) {
        return Ok(Cow::Borrowed(&spec.tokens));
    }
    let mut tokens = TokenList::with_capacity(spec.tokens.len());
    for (id, token) in spec.tokens.iter() {
        match special_ids.get(&id) {
            None => tokens.push(id, token),
            Some(text) if text.as_bytes() == token => {}
            Some(text) => {
                return Err(Error::tokenizer(format!(
                    "the token {} and the special token {text:?} have the same id {id}",
                    shown_token(token)
                )));
            }
        }
    }
    Ok(Cow::Owned(tokens))
}

/// Token bytes → index in the list + 1, and the indices of the 256 bytes.
fn number_tokens(tokens: &TokenList) -> Result<(Table<u32>, Vec<u32>)> {
    let mut lookup = Table::<u32>::with_room(tokens.len());
    for (number, (id, token)) in (1..).zip(tokens.iter()) {
        if token.is_empty() {
            return Err(Error::tokenizer(format!("the token with id {id} is empty")));
        }
        if token.len() > MAX_TOKEN_LENGTH {
            return Err(Error::tokenizer(format!(
                "the token with id {id} has {} bytes; {MAX_TOKEN_LENGTH} are supported",
                token.len()
            )));
        }
        let entry = lookup.value_mut(token);
        if *entry != 0 {
            let (other, _) = tokens.get(*entry as usize - 1);
            return Err(Error::tokenizer(format!(
                "the token {} occurs twice, with the ids {other} and {id}",
                shown_token(token)
            )));
        }
        *entry = number;
    }
    let mut ids: Vec<u32> = tokens.iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    if let Some(two) = ids.windows(2).find(|two| two[0] == two[1]) {
        return Err(Error::tokenizer(format!("two tokens have the id {}", two[0])));
    }
    let mut bytes = Vec::with_capacity(256);
    let mut missing = Vec::new();
    for byte in 0..=255u8 {
        match lookup.get(&[byte]) {
            Some(number) => bytes.push(number - 1),
            None => missing.push(format!("0x{byte:02x}")),
        }
    }
    if !missing.is_empty() {
        let more = if missing.len() > 8 { ", …" } else { "" };
        let n = missing.len();
        missing.truncate(8);
        return Err(Error::tokenizer(format!(
            "{n} of the 256 bytes are not in the vocabulary: {}{more}",
            missing.join(", ")
        ))
        .with_hint("a byte-level vocabulary has a token for each byte"));
    }
    Ok((lookup, bytes))
}

/// The merges of a list, checked, at most one for each token.
fn listed_merges(tokens: &TokenList, list: &[Merge]) -> Result<Vec<IndexedMerge>> {
    let number_of =
        IdMap::new((0..).zip(tokens.iter()).map(|(number, (id, _))| (id, number)).collect());
    let mut merges = Vec::with_capacity(list.len());
    // By token, the last merge that creates it; and whether a token has several.
    let mut made_by = vec![NONE; tokens.len()];
    let mut several = false;
    for (at, merge) in list.iter().enumerate() {
        let [left, right, result] = [merge.left, merge.right, merge.result].map(|id| {
            number_of.get(id).ok_or_else(|| {
                Error::tokenizer(format!("merge {at} names id {id}, which is not a token"))
            })
        });
        let indexed = IndexedMerge { left: left?, right: right?, result: result? };
        let bytes = |number: u32| tokens.get(number as usize).1;
        let (left, right) = (bytes(indexed.left), bytes(indexed.right));
        if bytes(indexed.result).strip_prefix(left) != Some(right) {
            return Err(Error::tokenizer(format!(
                "merge {at} ({} + {}) cannot make {}",
                shown_token(left),
                shown_token(right),
                shown_token(bytes(indexed.result))
            )));
        }
        several |= made_by[indexed.result as usize] != NONE;
        made_by[indexed.result as usize] = at as u32;
        merges.push(indexed);
    }
    if several {
        keep_one_each(tokens, &mut merges);
    }
    Ok(merges)
}

/// The rank of a merge is its position in the list.
struct ListedMerges<'a> {
    positions: HashMap<(u32, u32), u32>,
    merges: &'a [IndexedMerge],
}

impl Merges for ListedMerges<'_> {
    fn rank(&self, left: u32, right: u32) -> u32 {
        self.positions.get(&(left, right)).copied().unwrap_or(NONE)
    }

    fn result(&self, rank: u32) -> u32 {
        self.merges[rank as usize].result
    }
}

/// Of several merges that create the same token, keeps the one that happens (see [`super`]). A pair
/// that is listed twice has its last position, as in `tokenizers`.
fn keep_one_each(tokens: &TokenList, merges: &mut Vec<IndexedMerge>) {
    let positions = (0..).zip(merges.iter()).map(|(at, merge)| ((merge.left, merge.right), at));
    let rule = ListedMerges { positions: positions.collect(), merges };
    let single: HashMap<u8, u32> = (0..)
        .zip(tokens.iter())
        .filter(|(_, (_, token))| token.len() == 1)
        .map(|(number, (_, token))| (token[0], number))
        .collect();
    let mut n_made = vec![0u32; tokens.len()];
    for merge in &*merges {
        n_made[merge.result as usize] += 1;
    }
    let mut kept = vec![NONE; tokens.len()];
    let mut scratch = Scratch::default();
    let mut merging = Vec::new();
    for (number, (_, token)) in tokens.iter().enumerate() {
        if n_made[number] < 2 {
            continue;
        }
        merging.clear();
        merging.extend(token.iter().map(|byte| single[byte]));
        if let Some((_, _, rank)) = merge::merge(&mut merging, &rule, &mut scratch)
            && merging == [number as u32]
        {
            kept[number] = rank;
        }
    }
    let mut at = 0;
    merges.retain(|merge| {
        let result = merge.result as usize;
        let keep = if n_made[result] < 2 {
            true
        } else if kept[result] == NONE {
            // None of them ever happens; the first is kept.
            kept[result] = at;
            true
        } else {
            kept[result] == at
        };
        at += 1;
        keep
    });
}

/// Two tokens merge if their concatenation is a token; the rank is its position in the order of ids.
struct ConcatenationMerges<'a> {
    tokens: &'a TokenList,
    lookup: &'a Table<u32>,
    /// By length, whether a token has it. Avoids most lookups of long concatenations.
    lengths: Vec<bool>,
    /// Index in the list → position in the order of ids, and back.
    positions: Vec<u32>,
    indices: Vec<u32>,
}

impl Merges for ConcatenationMerges<'_> {
    fn rank(&self, left: u32, right: u32) -> u32 {
        let (left, right) = (self.tokens.get(left as usize).1, self.tokens.get(right as usize).1);
        let length = left.len() + right.len();
        if !self.lengths.get(length).copied().unwrap_or(false) {
            return NONE;
        }
        let found = if length <= 64 {
            let mut buffer = [0; 64];
            buffer[..left.len()].copy_from_slice(left);
            buffer[left.len()..length].copy_from_slice(right);
            self.lookup.get(&buffer[..length])
        } else {
            self.lookup.get(&[left, right].concat())
        };
        found.map_or(NONE, |number| self.positions[number as usize - 1])
    }

    fn result(&self, rank: u32) -> u32 {
        self.indices[rank as usize]
    }
}

/// The merges that a list of ranked tokens implies: the last step of encoding each token by itself. A
/// token whose bytes do not merge into it has none.
fn ranked_merges(tokens: &TokenList, lookup: &Table<u32>, bytes: &[u32]) -> Vec<IndexedMerge> {
    let mut indices: Vec<u32> = (0..tokens.len() as u32).collect();
    indices.sort_unstable_by_key(|&i| tokens.get(i as usize).0);
    let mut positions = vec![0; tokens.len()];
    let mut longest = 0;
    for (at, &i) in (0..).zip(&indices) {
        positions[i as usize] = at;
        longest = longest.max(tokens.get(i as usize).1.len());
    }
    let mut lengths = vec![false; longest + 1];
    for (_, token) in tokens.iter() {
        lengths[token.len()] = true;
    }
    let rule = ConcatenationMerges { tokens, lookup, lengths, positions, indices };
    let mut known = KnownPairs::new(tokens.len());
    let mut scratch = Scratch::default();
    let mut merging = Vec::new();
    let mut merges = Vec::new();
    for (at, &i) in (0..).zip(&rule.indices) {
        let (_, token) = tokens.get(i as usize);
        if token.len() == 1 {
            continue;
        }
        let start = |merging: &mut Vec<u32>| {
            merging.clear();
            merging.extend(token.iter().map(|&byte| bytes[usize::from(byte)]));
        };
        start(&mut merging);
        // All merges of lower rank are known, and what they leave of a token is nearly always the two
        // tokens that become it.
        merge::merge(&mut merging, &Known { pairs: &known, indices: &rule.indices }, &mut scratch);
        if merging.len() > 2 {
            start(&mut merging);
            match merge::merge(&mut merging, &rule, &mut scratch) {
                Some((left, right, _)) if merging == [i] => merging = vec![left, right],
                _ => continue,
            }
        }
        if let [left, right] = merging[..] {
            known.insert(left, right, at);
            merges.push(IndexedMerge { left, right, result: i });
        }
    }
    merges
}

/// Pairs of tokens → the rank of their merge, as merges are found.
struct KnownPairs {
    /// Left, right and rank in 21 bits each; in the first free slot from that of the hash on.
    slots: Vec<u64>,
    factor: u64,
    shift: u32,
}

const BITS: u32 = MAX_TOKENS.trailing_zeros();
const FREE: u64 = u64::MAX;

impl KnownPairs {
    fn new(n_tokens: usize) -> Self {
        let log = (n_tokens * 2).next_power_of_two().trailing_zeros().max(4);
        KnownPairs { slots: vec![FREE; 1 << log], factor: seed() as u64 | 1, shift: 64 - log }
    }

    /// The slot of a pair, or the free one that it would get.
    #[inline]
    fn slot(&self, pair: u64) -> usize {
        let mut at = (pair.wrapping_mul(self.factor) >> self.shift) as usize;
        while self.slots[at] >> BITS != pair && self.slots[at] != FREE {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    #[inline]
    fn get(&self, left: u32, right: u32) -> u32 {
        let entry = self.slots[self.slot(u64::from(left) << BITS | u64::from(right))];
        if entry == FREE { NONE } else { entry as u32 & (MAX_TOKENS as u32 - 1) }
    }

    fn insert(&mut self, left: u32, right: u32, rank: u32) {
        let pair = u64::from(left) << BITS | u64::from(right);
        let at = self.slot(pair);
        self.slots[at] = pair << BITS | u64::from(rank);
    }
}

struct Known<'a> {
    pairs: &'a KnownPairs,
    indices: &'a [u32],
}

impl Merges for Known<'_> {
    #[inline]
    fn rank(&self, left: u32, right: u32) -> u32 {
        self.pairs.get(left, right)
    }

    #[inline]
    fn result(&self, rank: u32) -> u32 {
        self.indices[rank as usize]
    }
}

/// Rank → index in the token list.
fn ranks_of(tokens: &TokenList, bytes: &[u32], merges: &[IndexedMerge]) -> Vec<u32> {
    let mut order = bytes.to_vec();
    order.extend(merges.iter().map(|merge| merge.result));
    let mut placed = vec![false; tokens.len()];
    for &number in &order {
        placed[number as usize] = true;
    }
    let mut rest: Vec<u32> =
        (0..tokens.len() as u32).filter(|&number| !placed[number as usize]).collect();
    rest.sort_unstable_by_key(|&number| tokens.get(number as usize).0);
    order.extend(rest);
    order
}

fn fill_tables(
    spec: &Spec,
    tokens: &TokenList,
    mut lookup: Table<u32>,
    merges: &[IndexedMerge],
    order: &[u32],
) -> Result<Vocab> {
    let mut rank = vec![0; tokens.len()];
    let mut vocab = Vocab {
        bytes: Vec::new(),
        starts: vec![0],
        ids: Vec::with_capacity(order.len()),
        ranks: IdMap::Dense(Vec::new()),
        lookup: Table::default(),
        merges: Vec::with_capacity(merges.len()),
        pairs: PairRanks::new(&[]),
        longest: tokens.iter().map(|(_, token)| token.len()).max().unwrap_or(1),
        made: OnceLock::new(),
        joins: OnceLock::new(),
        token_bytes: OnceLock::new(),
        specials: spec.specials.clone(),
    };
    for (at, &number) in (0..).zip(order) {
        let (id, token) = tokens.get(number as usize);
        rank[number as usize] = at;
        vocab.bytes.extend_from_slice(token);
        let end = u32::try_from(vocab.bytes.len())
            .map_err(|_| Error::tokenizer("the tokens have more than 4 GiB together"))?;
        vocab.starts.push(end);
        vocab.ids.push(id);
    }
    lookup.for_each_value(|value| *value = rank[*value as usize - 1] + 1);
    vocab.lookup = lookup;
    let ordinary = vocab.ids.iter().copied().zip(0..);
    let special = spec.specials.iter().map(|special| special.id).zip(vocab.ids.len() as u32..);
    vocab.ranks = IdMap::new(ordinary.chain(special).collect());
    let ranked = merges.iter().map(|merge| (rank[merge.left as usize], rank[merge.right as usize]));
    vocab.merges.extend(ranked);
    vocab.pairs = PairRanks::new(&vocab.merges);
    if matches!(spec.merges, MergeRule::ByRank) {
        // These merges were found by merging the bytes of every token.
        let n_made = 256 + merges.len();
        vocab.made = OnceLock::from((0..order.len()).map(|rank| rank < n_made).collect::<Vec<_>>());
    }
    Ok(vocab)
}
