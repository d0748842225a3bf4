//! SwiGLU, silu(gate) · up, and its gradients, each in one pass over memory.
//!
//! O(n) time, no memory beside the arrays. The backward pass computes the output again, because the
//! matrix product after it needs it and keeping it would take as much memory as `gate`.

use crate::error::{Result, require};
use crate::math::{sigmoid, swiglu};
use crate::simd::{Kernel, Level, Simd};
use crate::threads::{Threads, each_task, rows_per_task};

const RULE: &str = "the arrays of SwiGLU must all have the same size";

/// `out = silu(gate) · up`
pub fn forward(
    level: Level,
    gate: &[f32],
    up: &[f32],
    out: &mut [f32],
    threads: &dyn Threads,
) -> Result<()> {
    require(gate.len() == up.len() && gate.len() == out.len(), RULE)?;
    let n = rows_per_task(1);
    let arrays = gate.chunks(n).zip(up.chunks(n)).zip(out.chunks_mut(n));
    let tasks = arrays.map(|((gate, up), out)| Forward { gate, up, out });
    each_task(threads, tasks, 1, |task| level.run(task))
}

struct Forward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((out, &gate), &up) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = swiglu(gate, up);
        }
    }
}

/// Replaces `grad`, the gradient of the output, by that of `up`; writes that of `gate` and the output.
pub fn backward(
    level: Level,
    (gate, up): (&[f32], &[f32]),
    grad: &mut [f32],
    (gate_grad, out): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    require([up.len(), grad.len(), gate_grad.len(), out.len()] == [gate.len(); 4], RULE)?;
    let n = rows_per_task(1);
    let read = gate.chunks(n).zip(up.chunks(n));
    let written = grad.chunks_mut(n).zip(gate_grad.chunks_mut(n)).zip(out.chunks_mut(n));
    let tasks = read.zip(written).map(|((gate, up), ((grad, gate_grad), out))| Backward {
        gate,
        up,
        grad,
        gate_grad,
        out,
    });
    each_task(threads, tasks, 1, |task| level.run(task))
}

struct Backward<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    grad: &'a mut [f32],
    gate_grad: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Backward<'_> {
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
