//! Operations on rows of numbers: RMSNorm, SwiGLU and the cross-entropy loss, with their gradients.
//!
//! Each is one pass over memory, where torch's operations make three to nine (docs/performance.md,
//! "Native passes"); the rows of cross-entropy stay in the cache for three. O(numbers) time.
//!
//! *RMSNorm.* Forward: out = x · scale · weight, where scale is one over the root mean square of a row.
//! Backward, with g the gradient of out and d the width of a row:
//!
//! ```text
//! grad x      = g · weight · scale - x · scale³ · Σ(x · g · weight) / d   (+ residual)
//! grad weight = Σ over rows of x · g · scale
//! ```
//!
//! The forward pass keeps one scale per row; the backward pass sums the gradient of the weight per task,
//! in tasks · d numbers.
//!
//! *SwiGLU* is silu(gate) · up. The backward pass computes the output again, because the matrix product
//! after it needs it and keeping it would take as much memory as `gate`.
//!
//! *Cross-entropy* replaces the logits by their gradient. For each row it finds the largest logit, the
//! exponentials below it and their sum, and, for gradients, softmax minus the target. The losses of the
//! rows are added in float64, in order.

use crate::math::{exp_and_sum, inverse_rms, largest, scale_by, sigmoid, sum_of, swiglu};
use crate::simd::{Kernel, Simd, SimdLevel};
use crate::threads::{Threads, each_task, rows_per_task};
use crate::{Error, Result, require};

/// Normalizes the rows of `x`. With `eps` it computes and writes the scales, without it reads them.
pub fn norm_forward(
    level: SimdLevel,
    x: &[f32],
    weight: &[f32],
    eps: Option<f32>,
    (out, scales): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    let (n_rows, width) = (scales.len(), weight.len());
    require(
        width > 0 && x.len() == n_rows * width && out.len() == x.len(),
        "x and out of a norm must have one row per scale, as wide as the weight",
    )?;
    let n = rows_per_task(width);
    let arrays = x.chunks(n * width).zip(out.chunks_mut(n * width)).zip(scales.chunks_mut(n));
    let tasks = arrays.map(|((x, out), scales)| NormForward { x, weight, eps, out, scales });
    each_task(threads, tasks, 1, |task| level.run(task))
}

pub(crate) struct NormForward<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: Option<f32>,
    pub out: &'a mut [f32],
    pub scales: &'a mut [f32],
}

impl Kernel for NormForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.weight.len();
        let rows = self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for ((x, out), scale) in rows.zip(self.scales) {
            if let Some(eps) = self.eps {
                *scale = inverse_rms(x, eps);
            }
            scale_by(x, *scale, self.weight, out);
        }
    }
}

/// What the backward pass reads.
#[derive(Debug)]
pub struct NormInputs<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    /// As [`norm_forward`] wrote them.
    pub scales: &'a [f32],
    /// The gradient that reaches x through the residual connection.
    pub residual: Option<&'a [f32]>,
}

/// Replaces `grad`, the gradient of the output, by that of x, and writes that of the weight.
pub fn norm_backward(
    level: SimdLevel,
    inputs: &NormInputs,
    grad: &mut [f32],
    weight_grad: &mut [f32],
    threads: &dyn Threads,
) -> Result<()> {
    let &NormInputs { x, weight, scales, residual } = inputs;
    let width = weight.len();
    let fits = |array: &[f32]| array.len() == scales.len() * width;
    require(
        width > 0
            && fits(x)
            && fits(grad)
            && residual.is_none_or(fits)
            && weight_grad.len() == width,
        "x, grad and residual of a norm must have one row per scale, as wide as the weight and its \
         gradient",
    )?;
    let n = rows_per_task(width);
    let mut partial_sums = vec![0.0; scales.len().div_ceil(n) * width];
    let arrays = x.chunks(n * width).zip(grad.chunks_mut(n * width)).zip(scales.chunks(n));
    let tasks = arrays.zip(partial_sums.chunks_mut(width)).enumerate().map(|(task, arrays)| {
        let (((x, grad), scales), weight_grad) = arrays;
        let residual = residual.map(|all| &all[task * n * width..][..x.len()]);
        NormBackward { x, weight, scales, residual, grad, weight_grad }
    });
    each_task(threads, tasks, 1, |task| level.run(task))?;
    weight_grad.fill(0.0);
    for sums in partial_sums.chunks_exact(width) {
        for (total, sum) in weight_grad.iter_mut().zip(sums) {
            *total += sum;
        }
    }
    Ok(())
}

struct NormBackward<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    scales: &'a [f32],
    residual: Option<&'a [f32]>,
    grad: &'a mut [f32],
    /// The sum over the rows of this task.
    weight_grad: &'a mut [f32],
}

