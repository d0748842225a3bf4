//! minbpe's `.model` files.
//!
//! ```text
//! minbpe v1
//! the split pattern, on one line; empty: a document is one piece
//! how many special tokens follow
//! <|endoftext|> 100257
//! 101 32        the first merge, which makes token 256
//! 256 116       the second, which makes 257
//! ```
//!
//! Tokens 0–255 are the bytes.

use std::collections::HashSet;

use super::fields::{WHOLE, parse_id, regex_stage, utf8};
use super::resolve;
use super::spelling::listed;
use super::tiktoken::check_rank_order;
use super::vocabulary::Vocabulary;
use crate::base::error::{Error, Result};
use crate::text::pattern;
use crate::tokenizer::spec::{Merge, MergeRule, Spec, SpecialToken, TokenList, shown, shown_token};

const FIRST_LINE: &str = "minbpe v1";
/// The most bytes of all tokens. Each merge can double the length of a token; real vocabularies are
/// far smaller.
const MAX_BYTES: usize = 1 << 28;

pub fn read_minbpe(data: &[u8]) -> Result<Spec> {
    let text = utf8(data)?;
    let mut lines = LineReader { text, n_read: 0, start: 0, next: 0 };
    let header = lines.next("the header")?;
    if header != FIRST_LINE {
        return Err(lines.error(&format!("{} is not {FIRST_LINE:?}", shown(header))));
    }
    let pattern = lines.next("the split pattern")?.trim();
    let pattern = if pattern.is_empty() { WHOLE } else { pattern };
    let pattern = regex_stage(pattern).map_err(|error| error.in_file("line 2"))?;

    let number = lines.next("the number of special tokens")?;
    let n_specials = parse_id(number)
        .ok_or_else(|| lines.error(&format!("{} is not a number of lines", shown(number))))?;
    let mut specials = Vec::new();
    for _ in 0..n_specials {
        let line = lines.next("a special token and its id")?;
        let (text, id) =
            line.rsplit_once(' ')
                .and_then(|(text, id)| Some((text, parse_id(id)?)))
                .ok_or_else(|| lines.error(&format!("{} is not a text and an id", shown(line))))?;
        specials.push(SpecialToken { text: text.to_owned(), id, control: true });
    }

    let (tokens, merges) = read_merges(&mut lines)?;
    let vocabulary = Vocabulary { tokens, ..Vocabulary::default() };
    let tokens = resolve::without_specials(vocabulary, &merges, &specials, &HashSet::new())?;
    Ok(Spec {
        pattern: vec![pattern],
        tokens,
        merges: MergeRule::List(merges),
        specials,
        ignore_merges: false,
    })
}

fn read_merges(lines: &mut LineReader<'_>) -> Result<(TokenList, Vec<Merge>)> {
    let mut tokens = TokenList::with_capacity(256);
    for byte in 0..=255u8 {
        tokens.push(u32::from(byte), &[byte]);
    }
    let mut merges = Vec::new();
    let mut n_bytes = 256;
    while !lines.at_end() {
        let line = lines.next("a merge")?;
        if line.trim().is_empty() && lines.rest_is_empty() {
            break;
        }
        let result = 256 + merges.len() as u32;
        let (left, right) = line
            .split_once(' ')
            .and_then(|(left, right)| Some((parse_id(left)?, parse_id(right.trim_end())?)))
            .ok_or_else(|| lines.error(&format!("{} is not a merge of two ids", shown(line))))?;
        if let Some(id) = [left, right].into_iter().find(|&id| id >= result) {
            return Err(lines.error(&format!(
                "the merge that makes {result} uses {id}, which is not made before"
            )));
        }
        let token = [tokens.get(left as usize).1, tokens.get(right as usize).1].concat();
        n_bytes += token.len();
        if n_bytes > MAX_BYTES {
            return Err(
                lines.error(&format!("the tokens up to {result} take more than {MAX_BYTES} bytes"))
            );
        }
        tokens.push(result, &token);
        merges.push(Merge { left, right, result });
    }
    Ok((tokens, merges))
}

