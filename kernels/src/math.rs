//! The formulas of the model on rows of numbers, for training and generation alike.
//!
//! Plain loops: inlined into a kernel, they are compiled for the registers of its level. Sums and maxima
//! run in [`SUM_LANES`] lanes that are combined at the end, because the compiler may not reorder a sum
//! of floating-point numbers by itself; so their bits depend on the length of the row alone.
//!
//! Combining the lanes pairwise instead of one after another saved a sixth of the time of attention.

/// Partial sums of a row: one AVX-512 register, two of AVX2, four of SSE2 or NEON.
const SUM_LANES: usize = 16;

/// Combines all lanes, halves with halves.
#[inline(always)]
fn fold_lanes(mut lanes: [f32; SUM_LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = SUM_LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Σ f(a, b, c) over rows of equal length.
#[inline(always)]
pub(crate) fn sum_of(a: &[f32], b: &[f32], c: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut sums = [0.0; SUM_LANES];
    let (mut a, mut b, mut c) =
        (a.chunks_exact(SUM_LANES), b.chunks_exact(SUM_LANES), c.chunks_exact(SUM_LANES));
    for ((a, b), c) in a.by_ref().zip(b.by_ref()).zip(c.by_ref()) {
        for i in 0..SUM_LANES {
            sums[i] += f(a[i], b[i], c[i]);
        }
    }
    let rest = a.remainder().iter().zip(b.remainder()).zip(c.remainder());
    fold_lanes(sums, |a, b| a + b) + rest.map(|((&a, &b), &c)| f(a, b, c)).sum::<f32>()
}

#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, b, |a, b, _| a * b)
}

/// The largest number of a row. NaN is skipped: [`exp_and_sum`] brings it into the result.
#[inline(always)]
pub(crate) fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; SUM_LANES];
    let mut chunks = row.chunks_exact(SUM_LANES);
    for chunk in chunks.by_ref() {
        for i in 0..SUM_LANES {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
        }
    }
    let larger = |a, b| if a > b { a } else { b };
    chunks.remainder().iter().copied().fold(fold_lanes(lanes, larger), larger)
}

/// The numerators of a softmax: replaces each x by e^(x - shift), and returns their sum.
#[inline(always)]
pub(crate) fn exp_and_sum(row: &mut [f32], shift: f32) -> f32 {
    let mut sums = [0.0; SUM_LANES];
    let mut chunks = row.chunks_exact_mut(SUM_LANES);
    for chunk in chunks.by_ref() {
        for i in 0..SUM_LANES {
            chunk[i] = exp(chunk[i] - shift);
            sums[i] += chunk[i];
        }
    }
    let mut rest = 0.0;
    for number in chunks.into_remainder() {
        *number = exp(*number - shift);
        rest += *number;
    }
    fold_lanes(sums, |a, b| a + b) + rest
}

/// e^x for x ≤ 88, within about two units in the last place; below -87 it stays at e^-87, and NaN stays
/// NaN. It has neither branches nor calls, so that loops over it are vectorized.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Comparisons with NaN are false: it passes.
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    // e^x = 2^n e^r with |r| ≤ ln 2 / 2. Adding 1.5 · 2^23 rounds to an integer, and leaves it in the
    // lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts: n times the first is exact.
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    // (e^r - 1 - r) / r², a polynomial by Horner's rule.
    let tail = 1.987_569_2e-4;
    let tail = tail * r + 1.398_199_9e-3;
    let tail = tail * r + 8.333_452e-3;
    let tail = tail * r + 4.166_579_6e-2;
    let tail = tail * r + 1.666_666_5e-1;
    let tail = tail * r + 0.5;
    let fraction = tail * (r * r) + r + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    fraction * power
}

#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// silu(gate) · up, where silu(x) = x sigmoid(x).
#[inline(always)]
pub(crate) fn swiglu(gate: f32, up: f32) -> f32 {
    gate / (1.0 + exp(-gate)) * up
}

/// One over the root mean square of a row, as RMSNorm has it.
#[inline(always)]
pub(crate) fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt()
}

/// `out = x · scale · weight`
#[inline(always)]
pub(crate) fn scale_by(x: &[f32], scale: f32, weight: &[f32], out: &mut [f32]) {
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

/// Cosines and sines of rotary positions, (positions, d_head / 2) each.
pub type Angles<'a> = (&'a [f32], &'a [f32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    /// The inverse, for gradients.
    Backward,
}

/// The angles of one position for pairs of numbers of a head.
#[inline(always)]
pub(crate) fn angles_at<'a>(
    rotation: Option<Angles<'a>>,
    position: usize,
    d_head: usize,
) -> Option<Angles<'a>> {
    let half = d_head / 2;
    rotation.map(|(cos, sin)| (&cos[position * half..][..half], &sin[position * half..][..half]))
}

