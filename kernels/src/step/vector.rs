//! What happens to vectors between the products: norm, rotation, softmax, SwiGLU.
//!
//! Plain loops that the compiler turns into whatever registers there are: all of it is inlined into
//! code that is compiled for each level.

use crate::lanes::{Lanes, exp, products};

/// RMSNorm: `x` over its root mean square, times a weight.
///
/// # Safety
///
/// The processor has the features of the level.
#[inline(always)]
pub unsafe fn rms_norm<L: Lanes>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut squares = 0.0;
    // SAFETY: the caller's word.
    unsafe { products::<L>(x, x, x.len(), |_, _, sum| squares = sum) };
    let scale = 1.0 / (squares / x.len() as f32 + eps).sqrt();
    for (out, (x, weight)) in out.iter_mut().zip(x.iter().zip(weight)) {
        *out = x * scale * weight;
    }
}

/// Turns the pairs (x[2i], x[2i+1]).
#[inline(always)]
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (pair, (cos, sin)) in x.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
        let (even, odd) = (pair[0], pair[1]);
        pair[0] = even * cos - odd * sin;
        pair[1] = even * sin + odd * cos;
    }
}

/// e to what the scores are below the largest; gives one over their sum.
#[inline(always)]
pub fn softmax(scores: &mut [f32]) -> f32 {
    const WIDTH: usize = 16;
    // In lanes of our own: an order that is kept in every loop allows the compiler none.
    let mut most = [f32::NEG_INFINITY; WIDTH];
    for some in scores.chunks(WIDTH) {
        for (most, &score) in most.iter_mut().zip(some) {
            *most = if score > *most { score } else { *most };
        }
    }
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    for score in scores.iter_mut() {
        *score = exp(*score - most);
    }
    let mut sums = [0.0; WIDTH];
    for some in scores.chunks(WIDTH) {
        for (sum, &score) in sums.iter_mut().zip(some) {
            *sum += score;
        }
    }
    1.0 / sums.into_iter().sum::<f32>()
}

/// The sum of the rows of `values`, each times its share and all times `scale`.
#[inline(always)]
pub fn mix(shares: &[f32], values: &[f32], scale: f32, out: &mut [f32]) {
    const ROWS: usize = 4;
    let n = out.len();
    out.fill(0.0);
    let mut rows = values.chunks_exact(ROWS * n);
    let mut fours = shares.chunks_exact(ROWS);
    for (four, rows) in fours.by_ref().zip(rows.by_ref()) {
        let (a, rest) = rows.split_at(n);
        let (b, rest) = rest.split_at(n);
        let (c, d) = rest.split_at(n);
        for i in 0..n {
            out[i] += (a[i] * four[0] + b[i] * four[1]) + (c[i] * four[2] + d[i] * four[3]);
        }
    }
    for (share, row) in fours.remainder().iter().zip(rows.remainder().chunks_exact(n)) {
        for (out, value) in out.iter_mut().zip(row) {
            *out += value * share;
        }
    }
    for out in out {
        *out *= scale;
    }
}

/// `gate = silu(gate) up`
#[inline(always)]
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + exp(-*gate)) * up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swiglu_at_the_ends() {
        let mut gate = [-1000.0, -0.0, 1000.0, f32::NAN];
        swiglu(&mut gate, &[1.0; 4]);
        assert!(gate[0].abs() < 1e-30 && gate[1] == 0.0 && gate[2] == 1000.0 && gate[3].is_nan());
    }
}
