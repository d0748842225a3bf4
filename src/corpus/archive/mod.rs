//! Archives → the files in them, one after the other.
//!
//! Nothing is written anywhere, so it does not matter where the names of members lead; they only
//! tell what a member holds. As in directories, files whose names begin with a dot are left out.

mod tar;
mod zip;

pub use tar::Tar;
pub use zip::Zip;

use std::io;

use super::reading::{Fault, Trouble};
use super::unpack::Input;

/// A file in an archive.
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it holds, from front to back.
    pub input: Input,
}

/// Goes from member to member.
pub trait Archive: Send {
    /// The next file, or None at the end. The one before need not have been read to its end.
    fn next(&mut self) -> io::Result<Option<Member>>;
}

fn is_hidden(name: &str) -> bool {
    name.rsplit('/').next().unwrap_or(name).starts_with('.')
}

fn damaged(what: impl Into<String>) -> io::Error {
    Trouble::Fault(
        Fault::Damaged,
        what.into(),
        "the archive is damaged or cut short: fetch or make it again; on_error=\"skip\" \
         (--on-error skip) takes what can be read of it",
    )
    .into_io()
}
