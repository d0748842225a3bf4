//! The kernels of training against the definitions in float64, at every level.

use crate::attention::{self, AttentionShape, Inputs, Outputs};
use crate::cross_entropy::cross_entropy;
use crate::simd::Level;
use crate::threads::tests::Scoped;

/// Numbers between -1 and 1 that look like none in particular.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn assert_close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1e-3, |most: f64, x| most.max(x.abs()));
    for (at, (&found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= 1e-5 * largest, "{at}: {found} is not {expected}");
    }
}

/// Attention and its gradients, with the chain rule written out.
fn naive_attention(shape: AttentionShape, inputs: Inputs, grad: &[f32]) -> [Vec<f64>; 4] {
    let AttentionShape { n_samples, n_tokens, n_heads, n_kv_heads, d_head } = shape;
    let turned = |x: &[f32], row: usize, position: usize| -> Vec<f64> {
        let x: Vec<f64> = x[row..row + d_head].iter().map(|&x| f64::from(x)).collect();
        let Some((cos, sin)) = inputs.rotation else { return x };
        let half = d_head / 2;
        let pair = |i: usize| {
            let (cos, sin) = (cos[position * half + i], sin[position * half + i]);
            let (cos, sin) = (f64::from(cos), f64::from(sin));
            [x[2 * i] * cos - x[2 * i + 1] * sin, x[2 * i] * sin + x[2 * i + 1] * cos]
        };
        (0..half).flat_map(pair).collect()
    };
    let add_turned_back =
        |to: &mut [f64], position: usize, by: &[f64], factor: f64| match inputs.rotation {
            None => to.iter_mut().zip(by).for_each(|(to, by)| *to += by * factor),
            Some((cos, sin)) => {
                for i in 0..d_head / 2 {
                    let at = position * (d_head / 2) + i;
                    let (cos, sin) = (f64::from(cos[at]), f64::from(sin[at]));
                    to[2 * i] += (by[2 * i] * cos + by[2 * i + 1] * sin) * factor;
                    to[2 * i + 1] += (by[2 * i + 1] * cos - by[2 * i] * sin) * factor;
                }
            }
        };
    let scale = 1.0 / (d_head as f64).sqrt();
    let mut out = vec![0.0; inputs.query.len()];
    let mut query_grad = vec![0.0; inputs.query.len()];
    let (mut key_grad, mut value_grad) = (vec![0.0; inputs.key.len()], vec![0.0; inputs.key.len()]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for sample in 0..n_samples {
        for head in 0..n_heads {
            let kv_head = head / (n_heads / n_kv_heads);
            let row = |t: usize| ((sample * n_tokens + t) * n_heads + head) * d_head;
            let kv_row = |t: usize| ((sample * n_tokens + t) * n_kv_heads + kv_head) * d_head;
            for i in 0..n_tokens {
                let query = turned(inputs.query, row(i), i);
                let keys: Vec<_> = (0..=i).map(|j| turned(inputs.key, kv_row(j), j)).collect();
                let value = |j: usize, c: usize| f64::from(inputs.value[kv_row(j) + c]);
                let shares: Vec<f64> =
                    keys.iter().map(|key| (dot(&query, key) * scale).exp()).collect();
                let sum: f64 = shares.iter().sum();
                let shares: Vec<f64> = shares.iter().map(|share| share / sum).collect();
                let grad: Vec<f64> =
                    grad[row(i)..row(i) + d_head].iter().map(|&x| f64::from(x)).collect();
                let slopes: Vec<f64> =
                    (0..=i).map(|j| (0..d_head).map(|c| grad[c] * value(j, c)).sum()).collect();
                let along = dot(&shares, &slopes);
                for j in 0..=i {
                    for c in 0..d_head {
                        out[row(i) + c] += shares[j] * value(j, c);
                        value_grad[kv_row(j) + c] += shares[j] * grad[c];
                    }
                    let slope = shares[j] * (slopes[j] - along) * scale;
                    add_turned_back(&mut query_grad[row(i)..], i, &keys[j], slope);
                    add_turned_back(&mut key_grad[kv_row(j)..], j, &query, slope);
                }
            }
        }
    }
    [out, query_grad, key_grad, value_grad]
}

#[test]
fn attention_is_what_it_is_by_definition() {
    for (n_samples, n_tokens, n_heads, n_kv_heads, d_head) in
        [(1, 1, 1, 1, 2), (2, 7, 3, 1, 6), (9, 9, 4, 2, 24), (1, 67, 2, 2, 32), (1, 130, 1, 1, 16)]
    {
        let shape = AttentionShape { n_samples, n_tokens, n_heads, n_kv_heads, d_head };
        let n_rows = n_samples * n_tokens;
        let (wide, narrow) = (n_rows * n_heads * d_head, n_rows * n_kv_heads * d_head);
        let (query, grad) = (numbers(wide, 1), numbers(wide, 2));
        let (key, value) = (numbers(narrow, 3), numbers(narrow, 4));
        let angles = numbers(n_tokens * d_head / 2, 5);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|x| (x.cos(), x.sin())).unzip();
        for rotation in [None, Some((&cos[..], &sin[..]))] {
            let inputs = Inputs { query: &query, key: &key, value: &value, rotation };
            let [expected, query_expected, key_expected, value_expected] =
                naive_attention(shape, inputs, &grad);
            for level in Level::available() {
                let (mut out, mut log_sums) =
                    (vec![f32::NAN; wide], vec![f32::NAN; n_rows * n_heads]);
                attention::forward(level, shape, inputs, (&mut out, &mut log_sums), &Scoped(2))
                    .unwrap();
                assert_close(&out, &expected);
                let outputs = Outputs { out: &out, log_sums: &log_sums, grad: &grad };
                let mut grads = [wide, narrow, narrow].map(|n| vec![f32::NAN; n]);
                let written = grads.each_mut().map(|grad| &mut grad[..]);
                attention::backward(level, shape, inputs, outputs, written, &Scoped(2)).unwrap();
                assert_close(&grads[0], &query_expected);
                assert_close(&grads[1], &key_expected);
                assert_close(&grads[2], &value_expected);
            }
        }
    }
}

#[test]
fn losses_and_their_gradients() {
    for (n, width) in [(1, 1), (3, 17), (40, 1000)] {
        let logits: Vec<f32> = numbers(n * width, 6).iter().map(|x| x * 20.0).collect();
        let targets: Vec<i64> = (0..n).map(|i| (i * 7 % width) as i64).collect();
        let mut expected = Vec::new();
        let mut loss = 0.0;
        for (row, &target) in logits.chunks(width).zip(&targets) {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            loss += sum.ln() - f64::from(row[target as usize]);
            let share = |(i, &x): (usize, &f32)| {
                f64::from(x).exp() / sum - f64::from(u8::from(i == target as usize))
            };
            expected.extend(row.iter().enumerate().map(share));
        }
        for level in Level::available() {
            let mut made = logits.clone();
            let found = cross_entropy(level, &mut made, &targets, Some(1.0), &Scoped(2)).unwrap();
            assert!((found - loss).abs() <= 1e-5 * loss.max(1.0));
            assert_close(&made, &expected);
        }
    }
}
