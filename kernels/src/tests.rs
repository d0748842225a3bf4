//! The kernels of training against the definitions in float64, at every level.

use crate::attention::{self, AttentionInputs, AttentionShape, Outputs};
use crate::rowwise::*;
use crate::simd::SimdLevel;
use crate::threads::tests::Scoped;

/// Pseudorandom numbers between -1 and 1.
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
fn naive_attention(shape: AttentionShape, inputs: AttentionInputs, grad: &[f32]) -> [Vec<f64>; 4] {
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
fn attention_is_its_definition() {
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
            let inputs = AttentionInputs { query: &query, key: &key, value: &value, rotation };
            let [expected, query_expected, key_expected, value_expected] =
                naive_attention(shape, inputs, &grad);
            for level in SimdLevel::available() {
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
        for level in SimdLevel::available() {
            let mut made = logits.clone();
            let found = cross_entropy(level, &mut made, &targets, Some(1.0), &Scoped(2)).unwrap();
            assert!((found - loss).abs() <= 1e-5 * loss.max(1.0));
            assert_close(&made, &expected);
        }
    }
}

#[test]
fn norms_and_their_gradients() {
    for (n, width) in [(1, 1), (3, 17), (5, 64), (700, 33), (2, 20_000)] {
        let (x, weight) = (numbers(n * width, 7), numbers(width, 8));
        let (grad, residual) = (numbers(n * width, 9), numbers(n * width, 10));
        let (mut expected, mut x_grad) = (Vec::new(), Vec::new());
        let mut weight_grad = vec![0.0; width];
        let f = f64::from;
        for ((x, grad), residual) in
            x.chunks(width).zip(grad.chunks(width)).zip(residual.chunks(width))
        {
            let square = x.iter().map(|&x| f(x) * f(x)).sum::<f64>() / width as f64;
            let scale = 1.0 / (square + f(1e-5f32)).sqrt();
            let along: f64 = (0..width).map(|i| f(x[i]) * f(grad[i]) * f(weight[i])).sum();
            for i in 0..width {
                let (x, grad, weight) = (f(x[i]), f(grad[i]), f(weight[i]));
                expected.push(x * scale * weight);
                let slope = scale * scale * scale * along / width as f64;
                x_grad.push(grad * weight * scale - x * slope + f(residual[i]));
                weight_grad[i] += x * grad * scale;
            }
        }
        for level in SimdLevel::available() {
            let (mut out, mut scales) = (vec![f32::NAN; n * width], vec![f32::NAN; n]);
            let written = (&mut out[..], &mut scales[..]);
            norm_forward(level, &x, &weight, Some(1e-5), written, &Scoped(2)).unwrap();
            assert_close(&out, &expected);
            let residual = Some(&residual[..]);
            let inputs = NormInputs { x: &x, weight: &weight, scales: &scales, residual };
            let (mut found, mut weight_found) = (grad.clone(), vec![f32::NAN; width]);
            norm_backward(level, &inputs, &mut found, &mut weight_found, &Scoped(2)).unwrap();
            assert_close(&found, &x_grad);
            assert_close(&weight_found, &weight_grad);
        }
    }
}

#[test]
fn swiglu_and_its_gradients() {
    for n in [1, 15, 17, 40_001] {
        let gate: Vec<f32> = numbers(n, 11).iter().map(|x| x * 9.0).collect();
        let (up, grad) = (numbers(n, 12), numbers(n, 13));
        let expected = |f: fn(f64, f64, f64) -> f64| -> Vec<f64> {
            let of = |i: usize| f(gate[i].into(), up[i].into(), grad[i].into());
            (0..n).map(of).collect()
        };
        let out_expected = expected(|gate, up, _| gate / (1.0 + (-gate).exp()) * up);
        let up_expected = expected(|gate, _, grad| gate / (1.0 + (-gate).exp()) * grad);
        let gate_expected = expected(|gate, up, grad| {
            let sigmoid = 1.0 / (1.0 + (-gate).exp());
            grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
        });
        for level in SimdLevel::available() {
            let mut out = vec![f32::NAN; n];
            swiglu_forward(level, &gate, &up, &mut out, &Scoped(2)).unwrap();
            assert_close(&out, &out_expected);
            let (mut found, mut gate_grad) = (grad.clone(), vec![f32::NAN; n]);
            let written = (&mut gate_grad[..], &mut out[..]);
            swiglu_backward(level, (&gate, &up), &mut found, written, &Scoped(2)).unwrap();
            assert_close(&found, &up_expected);
            assert_close(&gate_grad, &gate_expected);
            assert_close(&out, &out_expected);
        }
    }
}

#[test]
fn empty_arrays() {
    let level = SimdLevel::best();
    let (none, written) = (&[][..], || (&mut [][..], &mut [][..]));
    assert!(norm_forward(level, none, none, None, written(), &Scoped(1)).is_err());
    assert_eq!(norm_forward(level, none, &[1.0], None, written(), &Scoped(1)), Ok(()));
    assert_eq!(swiglu_forward(level, none, none, &mut [], &Scoped(1)), Ok(()));
    assert_eq!(cross_entropy(level, &mut [], &[], None, &Scoped(1)), Ok(0.0));
    let shape = AttentionShape { n_samples: 0, n_tokens: 3, n_heads: 2, n_kv_heads: 1, d_head: 4 };
    let inputs = AttentionInputs { query: none, key: none, value: none, rotation: None };
    assert_eq!(attention::forward(level, shape, inputs, written(), &Scoped(1)), Ok(()));
    let outputs = Outputs { out: none, log_sums: none, grad: none };
    let grads = [&mut [][..], &mut [][..], &mut [][..]];
    assert_eq!(attention::backward(level, shape, inputs, outputs, grads, &Scoped(1)), Ok(()));
}
