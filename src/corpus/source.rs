//! What a source was when the work on it began, to notice that it is not what it was.

use std::fs::Metadata;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::base::error::{Error, Result};

/// A source of a corpus as it was at some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Where it is, as the user said it.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds since 1970; 0 if that is not known.
    pub mtime_ns: i64,
    /// What else tells one version of it from another.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub version: String,
    /// How it was read, unless as text.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub format: String,
    /// Which part of it, if not all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub range: Option<(u64, u64)>,
}

impl Source {
    /// The file as it is now.
    pub fn of_file(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
        if metadata.is_dir() {
            return Err(Error::io(path, std::io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            // It has no size, and opening it may wait for ever.
            return Err(Error::corpus(format!("{}: not a regular file", path.display()))
                .with_hint("on the command line, - stands for stdin"));
        }
        Ok(Source {
            path: path.to_string_lossy().into_owned(),
            size: metadata.len(),
            mtime_ns: mtime_ns(&metadata),
            version: String::new(),
            format: String::new(),
            range: None,
        })
    }

    /// Whether it lies on disk as it is read, so that its places are known and it can be divided.
    pub fn is_divisible(&self) -> bool {
        matches!(self.format.as_str(), "" | "jsonl")
    }

    /// How much there is to read of it.
    pub fn weight(&self) -> u64 {
        let (start, end) = self.range.unwrap_or((0, self.size));
        end.min(self.size).saturating_sub(start)
    }

    /// How much of that comes before a place in it, about.
    pub fn weight_upto(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.range.map_or(0, |(start, _)| start)).min(self.weight())
    }

    /// An error if the file is not what it was.
    pub fn check(&self, metadata: &Metadata) -> Result<()> {
        if metadata.len() == self.size && mtime_ns(metadata) == self.mtime_ns {
            return Ok(());
        }
        let what = if metadata.len() == self.size {
            "it was written to".to_owned()
        } else {
            format!("it had {} bytes and has {}", self.size, metadata.len())
        };
        Err(self.changed(&what))
    }

    /// The error for a source that is not what it was.
    pub fn changed(&self, what: &str) -> Error {
        Error::corpus(format!("{}: changed since the work on it began: {what}", self.path))
            .with_hint("begin anew: overwrite=True")
    }
}

fn mtime_ns(metadata: &Metadata) -> i64 {
    // A system without times of change has only sizes to go by.
    let Ok(modified) = metadata.modified() else { return 0 };
    let ns = |span: std::time::Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => ns(after),
        Err(before) => -ns(before.duration()),
    }
}
