//! Tokens by their bytes: the table that resolves the names in a list of merges.
//!
//! A large file asks it more than a million times, and most of that time is waiting for memory.
//! Short tokens, nearly all, are therefore kept in the table itself, packed into one number; and a
//! caller whose questions follow the order of the file is answered from the next entry
//! ([`TokenIndex::id_from`]). The hash is a multiplication for each 8 bytes rather than std's
//! SipHash. It starts from a random seed, as std's does: a file made to collide cannot know it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher};

use super::check::shown_token;
use crate::base::error::{Error, Result};
use crate::base::seed::seed;
use crate::tokenizer::spec::TokenList;

/// From the bytes of a token to its id.
pub(super) struct TokenIndex<'a> {
    tokens: &'a TokenList,
    short: HashMap<Packed, Found, Seed>,
    long: HashMap<&'a [u8], Found, Seed>,
}

/// A token's place in the list, and its id.
#[derive(Clone, Copy)]
struct Found {
    place: u32,
    id: u32,
}

/// A token of up to 15 bytes, and its length, as one number. In halves, for an entry of the table
/// is 24 bytes that way and would be 32 with a `u128`.
#[derive(PartialEq, Eq, Hash)]
struct Packed(u64, u64);

impl Packed {
    fn new(token: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes[..15].get_mut(..token.len())?.copy_from_slice(token);
        Some(Packed::masked(bytes, token.len()))
    }

    /// The first `n` of `bytes`; `n` is less than 16.
    fn masked(bytes: [u8; 16], n: usize) -> Self {
        let token = u128::from_le_bytes(bytes) & ((1 << (8 * n)) - 1) | (n as u128) << 120;
        Packed(token as u64, (token >> 64) as u64)
    }
}

impl<'a> TokenIndex<'a> {
    /// The table of `tokens`, which must all differ and not be empty.
    pub(super) fn new(tokens: &'a TokenList) -> Result<Self> {
        let seed = Seed(seed() as u64);
        let mut short = HashMap::with_capacity_and_hasher(tokens.len(), seed);
        let mut long = HashMap::with_hasher(seed);
        for (place, (id, token)) in tokens.iter().enumerate() {
            if token.is_empty() {
                return Err(Error::tokenizer(format!("token {id} is empty")));
            }
            // A hint only: a list too long for it would still be answered rightly.
            let found = Found { place: u32::try_from(place).unwrap_or(u32::MAX), id };
            let other = match Packed::new(token) {
                Some(packed) => insert(&mut short, packed, found),
                None => insert(&mut long, token, found),
            };
            if let Some(other) = other {
                return Err(Error::tokenizer(format!(
                    "the token {} is there twice, with the ids {} and {id}",
                    shown_token(token),
                    other.id,
                )));
            }
        }
        Ok(TokenIndex { tokens, short, long })
    }

    fn find(&self, token: &[u8]) -> Option<Found> {
        match Packed::new(token) {
            Some(packed) => self.short.get(&packed).copied(),
            None => self.long.get(token).copied(),
        }
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &[u8]) -> Option<u32> {
        self.find(token).map(|found| found.id)
    }

    /// The id of the token `buffer[start..end]`. It takes 16 bytes and drops those too
    /// many, so that no branch depends on the length: a seventh of the time of reading a large
    /// file.
    #[inline]
    pub(super) fn id_within(&self, buffer: &[u8], start: usize, end: usize) -> Option<u32> {
        let n = end - start;
        match buffer[start..].first_chunk::<16>() {
            Some(&bytes) if n < 16 => {
                self.short.get(&Packed::masked(bytes, n)).map(|found| found.id)
            }
            _ => self.id(&buffer[start..end]),
        }
    }

    /// The id of a token that is likely the one at `place` of the list, or the next. Sets `place`
    /// to where it was.
    pub(super) fn id_from(&self, place: &mut usize, token: &[u8]) -> Option<u32> {
        for i in [*place, *place + 1] {
            if i < self.tokens.len()
                && let (id, candidate) = self.tokens.get(i)
                && candidate == token
            {
                *place = i;
                return Some(id);
            }
        }
        let found = self.find(token)?;
        *place = found.place as usize;
        Some(found.id)
    }
}

/// Adds an entry, unless there is one of the same key: gives that one back.
fn insert<K: Hash + Eq>(map: &mut HashMap<K, Found, Seed>, key: K, found: Found) -> Option<Found> {
    match map.entry(key) {
        Entry::Occupied(entry) => Some(*entry.get()),
        Entry::Vacant(entry) => {
            entry.insert(found);
            None
        }
    }
}

/// Makes hashers that start alike.
#[derive(Clone, Copy)]
struct Seed(u64);

impl BuildHasher for Seed {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

/// The state is multiplied to 128 bits with what comes in, and the halves are folded together.
struct Folded(u64);

/// An odd number without pattern (the golden ratio).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Folded {
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for &word in words {
            self.add(u64::from_le_bytes(word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.add(n);
    }

    // Comes before the bytes of a slice: tells "a" from "a\0".
    fn write_usize(&mut self, n: usize) {
        self.0 = self.0.rotate_left(20) ^ n as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
