//! Columns of strings through Arrow's C data interface, without a copy.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::corpus::RowBatch;

/// The first field of `struct ArrowSchema` of the interface.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
}

/// `struct ArrowArray` of the interface.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *const c_void,
    dictionary: *const c_void,
    release: *const c_void,
    private_data: *const c_void,
}

/// A column of strings or bytes in buffers of Arrow.
#[derive(Debug)]
pub struct Column {
    /// Owns the buffers: they are freed with it.
    _capsule: Py<PyAny>,
    length: usize,
    /// Rows of the buffers before the first row of the column.
    offset: usize,
    valid: Option<NonNull<u8>>,
    ends: Offsets,
    data: *const u8,
}

#[derive(Debug, Clone, Copy)]
enum Offsets {
    Narrow(*const i32),
    Wide(*const i64),
}

// SAFETY: the pointers are only read through. The C data interface makes the buffers immutable, and
// they stay allocated until the capsule, which the column owns and may drop on any thread, is freed.
unsafe impl Send for Column {}
// SAFETY: no method changes the column, and the buffers that its pointers lead to are immutable (C
// data interface), so threads that share it only ever read.
unsafe impl Sync for Column {}

impl Column {
    /// The column that `array.__arrow_c_array__()` returns.
    pub fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (schema, capsule): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
            array.call_method0("__arrow_c_array__")?.extract()?;
        let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<ArrowSchema>();
        let pointer = capsule.pointer_checked(Some(c"arrow_array"))?.cast::<ArrowArray>();
        // SAFETY: the interface demands that a capsule of that name points to an initialized
        // structure of that type, which lives as long as the capsule; both capsules are held here.
        // The format is a string that ends with a zero byte.
        let (format, array) = unsafe { (CStr::from_ptr(schema.as_ref().format), pointer.as_ref()) };
        let wide = match format.to_bytes() {
            b"u" | b"z" => false,
            b"U" | b"Z" => true,
            other => {
                let other = String::from_utf8_lossy(other);
                return Err(PyTypeError::new_err(format!(
                    "a column must have strings, got Arrow type {other:?}"
                )));
            }
        };
        if array.release.is_null() || array.n_buffers != 3 || array.length < 0 || array.offset < 0 {
            return Err(PyTypeError::new_err("the Arrow array is invalid"));
        }
        // SAFETY: `buffers` points to `n_buffers` pointers, of which there are three, as was checked:
        // validity, offsets, bytes.
        let [valid, ends, data] = [0, 1, 2].map(|i| unsafe { *array.buffers.add(i) }.cast::<u8>());
        let length = if ends.is_null() { 0 } else { array.length as usize };
        Ok(Column {
            _capsule: capsule.into_any().unbind(),
            length,
            offset: array.offset as usize,
            valid: if array.null_count == 0 { None } else { NonNull::new(valid.cast_mut()) },
            ends: if wide { Offsets::Wide(ends.cast()) } else { Offsets::Narrow(ends.cast()) },
            data,
        })
    }

    /// The start of row `row` of the buffers, which is the end of the row before it.
    fn offset_of(&self, row: usize) -> usize {
        // SAFETY: the offsets buffer has one value more than the array has rows, counted with those
        // before `offset`; callers pass at most `offset + length`. A column without that buffer has
        // length 0, for which `get` returns before it calls this.
        let offset = unsafe {
            match self.ends {
                Offsets::Narrow(ends) => i64::from(ends.add(row).read_unaligned()),
                Offsets::Wide(ends) => ends.add(row).read_unaligned(),
            }
        };
        offset.max(0) as usize
    }
}

impl RowBatch for Column {
    fn len(&self) -> usize {
        self.length
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        if row >= self.length {
            return None;
        }
        let row = self.offset + row;
        if let Some(valid) = self.valid {
            // SAFETY: the validity buffer has a bit for every row, counted with those before
            // `offset`, and `row` is less than `offset + length`.
            let byte = unsafe { valid.as_ptr().add(row / 8).read() };
            if byte >> (row % 8) & 1 == 0 {
                return None;
            }
        }
        let (start, end) = (self.offset_of(row), self.offset_of(row + 1));
        if self.data.is_null() || end <= start {
            return Some(&[]);
        }
        // SAFETY: the interface demands that offsets ascend and that the last is within the bytes;
        // `data` is not null and `start < end`, as was checked; the bytes live as long as the
        // capsule, which `self` owns.
        Some(unsafe { std::slice::from_raw_parts(self.data.add(start), end - start) })
    }
}
