//! Small matrix products whose sums stay in registers.
//!
//! A tile is [`TILE_ROWS`] rows of as many numbers as there are registers for: 8 × 32 sums in 16 of the
//! 32 registers of AVX-512, twice 4 × 16 sums in 8 of the 16 registers of AVX2. For each column of the
//! left factor, one row of the right one is loaded and multiplied with each of the column's numbers.
//!
//! Sizes are checked once per product. Checking them at each access, as slices do, took 10 % more
//! instructions forward and 79 % more backward.

use std::slice::{from_raw_parts, from_raw_parts_mut};

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

/// The left factor of a product: a matrix, or the transpose of one.
#[derive(Clone, Copy)]
pub(super) struct LeftFactor<'a> {
    numbers: &'a [f32],
    row_stride: usize,
    column_stride: usize,
}

impl<'a> From<Matrix<'a>> for LeftFactor<'a> {
    #[inline(always)]
    fn from(matrix: Matrix<'a>) -> Self {
        LeftFactor { numbers: matrix.numbers, row_stride: matrix.stride, column_stride: 1 }
    }
}

impl<'a> Matrix<'a> {
    #[inline(always)]
    pub fn transposed(self) -> LeftFactor<'a> {
        LeftFactor { numbers: self.numbers, row_stride: 1, column_stride: self.stride }
    }
}

/// One past the largest offset of `a` rows and `b` columns at these strides, if it is a number.
#[inline(always)]
fn end(a: usize, a_stride: usize, b: usize, b_stride: usize) -> Option<usize> {
    let last_row = a.checked_sub(1)?.checked_mul(a_stride)?;
    let last_column = b.checked_sub(1)?.checked_mul(b_stride)?;
    last_row.checked_add(last_column)?.checked_add(1)
}

/// `to = left right`, or with `add` `to += left right`: [`TILE_ROWS`] rows of `width` numbers at
/// `stride`, summed over the first `n` columns of `left` and rows of `right`.
#[inline(always)]
pub(super) fn product<S: Simd>(
    simd: S,
    left: LeftFactor,
    right: Matrix,
    (to, stride): (&mut [f32], usize),
    (n, width): (usize, usize),
    add: bool,
) {
    let left_end = end(TILE_ROWS, left.row_stride, n, left.column_stride);
    assert!(left_end.is_some_and(|end| end <= left.numbers.len()));
    assert!(end(n, right.stride, width, 1).is_some_and(|end| end <= right.numbers.len()));
    assert!(end(TILE_ROWS, stride, width, 1).is_some_and(|end| end <= to.len()));
    assert!(width.is_multiple_of(TILE_WIDTH_UNIT));
    const HALF: usize = TILE_ROWS / 2;
    const { assert!(S::WIDTH == TILE_WIDTH_UNIT || 2 * S::WIDTH == TILE_WIDTH_UNIT) };
    for at in (0..width).step_by(2 * S::WIDTH) {
        let to = (&mut *to, stride);
        // SAFETY: by the assertions above, `left` has TILE_ROWS rows of n numbers, `right` n rows and `to`
        // TILE_ROWS rows of `width` numbers. The tiles have no other rows, and their columns end at or
        // before `width`, a multiple of 16: where WIDTH is 8, the 16 columns from `at` on are within it;
        // where WIDTH is 16, the first branch takes the last 16 columns if no 32 are left.
        unsafe {
            if S::WIDTH == TILE_WIDTH_UNIT && at + 2 * S::WIDTH > width {
                tile::<S, TILE_ROWS, 1>(simd, left, right, to, (0, at, n), add);
            } else if S::WIDTH == TILE_WIDTH_UNIT {
                tile::<S, TILE_ROWS, 2>(simd, left, right, to, (0, at, n), add);
            } else {
                tile::<S, HALF, 2>(simd, left, right, (&mut *to.0, stride), (0, at, n), add);
                tile::<S, HALF, 2>(simd, left, right, to, (HALF, at, n), add);
            }
        }
    }
}

/// The `R` rows from `first_row` on, and the `V` registers from column `at` on.
///
/// Loops over indices instead of closures, which are not always inlined.
///
/// # Safety
///
/// `left` has `first_row + R` rows of `n` numbers, `right` has `n` rows and `to` `first_row + R` rows of
/// `at + V · WIDTH` numbers.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    left: LeftFactor,
    right: Matrix,
    (to, stride): (&mut [f32], usize),
    (first_row, at, n): (usize, usize, usize),
    add: bool,
) {
    let mut sums = [[simd.splat(0.0); V]; R];
    let mut rights = [simd.splat(0.0); V];
    // SAFETY: all offsets are of rows and columns that the caller promises, since k < n, r < R and rows
    // are V · WIDTH numbers long. A row of `to` is borrowed only until the next one is, and `to` itself is
    // borrowed mutably: no other reference to its numbers is in use.
    unsafe {
        let to = to.as_mut_ptr().add(first_row * stride + at);
        if add {
            for r in 0..R {
                let row = from_raw_parts(to.add(r * stride), V * S::WIDTH);
                for v in 0..V {
                    sums[r][v] = simd.load(&S::split(row).0[v]);
                }
            }
        }
        let left_start = left.numbers.as_ptr().add(first_row * left.row_stride);
        let right_start = right.numbers.as_ptr().add(at);
        for k in 0..n {
            let row = from_raw_parts(right_start.add(k * right.stride), V * S::WIDTH);
            for v in 0..V {
                rights[v] = simd.load(&S::split(row).0[v]);
            }
            for r in 0..R {
                let factor = *left_start.add(r * left.row_stride + k * left.column_stride);
                let factor = simd.splat(factor);
                for v in 0..V {
                    sums[r][v] = simd.mul_add(factor, rights[v], sums[r][v]);
                }
            }
        }
        for r in 0..R {
            let row = from_raw_parts_mut(to.add(r * stride), V * S::WIDTH);
            for v in 0..V {
                simd.store(sums[r][v], &mut S::split_mut(row).0[v]);
            }
        }
    }
}
