//! One step of a Llama-style Transformer on a CPU: ids → logits of the next.
//!
//! ```text
//! embedding ─► ( norm ─► query, key, value ─► rotate, cache, attend ─► output ─► +
//!                norm ─► gate, up ─► silu, times ─► down ─► + ) per layer ─► norm ─► head
//! ```
//!
//! The model itself is Python's (`bytemill.lm`); so are its weights and the cache of keys and
//! values, which are only borrowed here, and reading a prompt, which torch does well. Reading one
//! id more is too little work for torch's kernels: more time passes between them than in them. Here
//! it is one call, and what it waits for is mostly weights that come from memory.
//!
//! - `vector`: what is between the products of `crate::lanes`
//! - `phases`: what the threads do
//!
//! Results are the same bits for any number of threads, and for a sample whatever is beside it.

mod phases;
#[cfg(test)]
mod tests;
mod vector;

use crate::error::{Error, Result};
use crate::lanes::Level;
use crate::threads::{Shared, Threads};
use phases::{Chunks, Phases};

/// Weights per thread below which another thread is not worth its while.
const WEIGHTS_PER_THREAD: usize = 1 << 16;

/// The shape of a model and its cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// How many ids there are.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// How many layers.
    pub n_layers: usize,
    /// Heads of queries.
    pub n_heads: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Inner width of the feed-forward layers.
    pub d_ff: usize,
    /// What RMSNorm adds to the mean square.
    pub eps: f32,
    /// How many samples are made side by side.
    pub n_samples: usize,
    /// How many places a sample has in the cache.
    pub capacity: usize,
}

impl Shape {
    /// How many threads are worth their while for a step, at most.
    pub fn useful_threads(&self) -> usize {
        let n_weights = self.vocab_size * self.d_model + self.n_layers * self.weights_per_layer();
        (n_weights * self.n_samples / WEIGHTS_PER_THREAD).max(1)
    }

    /// Width of a head.
    pub fn d_head(&self) -> usize {
        self.d_model / self.n_heads
    }

    /// Width of all keys of a place.
    pub fn d_kv(&self) -> usize {
        self.n_kv_heads * self.d_head()
    }

    /// Numbers in a cache, (layers, 2, samples, heads, capacity, d_head): keys, then values.
    pub fn cache_size(&self) -> usize {
        self.n_layers * 2 * self.n_samples * self.capacity * self.d_kv()
    }

    fn weights_per_layer(&self) -> usize {
        self.d_model * (2 * self.d_model + 2 * self.d_kv() + 3 * self.d_ff)
    }

    fn check(&self) -> Result<()> {
        let sizes = [
            self.vocab_size,
            self.d_model,
            self.n_heads,
            self.n_kv_heads,
            self.d_ff,
            self.n_samples,
            self.capacity,
        ];
        let fits = !sizes.contains(&0)
            && self.d_model.is_multiple_of(self.n_heads)
            && self.n_heads.is_multiple_of(self.n_kv_heads);
        if fits { Ok(()) } else { Err(Error::input(format!("no model has the shape {self:?}"))) }
    }
}

/// The weights of a layer; matrices as (out, in), row after row.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// (d_model)
    pub attention_norm: &'a [f32],
    /// (d_model, d_model)
    pub query: &'a [f32],
    /// (d_kv, d_model)
    pub key: &'a [f32],
    /// (d_kv, d_model)
    pub value: &'a [f32],
    /// (d_model, d_model)
    pub output: &'a [f32],
    /// (d_model)
    pub feed_forward_norm: &'a [f32],
    /// (d_ff, d_model)
    pub gate: &'a [f32],
    /// (d_ff, d_model)
    pub up: &'a [f32],
    /// (d_model, d_ff)
    pub down: &'a [f32],
}

/// The weights of a model.
#[derive(Debug, Clone)]
pub struct Weights<'a> {
    /// (vocab_size, d_model)
    pub embedding: &'a [f32],
    /// From the first on.
    pub layers: Vec<Layer<'a>>,
    /// (d_model)
    pub final_norm: &'a [f32],
    /// (vocab_size, d_model)
    pub head: &'a [f32],
    /// Cosines and sines, (places, d_head / 2); None if nothing is rotated.
    pub rotation: Option<(&'a [f32], &'a [f32])>,
}

