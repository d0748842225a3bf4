//! Numbers drawn once per process, so that no file or text can be made to collide in our tables.
//!
//! Nothing that is written or returned may depend on them.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// The seed of this process.
pub fn seed() -> u128 {
    static SEED: LazyLock<u128> = LazyLock::new(|| {
        let random = RandomState::new();
        u128::from(random.hash_one(0u8)) << 64 | u128::from(random.hash_one(1u8))
    });
    *SEED
}
