//! What is packed → its bytes, in a stream of constant memory.
//!
//! A file that unpacks to far more than text ever does is stopped (a *bomb*); so is one that asks
//! for more memory than is allowed. Members, frames and streams that stand end to end are one text.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bzip2::read::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use flate2::read::DeflateDecoder;
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
        Packing::Gzip => Box::new(Members(Some(GzDecoder::new(buffered)))),
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

/// Members of gzip end to end; zeros behind them are padding, as `gzip` and Python have it.
struct Members(Option<GzDecoder<BufReader<Input>>>);

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let n = member.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            let mut rest = self.0.take().map(GzDecoder::into_inner);
            while let Some(input) = &mut rest {
                let here = input.fill_buf()?;
                let zeros = here.iter().take_while(|&&byte| byte == 0).count();
                match (here.len(), zeros) {
                    (0, _) => rest = None,
                    (all, zeros) if all == zeros => input.consume(zeros),
                    _ => {
                        input.consume(zeros);
                        self.0 = rest.take().map(GzDecoder::new);
                    }
                }
            }
        }
        Ok(0)
    }
}

/// The bytes of a member of a zip archive, which has neither head nor checksum of its own.
pub fn inflate(input: Input, passed: Arc<AtomicU64>, reading: &Reading) -> Input {
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(64 << 10, input);
    guarded(Box::new(DeflateDecoder::new(buffered)), passed, before, reading)
}

/// The same for one that is packed with LZMA, under a head as that of `.lzma` files.
pub fn unpack_lzma(input: Input, passed: Arc<AtomicU64>, reading: &Reading) -> io::Result<Input> {
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(64 << 10, input);
    let stream = Stream::new_lzma_decoder(reading.max_window.saturating_add(XZ_ASIDE))?;
    Ok(guarded(Box::new(XzDecoder::new_stream(buffered, stream)), passed, before, reading))
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
        within_ratio(self.given, taken, self.max_ratio)?;
        Ok(n)
    }
}

/// An error if so many bytes came of so few.
pub fn within_ratio(given: u64, taken: u64, max_ratio: u64) -> io::Result<()> {
    let taken = taken.max(1);
    if given <= GRACE || given <= taken.saturating_mul(max_ratio) {
        return Ok(());
    }
    Err(Trouble::Fault(
        Fault::Bomb,
        format!("unpacks to {} times its size, which text never does", given / taken),
        "if that is intended, a larger max_ratio= allows it",
    )
    .into_io())
}

/// What the packed members of an archive unpack to, all together. Each may be packed as tightly as
/// is allowed, and so may be the archive that they lie in; and each may be small enough to be let
/// pass, of many that are copies of each other.
pub struct Together {
    given: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    /// The bytes of the archive as it lies on disk; None for what comes by a pipe.
    size: Option<u64>,
}

impl Together {
    /// Nothing yet. `passed` counts what was read of the archive.
    pub fn new(passed: Arc<AtomicU64>, size: Option<u64>) -> Self {
        Together { given: Arc::default(), passed, size }
    }

    /// What a member unpacks to, as long as all together are within bounds.
    pub fn guard(&self, unpacked: Input, reading: &Reading) -> Input {
        let Together { given, passed, size } = self;
        let (given, passed, size) = (Arc::clone(given), Arc::clone(passed), *size);
        let together = Together { given, passed, size };
        Box::new(OneOfMany { unpacked, together, max_ratio: reading.max_ratio })
    }
}

struct OneOfMany {
    unpacked: Input,
    together: Together,
    max_ratio: u64,
}

impl Read for OneOfMany {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Together { given, passed, size } = &self.together;
        let taken = size.unwrap_or_else(|| passed.load(Relaxed));
        within_ratio(given.load(Relaxed), taken, self.max_ratio)?;
        let n = self.unpacked.read(buffer)?;
        given.fetch_add(n as u64, Relaxed);
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
            "if that is intended, a larger max_window= allows it",
        )
        .into_io();
    }
    error
}