impl Kernel for NormBackward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.weight.len();
        let rows = self.x.chunks_exact(width).zip(self.grad.chunks_exact_mut(width));
        for (row, ((x, grad), &scale)) in rows.zip(self.scales).enumerate() {
            let along = sum_of(x, grad, self.weight, |x, grad, weight| x * grad * weight);
            let factor = scale * scale * scale * along / width as f32;
            for (sum, (x, grad)) in self.weight_grad.iter_mut().zip(x.iter().zip(grad.iter())) {
                *sum += x * grad * scale;
            }
            let numbers = grad.iter_mut().zip(x).zip(self.weight);
            match self.residual {
                Some(residual) => {
                    for (((grad, x), weight), past) in numbers.zip(&residual[row * width..]) {
                        *grad = *grad * weight * scale - x * factor + past;
                    }
                }
                None => {
                    for ((grad, x), weight) in numbers {
                        *grad = *grad * weight * scale - x * factor;
                    }
                }
            }
        }
    }
}

const SWIGLU_RULE: &str = "the arrays of SwiGLU must all have the same size";

/// `out = silu(gate) · up`
pub fn swiglu_forward(
    level: SimdLevel,
    gate: &[f32],
    up: &[f32],
    out: &mut [f32],
    threads: &dyn Threads,
) -> Result<()> {
    require(gate.len() == up.len() && gate.len() == out.len(), SWIGLU_RULE)?;
    let n = rows_per_task(1);
    let arrays = gate.chunks(n).zip(up.chunks(n)).zip(out.chunks_mut(n));
    let tasks = arrays.map(|((gate, up), out)| SwigluForward { gate, up, out });
    each_task(threads, tasks, 1, |task| level.run(task))
}

struct SwigluForward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SwigluForward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((out, &gate), &up) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = swiglu(gate, up);
        }
    }
}

/// Replaces `grad`, the gradient of the output, by that of `up`; writes that of `gate` and the output.
pub fn swiglu_backward(
    level: SimdLevel,
    (gate, up): (&[f32], &[f32]),
    grad: &mut [f32],
    (gate_grad, out): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    require([up.len(), grad.len(), gate_grad.len(), out.len()] == [gate.len(); 4], SWIGLU_RULE)?;
    let n = rows_per_task(1);
    let read = gate.chunks(n).zip(up.chunks(n));
    let written = grad.chunks_mut(n).zip(gate_grad.chunks_mut(n)).zip(out.chunks_mut(n));
    let tasks = read.zip(written).map(|((gate, up), ((grad, gate_grad), out))| SwigluBackward {
        gate,
        up,
        grad,
        gate_grad,
        out,
    });
    each_task(threads, tasks, 1, |task| level.run(task))
}

struct SwigluBackward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    grad: &'a mut [f32],
    gate_grad: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for SwigluBackward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let read = self.gate.iter().zip(self.up);
        let written = self.grad.iter_mut().zip(self.gate_grad).zip(self.out);
        for ((&gate, &up), ((grad, gate_grad), out)) in read.zip(written) {
            let sigmoid = sigmoid(gate);
            let silu = gate * sigmoid;
            *out = silu * up;
            *gate_grad = *grad * up * (sigmoid + silu * (1.0 - sigmoid));
            *grad *= silu;
        }
    }
}

/// The sum of the losses of all rows, one per target. With a `factor`, the logits are replaced by the
/// gradient of that sum times the factor; without one, they are overwritten with intermediate results.
pub fn cross_entropy(
    level: SimdLevel,
    logits: &mut [f32],
    targets: &[i64],
    factor: Option<f32>,
    threads: &dyn Threads,
) -> Result<f64> {
    let n_rows = targets.len();
    let width = logits.len().checked_div(n_rows).unwrap_or(0);
    require(logits.len() == n_rows * width, "logits must have one row per target")?;
    if let Some(wrong) = targets.iter().find(|&&id| id < 0 || id as usize >= width) {
        return Err(Error::input(format!("targets must be ids below {width}, got {wrong}")));
    }
    if n_rows == 0 {
        return Ok(0.0);
    }
    let mut losses = vec![0.0; n_rows];
    let n = rows_per_task(width);
    let arrays = logits.chunks_mut(n * width).zip(targets.chunks(n)).zip(losses.chunks_mut(n));
    let tasks =
        arrays.map(|((logits, targets), losses)| LossRows { logits, targets, factor, losses });
    each_task(threads, tasks, 1, |task| level.run(task))?;
    Ok(losses.into_iter().sum())
}

struct LossRows<'a> {
    logits: &'a mut [f32],
    targets: &'a [i64],
    factor: Option<f32>,
    losses: &'a mut [f64],
}

impl Kernel for LossRows<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let width = self.logits.len() / self.targets.len();
        let rows = self.logits.chunks_exact_mut(width).zip(self.targets);
        for ((row, &target), loss) in rows.zip(self.losses) {
            let target = target as usize;
            let shift = largest(row);
            let target_logit = row[target];
            let sum = exp_and_sum(row, shift);
            *loss = f64::from(sum.ln()) + f64::from(shift - target_logit);
            if let Some(factor) = self.factor {
                let scale = factor / sum;
                for number in row.iter_mut() {
                    *number *= scale;
                }
                row[target] -= factor;
            }
        }
    }
}
