//! Products of a matrix with few vectors.
//!
//! A step multiplies every weight once per sample, so it is as fast as weights arrive from memory
//! (15 GB/s where it was measured). Four rows are taken at a time, each with one sum per lane; the next
//! four are prefetched, because hardware prefetchers stop at the end of a page. How a row is summed
//! depends on its length alone, neither on the rows and vectors beside it nor on the thread.

use std::array::from_fn;

use crate::simd::{Kernel, Simd};
use crate::threads::Columns;

/// Rows that are multiplied at once.
const ROW_BLOCK: usize = 4;

/// Bytes of weights in a task: a few microseconds, so that threads finish together, and many times what
/// it costs to take a task.
const TASK_BYTES: usize = 48 << 10;

/// Rows of a matrix in a task. Whole blocks; results do not depend on which rows share a block.
pub(super) fn matrix_rows_per_task(width: usize) -> usize {
    (TASK_BYTES / (width * size_of::<f32>())).next_multiple_of(ROW_BLOCK).max(ROW_BLOCK)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Replace,
    Add,
}

/// Some rows of `out = matrix · vectors`, or of `out += matrix · vectors`.
pub(super) struct MatVec<'a> {
    /// Rows as long as a vector.
    pub matrix: &'a [f32],
    /// One vector per sample, one after another.
    pub vectors: &'a [f32],
    /// One row per sample, one column per row of the matrix.
    pub out: Columns<'a>,
    pub mode: Mode,
}

impl<'a> MatVec<'a> {
    /// Divides a whole product into tasks; `n_samples` is the number of vectors.
    pub fn tasks(
        (matrix, vectors): (&'a [f32], &'a [f32]),
        out: &'a mut [f32],
        n_samples: usize,
        mode: Mode,
    ) -> impl Iterator<Item = Self> {
        let (width, n_out) = (vectors.len() / n_samples, out.len() / n_samples);
        let n = matrix_rows_per_task(width);
        matrix
            .chunks(n * width)
            .zip(Columns::split(out, n_out, n))
            .map(move |(matrix, out)| MatVec { matrix, vectors, out, mode })
    }
}

impl Kernel for MatVec<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        self.multiply(simd);
    }
}

impl MatVec<'_> {
    #[inline(always)]
    pub fn multiply<S: Simd>(&mut self, simd: S) {
        let width = self.vectors.len() / self.out.n_rows();
        products(simd, self.matrix, self.vectors, width, |row, sample, product| {
            let out = &mut self.out.row(sample)[row];
            *out = if self.mode == Mode::Add { *out + product } else { product };
        });
    }
}

/// Passes the product of every row of the matrix with every vector to `put`: row, vector, product. Rows
/// and vectors have `n` numbers each.
#[inline(always)]
pub(super) fn products<S: Simd>(
    simd: S,
    matrix: &[f32],
    vectors: &[f32],
    n: usize,
    mut put: impl FnMut(usize, usize, f32),
) {
    let n_vectors = vectors.len() / n;
    let mut first = 0;
    // Weights that were just multiplied with some vectors are in the cache for the next ones.
    while first < n_vectors {
        let rest = &vectors[first * n..];
        let put = |row, vector, product| put(row, first + vector, product);
        first += match n_vectors - first {
            1 => with_vectors::<S, 1>(simd, matrix, rest, n, put),
            2 | 3 => with_vectors::<S, 2>(simd, matrix, rest, n, put),
            _ => with_vectors::<S, 4>(simd, matrix, rest, n, put),
        };
    }
}

/// The products of all rows with the first `N` vectors; returns `N`.
#[inline(always)]
fn with_vectors<S: Simd, const N: usize>(
    simd: S,
    matrix: &[f32],
    vectors: &[f32],
    n: usize,
    mut put: impl FnMut(usize, usize, f32),
) -> usize {
    let n_rows = matrix.len() / n;
    let whole = n_rows - n_rows % ROW_BLOCK;
    let mut put_all = |first: usize, sums: &[[f32; N]]| {
        for (r, row) in sums.iter().enumerate() {
            for (v, &sum) in row.iter().enumerate() {
                put(first + r, v, sum);
            }
        }
    };
    for row in (0..whole).step_by(ROW_BLOCK) {
        // Another thread reads what follows the last block, and would load it a second time.
        let prefetch = row + 2 * ROW_BLOCK <= n_rows;
        put_all(row, &block::<S, ROW_BLOCK, N>(simd, &matrix[row * n..], vectors, n, prefetch));
    }
    for row in whole..n_rows {
        put_all(row, &block::<S, 1, N>(simd, &matrix[row * n..], vectors, n, false));
    }
    N
}

/// The products of the first `R` rows with the first `N` vectors; `prefetch` says that the next `R` rows
/// follow.
///
/// Loops over indices instead of closures: for four vectors, the closures were not inlined, and a product
/// took thirteen times as long.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn block<S: Simd, const R: usize, const N: usize>(
    simd: S,
    matrix: &[f32],
    vectors: &[f32],
    n: usize,
    prefetch: bool,
) -> [[f32; N]; R] {
    let ahead = matrix.as_ptr().wrapping_add(if prefetch { R * n } else { 0 });
    let rows: [_; R] = from_fn(|r| S::split(&matrix[r * n..][..n]));
    let vectors: [_; N] = from_fn(|v| S::split(&vectors[v * n..][..n]));
    let mut sums = [[simd.splat(0.0); N]; R];
    let mut factors = [simd.splat(0.0); N];
    for at in 0..n / S::WIDTH {
        for v in 0..N {
            factors[v] = simd.load(&vectors[v].0[at]);
        }
        for r in 0..R {
            simd.prefetch(ahead.wrapping_add(r * n + at * S::WIDTH));
            let weights = simd.load(&rows[r].0[at]);
            for v in 0..N {
                sums[r][v] = simd.mul_add(weights, factors[v], sums[r][v]);
            }
        }
    }
    if !n.is_multiple_of(S::WIDTH) {
        for v in 0..N {
            factors[v] = simd.load_partial(vectors[v].1);
        }
        for r in 0..R {
            let weights = simd.load_partial(rows[r].1);
            for v in 0..N {
                sums[r][v] = simd.mul_add(weights, factors[v], sums[r][v]);
            }
        }
    }
    let mut products = [[0.0; N]; R];
    for r in 0..R {
        for v in 0..N {
            products[r][v] = simd.sum(sums[r][v]);
        }
    }
    products
}
