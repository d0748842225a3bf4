//! The backward pass: a block of queries at a time, against all keys before and at them.
//!
//! With P the softmax of a query's scores, g the gradient of its result o, and v the values:
//!
//! ```text
//! grad value = Pᵀ g      grad score = P · (g vᵀ - Σ o g)      grad query = grad score · key
//!                                                             grad key   = grad scoreᵀ · query
//! ```

use super::layout::{
    AttentionInputs, AttentionShape, Head, QUERY_BLOCK, pack, scores, transpose_to_panels, unpack,
    with_scratch,
};
use super::tile::{Matrix, TILE_ROWS, TILE_WIDTH_UNIT, product};
use crate::math::{dot, exp};
use crate::simd::{Kernel, Simd, SimdLevel};
use crate::threads::{Columns, Threads, each_task};
use crate::{Result, require};

/// What the forward pass wrote, and the gradient of `out`.
#[derive(Debug, Clone, Copy)]
pub struct Outputs<'a> {
    pub out: &'a [f32],
    pub log_sums: &'a [f32],
    pub grad: &'a [f32],
}

/// Writes the gradients of queries, keys and values.
pub fn backward(
    level: SimdLevel,
    shape: AttentionShape,
    inputs: AttentionInputs,
    outputs: Outputs,
    grads: [&mut [f32]; 3],
    threads: &dyn Threads,
) -> Result<()> {
    shape.check(&inputs)?;
    let wide = inputs.query.len();
    let fits = outputs.out.len() == wide
        && outputs.grad.len() == wide
        && outputs.log_sums.len() == shape.n_samples * shape.n_heads * shape.n_tokens
        && grads[0].len() == wide
        && grads[1].len() == inputs.key.len()
        && grads[2].len() == inputs.key.len();
    require(
        fits,
        "outputs and gradients must have the sizes that the forward pass read and wrote",
    )?;
    if wide == 0 {
        grads.into_iter().for_each(|grad| grad.fill(0.0));
        return Ok(());
    }
    let (rows, block) = (shape.score_width() * shape.row_width(), QUERY_BLOCK * shape.row_width());
    let panels = shape.score_width() * shape.d_head;
    let scores = QUERY_BLOCK * shape.score_width();
    let sizes =
        [rows, panels, panels, rows, rows, block, block, block, QUERY_BLOCK, scores, scores];
    let [query_grad, key_grad, value_grad] = grads;
    let grads = shape
        .groups(query_grad, shape.group_size())
        .zip(shape.groups(key_grad, 1))
        .zip(shape.groups(value_grad, 1));
    let per_call = shape.tasks_per_call(threads);
    each_task(threads, grads.enumerate(), per_call, |(task, ((to_query, to_key), to_value))| {
        with_scratch(sizes, |memory| {
            #[rustfmt::skip]
            let [keys, key_panels, value_panels, key_grad, value_grad,
                query, grad, query_grad, along, shares, slopes] = memory;
            level.run(AttentionBackward {
                shape,
                inputs,
                outputs,
                sample: task / shape.n_kv_heads,
                kv_head: task % shape.n_kv_heads,
                to_query,
                to_key,
                to_value,
                keys,
                key_panels,
                value_panels,
                key_grad,
                value_grad,
                query,
                grad,
                query_grad,
                along,
                shares,
                slopes,
            });
        });
    })
}

/// A task, with all its memory: the closure that provides it is compiled without the level's features.
struct AttentionBackward<'a> {
    shape: AttentionShape,
    inputs: AttentionInputs<'a>,
    outputs: Outputs<'a>,
    sample: usize,
    kv_head: usize,
    /// Where the gradients go.
    to_query: Columns<'a>,
    to_key: Columns<'a>,
    to_value: Columns<'a>,
    keys: &'a mut [f32],
    key_panels: &'a mut [f32],
    value_panels: &'a mut [f32],
    key_grad: &'a mut [f32],
    value_grad: &'a mut [f32],
    /// One block each: queries, gradients of their results, and of the queries.
    query: &'a mut [f32],
    grad: &'a mut [f32],
    query_grad: &'a mut [f32],
    /// Σ o g for each query of the block.
    along: &'a mut [f32],
    /// One block each: softmax, and gradients of scores.
    shares: &'a mut [f32],
    slopes: &'a mut [f32],
}

impl Kernel for AttentionBackward<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let AttentionShape { n_tokens, n_kv_heads, d_head, .. } = self.shape;
        let width = self.shape.row_width();
        let place = (self.sample, self.kv_head, n_kv_heads);
        let (key, value) =
            (self.shape.head(self.inputs.key, place), self.shape.head(self.inputs.value, place));
        let rotation = (self.inputs.rotation, 1.0);
        let all = (0, self.shape.score_width(), n_tokens);
        // Of the values only panels are needed: their rows are overwritten with those of the keys.
        pack(simd, value, all, (None, 1.0), (self.keys, width));
        transpose_to_panels(self.keys, width, d_head, self.value_panels);
        pack(simd, key, all, rotation, (self.keys, width));
        transpose_to_panels(self.keys, width, d_head, self.key_panels);
        self.key_grad.fill(0.0);
        self.value_grad.fill(0.0);
        for i in 0..self.shape.group_size() {
            for first in (0..n_tokens).step_by(QUERY_BLOCK) {
                self.block(simd, i, first);
            }
        }
        let all = (0, n_tokens, d_head);
        unpack((self.key_grad, width), all, rotation, (&mut self.to_key, 0));
        unpack((self.value_grad, width), all, (None, 1.0), (&mut self.to_value, 0));
    }
}

