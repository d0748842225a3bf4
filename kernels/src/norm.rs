//! RMSNorm and its gradient, each in one pass over memory.
//!
//! Forward: out = x · scale · weight, where scale is one over the root mean square of a row. Backward,
//! with g the gradient of out and d the width of a row:
//!
//! ```text
//! grad x      = g · weight · scale - x · scale³ · Σ(x · g · weight) / d   (+ residual)
//! grad weight = Σ over rows of x · g · scale
//! ```
//!
//! O(rows · d) time. The forward pass keeps one scale per row; the backward pass sums the gradient of
//! the weight per task, in tasks · d numbers. Torch's operations make three to nine passes over memory
//! for the same (docs/performance.md, "Native passes").

use crate::error::{Result, require};
use crate::math::{inverse_rms, scale_by, sum_of};
use crate::simd::{Kernel, Level, Simd};
use crate::threads::{Threads, each_task, rows_per_task};

/// Normalizes the rows of `x`. With `eps` it computes and writes the scales, without it reads them.
pub fn forward(
    level: Level,
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
    let tasks = arrays.map(|((x, out), scales)| Forward { x, weight, eps, out, scales });
    each_task(threads, tasks, 1, |task| level.run(task))
}

pub(crate) struct Forward<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: Option<f32>,
    pub out: &'a mut [f32],
    pub scales: &'a mut [f32],
}

impl Kernel for Forward<'_> {
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
pub struct Inputs<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    /// As [`forward`] wrote them.
    pub scales: &'a [f32],
    /// The gradient that reaches x through the residual connection.
    pub residual: Option<&'a [f32]>,
}

/// Replaces `grad`, the gradient of the output, by that of x, and writes that of the weight.
pub fn backward(
    level: Level,
    inputs: &Inputs,
    grad: &mut [f32],
    weight_grad: &mut [f32],
    threads: &dyn Threads,
) -> Result<()> {
    let &Inputs { x, weight, scales, residual } = inputs;
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
        Backward { x, weight, scales, residual, grad, weight_grad }
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

struct Backward<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    scales: &'a [f32],
    residual: Option<&'a [f32]>,
    grad: &'a mut [f32],
    /// The sum over the rows of this task.
    weight_grad: &'a mut [f32],
}

impl Kernel for Backward<'_> {
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
