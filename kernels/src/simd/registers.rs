//! The operations of an instruction set, in plain Rust too, and the kernels that are compiled for each.

/// Registers of `WIDTH` numbers.
pub(crate) trait Simd: Copy {
    type Vector: Copy;
    /// The numbers of a register in memory: `[f32; WIDTH]`.
    type Array;
    const WIDTH: usize;

    /// A row as whole arrays, and the fewer than `WIDTH` numbers that follow.
    fn split(row: &[f32]) -> (&[Self::Array], &[f32]);
    fn split_mut(row: &mut [f32]) -> (&mut [Self::Array], &mut [f32]);
    /// The same number in every lane.
    fn splat(self, number: f32) -> Self::Vector;
    fn load(self, from: &Self::Array) -> Self::Vector;
    /// Fewer than `WIDTH` numbers, followed by zeros.
    fn load_partial(self, from: &[f32]) -> Self::Vector;
    fn store(self, vector: Self::Vector, to: &mut Self::Array);
    /// `a b + sum`
    fn mul_add(self, a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;
    /// The sum of all lanes.
    fn sum(self, vector: Self::Vector) -> f32;
    /// Prefetches a cache line; the address need not be valid.
    fn prefetch(self, from: *const f32);
}

/// Work that is compiled once for each level.
pub(crate) trait Kernel {
    /// Must be `#[inline(always)]`, or it is compiled without the features of the level.
    fn run<S: Simd>(self, simd: S);
}

/// Eight numbers, which the compiler puts into the registers of the target's baseline (two of SSE2 or
/// NEON).
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
