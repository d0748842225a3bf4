//! Tokens by their bytes: the table that resolves the names in a list of merges.
//!
//! A large file asks it more than a million times, and most of that time is waiting for memory. A caller
//! whose questions follow the order of the file is therefore answered from the next token of the list
//! ([`TokenIndex::id_from`]) before the table is asked.

use super::check::shown_token;
use crate::base::error::{Error, Result};
use crate::base::table::Table;
use crate::tokenizer::spec::TokenList;

/// From the bytes of a token to its id.
pub(super) struct TokenIndex<'a> {
    tokens: &'a TokenList,
    /// Token → `(place in the list + 1) << 32 | id`.
    places: Table<u64>,
}

impl<'a> TokenIndex<'a> {
    /// The table of `tokens`, which must all differ and not be empty.
    pub(super) fn new(tokens: &'a TokenList) -> Result<Self> {
        let mut places = Table::<u64>::with_room(tokens.len());
        for (place, (id, token)) in (1u64..).zip(tokens.iter()) {
            if token.is_empty() {
                return Err(Error::tokenizer(format!("token {id} is empty")));
            }
            let entry = places.value_mut(token);
            if *entry != 0 {
                return Err(Error::tokenizer(format!(
                    "the token {} is there twice, with the ids {} and {id}",
                    shown_token(token),
                    *entry as u32,
                )));
            }
            *entry = place << 32 | u64::from(id);
        }
        Ok(TokenIndex { tokens, places })
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &[u8]) -> Option<u32> {
        self.places.get(token).map(|found| found as u32)
    }

    /// The id of the token `buffer[start..end]`.
    #[inline]
    pub(super) fn id_within(&self, buffer: &[u8], start: usize, end: usize) -> Option<u32> {
        self.places.get_within(buffer, start, end).map(|found| found as u32)
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
        let found = self.places.get(token)?;
        *place = (found >> 32) as usize - 1;
        Some(found as u32)
    }
}
