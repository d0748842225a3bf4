//! How a corpus is read: the field of a record, limits, and what happens to records that cannot be
//! read.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use crate::base::error::{Error, Result};
use crate::base::job::Job;
use crate::text::cutter::Cutter;

/// What to do with a record that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    Stop,
    /// Skip it and count it.
    Skip,
}

/// What to do with a record whose text is null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// It is an empty document.
    Keep,
    /// Skip it and count it.
    Skip,
    /// It cannot be read.
    Error,
}

/// Why a record, or the rest of a file, cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Json,
    /// A record without the field.
    Field,
    /// A record with `null` in the field.
    Null,
    /// A field that is not a string, or a record that is not an object.
    Type,
    Utf8,
    /// An unclosed quotation mark.
    Csv,
    /// Damaged compressed data or a damaged archive.
    Damaged,
    /// Data that decompresses to far more than text does, or needs too much memory for it.
    Bomb,
    TooLong,
    NotText,
}

impl Fault {
    /// The name in results and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Json => "invalid_json",
            Fault::Field | Fault::Null => "missing_field",
            Fault::Type => "wrong_type",
            Fault::Utf8 => "invalid_utf8",
            Fault::Csv => "invalid_csv",
            Fault::Damaged => "damaged",
            Fault::Bomb => "too_packed",
            Fault::TooLong => "too_long",
            Fault::NotText => "not_text",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The field of a record that holds the text.
    pub text_field: String,
    /// `text_field` split at dots: the path to a field of nested objects.
    pub path: Vec<String>,
    pub on_error: OnError,
    pub nulls: Nulls,
    /// What separates the documents of text files; None if only special tokens do.
    pub separator: Option<Vec<u8>>,
    /// The longest record, in bytes.
    pub max_document: usize,
    /// The largest ratio of the decompressed to the compressed size of a file.
    pub max_ratio: u64,
    /// The most memory, in bytes, that decompressing one file may need.
    pub max_window: u64,
    /// Which members of archives are read.
    pub choice: Choice,
}

impl Default for Reading {
    fn default() -> Self {
        Reading {
            text_field: "text".into(),
            path: vec!["text".into()],
            on_error: OnError::Stop,
            nulls: Nulls::Error,
            separator: None,
            max_document: 128 << 20,
            max_ratio: 250,
            max_window: 128 << 20,
            choice: Choice::default(),
        }
    }
}

impl Reading {
    /// Sets the field; dots lead into nested objects.
    pub fn with_field(mut self, field: &str) -> Self {
        self.path = field.split('.').map(str::to_owned).collect();
        self.text_field = field.to_owned();
        self
    }

    /// Counts a fault if it is to be skipped; otherwise an error with the message and hint of `report`.
    pub fn skip_or_fail(
        &self,
        fault: Fault,
        skipped: &mut Skipped,
        report: impl FnOnce() -> (String, &'static str),
    ) -> Result<()> {
        let skip_null = fault == Fault::Null && self.nulls == Nulls::Skip;
        if self.on_error == OnError::Skip || skip_null {
            skipped.add(fault.name(), 1);
            return Ok(());
        }
        let (message, hint) = report();
        Err(Error::corpus(message).with_hint(hint))
    }
}

/// What finding and reading blocks depends on.
#[derive(Debug, Clone, Copy)]
pub struct Context<'c> {
    pub cutter: &'c Cutter,
    pub reading: &'c Reading,
    /// About how many bytes make a block.
    pub block_size: usize,
    /// Whether a block may end inside a piece if there is no other cut nearby: only for callers that
    /// take blocks in order.
    pub open_pieces: bool,
    /// Canceling this job stops a read that waits for bytes.
    pub job: &'c Job,
}

/// Among the reasons in `Skipped`: members of archives that do not belong to the corpus.
pub const STRAY: &str = "stray_file";

/// The remedy for most records that cannot be read.
pub const SKIP_HINT: &str = "on_error=\"skip\" skips and counts such records";

/// How many records were skipped, by reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Skipped(pub BTreeMap<String, u64>);

impl Skipped {
    pub fn add(&mut self, reason: &str, n: u64) {
        match self.0.get_mut(reason) {
            Some(count) => *count = count.saturating_add(n),
            None => drop(self.0.insert(reason.to_owned(), n)),
        }
    }

    /// Moves the counts of `other` here.
    pub fn take(&mut self, other: &mut Skipped) {
        for (reason, n) in std::mem::take(&mut other.0) {
            self.add(&reason, n);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Why a file cannot be read to its end; it passes through the `Read` of decoders as an
/// `io::Error`.
#[derive(Debug)]
pub enum ReadFailure {
    /// An error whatever `on_error` says: the disk, the network, Ctrl-C.
    Stop(Error),
    /// A fault of the content, which `on_error` may skip: what is wrong, and the remedy.
    Fault(Fault, String, &'static str),
}

impl ReadFailure {
    pub fn into_io(self) -> io::Error {
        io::Error::other(IoPayload(self))
    }

    /// Errors that this crate did not create come from a decoder: the data is damaged.
    pub fn of_io(error: io::Error) -> Self {
        let what = error.to_string();
        match error.into_inner().map(|inner| inner.downcast::<IoPayload>()) {
            Some(Ok(carried)) => carried.0,
            _ => ReadFailure::Fault(
                Fault::Damaged,
                format!("decompression failed: {what}"),
                "the file is damaged or truncated: download or create it again; on_error=\"skip\" \
                 keeps what can be read of it",
            ),
        }
    }

    /// Counts a fault if `on_error` is to skip, otherwise returns an error; `place` is where in the
    /// corpus it occurred.
    pub fn skip_or_fail(
        self,
        reading: &Reading,
        skipped: &mut Skipped,
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        match self {
            ReadFailure::Stop(error) => Err(error),
            ReadFailure::Fault(fault, what, hint) => {
                reading.skip_or_fail(fault, skipped, || (format!("{}: {what}", place()), hint))
            }
        }
    }
}

/// The error of a damaged archive.
pub fn damaged(what: impl Into<String>) -> io::Error {
    ReadFailure::Fault(
        Fault::Damaged,
        what.into(),
        "the archive is damaged or truncated: download or create it again; on_error=\"skip\" \
         keeps what can be read of it",
    )
    .into_io()
}

#[derive(Debug)]
struct IoPayload(ReadFailure);

impl std::fmt::Display for IoPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            ReadFailure::Stop(error) => error.fmt(f),
            ReadFailure::Fault(_, what, _) => f.write_str(what),
        }
    }
}

impl std::error::Error for IoPayload {}
