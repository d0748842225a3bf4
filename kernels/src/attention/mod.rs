//! Causal attention with rotary positions, forward and backward.
//!
//! A task is one head of keys and values of one sample, with the heads of queries that share it. Its
//! thread copies the rows of that head into memory of its own, rotates them on the way and lays them out
//! for the products of [`tile`]; gradients are rotated back on the way out. So rotated queries and keys
//! are never written to shared memory, scores never leave the caches, and beyond the diagonal only the
//! rest of a tile is computed.
//!
//! O(tokens² · d_head) time per head, half of what a full product takes. A thread's memory is
//! O(tokens · d_head + 8 · tokens) forward and O(tokens · d_head + 128 · tokens) backward; of the forward
//! pass one number per query is kept, the logarithm of its sum of exponentials, from which the backward
//! pass computes the softmax again.
//!
//! Tried (docs/performance.md): rows that end amid a register cost a quarter of the time, so scores
//! beyond the diagonal are computed up to a whole register and set to zero; prefetching the rows of the
//! next head gave 10 to 15 %.

mod gradients;
mod layout;
mod tile;

pub use gradients::{Outputs, backward};
pub use layout::{AttentionInputs, AttentionShape};

use crate::math::{exp_and_sum, largest};
use crate::simd::{Kernel, Simd, SimdLevel};
use crate::threads::{Columns, Threads, each_task};
use crate::{Result, require};
use layout::{Head, pack, scores, transpose_to_panels, with_scratch};
use tile::{Matrix, TILE_ROWS, TILE_WIDTH_UNIT, product};

/// Causal attention. `out` is (samples, tokens, heads · d_head); `log_sums`, (samples, heads, tokens), is
/// the logarithm of the sum of the exponentials of each query's scores.
pub fn forward(
    level: SimdLevel,
    shape: AttentionShape,
    inputs: AttentionInputs,
    (out, log_sums): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    shape.check(&inputs)?;
    require(
        out.len() == inputs.query.len()
            && log_sums.len() == shape.n_samples * shape.n_heads * shape.n_tokens,
        "out must have the size of query, and log_sums one number per query",
    )?;
    if out.is_empty() {
        return Ok(());
    }
    let (rows, tile) = (shape.score_width() * shape.row_width(), TILE_ROWS * shape.row_width());
    let (panels, scores) = (shape.score_width() * shape.d_head, TILE_ROWS * shape.score_width());
    let log_sums = log_sums.chunks_exact_mut(shape.group_size() * shape.n_tokens);
    let tasks = shape.groups(out, shape.group_size()).zip(log_sums).enumerate();
    let per_call = shape.tasks_per_call(threads);
    each_task(threads, tasks, per_call, |(task, (out, log_sums))| {
        let (sample, kv_head) = (task / shape.n_kv_heads, task % shape.n_kv_heads);
        let sizes = [rows, panels, rows, tile, scores, tile];
        with_scratch(sizes, |[keys, key_panels, values, query, scores, mixed]| {
            level.run(AttentionForward {
                shape,
                inputs,
                sample,
                kv_head,
                out,
                log_sums,
                keys,
                key_panels,
                values,
                query,
                scores,
                mixed,
            });
        });
    })
}

/// A task, with all its memory: the closure that provides it is compiled without the level's features.
struct AttentionForward<'a> {
    shape: AttentionShape,
    inputs: AttentionInputs<'a>,
    sample: usize,
    kv_head: usize,
    /// Of the heads of queries that share the head of keys and values.
    out: Columns<'a>,
    log_sums: &'a mut [f32],
    keys: &'a mut [f32],
    key_panels: &'a mut [f32],
    values: &'a mut [f32],
    /// One tile each: queries, their scores with all keys, and their results.
    query: &'a mut [f32],
    scores: &'a mut [f32],
    mixed: &'a mut [f32],
}

impl Kernel for AttentionForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let AttentionShape { n_tokens, n_heads, n_kv_heads, d_head, .. } = self.shape;
        let width = self.shape.row_width();
        let place = (self.sample, self.kv_head, n_kv_heads);
        let (key, value) =
            (self.shape.head(self.inputs.key, place), self.shape.head(self.inputs.value, place));
        let all = (0, self.shape.score_width(), n_tokens);
        pack(simd, key, all, (self.inputs.rotation, 1.0), (self.keys, width));
        transpose_to_panels(self.keys, width, d_head, self.key_panels);
        pack(simd, value, all, (None, 1.0), (self.values, width));
        let group_size = self.shape.group_size();
        for i in 0..group_size {
            let place = (self.sample, self.kv_head * group_size + i, n_heads);
            let query = self.shape.head(self.inputs.query, place);
            for first in (0..n_tokens).step_by(TILE_ROWS) {
                self.tile(simd, query, i, first);
            }
        }
    }
}

impl AttentionForward<'_> {
    /// The queries from token `first` on of the i-th head that shares these keys.
    #[inline(always)]
    fn tile<S: Simd>(&mut self, simd: S, head: Head, i: usize, first: usize) {
        let AttentionShape { n_tokens, d_head, .. } = self.shape;
        let (width, score_width) = (self.shape.row_width(), self.shape.score_width());
        let rotation = (self.inputs.rotation, self.shape.scale());
        pack(simd, head, (first, TILE_ROWS, n_tokens), rotation, (self.query, width));
        let n_keys = first + TILE_ROWS;
        let query = Matrix { numbers: self.query, stride: width };
        scores(simd, query, (self.key_panels, d_head), n_keys, (self.scores, score_width));
        let mut inverse_sums = [0.0; TILE_ROWS];
        let mut log_sums = [0.0; TILE_ROWS];
        // Whole registers: what e^-87 of a masked score adds to a sum of 1 or more is rounded away.
        let n_whole = n_keys.next_multiple_of(TILE_WIDTH_UNIT);
        for (r, row) in self.scores.chunks_exact_mut(score_width).take(TILE_ROWS).enumerate() {
            let row = &mut row[..n_whole];
            row[first + r + 1..].fill(f32::NEG_INFINITY);
            let shift = largest(row);
            let sum = exp_and_sum(row, shift);
            row[first + r + 1..].fill(0.0);
            inverse_sums[r] = 1.0 / sum;
            log_sums[r] = shift + sum.ln();
        }
        let shares = Matrix { numbers: self.scores, stride: score_width };
        let values = Matrix { numbers: self.values, stride: width };
        product(simd, shares.into(), values, (self.mixed, width), (n_keys, width), false);
        let n = TILE_ROWS.min(n_tokens - first);
        for (r, mixed) in self.mixed.chunks_exact(width).take(n).enumerate() {
            let out = &mut self.out.row(first + r)[i * d_head..][..d_head];
            for (out, mixed) in out.iter_mut().zip(mixed) {
                *out = mixed * inverse_sums[r];
            }
        }
        self.log_sums[i * n_tokens + first..][..n].copy_from_slice(&log_sums[..n]);
    }
}
