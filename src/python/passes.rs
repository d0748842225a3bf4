//! The operations of training between matrix products, on torch's memory: `Passes`.
//!
//! Arrays are contiguous views of tensors. Calls release the GIL, but take milliseconds, too short for
//! the gateway and its checks for Ctrl-C.

use numpy::{PyReadonlyArrayDyn, PyReadwriteArrayDyn};
use pyo3::prelude::*;

use super::gateway::{threads, to_python};
use crate::base::error::Error;
use crate::base::threads::{Idle, OpenMp, Team};
use bytemill_kernels::attention::{self, AttentionInputs, AttentionShape, Outputs};
use bytemill_kernels::rowwise::{self, NormInputs};
use bytemill_kernels::{Result, SimdLevel, Threads};

type ReadArray<'py, T = f32> = PyReadonlyArrayDyn<'py, T>;
type WriteArray<'py> = PyReadwriteArrayDyn<'py, f32>;

#[pyclass(frozen, module = "bytemill._native")]
pub struct Passes {
    threads: Box<dyn Threads + Send>,
    level: SimdLevel,
}

#[pymethods]
impl Passes {
    /// `openmp` is the path of the OpenMP library whose threads torch uses; `level` is for tests.
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
            None => SimdLevel::best(),
            Some(name) => SimdLevel::available()
                .into_iter()
                .find(|level| level.name() == name)
                .ok_or_else(|| {
                    to_python(
                        py,
                        Error::config(format!(
                            "level must be one of {:?}, got {name:?}",
                            Passes::levels()
                        )),
                    )
                })?,
        };
        Ok(Passes { threads, level })
    }

    /// The levels of this processor, the fastest last.
    #[staticmethod]
    fn levels() -> Vec<&'static str> {
        SimdLevel::available().into_iter().map(SimdLevel::name).collect()
    }

    /// Writes the RMSNorm of the rows of x to `out`, and their scales; without `eps` it reads these.
    fn norm(
        &self,
        py: Python<'_>,
        x: ReadArray,
        weight: ReadArray,
        eps: Option<f32>,
        mut out: WriteArray,
        mut scales: WriteArray,
    ) -> PyResult<()> {
        let (x, weight) = (numbers(py, &x)?, numbers(py, &weight)?);
        let made = (numbers_mut(py, &mut out)?, numbers_mut(py, &mut scales)?);
        run_kernel(py, || rowwise::norm_forward(self.level, x, weight, eps, made, &*self.threads))
    }

    /// Replaces `grad`, of the output, by the gradient of x, and writes that of the weight.
    #[allow(clippy::too_many_arguments)]
    fn norm_back(
        &self,
        py: Python<'_>,
        x: ReadArray,
        weight: ReadArray,
        scales: ReadArray,
        residual: Option<ReadArray>,
        mut grad: WriteArray,
        mut weight_grad: WriteArray,
    ) -> PyResult<()> {
        let inputs = NormInputs {
            x: numbers(py, &x)?,
            weight: numbers(py, &weight)?,
            scales: numbers(py, &scales)?,
            residual: residual.as_ref().map(|array| numbers(py, array)).transpose()?,
        };
        let (grad, weight_grad) = (numbers_mut(py, &mut grad)?, numbers_mut(py, &mut weight_grad)?);
        run_kernel(py, || {
            rowwise::norm_backward(self.level, &inputs, grad, weight_grad, &*self.threads)
        })
    }

    /// Writes silu(gate) · up to `out`.
    fn swiglu(
        &self,
        py: Python<'_>,
        gate: ReadArray,
        up: ReadArray,
        mut out: WriteArray,
    ) -> PyResult<()> {
        let (gate, up, out) = (numbers(py, &gate)?, numbers(py, &up)?, numbers_mut(py, &mut out)?);
        run_kernel(py, || rowwise::swiglu_forward(self.level, gate, up, out, &*self.threads))
    }

    /// Replaces `grad`, of the output, by the gradient of `up`; writes that of `gate`, and the output.
    fn swiglu_back(
        &self,
        py: Python<'_>,
        gate: ReadArray,
        up: ReadArray,
        mut grad: WriteArray,
        mut gate_grad: WriteArray,
        mut inner: WriteArray,
    ) -> PyResult<()> {
        let given = (numbers(py, &gate)?, numbers(py, &up)?);
        let grad = numbers_mut(py, &mut grad)?;
        let made = (numbers_mut(py, &mut gate_grad)?, numbers_mut(py, &mut inner)?);
        run_kernel(py, || rowwise::swiglu_backward(self.level, given, grad, made, &*self.threads))
    }

    /// The sum of the losses; with a factor, the logits are replaced by its gradient times the factor.
    fn cross_entropy(
        &self,
        py: Python<'_>,
        mut logits: WriteArray,
        targets: ReadArray<i64>,
        factor: Option<f32>,
    ) -> PyResult<f64> {
        let (logits, targets) = (numbers_mut(py, &mut logits)?, numbers(py, &targets)?);
        run_kernel(py, || {
            rowwise::cross_entropy(self.level, logits, targets, factor, &*self.threads)
        })
    }

    /// Causal attention; `shape` is samples, tokens, heads, heads of keys and values, d_head.
    fn attend(
        &self,
        py: Python<'_>,
        shape: [usize; 5],
        inputs: [ReadArray; 3],
        rotation: Option<[ReadArray; 2]>,
        mut out: WriteArray,
        mut log_sums: WriteArray,
    ) -> PyResult<()> {
        let inputs = attention_inputs(py, &inputs, rotation.as_ref())?;
        let made = (numbers_mut(py, &mut out)?, numbers_mut(py, &mut log_sums)?);
        run_kernel(py, || {
            attention::forward(self.level, shape_of(shape), inputs, made, &*self.threads)
        })
    }

    /// Writes the gradients of `inputs`; `outputs` are out, log_sums and the gradient of out.
    fn attend_back(
        &self,
        py: Python<'_>,
        shape: [usize; 5],
        inputs: [ReadArray; 3],
        rotation: Option<[ReadArray; 2]>,
        outputs: [ReadArray; 3],
        mut grads: [WriteArray; 3],
    ) -> PyResult<()> {
        let inputs = attention_inputs(py, &inputs, rotation.as_ref())?;
        let [out, log_sums, grad] = outputs.each_ref().map(|array| numbers(py, array));
        let outputs = Outputs { out: out?, log_sums: log_sums?, grad: grad? };
        let [query, key, value] = grads.each_mut().map(|array| numbers_mut(py, array));
        let grads = [query?, key?, value?];
        run_kernel(py, || {
            attention::backward(self.level, shape_of(shape), inputs, outputs, grads, &*self.threads)
        })
    }
}

