//! Where the rows of a head are, in the arrays of the model and in a thread's own memory.

use std::cell::RefCell;

use super::tile::{Matrix, TILE_WIDTH_UNIT, product};
use crate::math::{Angles, Direction, angles_at, rotate};
use crate::simd::Simd;
use crate::threads::{Columns, Threads};
use crate::{Result, require};

/// Keys in a panel, which is the transpose of as many rows: all their first numbers, then all their
/// second ones, and so on.
const PANEL: usize = 32;
/// Queries that the backward pass takes at a time; a multiple of [`PANEL`] and of the rows of a tile.
pub(super) const QUERY_BLOCK: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    pub n_samples: usize,
    pub n_tokens: usize,
    /// Heads of queries.
    pub n_heads: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    pub d_head: usize,
}

/// Queries, keys and values, (samples, tokens, heads · d_head) each, before rotation.
#[derive(Debug, Clone, Copy)]
pub struct AttentionInputs<'a> {
    pub query: &'a [f32],
    pub key: &'a [f32],
    pub value: &'a [f32],
    /// The angles of as many positions as there are tokens, or more; None if nothing is rotated.
    pub rotation: Option<Angles<'a>>,
}

impl AttentionShape {
    pub(super) fn check(&self, inputs: &AttentionInputs) -> Result<()> {
        let &AttentionShape { n_samples, n_tokens, n_heads, n_kv_heads, d_head } = self;
        let sizes = || {
            let rows = n_samples.checked_mul(n_tokens)?;
            let wide = rows.checked_mul(n_heads.checked_mul(d_head)?)?;
            Some((wide, rows * n_kv_heads.checked_mul(d_head)?, n_tokens * (d_head / 2)))
        };
        let heads = n_kv_heads > 0 && d_head > 0 && n_heads.is_multiple_of(n_kv_heads);
        let fits = heads
            && sizes().is_some_and(|(wide, narrow, angles)| {
                inputs.query.len() == wide
                    && inputs.key.len() == narrow
                    && inputs.value.len() == narrow
                    && inputs.rotation.is_none_or(|(cos, sin)| {
                        d_head.is_multiple_of(2) && cos.len().min(sin.len()) >= angles
                    })
            });
        require(fits, "query, key, value and rotation must have the shape of the attention")
    }

    /// Heads of queries that share a head of keys and values.
    pub(super) fn group_size(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// The columns of each sample that belong to each head of keys and values, of an array with
    /// `heads_per_group` heads for each of them.
    pub(super) fn groups<'a>(
        &self,
        array: &'a mut [f32],
        heads_per_group: usize,
    ) -> impl Iterator<Item = Columns<'a>> + use<'a> {
        let width = heads_per_group * self.d_head;
        let stride = self.n_kv_heads * width;
        array
            .chunks_exact_mut((self.n_tokens * stride).max(1))
            .flat_map(move |sample| Columns::split(sample, stride, width))
    }

    /// How many consecutive tasks a thread takes: all heads of a sample if there are samples enough for
    /// all threads, because [`pack`] then prefetches the rows of the next task.
    pub(super) fn tasks_per_call(&self, threads: &dyn Threads) -> usize {
        if self.n_samples >= 4 * threads.n() { self.n_kv_heads } else { 1 }
    }

    /// A head of an array with `n_heads` of them.
    pub(super) fn head<'a>(
        &self,
        array: &'a [f32],
        (sample, head, n_heads): (usize, usize, usize),
    ) -> Head<'a> {
        let stride = n_heads * self.d_head;
        let numbers = &array[sample * self.n_tokens * stride..][..self.n_tokens * stride];
        Head { rows: &numbers[head * self.d_head..], stride, d_head: self.d_head }
    }

    /// The width of a row in a thread's memory: a whole number of registers.
    pub(super) fn row_width(&self) -> usize {
        self.d_head.next_multiple_of(TILE_WIDTH_UNIT)
    }

    /// The width of a row of scores: a whole number of blocks of queries, and so of panels of keys.
    pub(super) fn score_width(&self) -> usize {
        self.n_tokens.next_multiple_of(QUERY_BLOCK)
    }

    /// The factor of the scores.
    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.d_head as f32).sqrt()
    }
}

/// One head of one sample in an array of the model.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    rows: &'a [f32],
    stride: usize,
    d_head: usize,
}

