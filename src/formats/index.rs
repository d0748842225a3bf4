//! Tokens by their bytes: the table that resolves the names in a list of merges.
//!
//! A large file asks it more than a million times, so the hash is two multiplications per 16 bytes
//! rather than std's SipHash. It starts from a random seed, as std's does: a file made to collide
//! cannot know it.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hasher};

use super::check::shown_token;
use crate::error::{Error, Result};
use crate::spec::TokenList;

/// From the bytes of a token to its id.
pub(super) struct TokenIndex<'a> {
    ids: HashMap<&'a [u8], u32, Seed>,
}

impl<'a> TokenIndex<'a> {
    /// The table of `tokens`, which must all differ and not be empty.
    pub(super) fn new(tokens: &'a TokenList) -> Result<Self> {
        let mut ids = HashMap::with_capacity_and_hasher(tokens.len(), Seed::random());
        for (id, token) in tokens.iter() {
            if token.is_empty() {
                return Err(Error::tokenizer(format!("token {id} is empty")));
            }
            match ids.entry(token) {
                Entry::Vacant(entry) => {
                    entry.insert(id);
                }
                Entry::Occupied(entry) => {
                    return Err(Error::tokenizer(format!(
                        "the token {} is there twice, with the ids {} and {id}",
                        shown_token(token),
                        entry.get(),
                    )));
                }
            }
        }
        Ok(TokenIndex { ids })
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &[u8]) -> Option<u32> {
        self.ids.get(token).copied()
    }
}

/// Makes hashers that start alike.
#[derive(Clone, Copy)]
struct Seed(u64);

impl Seed {
    fn random() -> Self {
        Seed(RandomState::new().hash_one(0u8))
    }
}

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

    // Comes before the bytes of a slice: tells "a" from "a\0".
    fn write_usize(&mut self, n: usize) {
        self.0 = self.0.rotate_left(20) ^ n as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
