//! Compressed bytes → bytes, as a stream in constant memory.
//!
//! A file that decompresses to far more than text does (a *bomb*) is stopped, as is one that needs
//! more memory than `max_window`. Concatenated members, frames and streams are one text.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bzip2::read::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use flate2::read::DeflateDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::bytes::ByteStream;
use super::kind::Compression;
use super::reading::{Fault, ReadFailure, Reading};

/// The ratio is not enforced below this many bytes: short repetitive texts compress without limit.
const MIN_BOMB_SIZE: u64 = 16 << 20;
/// Memory that the decoder of xz needs beyond its window.
const XZ_OVERHEAD: u64 = 1 << 20;
/// Bytes of a member of an archive that are read at a time.
const MEMBER_STRIDE: usize = 64 << 10;

/// The decompressed bytes of a stream; `passed` counts the compressed bytes that were read.
pub fn decompress(
    input: ByteStream,
    compression: Compression,
    passed: Arc<AtomicU64>,
    stride: usize,
    reading: &Reading,
) -> io::Result<ByteStream> {
    // Some decoders read when they are created.
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(stride, input);
    let content: ByteStream = match compression {
        Compression::Plain => return Ok(Box::new(buffered)),
        Compression::Gzip => Box::new(GzipMembers(Some(GzDecoder::new(buffered)))),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(reading.max_window.max(1 << 10).ilog2().min(31))?;
            Box::new(decoder)
        }
        Compression::Xz => {
            let most = reading.max_window.saturating_add(XZ_OVERHEAD);
            let stream = Stream::new_stream_decoder(most, CONCATENATED)?;
            Box::new(XzDecoder::new_stream(buffered, stream))
        }
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(buffered)),
    };
    Ok(guarded(content, passed, before, reading))
}

/// Concatenated gzip members; zeros after them are padding, as for `gzip` and Python.
struct GzipMembers(Option<GzDecoder<BufReader<ByteStream>>>);

impl Read for GzipMembers {
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

/// A compressed member of an archive. An error in its first bytes is reported by the first read.
pub fn decompress_member(
    input: ByteStream,
    compression: Compression,
    reading: &Reading,
) -> ByteStream {
    let passed = Arc::new(AtomicU64::new(0));
    let counted = Box::new(CountingReader { input, passed: Arc::clone(&passed) });
    match decompress(counted, compression, passed, MEMBER_STRIDE, reading) {
        Ok(content) => content,
        Err(error) => Box::new(FailingReader(Some(error))),
    }
}

struct CountingReader {
    input: ByteStream,
    passed: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.passed.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

struct FailingReader(Option<io::Error>);

impl Read for FailingReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// A deflated member of a zip archive, which has no header or checksum of its own.
pub fn inflate(input: ByteStream, passed: Arc<AtomicU64>, reading: &Reading) -> ByteStream {
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(MEMBER_STRIDE, input);
    guarded(Box::new(DeflateDecoder::new(buffered)), passed, before, reading)
}

/// A member compressed with LZMA, after the header of an `.lzma` file.
pub fn decompress_lzma(
    input: ByteStream,
    passed: Arc<AtomicU64>,
    reading: &Reading,
) -> io::Result<ByteStream> {
    let before = passed.load(Relaxed);
    let buffered = BufReader::with_capacity(MEMBER_STRIDE, input);
    let stream = Stream::new_lzma_decoder(reading.max_window.saturating_add(XZ_OVERHEAD))?;
    Ok(guarded(Box::new(XzDecoder::new_stream(buffered, stream)), passed, before, reading))
}

fn guarded(
    content: ByteStream,
    passed: Arc<AtomicU64>,
    before: u64,
    reading: &Reading,
) -> ByteStream {
    let Reading { max_ratio, max_window, .. } = *reading;
    Box::new(RatioGuard { content, passed, before, given: 0, max_ratio, max_window })
}

/// Compares the bytes that came out with those that went in since `before`.
struct RatioGuard {
    content: ByteStream,
    passed: Arc<AtomicU64>,
    before: u64,
    given: u64,
    max_ratio: u64,
    max_window: u64,
}

impl Read for RatioGuard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(buffer).map_err(|error| explained(error, self.max_window))?;
        self.given += n as u64;
        let taken = self.passed.load(Relaxed) - self.before;
        within_ratio(self.given, taken, self.max_ratio)?;
        Ok(n)
    }
}

/// An error if `given` bytes are too many for `taken` compressed ones.
pub fn within_ratio(given: u64, taken: u64, max_ratio: u64) -> io::Result<()> {
    let taken = taken.max(1);
    if given <= MIN_BOMB_SIZE || given <= taken.saturating_mul(max_ratio) {
        return Ok(());
    }
    Err(ReadFailure::Fault(
        Fault::Bomb,
        format!("decompresses to {} times its size; at most {max_ratio} is allowed", given / taken),
        "raise max_ratio= if this is intended",
    )
    .into_io())
}

/// The decompressed size of all compressed members of one archive. A limit for each is not enough: the
/// archive itself may be compressed as tightly, and many copies of a small member may each stay below
/// `MIN_BOMB_SIZE`.
#[derive(Clone)]
pub struct MemberTotal {
    given: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
    /// The stored size of the archive; None for a pipe.
    size: Option<u64>,
}

impl MemberTotal {
    /// `passed` counts the bytes of the archive that were read.
    pub fn new(passed: Arc<AtomicU64>, size: Option<u64>) -> Self {
        MemberTotal { given: Arc::default(), passed, size }
    }

    /// `content` with an error once the total is too large.
    pub fn guard(&self, content: ByteStream, reading: &Reading) -> ByteStream {
        Box::new(MemberGuard { content, total: self.clone(), max_ratio: reading.max_ratio })
    }
}

struct MemberGuard {
    content: ByteStream,
    total: MemberTotal,
    max_ratio: u64,
}

impl Read for MemberGuard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let MemberTotal { given, passed, size } = &self.total;
        let taken = size.unwrap_or_else(|| passed.load(Relaxed));
        within_ratio(given.load(Relaxed), taken, self.max_ratio)?;
        let n = self.content.read(buffer)?;
        given.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

/// Data that needs a larger window than `max_window` is not damaged.
fn explained(error: io::Error, max_window: u64) -> io::Error {
    let text = error.to_string();
    if text.contains("too much memory")
        || text.contains("memory limit")
        || text.contains("memlimit")
    {
        return ReadFailure::Fault(
            Fault::Bomb,
            format!("decompression needs more than {max_window} bytes of memory"),
            "raise max_window= if this is intended",
        )
        .into_io();
    }
    error
}
