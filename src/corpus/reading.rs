//! How a corpus is read: which field of a record, how much of what is allowed, and what becomes of
//! records that cannot be read.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use crate::base::error::{Error, Result};

/// What to do with a record that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// It is an error.
    Stop,
    /// Leave it out, and count it.
    Skip,
}

/// Why a record, or the rest of a file, cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A line that is not JSON.
    Json,
    /// A record without the field, or with `null` in it.
    Field,
    /// A field that is no string, or a record that is no object.
    Type,
    /// A record that is not UTF-8.
    Utf8,
    /// A quotation mark that is never closed.
    Csv,
    /// Something packed that cannot be unpacked any further.
    Damaged,
    /// Something packed far more tightly than text ever is.
    Bomb,
    /// A document larger than is allowed.
    TooLong,
    /// A file that holds no text.
    NotText,
}

impl Fault {
    /// Its name in results and manifests.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Json => "invalid_json",
            Fault::Field => "missing_field",
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

/// How to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Saved", into = "Saved")]
pub struct Reading {
    /// The field of a record that holds the text.
    pub text_field: String,
    /// Its name in parts, for records inside records.
    pub path: Vec<String>,
    /// What to do with a record that cannot be read.
    pub on_error: OnError,
    /// The longest record, in bytes.
    pub max_document: usize,
    /// How many times larger than what it is packed into something may be.
    pub max_ratio: u64,
    /// How much memory unpacking one file may need.
    pub max_window: u64,
    /// Which members of an archive.
    pub choice: Choice,
}

/// The same on disk.
#[derive(Serialize, Deserialize)]
struct Saved {
    text_field: String,
    on_error: OnError,
    max_document: usize,
    max_ratio: u64,
    max_window: u64,
    #[serde(flatten)]
    choice: Choice,
}

impl From<Saved> for Reading {
    fn from(saved: Saved) -> Self {
        let Saved { text_field, on_error, max_document, max_ratio, max_window, choice } = saved;
        let limits =
            Reading { on_error, max_document, max_ratio, max_window, choice, ..Reading::default() };
        limits.with_field(&text_field)
    }
}

impl From<Reading> for Saved {
    fn from(reading: Reading) -> Self {
        let Reading { text_field, on_error, max_document, max_ratio, max_window, choice, .. } =
            reading;
        Saved { text_field, on_error, max_document, max_ratio, max_window, choice }
    }
}

impl Default for Reading {
    fn default() -> Self {
        Reading {
            text_field: "text".into(),
            path: vec!["text".into()],
            on_error: OnError::Stop,
            max_document: 128 << 20,
            max_ratio: 250,
            max_window: 128 << 20,
            choice: Choice::default(),
        }
    }
}

impl Reading {
    /// The same with another field, dotted for records inside records.
    pub fn with_field(mut self, field: &str) -> Self {
        self.path = field.split('.').map(str::to_owned).collect();
        self.text_field = field.to_owned();
        self
    }

    /// Counts a fault, or makes an error of it: what it is and where, and the remedy.
    pub fn fault(
        &self,
        fault: Fault,
        skipped: &mut Skipped,
        report: impl FnOnce() -> (String, &'static str),
    ) -> Result<()> {
        if self.on_error == OnError::Skip {
            skipped.add(fault.name(), 1);
            return Ok(());
        }
        let (message, hint) = report();
        Err(Error::corpus(message).with_hint(hint))
    }
}

/// Members of archives that are not of the corpus, among what was skipped.
pub const STRAY: &str = "stray_file";

/// How many records were left out, by what was wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Skipped(pub BTreeMap<String, u64>);

impl Skipped {
    /// Counts `n` more.
    pub fn add(&mut self, kind: &str, n: u64) {
        match self.0.get_mut(kind) {
            Some(count) => *count = count.saturating_add(n),
            None => drop(self.0.insert(kind.to_owned(), n)),
        }
    }

    /// Takes in what was counted elsewhere, and empties that.
    pub fn take(&mut self, other: &mut Skipped) {
        for (kind, n) in std::mem::take(&mut other.0) {
            self.add(&kind, n);
        }
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What ends the reading of a file before its end, as it comes through readers of others.
#[derive(Debug)]
pub enum Trouble {
    /// An error whatever the reader asked for: the disk, the network.
    Stop(Error),
    /// The content, which the reader may want to skip.
    Fault(Fault, String, &'static str),
}

impl Trouble {
    /// As an error of reading.
    pub fn into_io(self) -> io::Error {
        io::Error::other(Carried(self))
    }

    /// What an error of reading was; what we did not say ourselves, a decoder said.
    pub fn of_io(error: io::Error) -> Self {
        let what = error.to_string();
        match error.into_inner().map(|inner| inner.downcast::<Carried>()) {
            Some(Ok(carried)) => carried.0,
            _ => Trouble::Fault(
                Fault::Damaged,
                format!("cannot be unpacked any further: {what}"),
                "it is damaged or cut short: fetch or make it again; on_error=\"skip\" \
                 takes what can be read of it",
            ),
        }
    }
}

#[derive(Debug)]
struct Carried(Trouble);

impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Trouble::Stop(error) => error.fmt(f),
            Trouble::Fault(_, what, _) => f.write_str(what),
        }
    }
}

impl std::error::Error for Carried {}
