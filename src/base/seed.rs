//! The random seed of all hash tables of the process, so that no input can be made to collide.
//!
//! Nothing that is written or returned may depend on it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;

pub fn seed() -> u128 {
    static SEED: LazyLock<u128> = LazyLock::new(|| {
        let random = RandomState::new();
        u128::from(random.hash_one(0u8)) << 64 | u128::from(random.hash_one(1u8))
    });
    *SEED
}
