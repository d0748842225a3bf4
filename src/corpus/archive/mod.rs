//! Archives → the files in them, one after the other.
//!
//! Nothing is written anywhere, so it does not matter where the names of members lead; they only
//! tell what a member holds. As in directories, files whose names begin with a dot are skipped, and all
//! that lies in folders of such names.

mod tar;
mod zip;

pub use tar::Tar;
pub use zip::Zip;

use std::io;

use super::reading::{Fault, Trouble};
use super::unpack::Input;

/// A file in an archive.
pub struct Member {
    /// Its path in the archive.
    pub name: String,
    /// Whether it holds nothing.
    pub is_empty: bool,
    /// What it holds, from front to back.
    pub input: Input,
}

/// Goes from member to member.
pub trait Archive: Send {
    /// The next file, or None at the end. The one before need not have been read to its end.
    fn next(&mut self) -> io::Result<Option<Member>>;
}

fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('.') && !matches!(part, "." | ".."))
}

fn damaged(what: impl Into<String>) -> io::Error {
    Trouble::Fault(
        Fault::Damaged,
        what.into(),
        "the archive is damaged or cut short: fetch or make it again; on_error=\"skip\" \
         takes what can be read of it",
    )
    .into_io()
}