impl Weights<'_> {
    fn check(&self, shape: &Shape) -> Result<()> {
        let &Shape { vocab_size, d_model, d_ff, .. } = shape;
        let d_kv = shape.d_kv();
        let layer_fits = |layer: &Layer<'_>| {
            layer.attention_norm.len() == d_model
                && layer.query.len() == d_model * d_model
                && layer.key.len() == d_kv * d_model
                && layer.value.len() == d_kv * d_model
                && layer.output.len() == d_model * d_model
                && layer.feed_forward_norm.len() == d_model
                && layer.gate.len() == d_ff * d_model
                && layer.up.len() == d_ff * d_model
                && layer.down.len() == d_model * d_ff
        };
        let n_angles = shape.capacity * (shape.d_head() / 2);
        let fits = self.embedding.len() == vocab_size * d_model
            && self.head.len() == vocab_size * d_model
            && self.final_norm.len() == d_model
            && self.layers.len() == shape.n_layers
            && self.layers.iter().all(layer_fits)
            && self.rotation.is_none_or(|(cos, sin)| {
                shape.d_head().is_multiple_of(2) && cos.len() >= n_angles && sin.len() >= n_angles
            });
        if fits { Ok(()) } else { Err(Error::input("the weights are not of the model's shape")) }
    }
}

/// Reads one id after the other.
#[derive(Debug)]
pub struct Decoder {
    shape: Shape,
    level: Level,
    chunks: Chunks,
    scratch: Scratch,
}

/// Vectors on the way, each for all samples.
#[derive(Debug)]
struct Scratch {
    /// The residual stream.
    stream: Vec<f32>,
    normed: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    /// (samples, heads, capacity)
    scores: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
}

impl Decoder {
    /// For models of this shape.
    pub fn new(shape: Shape) -> Result<Self> {
        Self::at_level(shape, Level::best())
    }

    fn at_level(shape: Shape, level: Level) -> Result<Self> {
        shape.check()?;
        let zeros = |width: usize| vec![0.0; shape.n_samples * width];
        let scratch = Scratch {
            stream: zeros(shape.d_model),
            normed: zeros(shape.d_model),
            queries: zeros(shape.d_model),
            keys: zeros(shape.d_kv()),
            values: zeros(shape.d_kv()),
            scores: zeros(shape.n_heads * shape.capacity),
            mixed: zeros(shape.d_model),
            gate: zeros(shape.d_ff),
            up: zeros(shape.d_ff),
        };
        Ok(Decoder { shape, level, chunks: Chunks::new(&shape), scratch })
    }

    /// Reads an id of each sample at this place, behind what the cache holds; gives the logits
    /// behind them, (samples, vocab_size).
    pub fn step(
        &mut self,
        weights: &Weights<'_>,
        cache: &mut [f32],
        place: usize,
        ids: &[usize],
        threads: &dyn Threads,
    ) -> Result<Vec<f32>> {
        let shape = &self.shape;
        weights.check(shape)?;
        if ids.len() != shape.n_samples || cache.len() != shape.cache_size() {
            return Err(Error::input("ids or cache are not of the decoder's shape"));
        }
        if place >= shape.capacity {
            return Err(Error::input(format!("the cache is full: it has {place} places")));
        }
        let width = shape.d_model;
        for (&id, row) in ids.iter().zip(self.scratch.stream.chunks_exact_mut(width)) {
            if id >= shape.vocab_size {
                return Err(Error::input(format!(
                    "id {id} is not below vocab_size={}",
                    shape.vocab_size
                )));
            }
            row.copy_from_slice(&weights.embedding[id * width..][..width]);
        }
        let mut logits = vec![0.0; shape.n_samples * shape.vocab_size];
        let scratch = &mut self.scratch;
        let phases = Phases {
            shape,
            weights,
            level: self.level,
            chunks: &self.chunks,
            place,
            cache: Shared::new(cache),
            stream: Shared::new(&mut scratch.stream),
            normed: Shared::new(&mut scratch.normed),
            queries: Shared::new(&mut scratch.queries),
            keys: Shared::new(&mut scratch.keys),
            values: Shared::new(&mut scratch.values),
            scores: Shared::new(&mut scratch.scores),
            mixed: Shared::new(&mut scratch.mixed),
            gate: Shared::new(&mut scratch.gate),
            up: Shared::new(&mut scratch.up),
            logits: Shared::new(&mut logits),
        };
        phases.run(threads)?;
        Ok(logits)
    }
}
