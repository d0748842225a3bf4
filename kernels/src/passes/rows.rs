//! Passes that look at one row of numbers at a time.
//!
//! Plain loops, compiled for each level. Sums run in lanes of our own: a sum in one order allows the
//! compiler no registers.

use crate::error::{Error, Result};
use crate::lanes::{Kernel, Lanes, Level, exp};

use crate::threads::{Shared, Threads, each};

/// Numbers that a thread takes at a time: enough to be worth it, and few enough for its cache.
const CHUNK: usize = 1 << 14;
/// Lanes of a sum.
const WIDTH: usize = 16;

/// Rows in a chunk; depends on nothing but their width.
fn rows_of_chunk(width: usize) -> usize {
    (CHUNK / width.max(1)).max(1)
}

/// Runs chunks of rows: `make` is given the first row and the number of rows.
fn over_rows<K: Kernel>(
    level: Level,
    (n_rows, width): (usize, usize),
    threads: &dyn Threads,
    make: impl Fn(usize, usize) -> K + Sync,
) -> Result<()> {
    let size = rows_of_chunk(width);
    each(threads, n_rows.div_ceil(size), |chunk| {
        let first = chunk * size;
        // SAFETY: levels come from `Level::available`.
        unsafe { level.run(make(first, size.min(n_rows - first))) }
    })
}

fn check(fits: bool) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::input("the arrays of a pass do not fit together")) }
}

#[inline(always)]
fn total(sums: [f32; WIDTH]) -> f32 {
    folded(sums, |a, b| a + b)
}

/// All lanes as one, halves on halves: one after the other, each would wait for the one before.
#[inline(always)]
fn folded(mut lanes: [f32; WIDTH], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = WIDTH / 2;
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
pub(super) fn sum3(a: &[f32], b: &[f32], c: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut sums = [0.0; WIDTH];
    let (mut a, mut b, mut c) =
        (a.chunks_exact(WIDTH), b.chunks_exact(WIDTH), c.chunks_exact(WIDTH));
    for ((a, b), c) in a.by_ref().zip(b.by_ref()).zip(c.by_ref()) {
        for i in 0..WIDTH {
            sums[i] += f(a[i], b[i], c[i]);
        }
    }
    let rest = a.remainder().iter().zip(b.remainder()).zip(c.remainder());
    total(sums) + rest.map(|((&a, &b), &c)| f(a, b, c)).sum::<f32>()
}

// --- RMSNorm -----------------------------------------------------------------------------------

/// `out = x · scale · weight`, where `scale` is one over the root mean square of a row; with `eps`
/// the scales are found and written, without they are read.
pub fn norm(
    level: Level,
    x: &[f32],
    weight: &[f32],
    eps: Option<f32>,
    (out, scales): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    let (n_rows, width) = (scales.len(), weight.len());
    check(x.len() == n_rows * width && out.len() == x.len())?;
    let (out, scales) = (Shared::new(out), Shared::new(scales));
    over_rows(level, (n_rows, width), threads, |first, n| {
        let (at, size) = (first * width, n * width);
        // SAFETY: every chunk has rows of its own.
        let (out, scales) = unsafe { (out.part(at, size), scales.part(first, n)) };
        Norm { x: &x[at..at + size], weight, eps, out, scales }
    })
}

struct Norm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: Option<f32>,
    out: &'a mut [f32],
    scales: &'a mut [f32],
}

impl Kernel for Norm<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let width = self.weight.len();
        let rows = self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for ((x, out), scale) in rows.zip(self.scales) {
            if let Some(eps) = self.eps {
                let squares = sum3(x, x, x, |a, b, _| a * b);
                *scale = 1.0 / (squares / width as f32 + eps).sqrt();
            }
            for ((out, x), weight) in out.iter_mut().zip(x).zip(self.weight) {
                *out = x * *scale * weight;
            }
        }
    }
}

/// What [`norm_back`] is given.
#[derive(Debug)]
pub struct NormInputs<'a> {
    /// What was normed.
    pub x: &'a [f32],
    /// Of the norm.
    pub weight: &'a [f32],
    /// As the norm wrote them.
    pub scales: &'a [f32],
    /// What comes to x past the norm, if anything does.
    pub residual: Option<&'a [f32]>,
}

