//! The step against the same mathematics in float64, written as its definition.

use super::*;
use crate::threads::tests::Scoped;

/// Pseudorandom numbers between -1 and 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn matrix(&mut self, n_out: usize, n_in: usize) -> Vec<f32> {
        let scale = (3.0 / n_in as f32).sqrt();
        (0..n_out * n_in).map(|_| scale * self.next()).collect()
    }

    fn norm(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| 1.0 + 0.5 * self.next()).collect()
    }
}

/// The arrays of a model.
struct Model {
    shape: ModelShape,
    tied: bool,
    embedding: Vec<f32>,
    /// In the order of the fields of `Layer`.
    layers: Vec<[Vec<f32>; 9]>,
    final_norm: Vec<f32>,
    head: Vec<f32>,
    rotation: Option<(Vec<f32>, Vec<f32>)>,
}

impl Model {
    fn new(shape: ModelShape, tied: bool, rotated: bool) -> Self {
        let mut numbers = Numbers(7);
        let (d, d_kv, d_ff) = (shape.d_model, shape.d_kv(), shape.d_ff);
        let layers = (0..shape.n_layers)
            .map(|_| {
                [
                    numbers.norm(d),
                    numbers.matrix(d, d),
                    numbers.matrix(d_kv, d),
                    numbers.matrix(d_kv, d),
                    numbers.matrix(d, d),
                    numbers.norm(d),
                    numbers.matrix(d_ff, d),
                    numbers.matrix(d_ff, d),
                    numbers.matrix(d, d_ff),
                ]
            })
            .collect();
        let half = shape.d_head() / 2;
        let angle = |n: usize| (n / half) as f64 * 100f64.powf(-((n % half) as f64) / half as f64);
        let table = |f: fn(f64) -> f64| {
            (0..shape.capacity * half).map(|n| f(angle(n)) as f32).collect::<Vec<_>>()
        };
        Model {
            shape,
            tied,
            embedding: numbers.matrix(shape.vocab_size, d),
            layers,
            final_norm: numbers.norm(d),
            head: numbers.matrix(shape.vocab_size, d),
            rotation: rotated.then(|| (table(f64::cos), table(f64::sin))),
        }
    }

    fn weights(&self) -> Weights<'_> {
        Weights {
            embedding: &self.embedding,
            layers: self
                .layers
                .iter()
                .map(|w| Layer {
                    attention_norm: &w[0],
                    query: &w[1],
                    key: &w[2],
                    value: &w[3],
                    output: &w[4],
                    feed_forward_norm: &w[5],
                    gate: &w[6],
                    up: &w[7],
                    down: &w[8],
                })
                .collect(),
            final_norm: &self.final_norm,
            head: if self.tied { &self.embedding } else { &self.head },
            rotation: self.rotation.as_ref().map(|(cos, sin)| (&cos[..], &sin[..])),
        }
    }

    /// The logits after each of the ids of a sample.
    fn naive(&self, ids: &[usize]) -> Vec<Vec<f64>> {
        let shape = &self.shape;
        let weights = self.weights();
        let (d_head, n_sharing) = (shape.d_head(), shape.n_heads / shape.n_kv_heads);
        // The keys and values of each layer.
        let mut seen = vec![(Vec::<Vec<f64>>::new(), Vec::<Vec<f64>>::new()); shape.n_layers];
        let mut logits = Vec::new();
        for (position, id) in ids.iter().enumerate() {
            let width = shape.d_model;
            let mut x: Vec<f64> =
                weights.embedding[id * width..][..width].iter().map(|&n| n.into()).collect();
            for (layer, (keys, values)) in weights.layers.iter().zip(&mut seen) {
                let y = normed(&x, layer.attention_norm, shape.eps);
                let query = self.rotated(times(layer.query, &y), position);
                keys.push(self.rotated(times(layer.key, &y), position));
                values.push(times(layer.value, &y));
                let mut mixed = Vec::new();
                for head in 0..shape.n_heads {
                    let query = &query[head * d_head..][..d_head];
                    let from = head / n_sharing * d_head;
                    let score = |key: &Vec<f64>| {
                        let sum: f64 = key[from..].iter().zip(query).map(|(a, b)| a * b).sum();
                        (sum / (d_head as f64).sqrt()).exp()
                    };
                    let shares: Vec<f64> = keys.iter().map(score).collect();
                    let total: f64 = shares.iter().sum();
                    for i in from..from + d_head {
                        let sum: f64 = shares.iter().zip(&*values).map(|(p, v)| p * v[i]).sum();
                        mixed.push(sum / total);
                    }
                }
                x = plus(&x, &times(layer.output, &mixed));
                let y = normed(&x, layer.feed_forward_norm, shape.eps);
                let inner: Vec<f64> = times(layer.gate, &y)
                    .iter()
                    .zip(times(layer.up, &y))
                    .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
                    .collect();
                x = plus(&x, &times(layer.down, &inner));
            }
            logits.push(times(weights.head, &normed(&x, weights.final_norm, shape.eps)));
        }
        logits
    }

    fn rotated(&self, x: Vec<f64>, position: usize) -> Vec<f64> {
        let Some((cos, sin)) = &self.rotation else { return x };
        let half = self.shape.d_head() / 2;
        let turn = |(n, pair): (usize, &[f64])| {
            let angle = position * half + n % half;
            let (cos, sin) = (f64::from(cos[angle]), f64::from(sin[angle]));
            [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos]
        };
        x.chunks(2).enumerate().flat_map(turn).collect()
    }
}