impl AttentionBackward<'_> {
    /// The queries from token `first` on of the i-th head that shares these keys.
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, i: usize, first: usize) {
        let AttentionShape { n_tokens, n_heads, d_head, .. } = self.shape;
        let width = self.shape.row_width();
        let head = self.kv_head * self.shape.group_size() + i;
        let of = |array| -> Head { self.shape.head(array, (self.sample, head, n_heads)) };
        let (query, out, grad) =
            (of(self.inputs.query), of(self.outputs.out), of(self.outputs.grad));
        let block = (first, QUERY_BLOCK, n_tokens);
        let rotation = (self.inputs.rotation, self.shape.scale());
        pack(simd, query, block, rotation, (self.query, width));
        pack(simd, grad, block, (None, 1.0), (self.grad, width));
        let n = QUERY_BLOCK.min(n_tokens - first);
        for (r, along) in self.along.iter_mut().enumerate().take(n) {
            *along = dot(out.row(first + r), &self.grad[r * width..][..d_head]);
        }
        let log_sums = (self.sample * n_heads + head) * n_tokens;
        let log_sums = &self.outputs.log_sums[log_sums..][..n_tokens];
        for tile in (0..n).step_by(TILE_ROWS) {
            self.tile(simd, log_sums, first, tile);
        }
        self.add_key_and_value_grads(simd, first, n);
        let block = (first, n, d_head);
        unpack((self.query_grad, width), block, rotation, (&mut self.to_query, i * d_head));
    }

    /// Softmax, gradients of scores and gradients of the queries from token `first + tile` on.
    #[inline(always)]
    fn tile<S: Simd>(&mut self, simd: S, log_sums: &[f32], first: usize, tile: usize) {
        let AttentionShape { n_tokens, d_head, .. } = self.shape;
        let (width, score_width) = (self.shape.row_width(), self.shape.score_width());
        let n_keys = first + tile + TILE_ROWS;
        let (row, score) = (tile * width, tile * score_width);
        for (rows, panels, to) in [
            (&*self.query, &*self.key_panels, &mut *self.shares),
            (&*self.grad, &*self.value_panels, &mut *self.slopes),
        ] {
            let rows = Matrix { numbers: &rows[row..], stride: width };
            scores(simd, rows, (panels, d_head), n_keys, (&mut to[score..], score_width));
        }
        let n_whole = n_keys.next_multiple_of(TILE_WIDTH_UNIT);
        for r in tile..tile + TILE_ROWS {
            let token = first + r;
            // Queries after the last token see no keys.
            let n_seen = if token < n_tokens { token + 1 } else { 0 };
            let shares = &mut self.shares[r * score_width..][..n_whole];
            let slopes = &mut self.slopes[r * score_width..][..n_whole];
            if n_seen > 0 {
                let (log_sum, along) = (log_sums[token], self.along[r]);
                for (share, slope) in shares.iter_mut().zip(&mut *slopes) {
                    *share = exp(*share - log_sum);
                    *slope = *share * (*slope - along);
                }
            }
            shares[n_seen..].fill(0.0);
            slopes[n_seen..].fill(0.0);
        }
        let slopes = Matrix { numbers: &self.slopes[score..], stride: score_width };
        let keys = Matrix { numbers: self.keys, stride: width };
        let to = (&mut self.query_grad[row..], width);
        product(simd, slopes.into(), keys, to, (n_keys, width), false);
    }

    /// Adds the contribution of `n` queries from token `first` on to the gradients of the keys and
    /// values that they see.
    #[inline(always)]
    fn add_key_and_value_grads<S: Simd>(&mut self, simd: S, first: usize, n: usize) {
        let (width, score_width) = (self.shape.row_width(), self.shape.score_width());
        for at in (0..first + n).step_by(TILE_ROWS) {
            // Queries before these keys do not see them.
            let before = at.saturating_sub(first);
            // Whole tiles of queries; those after the last token have shares of zero.
            let n_queries = n.next_multiple_of(TILE_ROWS) - before;
            for (scores, rows, to) in [
                (&*self.shares, &*self.grad, &mut *self.value_grad),
                (&*self.slopes, &*self.query, &mut *self.key_grad),
            ] {
                let scores = &scores[before * score_width + at..];
                let left = Matrix { numbers: scores, stride: score_width }.transposed();
                let right = Matrix { numbers: &rows[before * width..], stride: width };
                let to = (&mut to[at * width..], width);
                product(simd, left, right, to, (n_queries, width), true);
            }
        }
    }
}
