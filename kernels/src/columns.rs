//! A matrix divided into groups of columns, which different threads write at the same time.

use std::marker::PhantomData;

/// Some columns of a matrix, for writing.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    /// The first of these columns in the first row.
    start: *mut f32,
    n_rows: usize,
    /// Distance from one row of the matrix to the next.
    stride: usize,
    width: usize,
    matrix: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `Columns` is the only way to its numbers while it exists: `split` borrows the matrix
// mutably and gives no two of them the same column. So it may move to another thread as `&mut [f32]`
// may.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Divides a matrix with rows of `stride` numbers into groups of `width` columns; the last group
    /// may have fewer.
    pub fn split(
        matrix: &'a mut [f32],
        stride: usize,
        width: usize,
    ) -> impl Iterator<Item = Self> + use<'a> {
        assert!(stride > 0 && matrix.len().is_multiple_of(stride));
        let (start, n_rows) = (matrix.as_mut_ptr(), matrix.len() / stride);
        (0..stride).step_by(width).map(move |first| Columns {
            start: start.wrapping_add(first),
            n_rows,
            stride,
            width: width.min(stride - first),
            matrix: PhantomData,
        })
    }

    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// These columns of a row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.n_rows);
        // SAFETY: the matrix has `n_rows` rows of `stride` numbers, `row` is one of them, and these
        // columns end at or before the end of a row: the numbers are within the matrix. It stays
        // mutably borrowed for the lifetime of this value, other values have other columns, and the
        // result borrows this one mutably: no other reference to these numbers exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.width) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_of_one_group() {
        for (n_rows, stride, width) in [(0, 3, 2), (1, 1, 1), (3, 7, 3), (4, 6, 2), (2, 5, 9)] {
            let mut matrix = vec![0.0; n_rows * stride];
            for (group, mut columns) in Columns::split(&mut matrix, stride, width).enumerate() {
                assert_eq!(columns.n_rows(), n_rows);
                for row in 0..n_rows {
                    for number in columns.row(row) {
                        *number += 1.0 + (row * 10 + group) as f32;
                    }
                }
            }
            let expected = |i: usize| 1.0 + (i / stride * 10 + i % stride / width) as f32;
            assert_eq!(matrix, (0..n_rows * stride).map(expected).collect::<Vec<_>>());
        }
    }

    #[test]
    #[should_panic(expected = "row < self.n_rows")]
    fn rows_outside_are_refused() {
        let mut matrix = [0.0; 6];
        Columns::split(&mut matrix, 3, 2).for_each(|mut columns| columns.row(2).fill(1.0));
    }
}
