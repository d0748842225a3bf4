//! A tokenizer as plain data, which file formats are read into and written from.
//!
//! Ids are arbitrary here; [`crate::tokenizer::vocab`] checks a spec and builds its tables.

/// One less than the largest `u32`, so that the number of ids fits into 32 bits too.
pub const MAX_ID: u32 = u32::MAX - 1;

/// A tokenizer as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// The split pattern: names (`gpt2`) or regular expressions. Each stage cuts the pieces of the one
    /// before; nearly all tokenizers have one stage.
    pub pattern: Vec<String>,
    /// The ordinary tokens, in any order.
    pub tokens: TokenList,
    pub merges: MergeRule,
    /// The special tokens, with ids of their own, in any order.
    pub specials: Vec<SpecialToken>,
    /// A piece that is a token becomes that token regardless of the merges (`tiktoken`'s rule,
    /// `ignore_merges` of `tokenizers`).
    pub ignore_merges: bool,
}

/// How tokens are merged from smaller ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeRule {
    /// These merges, in this order.
    List(Vec<Merge>),
    /// Two tokens merge if their concatenation is a token, the lowest id first: the rule of `tiktoken`
    /// rank files.
    ByRank,
}

impl Default for MergeRule {
    fn default() -> Self {
        MergeRule::List(Vec::new())
    }
}

/// Two tokens that become a third, by their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub result: u32,
}

/// A string with its own id, never split and never merged across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    pub text: String,
    pub id: u32,
    /// `false` for an added token of `tokenizers` that is not special: also found in text, but not
    /// removed by `skip_special_tokens`.
    pub control: bool,
}

/// Byte strings with ids, end to end in one buffer: a vocabulary of 200,000 tokens is two
/// allocations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenList {
    bytes: Vec<u8>,
    /// (id, end in `bytes`)
    entries: Vec<(u32, usize)>,
}

impl TokenList {
    /// An empty list with room for `n` tokens.
    pub fn with_capacity(n: usize) -> Self {
        TokenList { bytes: Vec::with_capacity(n * 8), entries: Vec::with_capacity(n) }
    }

    pub fn push(&mut self, id: u32, token: &[u8]) {
        self.bytes.extend_from_slice(token);
        self.entries.push((id, self.bytes.len()));
    }

    /// The bytes of all tokens.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The `i`th, in order of insertion.
    pub fn get(&self, i: usize) -> (u32, &[u8]) {
        let start = if i == 0 { 0 } else { self.entries[i - 1].1 };
        let (id, end) = self.entries[i];
        (id, &self.bytes[start..end])
    }

    /// All of them, in order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// A text for a message: quoted, and truncated if it is long.
pub fn shown(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 60;
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// A token for a message: as text if it is UTF-8, otherwise as bytes.
pub fn shown_token(token: &[u8]) -> String {
    match std::str::from_utf8(token) {
        Ok(text) => shown(text),
        Err(_) => {
            let bytes: String = token.iter().take(20).map(|b| format!("\\x{b:02x}")).collect();
            format!("b\"{bytes}\"{}", if token.len() > 20 { "…" } else { "" })
        }
    }
}
