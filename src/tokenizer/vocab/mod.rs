//! Tokens ↔ ids: a checked [`Spec`] turned into tables.
//!
//! Inside, tokens are numbered by *rank*: the 256 bytes, then the result of each merge in the
//! order of the merges, then tokens that no merge makes. So a rank says both which token and how
//! early its merge comes, and one number answers "what do these two become, and when". Ids are
//! the outside's numbers, translated on the way in and out.
//!
//! One merge per token is enough, even where a file lists several that make the same token (as
//! files converted from tiktoken ranks do). What happens within a stretch of text that becomes a
//! token depends on that stretch alone, as long as nothing merges across its ends, and if
//! something did, it would not become that token. So in every text the last merge of a token is
//! the one that happens when the token's own bytes are encoded by themselves; the others never
//! occur and are dropped.

mod build;
mod decode;
mod joins;
mod pair_ranks;
mod places;
mod tables;

pub use decode::Id;
pub use joins::Joins;
pub use pair_ranks::PairRanks;
pub use tables::{MAX_TOKENS, Vocab};
