//! The format and compression of a file, by its name or by `input_format`; and whether it is text, by
//! its first bytes.
//!
//! A byte-level tokenizer can read any bytes, so everything counts as text except what is never meant
//! as such: UTF-16 and UTF-32, archives, images, programs.

use std::fmt;

use crate::base::error::{Error, Result};

/// The format of a file, once decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Special tokens separate documents.
    Text,
    /// One JSON object per line, each a document.
    Jsonl,
    /// CSV with this separator and a header row; each row is a document.
    Separated(u8),
    Tar,
    Zip,
    /// Read in Python, as is Arrow.
    Parquet,
    Arrow,
}

/// Concatenated members, frames or streams are read as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKind {
    pub format: FileFormat,
    pub compression: Compression,
}

/// Names of formats, as extensions and as `input_format`; the first name of a format is printed.
const FORMATS: [(&str, FileFormat); 16] = [
    ("text", FileFormat::Text),
    ("txt", FileFormat::Text),
    ("jsonl", FileFormat::Jsonl),
    ("ndjson", FileFormat::Jsonl),
    // Large corpora are published under this extension with one record per line.
    ("json", FileFormat::Jsonl),
    ("csv", FileFormat::Separated(b',')),
    ("tsv", FileFormat::Separated(b'\t')),
    ("tar", FileFormat::Tar),
    ("zip", FileFormat::Zip),
    ("parquet", FileFormat::Parquet),
    ("parq", FileFormat::Parquet),
    ("pq", FileFormat::Parquet),
    ("arrow", FileFormat::Arrow),
    ("feather", FileFormat::Arrow),
    ("ipc", FileFormat::Arrow),
    ("arrows", FileFormat::Arrow),
];

const COMPRESSIONS: [(&str, Compression); 6] = [
    ("gz", Compression::Gzip),
    ("gzip", Compression::Gzip),
    ("zst", Compression::Zstd),
    ("zstd", Compression::Zstd),
    ("xz", Compression::Xz),
    ("bz2", Compression::Bzip2),
];

/// Extensions of compressed tar archives.
const TAR_EXTENSIONS: [(&str, Compression); 4] = [
    ("tgz", Compression::Gzip),
    ("tzst", Compression::Zstd),
    ("txz", Compression::Xz),
    ("tbz2", Compression::Bzip2),
];

fn value_of<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, value)| *value)
}

impl FileKind {
    pub const TEXT: FileKind =
        FileKind { format: FileFormat::Text, compression: Compression::Plain };

    /// By the name of a file; a file with an unknown extension is text.
    pub fn of_name(name: &str) -> Self {
        FileKind::named(name).unwrap_or(FileKind::TEXT)
    }

    /// By the name of a file, or None if its extension is unknown.
    pub fn named(name: &str) -> Option<Self> {
        let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let (stem, extension) = last.rsplit_once('.')?;
        if let Some(compression) = value_of(&TAR_EXTENSIONS, extension) {
            return Some(FileKind { format: FileFormat::Tar, compression });
        }
        let Some(compression) = value_of(&COMPRESSIONS, extension) else {
            return value_of(&FORMATS, extension)
                .map(|format| FileKind { format, compression: Compression::Plain });
        };
        let inner = stem.rsplit_once('.').and_then(|(_, inner)| value_of(&FORMATS, inner));
        Some(FileKind { format: inner.unwrap_or(FileFormat::Text), compression })
    }

    /// By `input_format`: a format, a compression (of text), or both, as in `jsonl.gz`.
    pub fn parse(text: &str) -> Result<Self> {
        let unknown = || {
            Error::config(format!("input_format must be a known format, got {text:?}")).with_hint(
                "use text, jsonl, csv, tsv, tar, zip, parquet or arrow; compressed: jsonl.gz, \
                 text.zst, csv.xz, tar.bz2",
            )
        };
        if let Some(compression) = value_of(&TAR_EXTENSIONS, text) {
            return Ok(FileKind { format: FileFormat::Tar, compression });
        }
        if let Some(compression) = value_of(&COMPRESSIONS, text) {
            return Ok(FileKind { format: FileFormat::Text, compression });
        }
        let (format, compression) = match text.split_once('.') {
            Some((format, compression)) => {
                (format, value_of(&COMPRESSIONS, compression).ok_or_else(unknown)?)
            }
            None => (text, Compression::Plain),
        };
        Ok(FileKind { format: value_of(&FORMATS, format).ok_or_else(unknown)?, compression })
    }

