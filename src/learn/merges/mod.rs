//! Counts → merges.
//!
//! All pieces are in one flat array ([`slots`]), in which a merge replaces one pair.
//!
//! A tracked pair has a count and a list of the positions at which it first occurred. A pair can only
//! appear during the merge that creates the newer of its two tokens; after that its occurrences only
//! disappear. So a list is written once, at its exact size, into one big array; stale positions are
//! skipped when the list is read.
//!
//! Most pairs are too rare ever to be merged. Since counts only fall, a pair that is below a *floor*
//! when it appears stays below it, so only pairs above the floor are tracked, which keeps the tables
//! small. The floor is a low estimate of the count of the last merge; if the candidates run out before
//! the merges do, it is lowered and the pairs are indexed again from the current slots.
//!
//! The best pair comes from a [`queue`] with stale counts: counts only fall, so the top entry is
//! either current or is put back with its current count.
//!
//! A merge takes time proportional to the list of its pair. Memory is one slot per byte of the distinct
//! pieces (4 or 8 bytes), 4 bytes per listed position, and 32 bytes per entry of the pair table;
//! `counts::stats` estimates it.
//!
//! Tried (docs/performance.md): a heap of all pairs took more than twice the time of the queue of
//! buckets; pieces in byte order or by falling count were not faster than in the order of their table;
//! threads that sleep between merges made it slower; a floor by the size of the text alone is off by a
//! factor of ten.

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
