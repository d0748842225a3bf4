//! The cross-entropy loss of rows of logits, and its gradient in place of them.
//!
//! Three passes over each row, which stays in the cache: the largest logit, the exponentials below it
//! and their sum, and, if gradients are asked for, softmax minus the target. The losses of the rows are
//! added in float64, in order.

use crate::error::{Error, Result, require};
use crate::math::{exp_and_sum, largest};
use crate::simd::{Kernel, Level, Simd};
use crate::threads::{Threads, each_task, rows_per_task};

/// The sum of the losses of all rows, one per target. With a `factor`, the logits are replaced by the
/// gradient of that sum times the factor; without one, they are overwritten with intermediate results.
pub fn cross_entropy(
    level: Level,
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
    let tasks = arrays.map(|((logits, targets), losses)| Rows { logits, targets, factor, losses });
    each_task(threads, tasks, 1, |task| level.run(task))?;
    Ok(losses.into_iter().sum())
}

struct Rows<'a> {
    logits: &'a mut [f32],
    targets: &'a [i64],
    factor: Option<f32>,
    losses: &'a mut [f64],
}

impl Kernel for Rows<'_> {
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