/// Turns `grad`, of what the norm gave, into that of x, and finds that of the weight.
pub fn norm_back(
    level: Level,
    inputs: &NormInputs,
    grad: &mut [f32],
    weight_grad: &mut [f32],
    threads: &dyn Threads,
) -> Result<()> {
    let (n_rows, width) = (inputs.scales.len(), inputs.weight.len());
    let fits = |array: &[f32]| array.len() == n_rows * width;
    check(fits(inputs.x) && fits(grad) && inputs.residual.is_none_or(fits))?;
    check(weight_grad.len() == width)?;
    // One row of sums for each chunk: which thread takes which must not be seen in the result.
    let n_chunks = n_rows.div_ceil(rows_of_chunk(width));
    let mut partial = vec![0.0; n_chunks * width];
    let (grad, sums) = (Shared::new(grad), Shared::new(&mut partial));
    over_rows(level, (n_rows, width), threads, |first, n| {
        let (at, size) = (first * width, n * width);
        let chunk = first / rows_of_chunk(width);
        // SAFETY: every chunk has rows and a row of sums of its own.
        let (grad, sums) = unsafe { (grad.part(at, size), sums.part(chunk * width, width)) };
        NormBack {
            x: &inputs.x[at..at + size],
            weight: inputs.weight,
            scales: &inputs.scales[first..first + n],
            residual: inputs.residual.map(|all| &all[at..at + size]),
            grad,
            sums,
        }
    })?;
    weight_grad.fill(0.0);
    for sums in partial.chunks_exact(width) {
        for (total, sum) in weight_grad.iter_mut().zip(sums) {
            *total += sum;
        }
    }
    Ok(())
}

struct NormBack<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    scales: &'a [f32],
    residual: Option<&'a [f32]>,
    grad: &'a mut [f32],
    sums: &'a mut [f32],
}

impl Kernel for NormBack<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let width = self.weight.len();
        let rows = self.x.chunks_exact(width).zip(self.grad.chunks_exact_mut(width));
        for (row, ((x, grad), &scale)) in rows.zip(self.scales).enumerate() {
            let along = sum3(x, grad, self.weight, |x, grad, weight| x * grad * weight);
            let factor = scale * scale * scale * along / width as f32;
            for (sum, (x, grad)) in self.sums.iter_mut().zip(x.iter().zip(grad.iter())) {
                *sum += x * grad * scale;
            }
            let values = grad.iter_mut().zip(x).zip(self.weight);
            match self.residual {
                Some(all) => {
                    for (((grad, x), weight), past) in values.zip(&all[row * width..]) {
                        *grad = *grad * weight * scale - x * factor + past;
                    }
                }
                None => {
                    for ((grad, x), weight) in values {
                        *grad = *grad * weight * scale - x * factor;
                    }
                }
            }
        }
    }
}

// --- SwiGLU ------------------------------------------------------------------------------------

/// `out = silu(gate) · up`
pub fn swiglu(
    level: Level,
    gate: &[f32],
    up: &[f32],
    out: &mut [f32],
    threads: &dyn Threads,
) -> Result<()> {
    check(gate.len() == up.len() && gate.len() == out.len())?;
    let n = out.len();
    let out = Shared::new(out);
    over_rows(level, (n, 1), threads, |at, size| {
        // SAFETY: every chunk has numbers of its own.
        let out = unsafe { out.part(at, size) };
        Swiglu { gate: &gate[at..at + size], up: &up[at..at + size], out }
    })
}

struct Swiglu<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Swiglu<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for ((out, &gate), up) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

/// The way back through [`swiglu`]: `grad`, of what it gave, becomes that of `up`; that of `gate`
/// goes to `gate_grad`, and what it gave to `inner`, once more.
pub fn swiglu_back(
    level: Level,
    (gate, up): (&[f32], &[f32]),
    grad: &mut [f32],
    (gate_grad, inner): (&mut [f32], &mut [f32]),
    threads: &dyn Threads,
) -> Result<()> {
    let n = gate.len();
    check([up.len(), grad.len(), gate_grad.len(), inner.len()] == [n; 4])?;
    let (grad, gate_grad) = (Shared::new(grad), Shared::new(gate_grad));
    let inner = Shared::new(inner);
    over_rows(level, (n, 1), threads, |at, size| {
        // SAFETY: every chunk has numbers of its own.
        unsafe {
            SwigluBack {
                gate: &gate[at..at + size],
                up: &up[at..at + size],
                grad: grad.part(at, size),
                gate_grad: gate_grad.part(at, size),
                inner: inner.part(at, size),
            }
        }
    })
}