    pub fn is_plain(self) -> bool {
        self.compression == Compression::Plain
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |table: &[(&'static str, FileFormat)]| {
            table.iter().find(|(_, format)| *format == self.format).map(|(name, _)| *name)
        };
        f.write_str(name(&FORMATS).unwrap_or("text"))?;
        match COMPRESSIONS.iter().find(|(_, compression)| *compression == self.compression) {
            Some((compression, _)) => write!(f, ".{compression}"),
            None => Ok(()),
        }
    }
}

/// How many bytes at the start of a file decide whether it is text.
pub const TEXT_SAMPLE: usize = 8192;

/// Why a file that starts with `sample` is not text, and what to do; None if it is text.
pub fn not_text(sample: &[u8]) -> Option<(&'static str, &'static str)> {
    const CONVERT: &str = "convert it first, for instance with: iconv -f UTF-16 -t UTF-8";
    const CONVERT_32: &str = "convert it first, for instance with: iconv -f UTF-32 -t UTF-8";
    const NOT_TEXT: &str = "pass text files; set input_format= for compressed files and archives";
    // The byte order mark of UTF-32LE begins with that of UTF-16LE.
    if sample.starts_with(b"\xff\xfe\0\0") || sample.starts_with(b"\0\0\xfe\xff") {
        return Some(("UTF-32 text, not UTF-8", CONVERT_32));
    }
    if sample.starts_with(b"\xff\xfe") || sample.starts_with(b"\xfe\xff") {
        return Some(("UTF-16 text, not UTF-8", CONVERT));
    }
    let mut zeros = [0usize; 4];
    let mut controls = 0usize;
    for (i, &byte) in sample.iter().enumerate() {
        match byte {
            0 => zeros[i % 4] += 1,
            // Tab to carriage return and escape are common in text files; backspace in old
            // manual pages.
            8..=13 | 27 => {}
            1..=31 | 127 => controls += 1,
            _ => {}
        }
    }
    let n_zeros: usize = zeros.iter().sum();
    if n_zeros > 0 {
        let quarter = sample.len() / 4;
        let full = zeros.iter().filter(|&&z| z * 10 > quarter * 8).count();
        if full >= 2 && sample.len() >= 8 && n_zeros * 2 > sample.len() {
            return Some(("UTF-32 text without a byte order mark, not UTF-8", CONVERT_32));
        }
        let (even, odd) = (zeros[0] + zeros[2], zeros[1] + zeros[3]);
        // Binary data may have a few zeros that happen to be at even offsets.
        if even.abs_diff(odd) * 10 > n_zeros * 8 && n_zeros > 1 && n_zeros * 10 > sample.len() {
            return Some(("UTF-16 text without a byte order mark, not UTF-8", CONVERT));
        }
        return Some(("binary data, not text: it contains zero bytes", NOT_TEXT));
    }
    if controls * 20 > sample.len() {
        return Some(("binary data, not text: it contains many control characters", NOT_TEXT));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_names() {
        let kind_of = |name: &str| FileKind::of_name(name).to_string();
        for (name, kind) in [
            ("a", "text"),
            ("dir.jsonl/a", "text"),
            (".jsonl", "jsonl"),
            ("a.py", "text"),
            ("a.txt.gz", "text.gz"),
            ("a.GZ", "text.gz"),
            ("c4-train.00000-of-01024.json.gz", "jsonl.gz"),
            ("b/a.ndjson.zst", "jsonl.zst"),
            ("a.csv.xz", "csv.xz"),
            ("a.tsv", "tsv"),
            ("a.tgz", "tar.gz"),
            ("a.tar.bz2", "tar.bz2"),
            ("a.zip", "zip"),
            ("a.parquet", "parquet"),
            ("a.arrow", "arrow"),
            ("gz", "text"),
        ] {
            assert_eq!(kind_of(name), kind, "{name}");
        }
        for name in ["a", "a.py", "README.md", "_SUCCESS", "gz", "part.crc"] {
            assert_eq!(FileKind::named(name), None, "{name}");
        }
        assert_eq!(FileKind::named("a.txt"), Some(FileKind::TEXT));
        assert_eq!(FileKind::named("a.py.gz").unwrap().to_string(), "text.gz");
    }

    #[test]
    fn parsing_round_trips() {
        for text in ["text", "jsonl.gz", "csv.bz2", "tsv.zst", "tar.xz", "zip", "parquet", "arrow"]
        {
            assert_eq!(FileKind::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(FileKind::parse("gz").unwrap().to_string(), "text.gz");
        assert_eq!(FileKind::parse("tgz").unwrap().to_string(), "tar.gz");
        for text in ["", "xml", "jsonl.rar", ".gz", "jsonl.gz.gz"] {
            assert!(
                FileKind::parse(text).unwrap_err().to_string().contains("input_format"),
                "{text}"
            );
        }
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn text_is_text() {
        for text in ["", "a", "héllo\n\t\x0c\x1b[0m", "日本語"] {
            assert_eq!(not_text(text.as_bytes()), None, "{text:?}");
        }
        // Latin-1 and other old encodings are read byte by byte.
        assert_eq!(not_text(b"caf\xe9 na\xefve \xff\xfa"), None);
    }

    #[test]
    fn other_data_is_not_text() {
        let reason = |data: &[u8]| not_text(data).map_or("text", |(what, _)| what);
        assert!(reason(b"\xff\xfeh\0i\0").starts_with("UTF-16 text,"));
        assert!(reason(b"\xff\xfe\0\0h\0\0\0").starts_with("UTF-32 text,"));
        assert!(reason(&utf16("hello world")).starts_with("UTF-16 text without"));
        let big_endian: Vec<u8> = "hello".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert!(reason(&big_endian).starts_with("UTF-16 text without"));
        let wide: Vec<u8> = "hello world".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        assert!(reason(&wide).starts_with("UTF-32 text without"));
        assert!(reason(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0").starts_with("binary"));
        let few_zeros = [&b"\x7fELF\x02\x01\x01"[..], &(0..=255).collect::<Vec<u8>>().repeat(8)];
        assert!(reason(&few_zeros.concat()).starts_with("binary"));
        assert!(reason(b"PK\x03\x04\x14\x01\x02\x03\x05").starts_with("binary"));
    }
}
