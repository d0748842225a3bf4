//! The levels of vector instructions of this processor, as tokens that only detection creates.
//!
//! A function that is compiled for a level takes the token of that level, so that safe code cannot call
//! it on a processor that lacks the features. The features of a token are exactly those that its
//! functions enable.

use std::sync::OnceLock;

/// Vector registers of 32 bytes and bit manipulation: `avx2,bmi1,bmi2,popcnt,lzcnt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

/// Vector registers of 64 bytes: `avx512f,avx512bw,avx512cd,avx512dq,avx512vl` and the features of
/// [`Avx2`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512 {
    has_vbmi2: bool,
}

impl Avx512 {
    /// The token of `avx512vbmi2`, which the first processors with AVX-512 lack.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn vbmi2(self) -> Option<Vbmi2> {
        self.has_vbmi2.then_some(Vbmi2(()))
    }
}

/// `avx512vbmi2` and the features of [`Avx512`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vbmi2(());

impl Vbmi2 {
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn avx512(self) -> Avx512 {
        Avx512 { has_vbmi2: true }
    }
}

/// Vector registers of 16 bytes, which every 64-bit ARM processor has.
#[cfg(target_arch = "aarch64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neon(());

/// A level of vector instructions that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Plain Rust.
    Portable,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Avx2(Avx2),
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Level {
    /// All levels of this processor, the fastest last.
    pub fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
        {
            levels.push(Level::Avx2(Avx2(())));
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Level::Avx512(Avx512 { has_vbmi2: false }));
                if is_x86_feature_detected!("avx512vbmi2") {
                    levels.push(Level::Avx512(Avx512 { has_vbmi2: true }));
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(Level::Neon(Neon(())));
        levels
    }

    /// The fastest level.
    #[inline]
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::available().pop().unwrap_or(Level::Portable))
    }
}
