//! What is packed → its bytes, in a stream of constant memory.
//!
//! A file that unpacks to far more than text ever does is stopped (a *bomb*); so is one that asks
//! for more memory than is allowed. Members, frames and streams that stand end to end are one text.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bzip2::read::MultiBzDecoder;
use flate2::read::{DeflateDecoder, MultiGzDecoder};
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::kind::Packing;
use super::reading::{Fault, Reading, Trouble};

/// A reader that owns all it needs.
pub type Input = Box<dyn Read + Send>;

/// So much may come of however little: a few repetitions pack without end.
const GRACE: u64 = 16 << 20;
/// What the decoder of xz needs beyond its window.
const XZ_ASIDE: u64 = 1 << 20;

/// The bytes of something packed. `passed` counts what was read of it.
pub fn unpack(
    input: Input,
    packing: Packing,
    passed: Arc<AtomicU64>,
    stride: usize,
    reading: &Reading,
) -> io::Result<Input> {
    // Some decoders read as soon as they are made.
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(stride, input);
    let unpacked: Input = match packing {
        Packing::Plain => return Ok(Box::new(buffered)),
        Packing::Gzip => Box::new(MultiGzDecoder::new(buffered)),
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(reading.max_window.max(1 << 10).ilog2().min(31))?;
            Box::new(decoder)
        }
        Packing::Xz => {
            let most = reading.max_window.saturating_add(XZ_ASIDE);
            let stream = Stream::new_stream_decoder(most, CONCATENATED)?;
            Box::new(XzDecoder::new_stream(buffered, stream))
        }
        Packing::Bzip2 => Box::new(MultiBzDecoder::new(buffered)),
    };
    Ok(guarded(unpacked, passed, before, reading))
}

/// The bytes of a member of a zip archive, which has neither head nor checksum of its own.
pub fn inflate(input: Input, passed: Arc<AtomicU64>, reading: &Reading) -> Input {
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(64 << 10, input);
    guarded(Box::new(DeflateDecoder::new(buffered)), passed, before, reading)
}

fn guarded(unpacked: Input, passed: Arc<AtomicU64>, before: u64, reading: &Reading) -> Input {
    Box::new(Guarded { unpacked, passed, before, given: 0, max_ratio: reading.max_ratio })
}

/// Compares what comes out with what went in.
struct Guarded {
    unpacked: Input,
    passed: Arc<AtomicU64>,
    before: u64,
    given: u64,
    max_ratio: u64,
}

impl Read for Guarded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.unpacked.read(buffer).map_err(explained)?;
        self.given += n as u64;
        let taken = self.passed.load(Relaxed) - self.before;
        if self.given > GRACE && self.given > taken.max(1).saturating_mul(self.max_ratio) {
            let ratio = self.given / taken.max(1);
            return Err(Trouble::Fault(
                Fault::Bomb,
                format!("unpacks to {ratio} times its size so far, which text never does"),
                "if it is meant so, raise max_ratio (--max-ratio)",
            )
            .into_io());
        }
        Ok(n)
    }
}

/// What only a larger window could read is not damaged.
fn explained(error: io::Error) -> io::Error {
    let text = error.to_string();
    if text.contains("too much memory")
        || text.contains("memory limit")
        || text.contains("memlimit")
    {
        return Trouble::Fault(
            Fault::Bomb,
            "needs more memory to be unpacked than is allowed".into(),
            "if it is meant so, raise max_window (--max-window)",
        )
        .into_io();
    }
    error
}
