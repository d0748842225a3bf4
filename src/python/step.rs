//! One decoding step of a language model whose weights are torch's: `LMDecoder`.

use std::sync::{Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray2, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::gateway::{threads, to_python};
use crate::base::error::{Error, Result};
use crate::base::threads::{Idle, Team};
use bytemill_kernels::SimdLevel;
use bytemill_kernels::decode::{Decoder, Layer, ModelShape, Place, Weights};

/// A view of a tensor; it keeps the memory alive.
type TensorView = Py<PyArrayDyn<f32>>;

/// Reads ids one by one. Weights and cache are views of tensors, not copies.
#[pyclass(frozen, module = "bytemill._native")]
pub struct LMDecoder {
    embedding: TensorView,
    /// Each in the order of the fields of [`Layer`].
    layers: Vec<[TensorView; 9]>,
    final_norm: TensorView,
    head: TensorView,
    rotation: Option<(TensorView, TensorView)>,
    cache: TensorView,
    /// One step at a time: they share the cache.
    decoder: Mutex<Decoder>,
    team: Team,
}

#[pymethods]
impl LMDecoder {
    #[new]
    #[pyo3(signature = (*, embedding, layers, final_norm, head, rotation, cache, eps, threads))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        embedding: TensorView,
        layers: Vec<[TensorView; 9]>,
        final_norm: TensorView,
        head: TensorView,
        rotation: Option<(TensorView, TensorView)>,
        cache: TensorView,
        eps: f32,
        threads: i64,
    ) -> PyResult<Self> {
        let n_threads = self::threads(py, Some(threads))?;
        // Fails if the cache is read-only.
        drop(cache.bind(py).try_readwrite()?);
        let (&[vocab_size, d_model], &[n_layers, 2, n_samples, n_kv_heads, capacity, d_head]) =
            (embedding.bind(py).shape(), cache.bind(py).shape())
        else {
            let error = Error::config(
                "embedding must be (ids, d_model), cache (layers, 2, samples, heads, positions, d_head)",
            );
            return Err(to_python(py, error));
        };
        let d_ff = layers.first().and_then(|layer| layer[6].bind(py).shape().first().copied());
        let shape = ModelShape {
            vocab_size,
            d_model,
            n_layers,
            n_heads: d_model.checked_div(d_head).unwrap_or(0),
            n_kv_heads,
            d_ff: d_ff.unwrap_or(1),
            eps,
            n_samples,
            capacity,
        };
        let team = Team::new(n_threads.min(shape.useful_threads()), Idle::Linger);
        let decoder =
            Decoder::new(shape, SimdLevel::best()).map_err(|e| to_python(py, e.into()))?;
        let decoder = Mutex::new(decoder);
        Ok(LMDecoder { embedding, layers, final_norm, head, rotation, cache, decoder, team })
    }

    /// Reads an id of each of some samples: the rows of the cache, which increase, and the position of
    /// each. Returns the logits of the next ids, (samples, ids).
    #[pyo3(signature = (ids, rows, positions, /))]
    fn step<'py>(
        &self,
        py: Python<'py>,
        ids: Vec<usize>,
        rows: Vec<usize>,
        positions: Vec<usize>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        if ids.len() != rows.len() || ids.len() != positions.len() {
            let error = Error::config("ids, rows and positions must have the same length");
            return Err(to_python(py, error));
        }
        let places: Vec<Place> = rows
            .into_iter()
            .zip(positions)
            .map(|(row, position)| Place { row, position })
            .collect();
        let weights = self.weights(py).map_err(|e| to_python(py, e))?;
        contiguous(py, &self.cache).map_err(|e| to_python(py, e))?;
        let cache =
            CacheAddress { start: self.cache.bind(py).data(), size: self.cache.bind(py).len() };
        let logits = py.detach(|| {
            // A step that failed leaves nothing that the next one reads.
            let mut decoder = self.decoder.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: `self` keeps the array alive during the call; it is contiguous (`contiguous` above)
            // and writable (`new`). Steps of this decoder exclude each other by the lock. Python code
            // must not use the cache during a step: `NativeStep`, which owns it, does so only before and
            // after.
            decoder.step(&weights, unsafe { cache.numbers() }, &ids, &places, &self.team)
        });
        let logits = logits.map_err(|e| to_python(py, e.into()))?;
        // A step without ids is refused, so the division is safe.
        let width = logits.len() / places.len();
        logits.into_pyarray(py).reshape([places.len(), width])
    }
}

impl LMDecoder {
    fn weights<'a>(&'a self, py: Python<'a>) -> Result<Weights<'a>> {
        let layer = |arrays: &'a [TensorView; 9]| {
            Ok(Layer {
                attention_norm: contiguous(py, &arrays[0])?,
                query: contiguous(py, &arrays[1])?,
                key: contiguous(py, &arrays[2])?,
                value: contiguous(py, &arrays[3])?,
                output: contiguous(py, &arrays[4])?,
                feed_forward_norm: contiguous(py, &arrays[5])?,
                gate: contiguous(py, &arrays[6])?,
                up: contiguous(py, &arrays[7])?,
                down: contiguous(py, &arrays[8])?,
            })
        };
        Ok(Weights {
            embedding: contiguous(py, &self.embedding)?,
            layers: self.layers.iter().map(layer).collect::<Result<_>>()?,
            final_norm: contiguous(py, &self.final_norm)?,
            head: contiguous(py, &self.head)?,
            rotation: match &self.rotation {
                Some((cos, sin)) => Some((contiguous(py, cos)?, contiguous(py, sin)?)),
                None => None,
            },
        })
    }
}

/// The address of a cache, from which a step creates a slice once it holds the lock.
struct CacheAddress {
    start: *mut f32,
    size: usize,
}

// SAFETY: sharing an address reads and writes nothing; making a slice of it is unsafe, with its own
// conditions.
unsafe impl Sync for CacheAddress {}

impl CacheAddress {
    /// # Safety
    ///
    /// The array is alive, contiguous and writable, and no other code uses it while the result lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn numbers(&self) -> &mut [f32] {
        // SAFETY: the array has `size` numbers from `start` on; the caller promises that it is alive,
        // contiguous, writable, and used by no other code.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size) }
    }
}

/// The numbers of an array, row after row.
fn contiguous<'a>(py: Python<'a>, array: &'a TensorView) -> Result<&'a [f32]> {
    let array = array.bind(py);
    let refusal = || Error::config("the weights and the cache must be contiguous");
    if !array.is_c_contiguous() {
        return Err(refusal());
    }
    // SAFETY: the slice lives for one step, and the step only reads it (the cache's is dropped at once).
    // Python code must not write weights from another thread during a step; torch's own kernels have
    // the same requirement.
    unsafe { array.as_slice() }.map_err(|_| refusal())
}
