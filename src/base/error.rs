//! The one error type of the crate.
//!
//! Callers distinguish variants (Python maps each to an exception class). The message states what
//! failed, the value and where; the hint states the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum Error {
    /// An impossible option.
    Config(Report),
    /// A corpus that is unreadable, empty, not text or in the wrong format.
    Corpus(Report),
    /// A malformed tokenizer file, an invalid vocabulary, an unknown id, a refused special token.
    Tokenizer(Report),
    /// Tokens on disk that are damaged, incomplete, or made with another tokenizer.
    Tokens(Report),
    /// A failed system call.
    Io {
        /// The file it was made for.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The caller asked to stop.
    Interrupted,
    /// Memory or a thread that could not be allocated.
    Memory(String),
    /// A broken invariant.
    Bug(String),
    /// An exception raised by a reader in Python.
    Foreign(Box<dyn std::error::Error + Send + Sync>),
}

/// A message and, if there is one, a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What failed, the value, and where.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
}

/// A result with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Report {
    fn new(message: impl Into<String>) -> Self {
        Report { message: message.into(), hint: None }
    }
}

impl Error {
    /// An impossible option.
    pub fn config(message: impl Into<String>) -> Self {
        Error::Config(Report::new(message))
    }

    /// An unusable corpus.
    pub fn corpus(message: impl Into<String>) -> Self {
        Error::Corpus(Report::new(message))
    }

    /// An unusable tokenizer, or an id or text that it refuses.
    pub fn tokenizer(message: impl Into<String>) -> Self {
        Error::Tokenizer(Report::new(message))
    }

    /// Unusable tokens on disk.
    pub fn tokens(message: impl Into<String>) -> Self {
        Error::Tokens(Report::new(message))
    }

    /// A failed system call on `path`.
    pub fn io(path: &Path, source: io::Error) -> Self {
        Error::Io { path: path.to_owned(), source }
    }

    fn report_mut(&mut self) -> Option<&mut Report> {
        match self {
            Error::Config(report)
            | Error::Corpus(report)
            | Error::Tokenizer(report)
            | Error::Tokens(report) => Some(report),
            Error::Io { .. }
            | Error::Interrupted
            | Error::Memory(_)
            | Error::Bug(_)
            | Error::Foreign(_) => None,
        }
    }

    /// The same error with a remedy.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(report) = self.report_mut() {
            report.hint = Some(hint.into());
        }
        self
    }

    /// The same error as a variant `kind` if it is a `Config`: for values that came from a file and
    /// not from an option.
    pub fn blaming_file(self, kind: fn(Report) -> Error) -> Self {
        match self {
            Error::Config(report) => kind(report),
            other => other,
        }
    }

    /// The same error with the name of the file before its message.
    pub fn in_file(mut self, name: &str) -> Self {
        if let Some(report) = self.report_mut() {
            report.message = format!("{name}: {}", report.message);
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(report)
            | Error::Corpus(report)
            | Error::Tokenizer(report)
            | Error::Tokens(report) => {
                f.write_str(&report.message)?;
                match &report.hint {
                    Some(hint) => write!(f, "\nhint: {hint}"),
                    None => Ok(()),
                }
            }
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Interrupted => f.write_str("interrupted"),
            Error::Memory(what) => write!(f, "out of memory: {what}"),
            Error::Bug(what) => write!(f, "{what}; this is a bug in bytemill, please report it"),
            Error::Foreign(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Foreign(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
