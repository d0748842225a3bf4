//! Where the bytes of each token are, by id: what decoding reads.

/// Bytes that are copied at once.
pub const BLOCK: usize = 16;

/// Where the bytes of tokens are, by id.
#[derive(Debug, Default)]
pub struct Places {
    /// `start << 32 | length`; 0: no such id. A token is never empty.
    pub by_id: Vec<u64>,
    /// All tokens end to end, and a block of zeros.
    pub bytes: Vec<u8>,
}

impl Places {
    /// A table of tokens with their ids; empty if they have 4 GiB or more together.
    pub fn new<'a, T: Iterator<Item = (u32, &'a [u8])>>(tokens: impl Fn() -> T) -> Self {
        let (mut n_bytes, mut n_ids) = (0, 0);
        for (id, token) in tokens() {
            n_bytes += token.len();
            n_ids = n_ids.max(id as usize + 1);
        }
        let mut places = Places::default();
        if u32::try_from(n_bytes).is_err() {
            return places;
        }
        places.by_id.resize(n_ids, 0);
        places.bytes.reserve(n_bytes + BLOCK);
        for (id, token) in tokens() {
            places.by_id[id as usize] = (places.bytes.len() as u64) << 32 | token.len() as u64;
            places.bytes.extend_from_slice(token);
        }
        places.bytes.resize(n_bytes + BLOCK, 0);
        places
    }
}