fn run_kernel<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(work).map_err(|error| to_python(py, error.into()))
}

fn shape_of([n_samples, n_tokens, n_heads, n_kv_heads, d_head]: [usize; 5]) -> AttentionShape {
    AttentionShape { n_samples, n_tokens, n_heads, n_kv_heads, d_head }
}

fn attention_inputs<'a>(
    py: Python<'_>,
    [query, key, value]: &'a [ReadArray<'_>; 3],
    rotation: Option<&'a [ReadArray<'_>; 2]>,
) -> PyResult<AttentionInputs<'a>> {
    let rotation = match rotation {
        Some([cos, sin]) => Some((numbers(py, cos)?, numbers(py, sin)?)),
        None => None,
    };
    Ok(AttentionInputs {
        query: numbers(py, query)?,
        key: numbers(py, key)?,
        value: numbers(py, value)?,
        rotation,
    })
}

fn numbers<'a, T: numpy::Element>(
    py: Python<'_>,
    array: &'a ReadArray<'_, T>,
) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| not_contiguous(py))
}

fn numbers_mut<'a>(py: Python<'_>, array: &'a mut WriteArray<'_>) -> PyResult<&'a mut [f32]> {
    array.as_slice_mut().map_err(|_| not_contiguous(py))
}

fn not_contiguous(py: Python<'_>) -> PyErr {
    to_python(py, Error::config("arrays must be contiguous"))
}
