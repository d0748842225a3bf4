//! The operations of an instruction set, and the kernels that are compiled for each.

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
