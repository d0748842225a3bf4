//! Small products of matrices that stay in registers while they grow.

use crate::lanes::Lanes;

/// Rows of a tile.
pub const ROWS: usize = 8;
/// What the width of a tile's right factor and result must be a multiple of.
pub const LANES: usize = 16;

/// Where the left factor of a product lies: a start, and how far rows and columns are apart.
#[derive(Clone, Copy)]
pub struct Left {
    pub start: *const f32,
    pub row: usize,
    pub column: usize,
}

/// Where rows lie: a start, and how far they are apart.
#[derive(Clone, Copy)]
pub struct Rows<P> {
    pub start: P,
    pub row: usize,
}

/// `to = left right`, or with `add` that on top of what is there: [`ROWS`] rows of `width` numbers,
/// summed over the `n` columns of `left`, which are the rows of `right`.
///
/// # Safety
///
/// The processor has the features of the level, the memory is there, and nobody else has that of
/// `to`; `width` is a multiple of [`LANES`].
#[inline(always)]
pub unsafe fn product<L: Lanes>(
    left: Left,
    right: Rows<*const f32>,
    to: Rows<*mut f32>,
    (n, width): (usize, usize),
    add: bool,
) {
    debug_assert!(width.is_multiple_of(LANES));
    let mut at = 0;
    // SAFETY: the caller's word; the parts of a tile are within it.
    unsafe {
        while at < width {
            let right = Rows { start: right.start.add(at), ..right };
            let to = Rows { start: to.start.add(at), ..to };
            if L::WIDTH == LANES {
                // 32 registers: 16 sums.
                if at + 2 * LANES <= width {
                    tile::<L, ROWS, 2>(left, right, to, n, add);
                    at += 2 * LANES;
                } else {
                    tile::<L, ROWS, 1>(left, right, to, n, add);
                    at += LANES;
                }
            } else {
                // 16 registers: 8 sums.
                for half in [0, ROWS / 2] {
                    let left = Left { start: left.start.add(half * left.row), ..left };
                    let to = Rows { start: to.start.add(half * to.row), ..to };
                    tile::<L, { ROWS / 2 }, 2>(left, right, to, n, add);
                }
                at += LANES;
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows and registers are numbers here
unsafe fn tile<L: Lanes, const R: usize, const V: usize>(
    left: Left,
    right: Rows<*const f32>,
    to: Rows<*mut f32>,
    n: usize,
    add: bool,
) {
    // Loops and no closures: those are not always inlined, and without the features of the level
    // every instruction is a call.
    // SAFETY: the caller's word.
    unsafe {
        let mut sums = [[L::zero(); V]; R];
        if add {
            for r in 0..R {
                for v in 0..V {
                    sums[r][v] = L::load(to.start.add(r * to.row + v * L::WIDTH));
                }
            }
        }
        let mut rights = [L::zero(); V];
        for k in 0..n {
            for v in 0..V {
                rights[v] = L::load(right.start.add(k * right.row + v * L::WIDTH));
            }
            for r in 0..R {
                let factor = L::splat(*left.start.add(r * left.row + k * left.column));
                for v in 0..V {
                    sums[r][v] = L::add_product(factor, rights[v], sums[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                L::store(sums[r][v], to.start.add(r * to.row + v * L::WIDTH));
            }
        }
    }
}
