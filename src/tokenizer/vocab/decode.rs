//! Ids → bytes.
//!
//! A token is found by one look at a table of places and copied sixteen bytes at a time, whatever
//! its length: what is too much is written over by the next. Only longer tokens, and the last few,
//! are copied as what they are.

use super::{IdMap, Vocab};
use crate::base::error::Result;

/// Bytes that are copied at once.
const BLOCK: usize = 16;

/// Where the bytes of tokens are, by id.
#[derive(Debug)]
pub struct Places {
    /// `start << 32 | length`; 0: no such id. A token is never empty.
    by_id: Vec<u64>,
    /// All tokens end to end, and a block of zeros.
    bytes: Vec<u8>,
}

impl Places {
    fn new(vocab: &Vocab) -> Self {
        let mut places = Places { by_id: Vec::new(), bytes: Vec::new() };
        // Special tokens may make it more than 4 GiB; then there is no such table.
        let n_bytes =
            vocab.bytes.len() + vocab.specials.iter().map(|s| s.text.len()).sum::<usize>();
        if u32::try_from(n_bytes).is_err() || matches!(vocab.ranks, IdMap::Sparse(_)) {
            return places;
        }
        places.by_id.resize(vocab.max_id() as usize + 1, 0);
        places.bytes.reserve(n_bytes + BLOCK);
        let ordinary = (0..vocab.n_ranks() as u32).map(|r| (vocab.rank_id(r), vocab.rank_bytes(r)));
        let special = vocab.specials.iter().map(|s| (s.id, s.text.as_bytes()));
        for (id, token) in ordinary.chain(special) {
            places.by_id[id as usize] = (places.bytes.len() as u64) << 32 | token.len() as u64;
            places.bytes.extend_from_slice(token);
        }
        places.bytes.resize(n_bytes + BLOCK, 0);
        places
    }
}

/// A number that an id can be given as.
pub trait Id: Copy {
    /// The id.
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

impl Vocab {
    fn places(&self) -> &Places {
        self.places.get_or_init(|| Places::new(self))
    }

    /// How many bytes ids stand for. Unknown ids are an error that says which.
    pub fn decoded_len(&self, ids: &[impl Id]) -> Result<usize> {
        let places = self.places();
        let mut len = 0;
        for (at, id) in ids.iter().map(|id| id.id()).enumerate() {
            let place = places.by_id.get(id as usize).copied().unwrap_or(0);
            if place == 0 {
                // Perhaps an id that is too large for the table.
                let token = self.id_bytes(id).ok_or_else(|| self.unknown_id(id, at))?;
                len += token.len();
            }
            len += place as u32 as usize;
        }
        Ok(len)
    }

    /// Writes the bytes of ids, which are [as many](Vocab::decoded_len) as `out` has.
    pub fn decode_into(&self, ids: &[impl Id], out: &mut [u8]) {
        let places = self.places();
        let mut at = 0;
        for id in ids.iter().map(|id| id.id()) {
            let place = places.by_id.get(id as usize).copied().unwrap_or(0);
            let (start, length) = ((place >> 32) as usize, place as u32 as usize);
            let block = places.bytes.get(start..start + BLOCK);
            if (1..=BLOCK).contains(&length)
                && let Some(block) = block
                && let Some(to) = out.get_mut(at..at + BLOCK)
            {
                to.copy_from_slice(block);
                at += length;
            } else {
                let token = self.id_bytes(id).unwrap_or_default();
                // Ids that change meanwhile are not ours to mend, but must do no harm.
                let Some(to) = out.get_mut(at..at + token.len()) else { return };
                to.copy_from_slice(token);
                at += token.len();
            }
        }
    }

    /// The bytes of many ids, one after the other. Unknown ids are an error that says which.
    pub fn decode(&self, ids: &[impl Id], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.resize(start + self.decoded_len(ids)?, 0);
        self.decode_into(ids, &mut out[start..]);
        Ok(())
    }
}
