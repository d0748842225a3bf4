//! What a kernel refuses.

use std::fmt;

/// Why a kernel did not run, or did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Arrays or settings that do not fit together.
    Input(String),
    /// A panic in one of the threads.
    Bug(String),
}

/// The result of a kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Arrays or settings that do not fit together.
    pub fn input(message: impl Into<String>) -> Self {
        Error::Input(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(message) | Error::Bug(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}
