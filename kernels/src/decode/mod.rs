//! One decoding step of a Llama-style Transformer: an id of each sample → logits of the next.
//!
//! ```text
//! embedding ─► ( norm ─► query, key, value ─► rotate, cache, attend ─► output ─► +
//!                norm ─► gate, up ─► silu, times ─► down ─► + ) per layer ─► norm ─► head
//! ```
//!
//! The model, its weights and the cache of keys and values are Python's (`bytemill.lm`) and are borrowed
//! for each step; torch reads the prompt. A step may have some of the samples in the cache, each at its
//! own position. For one token torch spends more time between its kernels than in them.
//! Here a step is one call that mostly waits for weights from memory.
//!
//! A step is a sequence of phases, each divided among the threads: matrices by rows, so that one thread
//! computes each sum in one order, and attention by heads of keys and values. The norms are too short
//! to be worth dividing. Time is O(weights + positions · d_kv · layers) per sample; memory besides the
//! cache is a few vectors per sample and one score per head and position.
//!
//! Results are the same bits for any number of threads, and for each sample whatever the others are.

mod matvec;
mod model;

use crate::math::{
    Angles, Direction, angles_at, exp_and_sum, largest, rotate, swiglu, weighted_sum,
};
use crate::rowwise::NormForward;
use crate::simd::{Kernel, Simd, SimdLevel};
use crate::threads::{Columns, Threads, each_task};
use crate::{Error, Result, require};
use matvec::{MatVec, Mode, matrix_rows_per_task, products};
pub use model::{Layer, ModelShape, Weights};

#[derive(Debug)]
pub struct Decoder {
    shape: ModelShape,
    level: SimdLevel,
    vectors: StepVectors,
}

/// The place of a new token in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the sample in the cache.
    pub row: usize,
    /// How many tokens of this sample the cache holds before.
    pub position: usize,
}

/// Intermediate vectors, each for all samples of a step.
#[derive(Debug, Default)]
struct StepVectors {
    residual: Vec<f32>,
    normed: Vec<f32>,
    /// One scale of a norm per sample.
    scales: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    rotated: Vec<f32>,
    /// (samples, heads, capacity)
    scores: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl StepVectors {
    /// Makes room for this number of samples.
    fn resize(&mut self, shape: &ModelShape, n_samples: usize) {
        let sizes = [
            (&mut self.residual, shape.d_model),
            (&mut self.normed, shape.d_model),
            (&mut self.scales, 1),
            (&mut self.queries, shape.d_model),
            (&mut self.keys, shape.d_kv()),
            (&mut self.values, shape.d_kv()),
            (&mut self.rotated, shape.d_model),
            (&mut self.scores, shape.n_heads * shape.capacity),
            (&mut self.mixed, shape.d_model),
            (&mut self.gate, shape.d_ff),
            (&mut self.up, shape.d_ff),
        ];
        for (vectors, width) in sizes {
            vectors.resize(n_samples * width, 0.0);
        }
    }
}

impl Decoder {
    pub fn new(shape: ModelShape, level: SimdLevel) -> Result<Self> {
        shape.check()?;
        Ok(Decoder { shape, level, vectors: StepVectors::default() })
    }

