//! Short strings as numbers, and the random seed of all hash tables.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// A random number of this process, so that no input can be made whose strings collide. Nothing that is
/// written or returned may depend on it.
pub fn seed() -> u128 {
    static SEED: LazyLock<u128> = LazyLock::new(|| {
        let random = RandomState::new();
        u128::from(random.hash_one(0u8)) << 64 | u128::from(random.hash_one(1u8))
    });
    *SEED
}

/// Strings of up to this many bytes are packed into their key.
pub const SHORT: usize = 15;

/// A short string: its bytes from the low end up and its length in the top byte, xored with
/// [`key_seed`]. Never 0. Another process has other keys.
pub type Key = u128;

/// Xored into the top byte of every key, with its length, so that no key is 0 or [`TOO_LONG`].
const KEY_MARK: u128 = 0xd6 << 120;

/// How a key is made from sixteen bytes.
#[derive(Clone, Copy)]
pub struct KeyShape {
    /// The bits of the string.
    mask: u128,
    /// Xored after masking: the length and the seed.
    rest: u128,
}

/// By length; the last is for strings that are too long.
pub type KeyShapes = [KeyShape; SHORT + 2];

/// By length. They include the seed: the hash of a key is the product of its halves, and without a
/// seed a file could be constructed whose strings all have the same hash.
static SHAPES: LazyLock<KeyShapes> = LazyLock::new(|| {
    let mix = seed() >> 8 | KEY_MARK;
    let mut shapes = [KeyShape { mask: 0, rest: TOO_LONG }; SHORT + 2];
    for (length, shape) in shapes[..=SHORT].iter_mut().enumerate() {
        let mask = if length == 0 { 0 } else { u128::MAX >> (128 - 8 * length) };
        *shape = KeyShape { mask, rest: (length as u128) << 120 ^ mix };
    }
    shapes
});

/// The shapes of this process, for loops that make many keys.
#[inline(always)]
pub fn key_shapes() -> &'static KeyShapes {
    &SHAPES
}

/// The number that every key is xored with.
#[inline]
fn key_seed() -> u128 {
    SHAPES[0].rest
}

/// Stands for a string that is too long for a key; no key equals it.
pub const TOO_LONG: Key = !KEY_MARK;

/// The key of `text[start..end]`, or [`TOO_LONG`].
#[inline(always)]
pub fn key_or_too_long(text: &[u8], start: usize, end: usize) -> Key {
    let shapes = &*SHAPES;
    if start + 16 <= text.len() {
        // SAFETY: the line above checks that sixteen bytes follow `start`.
        return unsafe { key_inside(shapes, text, start, end) };
    }
    let mut sixteen = [0; 16];
    let length = (end - start).min(SHORT + 1);
    let n = length % (SHORT + 1);
    sixteen[..n].copy_from_slice(&text[start..start + n]);
    let KeyShape { mask, rest } = shapes[length];
    u128::from_le_bytes(sixteen) & mask ^ rest
}

/// [`key_or_too_long`] without checking that sixteen bytes of text follow.
///
/// # Safety
/// `text` must have at least sixteen bytes from `start` on.
#[inline(always)]
pub unsafe fn key_inside(shapes: &KeyShapes, text: &[u8], start: usize, end: usize) -> Key {
    debug_assert!(start + 16 <= text.len());
    let KeyShape { mask, rest } = shapes[(end - start).min(SHORT + 1)];
    // Loads past the string, then masks to its length.
    // SAFETY: the caller guarantees that sixteen bytes of `text` follow `start`; an array of bytes needs no
    // alignment.
    let sixteen = unsafe { text.as_ptr().add(start).cast::<[u8; 16]>().read() };
    u128::from_le_bytes(sixteen) & mask ^ rest
}

/// The key of `text[start..end]`, which must be 1 to 15 bytes long.
#[inline(always)]
pub fn key(text: &[u8], start: usize, end: usize) -> Key {
    debug_assert!(start < end && end - start <= SHORT);
    key_or_too_long(text, start, end)
}

/// The bytes of a key.
pub fn key_bytes(key: Key) -> ([u8; 16], usize) {
    let key = key ^ key_seed();
    (key.to_le_bytes(), (key >> 120) as usize)
}

/// Keys sorted by this number are strings in byte order.
pub(super) fn byte_order(key: Key) -> u128 {
    (key ^ key_seed()).swap_bytes()
}

/// The hash of a key: the product of its halves, folded.
#[inline(always)]
pub fn hash(key: Key) -> u64 {
    let product = u128::from(key as u64) * (key >> 64);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a longer string, 16 bytes at a time.
pub(super) fn hash_bytes(string: &[u8]) -> u64 {
    let (mut state, mix) = (string.len() as u64, key_seed());
    let mut sixteens = string.chunks_exact(16);
    for bytes in &mut sixteens {
        let mut sixteen = [0; 16];
        sixteen.copy_from_slice(bytes);
        state =
            hash(u128::from_le_bytes(sixteen) ^ mix ^ u128::from(state) << 32 ^ u128::from(state));
    }
    let rest = sixteens.remainder();
    if !rest.is_empty() {
        state = hash(key(rest, 0, rest.len()) ^ u128::from(state) << 32 ^ u128::from(state));
    }
    state
}
