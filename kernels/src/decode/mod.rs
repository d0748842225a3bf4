//! One decoding step of a Llama-style Transformer: an id of each sample → logits of the next.
//!
//! ```text
//! embedding ─► ( norm ─► query, key, value ─► rotate, cache, attend ─► output ─► +
//!                norm ─► gate, up ─► silu, times ─► down ─► + ) per layer ─► norm ─► head
//! ```
//!
//! The model, its weights and the cache of keys and values are Python's (`bytemill.lm`) and are borrowed
//! for each step; torch reads the prompt. For one token torch spends more time between its kernels than
//! in them. Here a step is one call that mostly waits for weights from memory.
//!
//! A step is a sequence of phases, each divided among the threads: matrices by rows, so that one thread
//! computes each sum in one order, and attention by heads of keys and values. The norms are too short
//! to be worth dividing. Time is O(weights + positions · d_kv · layers) per sample; memory beside the
//! cache is a few vectors per sample and one score per head and position.
//!
//! Results are the same bits for any number of threads, and for each sample whatever the others are.

mod attend;
mod matvec;
mod model;

use crate::columns::Columns;
use crate::error::{Error, Result, require};
use crate::math::{angles_at, swiglu};
use crate::norm;
use crate::simd::{Kernel, Level, Simd};
use crate::threads::{Threads, each_task};
use attend::Attend;
use matvec::{MatVec, Mode, matrix_rows_per_task};
pub use model::{Layer, ModelShape, Weights};

#[derive(Debug)]
pub struct Decoder {
    shape: ModelShape,
    level: Level,
    scratch: Scratch,
}

/// Intermediate vectors, each for all samples.
#[derive(Debug)]
struct Scratch {
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

impl Decoder {
    pub fn new(shape: ModelShape, level: Level) -> Result<Self> {
        shape.check()?;
        let zeros = |width: usize| vec![0.0; shape.n_samples * width];
        let scratch = Scratch {
            residual: zeros(shape.d_model),
            normed: zeros(shape.d_model),
            scales: zeros(1),
            queries: zeros(shape.d_model),
            keys: zeros(shape.d_kv()),
            values: zeros(shape.d_kv()),
            rotated: zeros(shape.d_model),
            scores: zeros(shape.n_heads * shape.capacity),
            mixed: zeros(shape.d_model),
            gate: zeros(shape.d_ff),
            up: zeros(shape.d_ff),
        };
        Ok(Decoder { shape, level, scratch })
    }

    /// Reads an id of each sample at `position`, after the tokens that the cache holds, and adds its
    /// keys and values to the cache. Returns the logits of the next ids, (samples, vocab_size).
    pub fn step(
        &mut self,
        weights: &Weights<'_>,
        cache: &mut [f32],
        position: usize,
        ids: &[usize],
        threads: &dyn Threads,
    ) -> Result<Vec<f32>> {
        let shape = self.shape;
        weights.check(&shape)?;
        require(
            ids.len() == shape.n_samples && cache.len() == shape.cache_size(),
            "ids and cache must have the sizes of the model's shape",
        )?;
        if position >= shape.capacity {
            let places = shape.capacity;
            return Err(Error::input(format!("the cache is full: it has {places} places")));
        }
        let width = shape.d_model;
        for (&id, row) in ids.iter().zip(self.scratch.residual.chunks_exact_mut(width)) {
            if id >= shape.vocab_size {
                return Err(Error::input(format!(
                    "id {id} is not below vocab_size={}",
                    shape.vocab_size
                )));
            }
            row.copy_from_slice(&weights.embedding[id * width..][..width]);
        }
        let mut step = Step { shape, level: self.level, scratch: &mut self.scratch, threads };
        let caches = cache.chunks_exact_mut(shape.layer_cache_size());
        for (layer, cache) in weights.layers.iter().zip(caches) {
            step.attention(layer, weights, cache, position)?;
            step.feed_forward(layer)?;
        }
        step.head(weights)
    }
}

/// A step in progress.
struct Step<'a> {
    shape: ModelShape,
    level: Level,
    scratch: &'a mut Scratch,
    threads: &'a dyn Threads,
}

impl Step<'_> {
    /// `cache` is (2, samples, heads, capacity, d_head): keys, then values.
    fn attention(
        &mut self,
        layer: &Layer,
        weights: &Weights,
        cache: &mut [f32],
        position: usize,
    ) -> Result<()> {
        let (shape, level) = (self.shape, self.level);
        self.norm(layer.attention_norm);
        let Scratch { normed, queries, keys, values, rotated, scores, mixed, .. } =
            &mut *self.scratch;
        let n = shape.n_samples;
        let products = MatVec::tasks((layer.query, normed), queries, n, Mode::Replace)
            .chain(MatVec::tasks((layer.key, normed), keys, n, Mode::Replace))
            .chain(MatVec::tasks((layer.value, normed), values, n, Mode::Replace));
        each_task(self.threads, products, 1, |task| level.run(task))?;

        // One task per sample and head of keys and values, which are in this order in all arrays.
        let d_head = shape.d_head();
        let (cached_keys, cached_values) = cache.split_at_mut(cache.len() / 2);
        let mut cached_keys = cached_keys.chunks_exact_mut(shape.capacity * d_head);
        let mut cached_values = cached_values.chunks_exact_mut(shape.capacity * d_head);
        let group = shape.group_size() * d_head;
        let mut queries = queries.chunks_exact(group);
        let mut new = keys.chunks_exact(d_head).zip(values.chunks_exact(d_head));
        let mut scores = scores.chunks_exact_mut(shape.group_size() * shape.capacity);
        let mut groups = rotated.chunks_exact_mut(group).zip(mixed.chunks_exact_mut(group));
        let angles = angles_at(weights.rotation, position, d_head);
        let heads = std::iter::from_fn(|| {
            let ((key, value), (rotated, mixed)) = (new.next()?, groups.next()?);
            Some(Attend {
                position,
                angles,
                queries: queries.next()?,
                key,
                value,
                cached_keys: cached_keys.next()?,
                cached_values: cached_values.next()?,
                rotated,
                scores: scores.next()?,
                mixed,
            })
        });
        each_task(self.threads, heads, 1, |task| level.run(task))?;

        let Scratch { mixed, residual, .. } = &mut *self.scratch;
        let products = MatVec::tasks((layer.output, mixed), residual, n, Mode::Add);
        each_task(self.threads, products, 1, |task| level.run(task))
    }

    fn feed_forward(&mut self, layer: &Layer) -> Result<()> {
        let (n, level) = (self.shape.n_samples, self.level);
        self.norm(layer.feed_forward_norm);
        let Scratch { normed, gate, up, residual, .. } = &mut *self.scratch;
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
        let (n, level) = (self.shape.n_samples, self.level);
        self.norm(weights.final_norm);
        let mut logits = vec![0.0; n * self.shape.vocab_size];
        let vectors = &self.scratch.normed;
        let products = MatVec::tasks((weights.head, vectors), &mut logits, n, Mode::Replace);
        each_task(self.threads, products, 1, |task| level.run(task))?;
        Ok(logits)
    }

    fn norm(&mut self, weight: &[f32]) {
        let Scratch { residual, normed, scales, .. } = &mut *self.scratch;
        let eps = Some(self.shape.eps);
        self.level.run(norm::Forward { x: residual, weight, eps, out: normed, scales });
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

#[cfg(test)]
mod tests;
