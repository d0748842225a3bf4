//! Counts files: sorted, checksummed, written atomically.
//!
//! ```text
//! "BMCOUNTS"                 8 bytes
//! version                    32-bit number, little-endian: 1
//! length of the header       32-bit number, little-endian
//! header                     JSON, see `Header`
//! records                    see `record`; their number is in the header
//! checksum                   SHA-256 of everything before, 32 bytes
//! ```
//!
//! Nothing in it depends on when, where or in how many steps the pieces were counted: equal counts
//! are equal files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Take, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::record::{BUFFER, Metered, RecordDecoder, RecordEncoder};
use super::sorted::{self, MAKE_AGAIN, SortedCounts};
use crate::base::error::{Error, Result};
use crate::base::files;
use crate::base::job::Job;
use crate::corpus::Skipped;

const MAGIC: &[u8; 8] = b"BMCOUNTS";
const VERSION: u32 = 1;
const CHECKSUM_SIZE: u64 = 32;
/// Far more than any header: a damaged length must not exhaust memory.
const MAX_HEADER: u64 = 64 << 20;

/// The header of a counts file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The stages of the pattern.
    pub pattern: Vec<String>,
    /// The special tokens, in byte order.
    pub special_tokens: Vec<String>,
    /// See [`fingerprint`].
    pub fingerprint: String,
    /// Bytes of text counted.
    pub bytes_read: u64,
    /// Records that were skipped.
    #[serde(skip_serializing_if = "Skipped::is_empty", default)]
    pub skipped: Skipped,
    /// The number of distinct pieces, which is the number of records.
    pub n_pieces: u64,
    /// The sum of their counts.
    pub total: u64,
}

/// SHA-256 of the compact JSON of `[pattern, special_tokens]`, in hexadecimal. Only counts with the
/// same fingerprint can be added up.
pub fn fingerprint(pattern: &[String], special_tokens: &[String]) -> String {
    // Lists of strings always have a JSON form.
    let json = serde_json::to_vec(&(pattern, special_tokens)).unwrap_or_default();
    files::hex(&Sha256::digest(json))
}

/// Writes a counts file under a temporary name and renames it once it is on disk.
pub fn write(
    path: &Path,
    header: &Header,
    source: &mut impl SortedCounts,
    job: &Job,
) -> Result<()> {
    let mut temporary = files::Temporary::beside(path)?;
    let failed = |error| Error::io(path, error);
    let hashing = Hashing { inner: &mut temporary.file, hasher: Sha256::new() };
    let mut out = BufWriter::with_capacity(4 * BUFFER, hashing);
    let text = serde_json::to_vec(header)
        .map_err(|e| Error::Bug(format!("cannot serialize the header of a counts file: {e}")))?;
    let mut begin = Vec::from(MAGIC);
    begin.extend(VERSION.to_le_bytes());
    begin.extend((text.len() as u32).to_le_bytes());
    begin.extend(text);
    out.write_all(&begin).map_err(failed)?;
    let mut encoder = RecordEncoder::default();
    sorted::for_each(source, job, |piece, count| {
        encoder.write(&mut out, piece, count).map(|_| ()).map_err(failed)
    })?;
    let hashing = out.into_inner().map_err(|e| failed(e.into_error()))?;
    let checksum = hashing.hasher.finalize();
    temporary.file.write_all(&checksum).map_err(failed)?;
    job.check()?;
    temporary.commit()
}

struct Hashing<T> {
    inner: T,
    hasher: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..n]);
        Ok(n)
    }
}

type HashedInput<'a> = BufReader<Hashing<Take<Metered<'a, File>>>>;

/// A cursor over a counts file. The checksum is verified after the last piece, so a file that was
/// read to its end is undamaged.
pub struct FileSource<'a> {
    header: Header,
    records: RecordDecoder<HashedInput<'a>>,
    name: String,
    done: bool,
}

impl<'a> FileSource<'a> {
    /// Opens a counts file and reads its header.
    pub fn open(path: &Path, job: Option<&'a Job>) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |error| Error::io(path, error);
        let file = files::open(path, Error::corpus)?;
        let content = file.metadata().map_err(failed)?.len().saturating_sub(CHECKSUM_SIZE);
        let inner = Metered { input: file, job }.take(content);
        let hashing = Hashing { inner, hasher: Sha256::new() };
        let mut input = BufReader::with_capacity(BUFFER, hashing);
        let header = read_header(&mut input, path)?;
        let records = RecordDecoder::new(input, name.clone(), header.n_pieces);
        Ok(FileSource { header, records, name, done: false })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    fn check_end(&mut self) -> Result<()> {
        let failed = |error| Error::io(self.name.as_ref(), error);
        let damaged =
            |what: &str| Err(Error::corpus(format!("{}: {what}", self.name)).with_hint(MAKE_AGAIN));
        let input = self.records.input_mut();
        if !input.fill_buf().map_err(failed)?.is_empty() {
            return damaged("trailing bytes after the last record");
        }
        let hashing = input.get_mut();
        let expected = hashing.hasher.clone().finalize();
        let mut checksum = Vec::new();
        hashing.inner.get_mut().read_to_end(&mut checksum).map_err(failed)?;
        if checksum[..] != expected[..] {
            return damaged("the checksum does not match");
        }
        Ok(())
    }
}

fn read_header(input: &mut impl Read, path: &Path) -> Result<Header> {
    let bad = |what: String| Error::corpus(format!("{}: {what}", path.display()));
    let mut read = |length: u64| {
        let mut bytes = Vec::new();
        match input.take(length).read_to_end(&mut bytes) {
            Ok(n) if n as u64 == length => Ok(bytes),
            Ok(_) => Err(bad("unexpected end of file".into()).with_hint(MAKE_AGAIN)),
            Err(error) => Err(Error::io(path, error)),
        }
    };
    // A file that is too short is not a counts file; one that cannot be read may be.
    let magic = match read(8) {
        Err(error @ Error::Io { .. }) => return Err(error),
        other => other.unwrap_or_default(),
    };
    if magic != MAGIC {
        return Err(
            bad("not a counts file".into()).with_hint("create counts files with bytemill count")
        );
    }
    let version = files::little_endian(&read(4)?);
    if version != u64::from(VERSION) {
        return Err(bad(format!("counts file version must be {VERSION}, got {version}"))
            .with_hint("use the bytemill that wrote it, or create it again with bytemill count"));
    }
    let length = files::little_endian(&read(4)?);
    if length > MAX_HEADER {
        return Err(bad("impossible header length".into()).with_hint(MAKE_AGAIN));
    }
    let header: Header = serde_json::from_slice(&read(length)?)
        .map_err(|e| bad(format!("damaged header: {e}")).with_hint(MAKE_AGAIN))?;
    if header.fingerprint != fingerprint(&header.pattern, &header.special_tokens)
        || !header.special_tokens.is_sorted()
    {
        return Err(bad("the fingerprint does not match the header".into()).with_hint(MAKE_AGAIN));
    }
    Ok(header)
}

impl SortedCounts for FileSource<'_> {
    fn advance(&mut self) -> Result<bool> {
        if self.records.advance()? {
            return Ok(true);
        }
        if !self.done {
            self.check_end()?;
            self.done = true;
        }
        Ok(false)
    }

    fn piece(&self) -> &[u8] {
        self.records.piece()
    }

    fn count(&self) -> u64 {
        self.records.count()
    }
}
