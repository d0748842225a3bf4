//! What a file holds and how it is packed, told by its name or by whoever reads it.

use std::fmt;

use crate::base::error::{Error, Result};

/// What is in a file, once it is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text; special tokens separate documents.
    Text,
    /// A JSON object to a line, each a document.
    Jsonl,
    /// Rows of values between these bytes, under a row of names; each row a document.
    Separated(u8),
    /// Files one behind the other.
    Tar,
    /// Files, with a directory of them at the end.
    Zip,
    /// Columns, which are read by a library of Python's.
    Parquet,
    /// The same, in Arrow's own form.
    Arrow,
}

/// What a file is packed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Nothing.
    Plain,
    /// `.gz`, members end to end included.
    Gzip,
    /// `.zst`, frames end to end included.
    Zstd,
    /// `.xz`, streams end to end included.
    Xz,
    /// `.bz2`, streams end to end included.
    Bzip2,
}

/// Both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// What is in it.
    pub format: Format,
    /// What it is packed with.
    pub packing: Packing,
}

/// Format names, as extensions and as `input_format`; the first of a format is its own.
const FORMATS: [(&str, Format); 16] = [
    ("text", Format::Text),
    ("txt", Format::Text),
    ("jsonl", Format::Jsonl),
    ("ndjson", Format::Jsonl),
    // What large corpora are published as has this name and a record to a line.
    ("json", Format::Jsonl),
    ("csv", Format::Separated(b',')),
    ("tsv", Format::Separated(b'\t')),
    ("tar", Format::Tar),
    ("zip", Format::Zip),
    ("parquet", Format::Parquet),
    ("parq", Format::Parquet),
    ("pq", Format::Parquet),
    ("arrow", Format::Arrow),
    ("feather", Format::Arrow),
    ("ipc", Format::Arrow),
    ("arrows", Format::Arrow),
];

const PACKINGS: [(&str, Packing); 6] = [
    ("gz", Packing::Gzip),
    ("gzip", Packing::Gzip),
    ("zst", Packing::Zstd),
    ("zstd", Packing::Zstd),
    ("xz", Packing::Xz),
    ("bz2", Packing::Bzip2),
];

/// Both in one.
const SHORT: [(&str, Packing); 4] = [
    ("tgz", Packing::Gzip),
    ("tzst", Packing::Zstd),
    ("txz", Packing::Xz),
    ("tbz2", Packing::Bzip2),
];

fn known<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, value)| *value)
}

impl Kind {
    /// Unpacked text.
    pub const TEXT: Kind = Kind { format: Format::Text, packing: Packing::Plain };

    /// What the name of a file says; what it says nothing of is text.
    pub fn of_name(name: &str) -> Self {
        Kind::named(name).unwrap_or(Kind::TEXT)
    }

    /// What the name of a file says, or None if its extension is not known.
    pub fn named(name: &str) -> Option<Self> {
        let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let (stem, extension) = last.rsplit_once('.')?;
        if let Some(packing) = known(&SHORT, extension) {
            return Some(Kind { format: Format::Tar, packing });
        }
        let Some(packing) = known(&PACKINGS, extension) else {
            return known(&FORMATS, extension)
                .map(|format| Kind { format, packing: Packing::Plain });
        };
        let inner = stem.rsplit_once('.').and_then(|(_, inner)| known(&FORMATS, inner));
        Some(Kind { format: inner.unwrap_or(Format::Text), packing })
    }

    /// What `input_format` says: a format, a packing (of text), or both, as in `jsonl.gz`.
    pub fn parse(text: &str) -> Result<Self> {
        let unknown = || {
            Error::config(format!("input_format={text:?} is not known")).with_hint(
                "use text, jsonl, csv, tsv, tar, zip, parquet or arrow; packed: jsonl.gz, \
                 text.zst, csv.xz, tar.bz2",
            )
        };
        if let Some(packing) = known(&SHORT, text) {
            return Ok(Kind { format: Format::Tar, packing });
        }
        if let Some(packing) = known(&PACKINGS, text) {
            return Ok(Kind { format: Format::Text, packing });
        }
        let (format, packing) = match text.split_once('.') {
            Some((format, packing)) => (format, known(&PACKINGS, packing).ok_or_else(unknown)?),
            None => (text, Packing::Plain),
        };
        Ok(Kind { format: known(&FORMATS, format).ok_or_else(unknown)?, packing })
    }

    /// Whether every byte of the file is where it is read from: nothing is to be unpacked.
    pub fn is_plain(self) -> bool {
        self.packing == Packing::Plain
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |table: &[(&'static str, Format)]| {
            table.iter().find(|(_, format)| *format == self.format).map(|(name, _)| *name)
        };
        f.write_str(name(&FORMATS).unwrap_or("text"))?;
        match PACKINGS.iter().find(|(_, packing)| *packing == self.packing) {
            Some((packing, _)) => write!(f, ".{packing}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        let told = |name: &str| Kind::of_name(name).to_string();
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
            assert_eq!(told(name), kind, "{name}");
        }
        for name in ["a", "a.py", "README.md", "_SUCCESS", "gz", "part.crc"] {
            assert_eq!(Kind::named(name), None, "{name}");
        }
        assert_eq!(Kind::named("a.txt"), Some(Kind::TEXT));
        assert_eq!(Kind::named("a.py.gz").unwrap().to_string(), "text.gz");
    }

    #[test]
    fn what_is_said_is_read_back() {
        for said in ["text", "jsonl.gz", "csv.bz2", "tsv.zst", "tar.xz", "zip", "parquet", "arrow"]
        {
            assert_eq!(Kind::parse(said).unwrap().to_string(), said);
        }
        assert_eq!(Kind::parse("gz").unwrap().to_string(), "text.gz");
        assert_eq!(Kind::parse("tgz").unwrap().to_string(), "tar.gz");
        for said in ["", "xml", "jsonl.rar", ".gz", "jsonl.gz.gz"] {
            assert!(Kind::parse(said).unwrap_err().to_string().contains("input_format"), "{said}");
        }
    }
}
