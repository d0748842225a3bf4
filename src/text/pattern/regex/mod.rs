//! Patterns without a scanner: regular expressions, in the syntax of `fancy-regex`.
//!
//! An expression is compiled to a program (`program`) over sets of characters (`chars`), which a
//! backtracking machine (`machine`) runs. Every scan terminates: the machine counts its steps and
//! fails, with the position, beyond a limit that common expressions do not come near. The count
//! depends on the expression and the text alone, so failures are reproducible.

mod chars;
mod machine;
mod program;

use std::sync::Arc;

use super::names::NAMES;
use crate::base::error::{Error, Result};
use chars::char_at;
use machine::{Machine, Stop};
use program::Program;

/// A scan adds at least this many pieces, if there are as many: the limit on steps is per scan, so
/// fewer scans of a text find a costly expression sooner.
const MIN_PIECES: usize = 1 << 16;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct Engine {
    regex: String,
    program: Arc<Program>,
}

impl Engine {
    pub fn new(regex: &str) -> Result<Self> {
        match Program::new(regex) {
            Ok(program) => Ok(Engine { regex: regex.to_owned(), program: Arc::new(program) }),
            Err(why) => Err(Error::config(format!("invalid split pattern {regex:?}: {why}"))
                .with_hint(format!(
                    "use one of the names {}, or a regular expression in the syntax of the \
                         Rust crate fancy-regex",
                    NAMES.join(", ")
                ))),
        }
    }

    /// As [`super::Pattern::scan`]; positions in errors are offset by `base`.
    pub fn scan(
        &self,
        text: &[u8],
        from: usize,
        limit: usize,
        base: usize,
        ends: &mut Vec<usize>,
    ) -> Result<usize> {
        let enough = ends.len().saturating_add(limit.max(MIN_PIECES));
        let mut machine = Machine::new(&self.program, text, from);
        let mut last = from; // the end of the last piece
        let mut at = from; // where the search continues
        while ends.len() < enough {
            let found = if at > text.len() { Ok(None) } else { machine.find(at) };
            let Some((start, end)) = found.map_err(|stop| match stop {
                Stop::Costly(why) => self.failure(base + machine.attempt(), &why),
                Stop::Asked(error) => error,
            })?
            else {
                if last < text.len() {
                    ends.push(text.len());
                }
                return Ok(text.len());
            };
            // With `\K` a match can start before the last one ended.
            let start = start.max(last);
            let end = end.max(start);
            if start > last {
                ends.push(start);
            }
            if end > start {
                ends.push(end);
            }
            last = end;
            // An empty match cuts, but is not a piece. The search continues after the next character,
            // or it would find the match again.
            at = if end > start { end } else { end + char_at(text, end).map_or(1, |c| c.1) };
        }
        Ok(last)
    }

    fn failure(&self, at: usize, why: &str) -> Error {
        Error::tokenizer(format!(
            "the split pattern {:?} fails at byte {at} of the document: {why}",
            self.regex,
        ))
        .with_hint(format!(
            "the expression backtracks too much on this text; use possessive quantifiers (`\\s++`), \
             or one of the named patterns {}, which take linear time",
            NAMES.join(", ")
        ))
    }
}
