//! A step as phases: what must be over before the next begins, and how each is cut.
//!
//! Matrices are cut by rows, so that every product is summed by one thread in one order; attention
//! by heads of keys and values. The norms are too short to be cut: one thread makes them before the
//! phase that needs them.

use std::ops::Range;

use super::vector::{mix, rms_norm, rotate, softmax, swiglu};
use super::{Shape, Weights};
use crate::error::Result;
use crate::lanes::{Kernel, Lanes, Level, ROWS, products};
use crate::threads::{Shared, Threads, each};

/// Bytes of weights in a chunk: a few microseconds, so that threads end a phase together; many
/// more than what it costs to take one.
const CHUNK_BYTES: usize = 48 << 10;

/// Phases of a layer.
const PER_LAYER: usize = 5;

/// Which part of the model a chunk is of.
#[derive(Debug, Clone, Copy)]
enum Part {
    Query,
    Key,
    Value,
    /// Not rows, but numbers of samples and heads.
    Attend,
    Output,
    /// With the same rows of `up`.
    Gate,
    Down,
    Head,
}

/// Some rows of a part.
#[derive(Debug, Clone)]
struct Chunk {
    part: Part,
    rows: Range<usize>,
}

/// The chunks of each phase of a layer, and of the head.
#[derive(Debug)]
pub struct Chunks([Vec<Chunk>; PER_LAYER + 1]);

impl Chunks {
    /// The chunks of models of this shape.
    pub fn new(shape: &Shape) -> Self {
        let &Shape { d_model, d_ff, vocab_size, .. } = shape;
        let heads = 0..shape.n_samples * shape.n_kv_heads;
        Chunks([
            [
                cut(Part::Query, d_model, d_model),
                cut(Part::Key, shape.d_kv(), d_model),
                cut(Part::Value, shape.d_kv(), d_model),
            ]
            .concat(),
            heads.map(|n| Chunk { part: Part::Attend, rows: n..n + 1 }).collect(),
            cut(Part::Output, d_model, d_model),
            cut(Part::Gate, d_ff, 2 * d_model),
            cut(Part::Down, d_model, d_ff),
            cut(Part::Head, vocab_size, d_model),
        ])
    }
}

fn cut(part: Part, n_rows: usize, width: usize) -> Vec<Chunk> {
    let fitting = CHUNK_BYTES / (width * size_of::<f32>());
    // Whole blocks of rows; on what rows are taken together, results do not depend.
    let size = fitting.next_multiple_of(ROWS).max(ROWS);
    (0..n_rows)
        .step_by(size)
        .map(|start| Chunk { part, rows: start..n_rows.min(start + size) })
        .collect()
}

/// A step on its way.
pub struct Phases<'a> {
    pub shape: &'a Shape,
    pub weights: &'a Weights<'a>,
    pub level: Level,
    pub chunks: &'a Chunks,
    pub place: usize,
    pub cache: Shared<'a>,
    pub stream: Shared<'a>,
    pub normed: Shared<'a>,
    pub queries: Shared<'a>,
    pub keys: Shared<'a>,
    pub values: Shared<'a>,
    pub scores: Shared<'a>,
    pub mixed: Shared<'a>,
    pub gate: Shared<'a>,
    pub up: Shared<'a>,
    pub logits: Shared<'a>,
}

impl Phases<'_> {
    /// Does all phases, one after the other.
    pub fn run(&self, threads: &dyn Threads) -> Result<()> {
        (0..self.shape.n_layers * PER_LAYER + 1).try_for_each(|phase| {
            self.prepare(phase);
            each(threads, self.n_chunks(phase), |chunk| self.chunk(phase, chunk))
        })
    }

    /// The layer of a phase and which of its phases it is; behind the last layer, the head's.
    fn locate(&self, phase: usize) -> (usize, usize) {
        let layer = phase / PER_LAYER;
        (layer, if layer < self.shape.n_layers { phase % PER_LAYER } else { PER_LAYER })
    }
}

impl Phases<'_> {
    /// What one thread does before the chunks of a phase.
    fn prepare(&self, phase: usize) {
        let (layer, number) = self.locate(phase);
        let weight = match (self.weights.layers.get(layer), number) {
            (Some(layer), 0) => layer.attention_norm,
            (Some(layer), 3) => layer.feed_forward_norm,
            (None, _) => self.weights.final_norm,
            _ => return,
        };
        // SAFETY: the level is one that is available.
        unsafe { self.level.run(Norm { step: self, weight }) };
    }

    fn n_chunks(&self, phase: usize) -> usize {
        self.chunks.0[self.locate(phase).1].len()
    }

    /// Does a chunk of a phase, at the same time as others.
    fn chunk(&self, phase: usize, chunk: usize) {
        let (layer, number) = self.locate(phase);
        let chunk = &self.chunks.0[number][chunk];
        // SAFETY: the level is one that is available.
        unsafe { self.level.run(Rows { step: self, layer, chunk }) };
    }
}

/// The norm of the stream.
struct Norm<'a> {
    step: &'a Phases<'a>,
    weight: &'a [f32],
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let shape = self.step.shape;
        let width = shape.d_model;
        for sample in 0..shape.n_samples {
            // SAFETY: between phases, one thread has all; the level is available.
            unsafe {
                let stream = self.step.stream.read(sample * width, width);
                let normed = self.step.normed.part(sample * width, width);
                rms_norm::<L>(stream, self.weight, shape.eps, normed);
            }
        }
    }
}