/// Lines, with the position of the last one for messages.
struct LineReader<'a> {
    text: &'a str,
    n_read: usize,
    start: usize,
    next: usize,
}

impl<'a> LineReader<'a> {
    fn at_end(&self) -> bool {
        self.next >= self.text.len()
    }

    fn rest_is_empty(&self) -> bool {
        self.text[self.next..].trim().is_empty()
    }

    /// The next line; the error at the end of the file names `what` is missing.
    fn next(&mut self, what: &str) -> Result<&'a str> {
        self.n_read += 1;
        self.start = self.next;
        if self.at_end() {
            return Err(self.error(&format!("the file ends before {what}")));
        }
        let rest = &self.text[self.start..];
        let line = rest.split('\n').next().unwrap_or(rest);
        self.next = (self.start + line.len() + 1).min(self.text.len());
        Ok(line.strip_suffix('\r').unwrap_or(line))
    }

    fn error(&self, why: &str) -> Error {
        Error::tokenizer(format!("line {} (byte offset {}): {why}", self.n_read, self.start))
    }
}

/// Writes a `.model` file. Its ids are implicit: bytes must have the ids 0–255 and merges 256, 257, …
/// in their order.
pub fn write_minbpe(spec: &Spec) -> Result<Vec<u8>> {
    let refused = |message: String| {
        Error::tokenizer(message)
            .with_hint("a minbpe model has no place for this; save a tokenizer.json")
    };
    let merges = listed(spec)?;
    check_canonical(spec, merges).map_err(refused)?;
    if spec.ignore_merges {
        check_rank_order(spec, merges, false)?;
    }
    let pattern = match spec.pattern.as_slice() {
        [stage] if stage == WHOLE => "",
        [stage] => pattern::tiktoken_regex(stage).unwrap_or(stage),
        stages => return Err(refused(format!("the pattern has {} stages", stages.len()))),
    };
    if pattern.contains(['\n', '\r']) || pattern.trim() != pattern {
        return Err(refused(format!(
            "the pattern {} has a line break, or white space at an end",
            shown(pattern)
        )));
    }

    let mut out = format!("{FIRST_LINE}\n{pattern}\n{}\n", spec.specials.len());
    let mut specials: Vec<&SpecialToken> = spec.specials.iter().collect();
    specials.sort_unstable_by_key(|special| special.id);
    for special in specials {
        if special.text.contains(['\n', '\r']) {
            let text = shown(&special.text);
            return Err(refused(format!("the special token {text} has a line break")));
        }
        if !special.control {
            let text = shown(&special.text);
            return Err(refused(format!("the added token {text} is not a control token")));
        }
        out += &format!("{} {}\n", special.text, special.id);
    }
    for merge in merges {
        out += &format!("{} {}\n", merge.left, merge.right);
    }
    Ok(out.into_bytes())
}

/// An error is the first id that differs from the one that a `.model` file implies.
fn check_canonical(spec: &Spec, merges: &[Merge]) -> Result<(), String> {
    if spec.tokens.len() != 256 + merges.len() {
        return Err(format!(
            "there are {} ordinary tokens, but 256 bytes and {} merges",
            spec.tokens.len(),
            merges.len()
        ));
    }
    if let Some((id, token)) = spec.tokens.iter().find(|&(id, token)| match token {
        &[byte] => id != u32::from(byte),
        _ => id < 256,
    }) {
        let token = shown_token(token);
        return Err(format!("the token {token} has the id {id}: bytes must have the ids 0 to 255"));
    }
    let early = |merge: &&Merge| merge.left.max(merge.right) >= merge.result;
    if let Some(merge) = merges.iter().find(early) {
        let used = merge.left.max(merge.right);
        return Err(format!(
            "the merge that makes {} uses {used}, which is made later",
            merge.result
        ));
    }
    match merges.iter().enumerate().find(|&(i, merge)| merge.result as usize != 256 + i) {
        Some((i, merge)) => {
            Err(format!("merge {i} makes the id {}, not {}", merge.result, 256 + i))
        }
        None => Ok(()),
    }
}