fn times(matrix: &[f32], x: &[f64]) -> Vec<f64> {
    let product = |row: &[f32]| row.iter().zip(x).map(|(&a, b)| f64::from(a) * b).sum();
    matrix.chunks_exact(x.len()).map(product).collect()
}

fn plus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(a, b)| a + b).collect()
}

fn normed(x: &[f64], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|a| a * a).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(a, &w)| a * scale * f64::from(w)).collect()
}

const SHAPE: ModelShape = ModelShape {
    vocab_size: 53,
    d_model: 24,
    n_layers: 2,
    n_heads: 6,
    n_kv_heads: 6,
    d_ff: 37,
    eps: 1e-5,
    n_samples: 1,
    capacity: 21,
};

/// Shapes that are no multiple of lanes, blocks of rows, vectors or positions.
fn models() -> Vec<Model> {
    vec![
        Model::new(SHAPE, false, true),
        Model::new(ModelShape { n_samples: 3, ..SHAPE }, true, true),
        Model::new(ModelShape { n_kv_heads: 2, n_samples: 7, ..SHAPE }, false, true),
        Model::new(ModelShape { n_kv_heads: 1, n_layers: 1, n_samples: 2, ..SHAPE }, true, false),
        Model::new(ModelShape { n_layers: 0, ..SHAPE }, false, true),
        // Large enough for several threads and chunks.
        Model::new(
            ModelShape {
                vocab_size: 1001,
                d_model: 96,
                d_ff: 260,
                n_kv_heads: 3,
                n_samples: 2,
                ..SHAPE
            },
            false,
            true,
        ),
    ]
}

fn ids(shape: &ModelShape, position: usize) -> Vec<usize> {
    (0..shape.n_samples)
        .map(|sample| (position * 31 + sample * 17 + 5) % shape.vocab_size)
        .collect()
}

/// Every row at this position.
fn places(shape: &ModelShape, position: usize) -> Vec<Place> {
    (0..shape.n_samples).map(|row| Place { row, position }).collect()
}

/// The logits of each position.
fn run(model: &Model, n_threads: usize, level: SimdLevel) -> Vec<Vec<f32>> {
    let mut decoder = Decoder::new(model.shape, level).unwrap();
    let mut cache = vec![f32::NAN; model.shape.cache_size()];
    let weights = model.weights();
    (0..model.shape.capacity)
        .map(|position| {
            decoder
                .step(
                    &weights,
                    &mut cache,
                    &ids(&model.shape, position),
                    &places(&model.shape, position),
                    &Scoped(n_threads),
                )
                .unwrap()
        })
        .collect()
}