/// A chunk.
struct Rows<'a> {
    step: &'a Phases<'a>,
    /// Its number, and behind the last one the head.
    layer: usize,
    chunk: &'a Chunk,
}

impl Kernel for Rows<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Rows { step, layer: number, chunk } = self;
        let rows = chunk.rows.clone();
        let head = (step.weights.head, &step.normed, &step.logits);
        let (matrix, from, to) = match (step.weights.layers.get(number), chunk.part) {
            (None, _) => head,
            (Some(layer), part) => match part {
                Part::Query => (layer.query, &step.normed, &step.queries),
                Part::Key => (layer.key, &step.normed, &step.keys),
                Part::Value => (layer.value, &step.normed, &step.values),
                // SAFETY: queries, keys and values were made in the phase before, and the level is
                // available.
                Part::Attend => return unsafe { step.attend::<L>(number, rows.start) },
                Part::Output => (layer.output, &step.mixed, &step.stream),
                Part::Gate => (layer.gate, &step.normed, &step.gate),
                Part::Down => (layer.down, &step.gate, &step.stream),
                Part::Head => head,
            },
        };
        let add = matches!(chunk.part, Part::Output | Part::Down);
        // SAFETY: `from` was made in the phase before, the rows of `to` are of this chunk alone,
        // and the level is available.
        unsafe { step.multiply::<L>(matrix, from, to, rows.clone(), add) };
        if let (Some(layer), Part::Gate) = (step.weights.layers.get(number), chunk.part) {
            // SAFETY: as above.
            unsafe { step.multiply::<L>(layer.up, from, &step.up, rows.clone(), false) };
            for sample in 0..step.shape.n_samples {
                let at = sample * step.shape.d_ff + rows.start;
                // SAFETY: places of this chunk.
                let (gate, up) =
                    unsafe { (step.gate.part(at, rows.len()), step.up.read(at, rows.len())) };
                swiglu(gate, up);
            }
        }
    }
}

impl Phases<'_> {
    /// Some rows of `to = matrix from`, or of `to += matrix from`, for all samples.
    ///
    /// # Safety
    ///
    /// Nobody writes `from`, nobody else reads or writes these rows of `to`, and the processor has
    /// the features of the level.
    #[inline(always)]
    unsafe fn multiply<L: Lanes>(
        &self,
        matrix: &[f32],
        from: &Shared<'_>,
        to: &Shared<'_>,
        rows: Range<usize>,
        add: bool,
    ) {
        let n_samples = self.shape.n_samples;
        let (n_in, n_out) = (from.len() / n_samples, to.len() / n_samples);
        let matrix = &matrix[rows.start * n_in..rows.end * n_in];
        // SAFETY: the caller's word.
        unsafe {
            products::<L>(matrix, from.read(0, from.len()), n_in, |row, sample, product| {
                let out = to.part(sample * n_out + rows.start + row, 1);
                out[0] = if add { out[0] + product } else { product };
            });
        }
    }

    /// Attention of one head of keys and values: of a sample, and of all queries that share it.
    ///
    /// # Safety
    ///
    /// Nobody else has this head of this sample, and the processor has the features of the level.
    #[inline(always)]
    unsafe fn attend<L: Lanes>(&self, layer: usize, number: usize) {
        let shape = self.shape;
        let (d_head, capacity, place) = (shape.d_head(), shape.capacity, self.place);
        let n_sharing = shape.n_heads / shape.n_kv_heads;
        let n_heads = shape.n_samples * shape.n_kv_heads;
        let room = capacity * d_head;
        // Samples have their heads side by side, in scratch as in the cache.
        let (first_query, n_queries) = (number * n_sharing * d_head, n_sharing * d_head);
        let (first_key, first_value) = (2 * layer * n_heads, (2 * layer + 1) * n_heads);
        let n_seen = place + 1;
        // SAFETY: the caller's word.
        unsafe {
            let queries = self.queries.part(first_query, n_queries);
            let keys = self.cache.part((first_key + number) * room, n_seen * d_head);
            let values = self.cache.part((first_value + number) * room, n_seen * d_head);
            let key = &mut keys[place * d_head..];
            key.copy_from_slice(self.keys.read(number * d_head, d_head));
            values[place * d_head..].copy_from_slice(self.values.read(number * d_head, d_head));
            if let Some((cos, sin)) = self.weights.rotation {
                let angles = place * (d_head / 2)..n_seen * (d_head / 2);
                let (cos, sin) = (&cos[angles.clone()], &sin[angles]);
                rotate(key, cos, sin);
                for query in queries.chunks_exact_mut(d_head) {
                    rotate(query, cos, sin);
                }
            }
            let scores = self.scores.part(number * n_sharing * capacity, n_sharing * capacity);
            let scale = 1.0 / (d_head as f32).sqrt();
            products::<L>(keys, queries, d_head, |place, query, product| {
                scores[query * capacity + place] = product * scale;
            });
            let mixed = self.mixed.part(first_query, n_queries);
            let heads = scores.chunks_exact_mut(capacity).zip(mixed.chunks_exact_mut(d_head));
            for (scores, mixed) in heads {
                let scores = &mut scores[..n_seen];
                let share = softmax(scores);
                mix(scores, values, share, mixed);
            }
        }
    }
}
