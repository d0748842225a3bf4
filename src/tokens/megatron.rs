//! Megatron-LM's index: where the documents of a `.bin` file are. All numbers are little-endian.
//!
//! ```text
//! "MMIDIDX\0\0"     9 bytes
//! 1                 u64, the version
//! type of an id     u8: 8 for uint16, 4 for int32
//! n                 u64, sequences; here, a document is one
//! n + 1             u64, entries of the last list
//! lengths           n × i32, in ids
//! places            n × i64, in bytes from the start of the .bin file
//! documents         (n + 1) × i64: 0, 1 … n
//! ```

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::append::Append;
use super::npy;
use super::plan::Dtype;
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// Writes the index of documents whose ends are in the file `docs`.
pub fn write_index(
    index: &mut Append,
    docs: &Path,
    n_documents: u64,
    dtype: Dtype,
    job: &Job,
) -> Result<()> {
    let code = if dtype == Dtype::Uint16 { 8u8 } else { 4 };
    index.write(b"MMIDIDX\0\0")?;
    index.write(&1u64.to_le_bytes())?;
    index.write(&[code])?;
    index.write(&n_documents.to_le_bytes())?;
    index.write(&(n_documents + 1).to_le_bytes())?;
    for_each_end(docs, job, |number, start, end| {
        let length = i32::try_from(end - start).map_err(|_| {
            Error::config(format!(
                "document {number} has {} ids, more than Megatron's index can tell",
                end - start
            ))
            .with_hint("write another format, or split the document")
        })?;
        index.write(&length.to_le_bytes())
    })?;
    let width = dtype.width() as u64;
    for_each_end(docs, job, |_, start, _| index.write(&(start * width).to_le_bytes()))?;
    for number in 0..=n_documents {
        index.write(&number.to_le_bytes())?;
    }
    Ok(())
}

fn for_each_end(
    docs: &Path,
    job: &Job,
    mut each: impl FnMut(u64, u64, u64) -> Result<()>,
) -> Result<()> {
    let failed = |e| Error::io(docs, e);
    let mut file = File::open(docs).map_err(failed)?;
    file.seek(SeekFrom::Start(npy::HEADER as u64)).map_err(failed)?;
    let mut input = BufReader::with_capacity(64 << 10, file);
    let (mut number, mut start, mut value) = (0, 0, [0; 8]);
    loop {
        match input.read_exact(&mut value) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(failed(e)),
        }
        if number % (1 << 16) == 0 {
            job.check()?;
        }
        let end = u64::from_le_bytes(value);
        each(number, start, end)?;
        (number, start) = (number + 1, end);
    }
}