impl<'a> Head<'a> {
    #[inline(always)]
    pub fn row(&self, token: usize) -> &'a [f32] {
        &self.rows[token * self.stride..][..self.d_head]
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with slices of the thread's own memory, of these sizes or up to a cache line larger, each
/// at the start of a cache line, so that no register is loaded from two lines. They hold the numbers of
/// an earlier call.
pub(super) fn with_scratch<const N: usize>(sizes: [usize; N], work: impl FnOnce([&mut [f32]; N])) {
    const LINE_NUMBERS: usize = 64 / size_of::<f32>();
    let sizes = sizes.map(|size| size.next_multiple_of(LINE_NUMBERS));
    SCRATCH.with_borrow_mut(|memory| {
        let needed = sizes.iter().sum::<usize>() + LINE_NUMBERS;
        if memory.len() < needed {
            memory.resize(needed, 0.0);
        }
        let start = memory.as_ptr().align_offset(64).min(LINE_NUMBERS);
        let mut rest = &mut memory[start..];
        work(sizes.map(|size| {
            let (part, others) = std::mem::take(&mut rest).split_at_mut(size);
            rest = others;
            part
        }));
    });
}

/// Copies `n` rows of a head, from token `first` on, to rows that are `width` numbers apart, rotated by
/// their positions and times `scale`. Zeros follow each row, and stand for tokens after the last.
#[inline(always)]
pub(super) fn pack<S: Simd>(
    simd: S,
    head: Head,
    (first, n, n_tokens): (usize, usize, usize),
    (rotation, scale): (Option<Angles>, f32),
    (to, width): (&mut [f32], usize),
) {
    let d_head = head.d_head;
    for (i, to) in to.chunks_exact_mut(width).take(n).enumerate() {
        let token = first + i;
        if token >= n_tokens {
            to.fill(0.0);
            continue;
        }
        let row = head.row(token);
        // The row of the next head, which follows this one.
        for at in (d_head..2 * d_head).step_by(16) {
            simd.prefetch(row.as_ptr().wrapping_add(at));
        }
        to[d_head..].fill(0.0);
        let angles = angles_at(rotation, token, d_head);
        rotate(row, angles, Direction::Forward, scale, &mut to[..d_head]);
    }
}

/// Writes `n` rows of gradients, rotated back and times `scale`, to the rows of a head that begins at
/// column `column`, from token `first` on.
#[inline(always)]
pub(super) fn unpack(
    (rows, width): (&[f32], usize),
    (first, n, d_head): (usize, usize, usize),
    (rotation, scale): (Option<Angles>, f32),
    (to, column): (&mut Columns, usize),
) {
    for (i, row) in rows.chunks_exact(width).take(n).enumerate() {
        let angles = angles_at(rotation, first + i, d_head);
        let to = &mut to.row(first + i)[column..][..d_head];
        rotate(&row[..d_head], angles, Direction::Backward, scale, to);
    }
}

/// Transposes rows that are `width` numbers apart into panels of `d_head` rows of [`PANEL`] numbers.
#[inline(always)]
pub(super) fn transpose_to_panels(rows: &[f32], width: usize, d_head: usize, to: &mut [f32]) {
    let blocks = rows.chunks_exact(PANEL * width).zip(to.chunks_exact_mut(PANEL * d_head));
    for (rows, to) in blocks {
        // Eight rows at a time: as many streams as a processor tracks.
        for eight in (0..PANEL).step_by(8) {
            for column in 0..d_head {
                let to = &mut to[column * PANEL + eight..][..8];
                for (i, to) in to.iter_mut().enumerate() {
                    *to = rows[(eight + i) * width + column];
                }
            }
        }
    }
}

/// The products of a tile of rows with the keys of all panels up to `n_keys`.
#[inline(always)]
pub(super) fn scores<S: Simd>(
    simd: S,
    rows: Matrix,
    (panels, d_head): (&[f32], usize),
    n_keys: usize,
    (to, score_width): (&mut [f32], usize),
) {
    for at in (0..n_keys).step_by(PANEL) {
        let right = Matrix { numbers: &panels[at * d_head..], stride: PANEL };
        product(simd, rows.into(), right, (&mut to[at..], score_width), (d_head, PANEL), false);
    }
}
