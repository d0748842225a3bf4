//! Vector registers, and code that is compiled once for each kind of them.
//!
//! A [`Kernel`] is written once, generic over [`Simd`], and [`SimdLevel::run`] compiles it for every
//! instruction set with the target features of that set enabled. The values of the types that implement
//! `Simd` are proofs: only detection makes them, so safe code cannot run an instruction that the
//! processor lacks. Registers are loaded from arrays of their own size, so safe code cannot read or
//! write out of bounds either.
//!
//! Code is compiled with the features only if it is inlined into the kernel: functions that kernels call
//! must be `#[inline(always)]`, and loops must not hide in closures that the standard library calls.
//! Getting this wrong is not unsound, but made attention twenty times slower once.

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod registers;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub(crate) use registers::{Kernel, Simd};

/// An instruction set that this processor has: only detection makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimdLevel(InstructionSet);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionSet {
    /// What every processor of the target has.
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    Neon,
}

impl SimdLevel {
    /// All levels of this processor, the fastest last.
    pub fn available() -> Vec<SimdLevel> {
        #[allow(unused_mut)]
        let mut found = vec![InstructionSet::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(x86::Avx2::detect().map(InstructionSet::Avx2));
            found.extend(x86::Avx512::detect().map(InstructionSet::Avx512));
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        found.push(InstructionSet::Neon);
        found.into_iter().map(SimdLevel).collect()
    }

    /// The fastest level.
    pub fn best() -> SimdLevel {
        static BEST: OnceLock<SimdLevel> = OnceLock::new();
        *BEST.get_or_init(|| {
            SimdLevel::available().pop().unwrap_or(SimdLevel(InstructionSet::Portable))
        })
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512(_) => "avx512",
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            InstructionSet::Neon => "neon",
        }
    }

    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            InstructionSet::Portable => kernel.run(registers::Portable),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2(avx2) => avx2.run(kernel),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512(avx512) => avx512.run(kernel),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            InstructionSet::Neon => kernel.run(neon::Neon),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation, on numbers that float32 adds and multiplies exactly.
    struct Operations;

    impl Kernel for Operations {
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            let numbers: Vec<f32> = (1..=2 * S::WIDTH + 3).map(|n| n as f32).collect();
            let (arrays, rest) = S::split(&numbers);
            assert_eq!((arrays.len(), rest.len()), (2, 3));
            let total = |n: usize| (n * (n + 1) / 2) as f32;
            assert_eq!(simd.sum(simd.load(&arrays[0])), total(S::WIDTH));
            assert_eq!(simd.sum(simd.splat(3.0)), 3.0 * S::WIDTH as f32);
            for n in 0..S::WIDTH {
                // At the end of an allocation, where reading further would be an error.
                let part = numbers[..n].to_vec().into_boxed_slice();
                assert_eq!(simd.sum(simd.load_partial(&part)), total(n));
            }
            let (a, b) = (simd.load(&arrays[0]), simd.load(&arrays[1]));
            let result = simd.mul_add(a, b, simd.splat(0.5));
            let mut stored = vec![0.0; S::WIDTH + 1];
            simd.store(result, &mut S::split_mut(&mut stored).0[0]);
            for (i, &number) in stored[..S::WIDTH].iter().enumerate() {
                assert_eq!(number, numbers[i] * numbers[S::WIDTH + i] + 0.5);
            }
            assert_eq!(stored[S::WIDTH], 0.0);
            simd.prefetch(std::ptr::null());
        }
    }

    #[test]
    fn operations_are_the_same_at_every_level() {
        SimdLevel::available().into_iter().for_each(|level| level.run(Operations));
    }

    #[test]
    fn names_differ_and_the_best_is_last() {
        let levels = SimdLevel::available();
        assert_eq!(levels[0].name(), "portable");
        assert_eq!(levels.last(), Some(&SimdLevel::best()));
        let names: std::collections::HashSet<_> = levels.iter().map(|l| l.name()).collect();
        assert_eq!(names.len(), levels.len());
    }
}