    /// Reads an id of each sample, after the tokens that the cache holds, and adds its keys and values
    /// to the cache. Returns the logits of the next ids, (ids, vocab_size).
    ///
    /// `places` has the place of each id, in increasing order of rows.
    pub fn step(
        &mut self,
        weights: &Weights<'_>,
        cache: &mut [f32],
        ids: &[usize],
        places: &[Place],
        threads: &dyn Threads,
    ) -> Result<Vec<f32>> {
        let shape = self.shape;
        weights.check(&shape)?;
        require(cache.len() == shape.cache_size(), "the cache must have the size of the shape")?;
        check_places(&shape, ids, places)?;
        self.vectors.resize(&shape, ids.len());
        let width = shape.d_model;
        for (&id, row) in ids.iter().zip(self.vectors.residual.chunks_exact_mut(width)) {
            row.copy_from_slice(&weights.embedding[id * width..][..width]);
        }
        let mut step =
            Step { shape, level: self.level, places, vectors: &mut self.vectors, threads };
        let caches = cache.chunks_exact_mut(shape.layer_cache_size());
        for (layer, cache) in weights.layers.iter().zip(caches) {
            step.attention(layer, weights, cache)?;
            step.feed_forward(layer)?;
        }
        step.head(weights)
    }
}

fn check_places(shape: &ModelShape, ids: &[usize], places: &[Place]) -> Result<()> {
    let &ModelShape { vocab_size, n_samples, capacity, .. } = shape;
    require(
        !ids.is_empty()
            && ids.len() == places.len()
            && places.is_sorted_by(|a, b| a.row < b.row)
            && places.iter().all(|place| place.row < n_samples),
        "every id needs a row of the cache, in increasing order",
    )?;
    if places.iter().any(|place| place.position >= capacity) {
        return Err(Error::input(format!(
            "the cache is full: its capacity is {capacity} positions"
        )));
    }
    match ids.iter().find(|&&id| id >= vocab_size) {
        Some(id) => Err(Error::input(format!("id {id} is not below vocab_size={vocab_size}"))),
        None => Ok(()),
    }
}

/// A step in progress.
struct Step<'a> {
    shape: ModelShape,
    level: SimdLevel,
    /// One per sample of the step.
    places: &'a [Place],
    vectors: &'a mut StepVectors,
    threads: &'a dyn Threads,
}

