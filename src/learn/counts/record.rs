//! The encoding of counted pieces in byte order, for sorted runs and counts files.
//!
//! A record has four fields: the number of bytes that the piece shares with the previous one, the
//! number of bytes that follow, these bytes, the count. Numbers are LEB128 varints. Neighbors in byte
//! order share most of their bytes, so a record of natural text has about six bytes.

use std::io::{self, BufRead, Read, Write};

use super::sorted::{MAKE_AGAIN, SortedCounts};
use crate::base::error::{Error, Result};
use crate::base::job::Job;

/// Bytes that are read at a time.
pub const BUFFER: usize = 64 << 10;

/// Writes records. The pieces must come in byte order, each once.
#[derive(Debug, Default)]
pub struct RecordEncoder {
    last: Vec<u8>,
    record: Vec<u8>,
}

impl RecordEncoder {
    /// Writes a record and returns its size.
    pub fn write(&mut self, out: &mut impl Write, piece: &[u8], count: u64) -> io::Result<u64> {
        let shared = self.last.iter().zip(piece).take_while(|(a, b)| a == b).count();
        self.record.clear();
        push_number(&mut self.record, shared as u64);
        push_number(&mut self.record, (piece.len() - shared) as u64);
        self.record.extend_from_slice(&piece[shared..]);
        push_number(&mut self.record, count);
        self.last.truncate(shared);
        self.last.extend_from_slice(&piece[shared..]);
        out.write_all(&self.record)?;
        Ok(self.record.len() as u64)
    }
}

fn push_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads records.
pub struct RecordDecoder<R> {
    input: R,
    /// The name of the file, for messages.
    name: String,
    n_records: u64,
    n_read: u64,
    piece: Vec<u8>,
    count: u64,
}

impl<R: BufRead> RecordDecoder<R> {
    pub fn new(input: R, name: String, n_records: u64) -> Self {
        RecordDecoder { input, name, n_records, n_read: 0, piece: Vec::new(), count: 0 }
    }

    pub fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = match self.input.fill_buf() {
                Ok([]) => return Err(self.ended()),
                Ok(buffer) => buffer[0],
                Err(error) => return Err(self.failed(error)),
            };
            self.input.consume(1);
            let digit = u64::from(byte & 0x7f);
            if shift == 63 && digit > 1 {
                break;
            }
            number |= digit << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.damaged("a number of more than 64 bits"))
    }

    fn read(&mut self) -> Result<()> {
        let shared = self.number()?;
        let more = self.number()?;
        if shared > self.piece.len() as u64 || more == 0 {
            return Err(self.damaged("impossible lengths"));
        }
        let shared = shared as usize;
        // The byte of the previous piece where the new bytes begin, which must be greater.
        let before = self.piece.get(shared).copied();
        self.piece.truncate(shared);
        // The length may be damaged, so it is not allocated up front.
        match (&mut self.input).take(more).read_to_end(&mut self.piece) {
            Ok(n) if n as u64 == more => {}
            Ok(_) => return Err(self.ended()),
            Err(error) => return Err(self.failed(error)),
        }
        if before.is_some_and(|before| before >= self.piece[shared]) {
            return Err(self.damaged("pieces out of order"));
        }
        self.count = self.number()?;
        if self.count == 0 {
            return Err(self.damaged("a count of zero"));
        }
        Ok(())
    }

    fn ended(&self) -> Error {
        self.damaged("unexpected end of file")
    }

    fn damaged(&self, what: &str) -> Error {
        Error::corpus(format!(
            "{}: {what} (record {} of {})",
            self.name,
            self.n_read + 1,
            self.n_records
        ))
        .with_hint(MAKE_AGAIN)
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io(self.name.as_ref(), error)
    }
}

impl<R: BufRead> SortedCounts for RecordDecoder<R> {
    fn advance(&mut self) -> Result<bool> {
        if self.n_read == self.n_records {
            return Ok(false);
        }
        self.read()?;
        self.n_read += 1;
        Ok(true)
    }

    fn piece(&self) -> &[u8] {
        &self.piece
    }

    fn count(&self) -> u64 {
        self.count
    }
}

/// Reports the bytes that it reads as progress of a job.
pub struct Metered<'a, R> {
    pub input: R,
    pub job: Option<&'a Job>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        if let Some(job) = self.job {
            job.advance(n as u64);
        }
        Ok(n)
    }
}
