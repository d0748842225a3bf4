//! The one error type of the crate.
//!
//! A variant is a kind that callers tell apart (Python maps each to an exception class); the
//! message says what failed, the value and the place, the hint says what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong.
#[derive(Debug)]
pub enum Error {
    /// An option that cannot be.
    Config(Report),
    /// A corpus that is unreadable, empty, not text or in the wrong format.
    Corpus(Report),
    /// A malformed tokenizer file, an invalid vocabulary, an unknown id, a refused special token.
    Tokenizer(Report),
    /// Tokens on disk that are damaged, incomplete, or made with another tokenizer.
    Tokens(Report),
    /// The operating system refused.
    Io {
        /// The file in question.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The caller asked to stop.
    Interrupted,
    /// Memory, or room for a thread, that could not be had.
    Memory(String),
    /// What must never happen.
    Bug(String),
    /// An exception raised by a reader in Python.
    Foreign(Box<dyn std::error::Error + Send + Sync>),
}

/// A message and, where there is one, a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What failed, with the value and the place.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Report {
    fn new(message: impl Into<String>) -> Self {
        Report { message: message.into(), hint: None }
    }
}

impl Error {
    /// An option that cannot be.
    pub fn config(message: impl Into<String>) -> Self {
        Error::Config(Report::new(message))
    }

    /// A corpus that cannot be used.
    pub fn corpus(message: impl Into<String>) -> Self {
        Error::Corpus(Report::new(message))
    }

    /// A tokenizer that cannot be used, or an id or text it refuses.
    pub fn tokenizer(message: impl Into<String>) -> Self {
        Error::Tokenizer(Report::new(message))
    }

    /// Tokens on disk that cannot be used.
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

    /// The same error as `kind` if it blames an option: what a file brings is no option.
    pub fn blaming_file(self, kind: fn(Report) -> Error) -> Self {
        match self {
            Error::Config(report) => kind(report),
            other => other,
        }
    }

    /// The same error with the name of what was being read in front.
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