/// `to = scale · from`, with each pair (x[2i], x[2i + 1]) rotated by its angle, if there are angles.
#[inline(always)]
pub(crate) fn rotate(
    from: &[f32],
    angles: Option<Angles>,
    direction: Direction,
    scale: f32,
    to: &mut [f32],
) {
    match angles {
        None => {
            for (to, from) in to.iter_mut().zip(from) {
                *to = from * scale;
            }
        }
        Some((cos, sin)) => {
            let sign = if direction == Direction::Forward { 1.0 } else { -1.0 };
            let pairs = to.chunks_exact_mut(2).zip(from.chunks_exact(2));
            for ((to, from), (cos, sin)) in pairs.zip(cos.iter().zip(sin)) {
                let (cos, sin) = (cos * scale, sin * scale * sign);
                to[0] = from[0] * cos - from[1] * sin;
                to[1] = from[0] * sin + from[1] * cos;
            }
        }
    }
}

/// The sum of the rows of a matrix, each times its factor, and all times `scale`. Four rows at a time,
/// so that `out` is read and written a quarter as often.
#[inline(always)]
pub(crate) fn weighted_sum(factors: &[f32], matrix: &[f32], scale: f32, out: &mut [f32]) {
    let n = out.len();
    out.fill(0.0);
    let (fours, rest) = factors.as_chunks::<4>();
    let mut rows = matrix.chunks_exact(4 * n);
    for (&[p, q, r, s], rows) in fours.iter().zip(rows.by_ref()) {
        let (a, rows) = rows.split_at(n);
        let (b, rows) = rows.split_at(n);
        let (c, d) = rows.split_at(n);
        let columns = a.iter().zip(b).zip(c.iter().zip(d));
        for (out, ((a, b), (c, d))) in out.iter_mut().zip(columns) {
            *out += (a * p + b * q) + (c * r + d * s);
        }
    }
    for (factor, row) in rest.iter().zip(rows.remainder().chunks_exact(n)) {
        for (out, number) in out.iter_mut().zip(row) {
            *out += number * factor;
        }
    }
    for out in out {
        *out *= scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_its_bound() {
        for n in -870_000..880_000 {
            let x = n as f32 / 10_000.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2.5e-7, "{x}: {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        assert!(exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn swiglu_of_extreme_gates() {
        assert!(swiglu(-1000.0, 1.0).abs() < 1e-30);
        assert_eq!(swiglu(-0.0, 1.0), 0.0);
        assert_eq!(swiglu(1000.0, 1.0), 1000.0);
        assert!(swiglu(f32::NAN, 1.0).is_nan());
    }

    /// Rows of every length around the number of lanes, with numbers that add up exactly.
    #[test]
    fn sums_and_maxima_of_rows_of_all_lengths() {
        for n in 0..3 * SUM_LANES {
            let row: Vec<f32> = (0..n).map(|i| (i * 37 % 53) as f32 - 20.0).collect();
            let expected: f32 = row.iter().map(|x| x * x).sum();
            assert_eq!(dot(&row, &row), expected);
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(largest(&row), most);
            let mut shares = row.clone();
            let sum = exp_and_sum(&mut shares, most);
            let expected: f64 = row.iter().map(|&x| f64::from(x - most).exp()).sum();
            assert!((f64::from(sum) - expected).abs() <= 1e-6 * expected);
            let factors = vec![2.0; n];
            let mut out = [f32::NAN; 1];
            weighted_sum(&factors, &row, 0.5, &mut out);
            assert_eq!(out[0], row.iter().sum::<f32>());
        }
        assert_eq!(largest(&[f32::NAN, 1.0]), 1.0);
        assert!(exp_and_sum(&mut [f32::NAN, 1.0], 1.0).is_nan());
    }

    #[test]
    fn rotating_forward_and_backward_is_the_identity() {
        let (cos, sin) = ([0.6, 0.0], [0.8, 1.0]);
        let (mut rotated, mut back) = ([0.0; 4], [0.0; 4]);
        rotate(&[1.0, 0.0, 0.0, 2.0], Some((&cos, &sin)), Direction::Forward, 2.0, &mut rotated);
        assert_eq!(rotated, [1.2, 1.6, -4.0, 0.0]);
        rotate(&rotated, Some((&cos, &sin)), Direction::Backward, 0.5, &mut back);
        for (found, expected) in back.iter().zip([1.0, 0.0, 0.0, 2.0]) {
            assert!((found - expected).abs() < 1e-6);
        }
        rotate(&[1.0, 2.0], None, Direction::Backward, 3.0, &mut back);
        assert_eq!(back[..2], [3.0, 6.0]);
    }
}
