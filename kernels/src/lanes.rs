//! Arithmetic with what the processor has: products of matrices and vectors, e to the x.
//!
//! A step reads every weight once and multiplies it once, so it is as fast as weights come from
//! memory: [`products`] takes four rows at a time, each with one running sum per lane. How a row
//! is summed depends on nothing but its length, neither on the rows and vectors beside it nor on
//! the thread: results are the same bits however the work is cut.

use std::array::from_fn;
use std::sync::OnceLock;

/// Rows that are multiplied at once.
pub const ROWS: usize = 4;

/// A register full of numbers.
///
/// # Safety
///
/// All of it may be called only where the processor has the features of the level, and the memory
/// is there.
#[allow(clippy::missing_safety_doc)] // said once, above
pub trait Lanes {
    /// The register.
    type Row: Copy;
    /// How many numbers it has.
    const WIDTH: usize;

    /// Zeros.
    unsafe fn zero() -> Self::Row;
    /// `WIDTH` numbers.
    unsafe fn load(from: *const f32) -> Self::Row;
    /// `n < WIDTH` numbers, and zeros behind them.
    unsafe fn load_part(from: *const f32, n: usize) -> Self::Row;
    /// The same number in every lane.
    unsafe fn splat(number: f32) -> Self::Row;
    /// Writes `WIDTH` numbers.
    unsafe fn store(row: Self::Row, to: *mut f32);
    /// `a b + sum`
    unsafe fn add_product(a: Self::Row, b: Self::Row, sum: Self::Row) -> Self::Row;
    /// All lanes together.
    unsafe fn total(row: Self::Row) -> f32;
    /// Tells the processor what will be needed soon; any address will do.
    fn prefetch(from: *const f32);
}

/// Work that is compiled once for each level.
pub trait Kernel {
    /// Does it. Must be `#[inline(always)]`, or it is compiled without the features.
    fn run<L: Lanes>(self);
}

/// The ways to multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Plain Rust.
    Portable,
    /// Eight lanes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Sixteen.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// All that this processor has, the fastest last.
    pub fn available() -> Vec<Level> {
        #[allow(unused_mut)]
        let mut levels = vec![Level::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                levels.push(Level::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                levels.push(Level::Avx512);
            }
        }
        levels
    }

    /// The fastest.
    pub fn best() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Level::available().pop().unwrap_or(Level::Portable))
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }

    /// Does the work at this level.
    ///
    /// # Safety
    ///
    /// The level must be [available](Level::available).
    pub unsafe fn run<K: Kernel>(self, kernel: K) {
        match self {
            Level::Portable => kernel.run::<Portable>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the level is available, so the processor has the features.
            Level::Avx2 => unsafe { x86::run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { x86::run_avx512(kernel) },
        }
    }
}

/// Tells `put` the product of every row of the matrix with every vector: row, vector, product.
/// Rows and vectors have `n` numbers each.
///
/// # Safety
///
/// The processor has the features of the level.
#[inline(always)]
pub unsafe fn products<L: Lanes>(
    matrix: &[f32],
    vectors: &[f32],
    n: usize,
    mut put: impl FnMut(usize, usize, f32),
) {
    let (n_rows, n_vectors) = (matrix.len() / n, vectors.len() / n);
    let mut vector = 0;
    // Weights that were just multiplied with some vectors are near when the next come.
    while vector < n_vectors {
        let left = n_vectors - vector;
        let these = &vectors[vector * n..];
        // SAFETY: the caller's word.
        unsafe {
            vector += match left {
                1 => {
                    some_vectors::<L, 1>(matrix, these, n, n_rows, |r, v, x| put(r, vector + v, x))
                }
                2 | 3 => {
                    some_vectors::<L, 2>(matrix, these, n, n_rows, |r, v, x| put(r, vector + v, x))
                }
                _ => {
                    some_vectors::<L, 4>(matrix, these, n, n_rows, |r, v, x| put(r, vector + v, x))
                }
            };
        }
    }
}

#[inline(always)]
unsafe fn some_vectors<L: Lanes, const N: usize>(
    matrix: &[f32],
    vectors: &[f32],
    n: usize,
    n_rows: usize,
    mut put: impl FnMut(usize, usize, f32),
) -> usize {
    let whole = n_rows - n_rows % ROWS;
    let mut tell = |first: usize, sums: &[[f32; N]]| {
        for (r, row) in sums.iter().enumerate() {
            for (v, &sum) in row.iter().enumerate() {
                put(first + r, v, sum);
            }
        }
    };
    for row in (0..whole).step_by(ROWS) {
        let more = row + 2 * ROWS <= n_rows;
        // SAFETY: the caller's word.
        tell(row, &unsafe { block::<L, ROWS, N>(&matrix[row * n..], vectors, n, more) });
    }
    for row in whole..n_rows {
        // SAFETY: the caller's word.
        tell(row, &unsafe { block::<L, 1, N>(&matrix[row * n..], vectors, n, false) });
    }
    N
}

