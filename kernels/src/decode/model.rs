//! The shape and the weights of a model that is decoded.

use crate::math::Angles;
use crate::{Error, Result, require};

/// Weights per thread below which another thread costs more than it gains.
const MIN_WEIGHTS_PER_THREAD: usize = 1 << 16;

/// The shape of a model and of its cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelShape {
    pub vocab_size: usize,
    pub d_model: usize,
    pub n_layers: usize,
    /// Heads of queries.
    pub n_heads: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    pub d_ff: usize,
    /// What RMSNorm adds to the mean square.
    pub eps: f32,
    /// Rows of the cache: samples that can be decoded side by side.
    pub n_samples: usize,
    /// Positions that the cache can hold.
    pub capacity: usize,
}

impl ModelShape {
    /// The largest number of threads that makes a step faster.
    pub fn useful_threads(&self) -> usize {
        let n_weights = self.vocab_size * self.d_model + self.n_layers * self.weights_per_layer();
        (n_weights * self.n_samples / MIN_WEIGHTS_PER_THREAD).max(1)
    }

    pub fn d_head(&self) -> usize {
        self.d_model / self.n_heads
    }

    /// Width of all keys of a position.
    pub fn d_kv(&self) -> usize {
        self.n_kv_heads * self.d_head()
    }

    /// Heads of queries that share a head of keys and values.
    pub(super) fn group_size(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// Numbers in a cache, (layers, 2, samples, heads, capacity, d_head): keys, then values.
    pub fn cache_size(&self) -> usize {
        self.n_layers * self.layer_cache_size()
    }

    pub(super) fn layer_cache_size(&self) -> usize {
        2 * self.n_samples * self.capacity * self.d_kv()
    }

    fn weights_per_layer(&self) -> usize {
        self.d_model * (2 * self.d_model + 2 * self.d_kv() + 3 * self.d_ff)
    }

    pub(super) fn check(&self) -> Result<()> {
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
        if fits {
            return Ok(());
        }
        Err(Error::input(format!(
            "sizes must be ≥ 1, n_heads a divisor of d_model and n_kv_heads one of n_heads, got {self:?}"
        )))
    }
}

/// The weights of a layer; matrices are (out, in), row after row.
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

#[derive(Debug, Clone)]
pub struct Weights<'a> {
    /// (vocab_size, d_model)
    pub embedding: &'a [f32],
    /// In order.
    pub layers: Vec<Layer<'a>>,
    /// (d_model)
    pub final_norm: &'a [f32],
    /// (vocab_size, d_model)
    pub head: &'a [f32],
    /// The angles of as many positions as the cache can hold, or more; None if nothing is rotated.
    pub rotation: Option<Angles<'a>>,
}

impl Weights<'_> {
    pub(super) fn check(&self, shape: &ModelShape) -> Result<()> {
        let &ModelShape { vocab_size, d_model, d_ff, .. } = shape;
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
        require(fits, "the weights must have the sizes of the model's shape")
    }
}
