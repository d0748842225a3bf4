//! AVX2 and AVX-512, each as a token that only `detect` makes.

use std::arch::x86_64::*;

use super::registers::{Kernel, Simd};

/// Defines a token for an instruction set. The features that `detect` looks for and those that kernels
/// are compiled with are the same list, with the features that a listed one implies.
macro_rules! instruction_set {
    (
        $set:ident, features: [$($feature:tt),+], vector: $vector:ty, width: $width:literal,
        splat: $splat:ident, load: $load:ident, store: $store:ident, mul_add: $mul_add:ident,
        load_partial: |$from:ident| $load_partial:expr,
        sum: |$summands:ident| $sum:expr $(,)?
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $set(());

        impl $set {
            pub fn detect() -> Option<Self> {
                ($(is_x86_feature_detected!($feature))&&+).then_some($set(()))
            }

            pub fn run<K: Kernel>(self, kernel: K) {
                #[target_feature($(enable = $feature),+)]
                fn with_features<K: Kernel>(set: $set, kernel: K) {
                    kernel.run(set);
                }
                // SAFETY: the function needs the features of this instruction set. `self` exists, so
                // `detect`, the only place that makes one, found all of them.
                unsafe { with_features(self, kernel) }
            }
        }

        impl Simd for $set {
            type Vector = $vector;
            type Array = [f32; $width];
            const WIDTH: usize = $width;

            #[inline(always)]
            fn split(row: &[f32]) -> (&[Self::Array], &[f32]) {
                row.as_chunks()
            }

            #[inline(always)]
            fn split_mut(row: &mut [f32]) -> (&mut [Self::Array], &mut [f32]) {
                row.as_chunks_mut()
            }

            #[inline(always)]
            fn splat(self, number: f32) -> Self::Vector {
                // SAFETY: the intrinsic needs a feature of this set, and `self` exists, so `detect`
                // found it.
                unsafe { $splat(number) }
            }

            #[inline(always)]
            fn load(self, from: &Self::Array) -> Self::Vector {
                // SAFETY: `self` exists, so `detect` found the feature; the array has as many numbers
                // as the register, and the intrinsic asks for no alignment.
                unsafe { $load(from.as_ptr()) }
            }

            #[inline(always)]
            fn load_partial(self, $from: &[f32]) -> Self::Vector {
                assert!($from.len() < $width);
                // SAFETY: `self` exists, so `detect` found the features; the mask has one lane for each
                // number of the slice, and lanes that are masked out are not read.
                unsafe { $load_partial }
            }

            #[inline(always)]
            fn store(self, vector: Self::Vector, to: &mut Self::Array) {
                // SAFETY: `self` exists, so `detect` found the feature; the array has as many numbers
                // as the register, and the intrinsic asks for no alignment.
                unsafe { $store(to.as_mut_ptr(), vector) }
            }

            #[inline(always)]
            fn mul_add(self, a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector {
                // SAFETY: the intrinsic needs a feature of this set, and `self` exists, so `detect`
                // found it.
                unsafe { $mul_add(a, b, sum) }
            }

            #[inline(always)]
            fn sum(self, $summands: Self::Vector) -> f32 {
                // SAFETY: the intrinsics need features of this set, and `self` exists, so `detect`
                // found them.
                unsafe { $sum }
            }

            #[inline(always)]
            fn prefetch(self, from: *const f32) {
                // SAFETY: the instruction is part of SSE, which every x86-64 processor has, and
                // ignores addresses that are not valid.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
            }
        }
    };
}

instruction_set! {
    Avx2,
    features: ["avx", "avx2", "fma"],
    vector: __m256,
    width: 8,
    splat: _mm256_set1_ps,
    load: _mm256_loadu_ps,
    store: _mm256_storeu_ps,
    mul_add: _mm256_fmadd_ps,
    load_partial: |from| {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(from.len() as i32), lanes);
        _mm256_maskload_ps(from.as_ptr(), mask)
    },
    sum: |vector| {
        let four = _mm_add_ps(_mm256_castps256_ps128(vector), _mm256_extractf128_ps::<1>(vector));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    },
}

instruction_set! {
    Avx512,
    features: ["avx", "avx2", "fma", "f16c", "avx512f"],
    vector: __m512,
    width: 16,
    splat: _mm512_set1_ps,
    load: _mm512_loadu_ps,
    store: _mm512_storeu_ps,
    mul_add: _mm512_fmadd_ps,
    load_partial: |from| _mm512_maskz_loadu_ps((1 << from.len()) - 1, from.as_ptr()),
    sum: |vector| _mm512_reduce_add_ps(vector),
}
