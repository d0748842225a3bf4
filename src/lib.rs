//! From raw text to tokens: learn a byte-level BPE tokenizer, and encode with it.
//!
//! ```text
//! corpus ──► counts ──► merges ──► tokenizer ──► tokens
//!  files     pieces     pairs      ids ↔ bytes    shards
//! ```
//!
//! Each noun is a module, each arrow a function; a module uses only those to its left. Only `python`,
//! which is compiled with a feature, uses PyO3.
//!
//! - [`base`]: errors, jobs, memory, files
//! - [`text`]: documents → pieces: split patterns, special tokens
//! - [`corpus`]: files → blocks of text
//! - [`learn`]: blocks → counts → merges
//! - [`tokenizer`]: a tokenizer as plain data and as files; text ↔ ids
//! - [`tokens`]: files → ids on disk
//! - [`naive`]: the obvious slow versions, for tests

// Without Python, much of what Python calls has no caller.
#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))]

mod base;
mod corpus;
mod learn;
mod naive;
#[cfg(feature = "python")]
mod python;
mod text;
mod tokenizer;
mod tokens;

pub use base::error::{Error, Result};
pub use tokenizer::encode::{Recognise, Tokenizer};
pub use tokenizer::spec::{Merge, MergeRule, Spec, SpecialToken, TokenList};

/// For benches and fuzz targets; may change at any time.
#[doc(hidden)]
pub mod internals {
    pub use crate::base::job::{Job, Phase};
    pub use crate::text::cutter::Cutter;
    pub use crate::text::specials::Segment;
    pub use crate::tokenizer::encode::Stream;

    pub mod corpus {
        pub use crate::corpus::{
            BlockBuffers, BlockEnd, BlockText, Compression, Context, FileFormat, FileKind, InOrder,
            Input, Inputs, Location, OnError, Pipe, Reading, Source, SourcePosition, Storage,
        };
    }

    pub mod counts {
        pub use crate::learn::counts::{Counts, PieceList};
    }

    pub mod formats {
        pub use crate::tokenizer::formats::{
            read_gpt2, read_minbpe, read_tiktoken, read_tokenizer_json, recognise, write_gpt2,
            write_minbpe, write_tiktoken, write_tokenizer_json,
        };
    }

    pub mod learning {
        pub use crate::tokenizer::learn::{Target, learn};
    }

    pub mod merges {
        pub use crate::learn::merges::{ByteBase, Options, TieBreak, learn_merges};
    }

    pub mod naive {
        pub use crate::naive::{encode, learn};
    }

    pub mod pattern {
        pub use crate::text::pattern::{NAMES, Pattern, tiktoken_regex};
    }
}