/// The products of the first `R` rows with the first `N` vectors; `more` says that the next block
/// will be needed too.
#[inline(always)]
unsafe fn block<L: Lanes, const R: usize, const N: usize>(
    matrix: &[f32],
    vectors: &[f32],
    n: usize,
    more: bool,
) -> [[f32; N]; R] {
    let (matrix, vectors) = (matrix[..R * n].as_ptr(), vectors[..N * n].as_ptr());
    let whole = n - n % L::WIDTH;
    // Processors do not look beyond a page by themselves. What lies behind the last block is
    // another thread's, and would come from memory twice.
    let ahead = if more { R * n } else { 0 };
    // SAFETY: the slices just taken have R and N rows of n numbers, the processor has the
    // features, and no load begins at or behind the end of a row or goes past it.
    unsafe {
        let mut sums = [[L::zero(); N]; R];
        for at in (0..whole).step_by(L::WIDTH) {
            let factors: [_; N] = from_fn(|v| L::load(vectors.add(v * n + at)));
            let weights: [_; R] = from_fn(|r| {
                L::prefetch(matrix.wrapping_add(ahead + r * n + at));
                L::load(matrix.add(r * n + at))
            });
            sums = from_fn(|r| from_fn(|v| L::add_product(weights[r], factors[v], sums[r][v])));
        }
        if whole < n {
            let part = |from| L::load_part(from, n - whole);
            let factors: [_; N] = from_fn(|v| part(vectors.add(v * n + whole)));
            let weights: [_; R] = from_fn(|r| part(matrix.add(r * n + whole)));
            sums = from_fn(|r| from_fn(|v| L::add_product(weights[r], factors[v], sums[r][v])));
        }
        sums.map(|row| row.map(|sum| L::total(sum)))
    }
}

/// e to the x, for x up to 88; no branch and no call, so that loops over it become registers.
/// Off by about two units in the last place; below -87 it stays at e to the -87. NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Written so that NaN passes.
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    // e^x = 2^n e^r with |r| at most half of ln 2. Adding 1.5 · 2^23 leaves no room for fractions,
    // and n in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts: n times the first is exact.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let tail = 1.987_569_2e-4;
    let tail = tail * r + 1.398_199_9e-3;
    let tail = tail * r + 8.333_452e-3;
    let tail = tail * r + 4.166_579_6e-2;
    let tail = tail * r + 1.666_666_5e-1;
    let tail = tail * r + 0.5;
    let fraction = tail * (r * r) + r + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    fraction * power
}

/// What every processor can do.
pub struct Portable;

impl Lanes for Portable {
    type Row = [f32; 8];
    const WIDTH: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self::Row {
        [0.0; 8]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Row {
        // SAFETY: there are that many numbers.
        unsafe { from.cast::<[f32; 8]>().read() }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const f32, n: usize) -> Self::Row {
        let mut row = [0.0; 8];
        for (at, number) in row.iter_mut().enumerate().take(n) {
            // SAFETY: there are n numbers.
            *number = unsafe { from.add(at).read() };
        }
        row
    }

    #[inline(always)]
    unsafe fn splat(number: f32) -> Self::Row {
        [number; 8]
    }

    #[inline(always)]
    unsafe fn store(row: Self::Row, to: *mut f32) {
        // SAFETY: there is room.
        unsafe { to.cast::<[f32; 8]>().write(row) }
    }

    #[inline(always)]
    unsafe fn add_product(a: Self::Row, b: Self::Row, mut sum: Self::Row) -> Self::Row {
        for (sum, (a, b)) in sum.iter_mut().zip(a.into_iter().zip(b)) {
            *sum += a * b;
        }
        sum
    }

    #[inline(always)]
    unsafe fn total(row: Self::Row) -> f32 {
        row.iter().sum()
    }

    #[inline(always)]
    fn prefetch(_: *const f32) {}
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Kernel, Lanes};

    #[target_feature(enable = "avx2,fma")]
    pub fn run_avx2<K: Kernel>(kernel: K) {
        kernel.run::<Avx2>();
    }

    #[target_feature(enable = "avx512f")]
    pub fn run_avx512<K: Kernel>(kernel: K) {
        kernel.run::<Avx512>();
    }

    pub struct Avx2;

    // SAFETY of all below: the caller sees to the features and to the memory.
    impl Lanes for Avx2 {
        type Row = __m256;
        const WIDTH: usize = 8;

        #[inline(always)]
        unsafe fn zero() -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm256_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_part(from: *const f32, n: usize) -> Self::Row {
            // SAFETY: as above; lanes that are masked out are not read.
            unsafe {
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes);
                _mm256_maskload_ps(from, mask)
            }
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm256_set1_ps(number) }
        }

        #[inline(always)]
        unsafe fn store(row: Self::Row, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(to, row) }
        }

        #[inline(always)]
        unsafe fn add_product(a: Self::Row, b: Self::Row, sum: Self::Row) -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm256_fmadd_ps(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn total(row: Self::Row) -> f32 {
            // SAFETY: as above.
            unsafe {
                let four = _mm_add_ps(_mm256_castps256_ps128(row), _mm256_extractf128_ps::<1>(row));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }

        #[inline(always)]
        fn prefetch(from: *const f32) {
            // SAFETY: SSE is always there, and an address that is none is ignored.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }
    }

    pub struct Avx512;

    impl Lanes for Avx512 {
        type Row = __m512;
        const WIDTH: usize = 16;

        #[inline(always)]
        unsafe fn zero() -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_part(from: *const f32, n: usize) -> Self::Row {
            // SAFETY: as above; lanes that are masked out are not read.
            unsafe { _mm512_maskz_loadu_ps((1 << n) - 1, from) }
        }

        #[inline(always)]
        unsafe fn splat(number: f32) -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm512_set1_ps(number) }
        }

        #[inline(always)]
        unsafe fn store(row: Self::Row, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(to, row) }
        }

        #[inline(always)]
        unsafe fn add_product(a: Self::Row, b: Self::Row, sum: Self::Row) -> Self::Row {
            // SAFETY: as above.
            unsafe { _mm512_fmadd_ps(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn total(row: Self::Row) -> f32 {
            // SAFETY: as above.
            unsafe { _mm512_reduce_add_ps(row) }
        }

        #[inline(always)]
        fn prefetch(from: *const f32) {
            // SAFETY: SSE is always there, and an address that is none is ignored.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_as_good_as_its_word() {
        for n in -870_000..880_000 {
            let x = n as f32 / 10_000.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2.5e-7, "{x}: {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        assert!(exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }
}
