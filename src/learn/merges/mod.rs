//! Counts → merges.
//!
//! All pieces lie end to end in one flat array ([`slots`]), in which a merge replaces one pair.
//!
//! A tracked pair has a count and a list of the positions where it stood when it came into being.
//! A pair can only come into being during the merge that makes the younger of its two tokens;
//! after that its occurrences only vanish. So a list is written once, at its exact size, into one
//! big array; positions that have vanished are skipped when the list is read.
//!
//! Most pairs are too rare ever to be merged. Since counts only fall, a pair below a *floor* when
//! it comes into being stays below it, so only pairs above the floor are tracked, which keeps the
//! tables small. The floor is a guess at the count of the last merge, on the low side; if the
//! candidates run out before the merges do, it is lowered and the pairs are indexed again from the
//! slots as they are then.
//!
//! The best pair comes from a [`queue`] with stale counts: counts only fall, so the top entry is
//! either right or is put back with its present count.

mod index;
mod learner;
mod neighbours;
mod options;
mod pairs;
mod queue;
mod slot_number;
mod slots;

pub use learner::learn;
pub use options::{Base, Bytes, MAX_TOKEN_LENGTH, Options, TieBreak};

#[cfg(test)]
mod tests;