impl Step<'_> {
    /// `cache` is (2, samples, heads, capacity, d_head): keys, then values.
    fn attention(&mut self, layer: &Layer, weights: &Weights, cache: &mut [f32]) -> Result<()> {
        let (shape, level, places) = (self.shape, self.level, self.places);
        self.norm(layer.attention_norm);
        let StepVectors { normed, queries, keys, values, rotated, scores, mixed, .. } =
            &mut *self.vectors;
        let n = places.len();
        let products = MatVec::tasks((layer.query, normed), queries, n, Mode::Replace)
            .chain(MatVec::tasks((layer.key, normed), keys, n, Mode::Replace))
            .chain(MatVec::tasks((layer.value, normed), values, n, Mode::Replace));
        each_task(self.threads, products, 1, |task| level.run(task))?;

        // One task per sample and head of keys and values, which are in this order in all arrays.
        let d_head = shape.d_head();
        let (cached_keys, cached_values) = cache.split_at_mut(cache.len() / 2);
        let row_size = shape.capacity * shape.d_kv();
        let mut rows = cached_keys
            .chunks_exact_mut(row_size)
            .zip(cached_values.chunks_exact_mut(row_size))
            .enumerate();
        let mut cached = places.iter().flat_map(|place| {
            let row = rows.find(|(row, _)| *row == place.row);
            let angles = angles_at(weights.rotation, place.position, d_head);
            row.into_iter().flat_map(move |(_, (keys, values))| {
                let heads = keys.chunks_exact_mut(shape.capacity * d_head);
                let heads = heads.zip(values.chunks_exact_mut(shape.capacity * d_head));
                heads.map(move |(keys, values)| (place.position, angles, keys, values))
            })
        });
        let group = shape.group_size() * d_head;
        let mut queries = queries.chunks_exact(group);
        let mut new = keys.chunks_exact(d_head).zip(values.chunks_exact(d_head));
        let mut scores = scores.chunks_exact_mut(shape.group_size() * shape.capacity);
        let mut groups = rotated.chunks_exact_mut(group).zip(mixed.chunks_exact_mut(group));
        let heads = std::iter::from_fn(|| {
            let ((key, value), (rotated, mixed)) = (new.next()?, groups.next()?);
            let (position, angles, cached_keys, cached_values) = cached.next()?;
            Some(Attend {
                position,
                angles,
                queries: queries.next()?,
                key,
                value,
                cached_keys,
                cached_values,
                rotated,
                scores: scores.next()?,
                mixed,
            })
        });
        each_task(self.threads, heads, 1, |task| level.run(task))?;

        let StepVectors { mixed, residual, .. } = &mut *self.vectors;
        let products = MatVec::tasks((layer.output, mixed), residual, n, Mode::Add);
        each_task(self.threads, products, 1, |task| level.run(task))
    }

    fn feed_forward(&mut self, layer: &Layer) -> Result<()> {
        let (n, level) = (self.places.len(), self.level);
        self.norm(layer.feed_forward_norm);
        let StepVectors { normed, gate, up, residual, .. } = &mut *self.vectors;
        // A task has the same rows of both matrices.
        let (width, d_ff) = (self.shape.d_model, self.shape.d_ff);
        let n_rows = matrix_rows_per_task(2 * width);
        let matrices = layer.gate.chunks(n_rows * width).zip(layer.up.chunks(n_rows * width));
        let columns = Columns::split(gate, d_ff, n_rows).zip(Columns::split(up, d_ff, n_rows));
        let tasks = matrices.zip(columns).map(|(matrices, columns)| Swiglu {
            gate: MatVec {
                matrix: matrices.0,
                vectors: normed,
                out: columns.0,
                mode: Mode::Replace,
            },
            up: MatVec { matrix: matrices.1, vectors: normed, out: columns.1, mode: Mode::Replace },
        });
        each_task(self.threads, tasks, 1, |task| level.run(task))?;
        let products = MatVec::tasks((layer.down, gate), residual, n, Mode::Add);
        each_task(self.threads, products, 1, |task| level.run(task))
    }

    fn head(&mut self, weights: &Weights) -> Result<Vec<f32>> {
        let (n, level) = (self.places.len(), self.level);
        self.norm(weights.final_norm);
        let mut logits = vec![0.0; n * self.shape.vocab_size];
        let products =
            MatVec::tasks((weights.head, &self.vectors.normed), &mut logits, n, Mode::Replace);
        each_task(self.threads, products, 1, |task| level.run(task))?;
        Ok(logits)
    }

    fn norm(&mut self, weight: &[f32]) {
        let StepVectors { residual, normed, scales, .. } = &mut *self.vectors;
        let eps = Some(self.shape.eps);
        self.level.run(NormForward { x: residual, weight, eps, out: normed, scales });
    }
}

/// Some numbers of silu(gate) · up, which replace those of gate.
struct Swiglu<'a> {
    gate: MatVec<'a>,
    up: MatVec<'a>,
}

impl Kernel for Swiglu<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        self.gate.multiply(simd);
        self.up.multiply(simd);
        for sample in 0..self.gate.out.n_rows() {
            let numbers = self.gate.out.row(sample).iter_mut().zip(self.up.out.row(sample));
            for (gate, up) in numbers {
                *gate = swiglu(*gate, *up);
            }
        }
    }
}

/// Attention of one new token: one head of keys and values of one sample, with the heads of queries
/// that share it.
struct Attend<'a> {
    /// How many tokens the cache holds before this one.
    position: usize,
    /// The angles of this position.
    angles: Option<Angles<'a>>,
    /// Of the new token, before rotation: (heads that share, d_head), (d_head) and (d_head).
    queries: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    /// (capacity, d_head) each; the new token's are written at `position`.
    cached_keys: &'a mut [f32],
    cached_values: &'a mut [f32],
    /// Intermediate results: (heads that share, d_head) and (heads that share, capacity).
    rotated: &'a mut [f32],
    scores: &'a mut [f32],
    /// The results, (heads that share, d_head).
    mixed: &'a mut [f32],
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

#[cfg(test)]
mod tests;
