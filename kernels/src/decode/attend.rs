//! Attention of one new token: one head of keys and values of one sample, with the heads of queries
//! that share it.

use super::matvec::products;
use crate::math::{Angles, Direction, exp_and_sum, largest, rotate, weighted_sum};
use crate::simd::{Kernel, Simd};

pub(super) struct Attend<'a> {
    /// How many tokens the cache holds before this one.
    pub position: usize,
    /// The angles of this position.
    pub angles: Option<Angles<'a>>,
    /// Of the new token, before rotation: (heads that share, d_head), (d_head) and (d_head).
    pub queries: &'a [f32],
    pub key: &'a [f32],
    pub value: &'a [f32],
    /// (capacity, d_head) each; the new token's are written at `position`.
    pub cached_keys: &'a mut [f32],
    pub cached_values: &'a mut [f32],
    /// Scratch: (heads that share, d_head) and (heads that share, capacity).
    pub rotated: &'a mut [f32],
    pub scores: &'a mut [f32],
    /// The results, (heads that share, d_head).
    pub mixed: &'a mut [f32],
}

impl Kernel for Attend<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (d_head, n_seen) = (self.key.len(), self.position + 1);
        let capacity = self.cached_keys.len() / d_head;
        let new = self.position * d_head..n_seen * d_head;
        rotate(self.key, self.angles, Direction::Forward, 1.0, &mut self.cached_keys[new.clone()]);
        self.cached_values[new].copy_from_slice(self.value);
        let scale = 1.0 / (d_head as f32).sqrt();
        let heads = self.queries.chunks_exact(d_head).zip(self.rotated.chunks_exact_mut(d_head));
        for (query, rotated) in heads {
            rotate(query, self.angles, Direction::Forward, scale, rotated);
        }
        let keys = &self.cached_keys[..n_seen * d_head];
        products(simd, keys, self.rotated, d_head, |position, head, score| {
            self.scores[head * capacity + position] = score;
        });
        let heads = self.scores.chunks_exact_mut(capacity);
        for (scores, mixed) in heads.zip(self.mixed.chunks_exact_mut(d_head)) {
            let scores = &mut scores[..n_seen];
            let sum = exp_and_sum(scores, largest(scores));
            weighted_sum(scores, &self.cached_values[..n_seen * d_head], 1.0 / sum, mixed);
        }
    }
}
