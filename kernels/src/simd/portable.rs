//! Registers in plain Rust: eight numbers, which the compiler puts into the registers of the target's
//! baseline (two of SSE2, two of NEON).

use super::registers::Simd;

#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type Vector = [f32; 8];
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
        [number; 8]
    }

    #[inline(always)]
    fn load(self, from: &Self::Array) -> Self::Vector {
        *from
    }

    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> Self::Vector {
        let mut vector = [0.0; 8];
        vector[..from.len()].copy_from_slice(from);
        vector
    }

    #[inline(always)]
    fn store(self, vector: Self::Vector, to: &mut Self::Array) {
        *to = vector;
    }

    #[inline(always)]
    fn mul_add(self, a: Self::Vector, b: Self::Vector, mut sum: Self::Vector) -> Self::Vector {
        for (sum, (a, b)) in sum.iter_mut().zip(a.into_iter().zip(b)) {
            *sum += a * b;
        }
        sum
    }

    #[inline(always)]
    fn sum(self, vector: Self::Vector) -> f32 {
        vector.iter().sum()
    }

    #[inline(always)]
    fn prefetch(self, _: *const f32) {}
}