struct SwigluBack<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    grad: &'a mut [f32],
    gate_grad: &'a mut [f32],
    inner: &'a mut [f32],
}

impl Kernel for SwigluBack<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let given = self.gate.iter().zip(self.up);
        let made = self.grad.iter_mut().zip(self.gate_grad).zip(self.inner);
        for ((&gate, &up), ((grad, gate_grad), inner)) in given.zip(made) {
            let sigmoid = 1.0 / (1.0 + exp(-gate));
            let silu = gate * sigmoid;
            *inner = silu * up;
            *gate_grad = *grad * up * (sigmoid + silu * (1.0 - sigmoid));
            *grad *= silu;
        }
    }
}

// --- cross-entropy -----------------------------------------------------------------------------

/// The cross-entropies of rows of logits, summed. With a `factor` the logits become the gradients of
/// the sum times it.
pub fn cross_entropy(
    level: Level,
    logits: &mut [f32],
    targets: &[i64],
    factor: Option<f32>,
    threads: &dyn Threads,
) -> Result<f64> {
    let n_rows = targets.len();
    let width = logits.len().checked_div(n_rows).unwrap_or(0);
    check(logits.len() == n_rows * width)?;
    if let Some(wrong) = targets.iter().find(|&&id| id < 0 || id as usize >= width) {
        return Err(Error::input(format!("the target {wrong} is not one of {width} ids")));
    }
    let mut losses = vec![0.0; n_rows];
    let (logits, written) = (Shared::new(logits), Shared::new(&mut losses));
    over_rows(level, (n_rows, width), threads, |first, n| {
        // SAFETY: every chunk has rows of its own.
        unsafe {
            CrossEntropy {
                logits: logits.part(first * width, n * width),
                targets: &targets[first..first + n],
                factor,
                losses: written.part(first, n),
            }
        }
    })?;
    Ok(losses.into_iter().sum())
}

struct CrossEntropy<'a> {
    logits: &'a mut [f32],
    targets: &'a [i64],
    factor: Option<f32>,
    losses: &'a mut [f64],
}

impl Kernel for CrossEntropy<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let width = self.logits.len() / self.targets.len();
        let rows = self.logits.chunks_exact_mut(width).zip(self.targets);
        for ((row, &target), loss) in rows.zip(self.losses) {
            let target = target as usize;
            let most = largest(row);
            let of_target = row[target];
            let sum = exp_below(row, most);
            *loss = f64::from(sum.ln()) + f64::from(most - of_target);
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

/// The largest number of a row; NaN is left out, and comes back in what follows.
#[inline(always)]
pub(super) fn largest(row: &[f32]) -> f32 {
    let mut most = [f32::NEG_INFINITY; WIDTH];
    let mut chunks = row.chunks_exact(WIDTH);
    for some in chunks.by_ref() {
        for i in 0..WIDTH {
            most[i] = if some[i] > most[i] { some[i] } else { most[i] };
        }
    }
    let larger = |a, b| if a > b { a } else { b };
    chunks.remainder().iter().copied().fold(folded(most, larger), larger)
}

/// Replaces each x by e to the x - most; gives their sum.
#[inline(always)]
pub(super) fn exp_below(row: &mut [f32], most: f32) -> f32 {
    let mut sums = [0.0; WIDTH];
    let mut chunks = row.chunks_exact_mut(WIDTH);
    for some in chunks.by_ref() {
        for i in 0..WIDTH {
            some[i] = exp(some[i] - most);
            sums[i] += some[i];
        }
    }
    let mut rest = 0.0;
    for number in chunks.into_remainder() {
        *number = exp(*number - most);
        rest += *number;
    }
    total(sums) + rest
}
