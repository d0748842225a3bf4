//! Small matrix products whose sums stay in registers.
//!
//! A tile is [`TILE_ROWS`] rows of as many numbers as there are registers for: 8 × 32 sums in 16 of the
//! 32 registers of AVX-512, twice 4 × 16 sums in 8 of the 16 registers of AVX2. For each column of the
//! left factor, one row of the right one is loaded and multiplied with each of the column's numbers.

use std::array::from_fn;

use crate::simd::Simd;

/// Rows of a product.
pub(super) const TILE_ROWS: usize = 8;
/// The width of the right factor and of the product must be a multiple of this.
pub(super) const TILE_WIDTH_UNIT: usize = 16;

/// Rows that are `stride` numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub numbers: &'a [f32],
    pub stride: usize,
}

/// The left factor of a product, read by columns.
pub(super) trait LeftFactor: Copy {
    /// The numbers of `R` rows from `first_row` on, for each of the first `n` columns.
    fn columns<const R: usize>(self, first_row: usize, n: usize) -> impl Iterator<Item = [f32; R]>;
}

impl LeftFactor for Matrix<'_> {
    #[inline(always)]
    fn columns<const R: usize>(self, first_row: usize, n: usize) -> impl Iterator<Item = [f32; R]> {
        let rows: [_; R] = from_fn(|r| &self.numbers[(first_row + r) * self.stride..][..n]);
        (0..n).map(move |k| rows.map(|row| row[k]))
    }
}

/// The transpose of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Transposed<'a>(pub Matrix<'a>);

impl LeftFactor for Transposed<'_> {
    #[inline(always)]
    fn columns<const R: usize>(self, first_row: usize, n: usize) -> impl Iterator<Item = [f32; R]> {
        let Matrix { numbers, stride } = self.0;
        (0..n).map(move |k| {
            let mut column = [0.0; R];
            column.copy_from_slice(&numbers[k * stride + first_row..][..R]);
            column
        })
    }
}

/// `to = left right`, or with `add` `to += left right`: [`TILE_ROWS`] rows of `width` numbers at
/// `stride`, summed over the first `n` columns of `left` and rows of `right`.
#[inline(always)]
pub(super) fn product<S: Simd>(
    simd: S,
    left: impl LeftFactor,
    right: Matrix,
    (to, stride): (&mut [f32], usize),
    (n, width): (usize, usize),
    add: bool,
) {
    debug_assert!(width.is_multiple_of(TILE_WIDTH_UNIT));
    let mut at = 0;
    while at < width {
        if S::WIDTH == TILE_WIDTH_UNIT {
            if at + 2 * S::WIDTH <= width {
                tile::<S, TILE_ROWS, 2>(simd, left, right, (&mut *to, stride), (0, at, n), add);
                at += 2 * S::WIDTH;
            } else {
                tile::<S, TILE_ROWS, 1>(simd, left, right, (&mut *to, stride), (0, at, n), add);
                at += S::WIDTH;
            }
        } else {
            const HALF: usize = TILE_ROWS / 2;
            tile::<S, HALF, 2>(simd, left, right, (&mut *to, stride), (0, at, n), add);
            tile::<S, HALF, 2>(simd, left, right, (&mut *to, stride), (HALF, at, n), add);
            at += 2 * S::WIDTH;
        }
    }
}

/// The `R` rows from `first_row` on, and the `V` registers from column `at` on.
///
/// Loops over indices instead of closures, which are not always inlined.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    left: impl LeftFactor,
    right: Matrix,
    (to, stride): (&mut [f32], usize),
    (first_row, at, n): (usize, usize, usize),
    add: bool,
) {
    let mut sums = [[simd.splat(0.0); V]; R];
    if add {
        for r in 0..R {
            let row = &to[(first_row + r) * stride + at..][..V * S::WIDTH];
            for v in 0..V {
                sums[r][v] = simd.load(&S::split(row).0[v]);
            }
        }
    }
    let rows = right.numbers.chunks_exact(right.stride);
    let mut rights = [simd.splat(0.0); V];
    for (factors, row) in left.columns::<R>(first_row, n).zip(rows) {
        let row = &row[at..][..V * S::WIDTH];
        for v in 0..V {
            rights[v] = simd.load(&S::split(row).0[v]);
        }
        for r in 0..R {
            let factor = simd.splat(factors[r]);
            for v in 0..V {
                sums[r][v] = simd.mul_add(factor, rights[v], sums[r][v]);
            }
        }
    }
    for r in 0..R {
        let row = &mut to[(first_row + r) * stride + at..][..V * S::WIDTH];
        for v in 0..V {
            simd.store(sums[r][v], &mut S::split_mut(row).0[v]);
        }
    }
}
