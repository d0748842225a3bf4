//! NEON, which every processor of the target has: two registers of four numbers at a time, so that rows
//! are divided as for AVX2.

use std::arch::aarch64::*;

use super::registers::Simd;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

impl Simd for Neon {
    type Vector = float32x4x2_t;
    type Array = [f32; 8];
    const WIDTH: usize = 8;

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
        // SAFETY: this file is compiled only for targets with NEON.
        let four = unsafe { vdupq_n_f32(number) };
        float32x4x2_t(four, four)
    }

    #[inline(always)]
    fn load(self, from: &Self::Array) -> Self::Vector {
        let (first, second) = (from.as_ptr(), from[4..].as_ptr());
        // SAFETY: this file is compiled only for targets with NEON; both addresses are followed by four
        // numbers of the array, and the intrinsic asks for no alignment beyond that of a number.
        unsafe { float32x4x2_t(vld1q_f32(first), vld1q_f32(second)) }
    }

    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> Self::Vector {
        let mut array = [0.0; 8];
        array[..from.len()].copy_from_slice(from);
        self.load(&array)
    }

    #[inline(always)]
    fn store(self, vector: Self::Vector, to: &mut Self::Array) {
        let (first, second) = to.split_at_mut(4);
        // SAFETY: this file is compiled only for targets with NEON; both halves have four numbers, and
        // the intrinsic asks for no alignment beyond that of a number.
        unsafe {
            vst1q_f32(first.as_mut_ptr(), vector.0);
            vst1q_f32(second.as_mut_ptr(), vector.1);
        }
    }

    #[inline(always)]
    fn mul_add(self, a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector {
        // SAFETY: this file is compiled only for targets with NEON.
        unsafe { float32x4x2_t(vfmaq_f32(sum.0, a.0, b.0), vfmaq_f32(sum.1, a.1, b.1)) }
    }

    #[inline(always)]
    fn sum(self, vector: Self::Vector) -> f32 {
        // SAFETY: this file is compiled only for targets with NEON.
        unsafe { vaddvq_f32(vaddq_f32(vector.0, vector.1)) }
    }

    /// Nothing: the instruction has no stable intrinsic.
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}
}
