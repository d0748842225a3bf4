//! Ids → bytes.
//!
//! A token is found by one lookup in a table of places and copied as one block of sixteen bytes,
//! whatever its length: the excess is overwritten by the next token. Only longer tokens, and the last
//! few, are copied at their exact length.

use super::places::BLOCK;
use super::tables::Vocab;
use crate::base::error::Result;

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
    /// How many bytes ids stand for. Unknown ids are an error that names the id and its position; the
    /// first of `ids` is at position `first`.
    pub fn decoded_len(&self, ids: &[impl Id], first: usize) -> Result<usize> {
        let places = self.places();
        let mut len = 0;
        for (at, id) in (first..).zip(ids.iter().map(|id| id.id())) {
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
        out.resize(start + self.decoded_len(ids, 0)?, 0);
        self.decode_into(ids, &mut out[start..]);
        Ok(())
    }
}
