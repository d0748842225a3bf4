//! What training does between products of matrices, on memory that is torch's: `Passes`.
//!
//! Arrays are contiguous views of tensors. Nothing here is long enough for the gateway.

use numpy::{PyReadonlyArrayDyn, PyReadwriteArrayDyn};
use pyo3::prelude::*;

use super::gateway::{threads, to_python};
use crate::base::error::Error;
use crate::base::threads::{Idle, OpenMp, Team};
use bytemill_kernels::Threads;
use bytemill_kernels::error::Result;
use bytemill_kernels::lanes::Level;
use bytemill_kernels::passes::attention::{Inputs, Outputs, Shape, attend, attend_back};
use bytemill_kernels::passes::rows;

/// An array that is read.
type Read<'py, T = f32> = PyReadonlyArrayDyn<'py, T>;
/// An array that is written.
type Write<'py> = PyReadwriteArrayDyn<'py, f32>;

/// The passes, on so many threads.
#[pyclass(frozen, module = "bytemill._native")]
pub struct Passes {
    threads: Box<dyn Threads + Send>,
    level: Level,
}

#[pymethods]
impl Passes {
    /// `openmp` is the library whose threads torch uses, if there is one; `level` is for tests.
    #[new]
    #[pyo3(signature = (threads, *, openmp=None, level=None))]
    fn new(
        py: Python<'_>,
        threads: i64,
        openmp: Option<&str>,
        level: Option<&str>,
    ) -> PyResult<Self> {
        let n_threads = self::threads(py, Some(threads))?;
        let threads: Box<dyn Threads + Send> =
            match openmp.and_then(|library| OpenMp::borrow(library, n_threads)) {
                Some(threads) => Box::new(threads),
                None => Box::new(Team::new(n_threads, Idle::Linger)),
            };
        let level = match level {
            None => Level::best(),
            Some(name) => Level::available()
                .into_iter()
                .find(|level| level.name() == name)
                .ok_or_else(|| {
                    to_python(py, Error::config(format!("this processor has no level {name:?}")))
                })?,
        };
        Ok(Passes { threads, level })
    }

    /// The levels that this processor has.
    #[staticmethod]
    fn levels() -> Vec<&'static str> {
        Level::available().into_iter().map(Level::name).collect()
    }

    /// Norms the rows of x into `out`, and writes their scales; without `eps` these are read.
    fn norm(
        &self,
        py: Python<'_>,
        x: Read,
        weight: Read,
        eps: Option<f32>,
        mut out: Write,
        mut scales: Write,
    ) -> PyResult<()> {
        let (x, weight) = (seen(py, &x)?, seen(py, &weight)?);
        let made = (mine(py, &mut out)?, mine(py, &mut scales)?);
        run(py, || rows::norm(self.level, x, weight, eps, made, &*self.threads))
    }

    /// Turns `grad` into that of x, and writes that of the weight.
    #[allow(clippy::too_many_arguments)]
    fn norm_back(
        &self,
        py: Python<'_>,
        x: Read,
        weight: Read,
        scales: Read,
        residual: Option<Read>,
        mut grad: Write,
        mut weight_grad: Write,
    ) -> PyResult<()> {
        let inputs = rows::NormInputs {
            x: seen(py, &x)?,
            weight: seen(py, &weight)?,
            scales: seen(py, &scales)?,
            residual: residual.as_ref().map(|array| seen(py, array)).transpose()?,
        };
        let (grad, weight_grad) = (mine(py, &mut grad)?, mine(py, &mut weight_grad)?);
        run(py, || rows::norm_back(self.level, &inputs, grad, weight_grad, &*self.threads))
    }

    /// Writes silu(gate) · up to `out`.
    fn swiglu(&self, py: Python<'_>, gate: Read, up: Read, mut out: Write) -> PyResult<()> {
        let (gate, up, out) = (seen(py, &gate)?, seen(py, &up)?, mine(py, &mut out)?);
        run(py, || rows::swiglu(self.level, gate, up, out, &*self.threads))
    }

    /// Turns `grad` into that of `up`; writes that of `gate`, and what the way forward gave.
    fn swiglu_back(
        &self,
        py: Python<'_>,
        gate: Read,
        up: Read,
        mut grad: Write,
        mut gate_grad: Write,
        mut inner: Write,
    ) -> PyResult<()> {
        let given = (seen(py, &gate)?, seen(py, &up)?);
        let grad = mine(py, &mut grad)?;
        let made = (mine(py, &mut gate_grad)?, mine(py, &mut inner)?);
        run(py, || rows::swiglu_back(self.level, given, grad, made, &*self.threads))
    }

    /// The sum of the losses; with a factor the logits become gradients.
    fn cross_entropy(
        &self,
        py: Python<'_>,
        mut logits: Write,
        targets: Read<i64>,
        factor: Option<f32>,
    ) -> PyResult<f64> {
        let (logits, targets) = (mine(py, &mut logits)?, seen(py, &targets)?);
        run(py, || rows::cross_entropy(self.level, logits, targets, factor, &*self.threads))
    }

    /// Causal attention; `shape` is samples, tokens, heads, heads of keys, width of a head.
    fn attend(
        &self,
        py: Python<'_>,
        shape: [usize; 5],
        inputs: [Read; 3],
        rotation: Option<[Read; 2]>,
        mut out: Write,
        mut logs: Write,
    ) -> PyResult<()> {
        let inputs = attended(py, &inputs, rotation.as_ref())?;
        let made = (mine(py, &mut out)?, mine(py, &mut logs)?);
        run(py, || attend(self.level, shape_of(shape), inputs, made, &*self.threads))
    }

    /// The way back: `outputs` are what it gave and the gradient of the first, `grads` are written.
    fn attend_back(
        &self,
        py: Python<'_>,
        shape: [usize; 5],
        inputs: [Read; 3],
        rotation: Option<[Read; 2]>,
        outputs: [Read; 3],
        mut grads: [Write; 3],
    ) -> PyResult<()> {
        let inputs = attended(py, &inputs, rotation.as_ref())?;
        let [out, logs, grad] = outputs.each_ref().map(|array| seen(py, array));
        let outputs = Outputs { out: out?, logs: logs?, grad: grad? };
        let [query, key, value] = grads.each_mut().map(|array| mine(py, array));
        let grads = [query?, key?, value?];
        run(py, || attend_back(self.level, shape_of(shape), inputs, outputs, grads, &*self.threads))
    }
}

fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| to_python(py, error.into()))
}

fn shape_of([n_samples, n_tokens, n_heads, n_kv_heads, d_head]: [usize; 5]) -> Shape {
    Shape { n_samples, n_tokens, n_heads, n_kv_heads, d_head }
}

fn attended<'a>(
    py: Python<'_>,
    [query, key, value]: &'a [Read<'_>; 3],
    rotation: Option<&'a [Read<'_>; 2]>,
) -> PyResult<Inputs<'a>> {
    let rotation = match rotation {
        Some([cos, sin]) => Some((seen(py, cos)?, seen(py, sin)?)),
        None => None,
    };
    Ok(Inputs { query: seen(py, query)?, key: seen(py, key)?, value: seen(py, value)?, rotation })
}

fn seen<'a, T: numpy::Element>(py: Python<'_>, array: &'a Read<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| scattered(py))
}

fn mine<'a>(py: Python<'_>, array: &'a mut Write<'_>) -> PyResult<&'a mut [f32]> {
    array.as_slice_mut().map_err(|_| scattered(py))
}

fn scattered(py: Python<'_>) -> PyErr {
    to_python(py, Error::config("a pass takes contiguous arrays only"))
}