#[test]
fn agrees_with_the_naive_step() {
    for model in models() {
        let shape = &model.shape;
        let all: Vec<Vec<usize>> =
            (0..shape.capacity).map(|position| ids(shape, position)).collect();
        for level in SimdLevel::available() {
            let found = run(&model, 2, level);
            for sample in 0..shape.n_samples {
                let ids: Vec<usize> = all.iter().map(|ids| ids[sample]).collect();
                for (found, expected) in found.iter().zip(model.naive(&ids)) {
                    let found = &found[sample * shape.vocab_size..][..shape.vocab_size];
                    for (found, expected) in found.iter().zip(expected) {
                        let error = (f64::from(*found) - expected).abs();
                        assert!(error < 2e-5, "{level:?} {shape:?}: {found} {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for model in models() {
        for level in SimdLevel::available() {
            let one = run(&model, 1, level);
            assert!([2, 3, 8].iter().all(|&n| run(&model, n, level) == one));
        }
    }
}

#[test]
fn samples_beside_it_change_no_bit() {
    let many = Model::new(ModelShape { n_samples: 7, ..SHAPE }, false, true);
    let one = Model::new(SHAPE, false, true);
    let (many, one) = (run(&many, 1, SimdLevel::best()), run(&one, 1, SimdLevel::best()));
    // The first sample has the same ids in both.
    assert!(many.iter().zip(&one).all(|(many, one)| many[..SHAPE.vocab_size] == one[..]));
}

/// Samples start and end at different steps, in any rows; each gets the bits that it gets alone.
#[test]
fn samples_at_their_own_positions() {
    for level in SimdLevel::available() {
        let one = Model::new(ModelShape { n_kv_heads: 2, ..SHAPE }, false, true);
        let alone = run(&one, 1, level);
        let many = Model::new(ModelShape { n_samples: 6, ..one.shape }, false, true);
        let weights = many.weights();
        let mut decoder = Decoder::new(many.shape, level).unwrap();
        let mut cache = vec![f32::NAN; many.shape.cache_size()];
        // Row r starts at step 3r and is free after 9 + r positions.
        for step in 0..30 {
            let places: Vec<Place> = (0..many.shape.n_samples)
                .filter(|row| (3 * row..3 * row + 9 + row).contains(&step))
                .map(|row| Place { row, position: step - 3 * row })
                .collect();
            if places.is_empty() {
                continue;
            }
            let ids: Vec<usize> =
                places.iter().map(|place| ids(&one.shape, place.position)[0]).collect();
            let found =
                decoder.step(&weights, &mut cache, &ids, &places, &Scoped(1 + step % 2)).unwrap();
            for (place, found) in places.iter().zip(found.chunks_exact(SHAPE.vocab_size)) {
                assert_eq!(found, &alone[place.position][..], "{level:?} {step} {place:?}");
            }
        }
    }
}

#[test]
fn refusals() {
    let model = Model::new(SHAPE, false, true);
    let weights = model.weights();
    let mut decoder = Decoder::new(SHAPE, SimdLevel::best()).unwrap();
    let mut cache = vec![0.0; SHAPE.cache_size()];
    let mut message =
        |weights: &Weights<'_>, cache: &mut [f32], ids: &[usize], places: &[Place]| {
            decoder.step(weights, cache, ids, places, &Scoped(1)).unwrap_err().to_string()
        };
    let at = |position| places(&SHAPE, position);
    assert_eq!(
        message(&weights, &mut cache, &[0], &at(21)),
        "the cache is full: its capacity is 21 positions"
    );
    assert_eq!(message(&weights, &mut cache, &[53], &at(0)), "id 53 is not below vocab_size=53");
    assert!(message(&weights, &mut cache, &[1, 2], &at(0)).contains("every id needs a row"));
    assert!(message(&weights, &mut cache, &[], &[]).contains("every id needs a row"));
    let second = Place { row: 1, position: 0 };
    assert!(message(&weights, &mut cache, &[1], &[second]).contains("every id needs a row"));
    let twice = [at(0), at(1)].concat();
    assert!(message(&weights, &mut cache, &[1, 2], &twice).contains("increasing order"));
    assert!(message(&weights, &mut cache[1..], &[1], &at(0)).contains("the cache must have"));
    let short = Weights { head: &weights.head[1..], ..weights.clone() };
    assert!(message(&short, &mut cache, &[1], &at(0)).contains("the weights"));
    assert!(Decoder::new(ModelShape { n_kv_heads: 4, ..SHAPE }, SimdLevel::best()).is_err());
    assert!(Decoder::new(ModelShape { n_heads: 0, ..SHAPE }, SimdLevel::best()).is_err());
}
