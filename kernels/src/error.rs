//! Errors of this crate; `bytemill` converts them into its own.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Arrays or settings of the wrong size.
    Input(String),
    /// A kernel panicked.
    Bug(String),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
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

/// An error with this message unless the condition holds.
pub(crate) fn require(holds: bool, message: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::input(message)) }
}
