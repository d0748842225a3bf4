//! What a tokenizer is, as plain data: what every file format reads into and writes from.
//!
//! Ids are arbitrary here; [`crate::tokenizer::vocab`] checks a spec and turns it into tables.

/// A tokenizer as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// The split pattern: names (`gpt2`) or regular expressions. Each stage cuts the pieces of
    /// the one before; almost always there is one.
    pub pattern: Vec<String>,
    /// The ordinary tokens, in any order.
    pub tokens: TokenList,
    /// How tokens are made of smaller ones.
    pub merges: MergeRule,
    /// The special tokens, with ids of their own, in any order.
    pub specials: Vec<SpecialToken>,
    /// A piece that is itself a token is that token, whatever the merges would give
    /// (`tiktoken`'s rule, `ignore_merges` of `tokenizers`).
    pub ignore_merges: bool,
}

/// How tokens are made of smaller ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeRule {
    /// These merges, the first before the second.
    List(Vec<Merge>),
    /// Two tokens merge where their concatenation is a token, the lowest id first: what a
    /// `tiktoken` rank file means.
    ByRank,
}

impl Default for MergeRule {
    fn default() -> Self {
        MergeRule::List(Vec::new())
    }
}

/// Two tokens that become a third.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Merge {
    /// Id of the left token.
    pub left: u32,
    /// Id of the right token.
    pub right: u32,
    /// Id of what they become.
    pub result: u32,
}

/// A string with an id of its own, never split and never merged across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    /// The text that stands for it.
    pub text: String,
    /// Its id.
    pub id: u32,
    /// `false` for what `tokenizers` calls an added token that is not special: found in text all
    /// the same, but not removed by `skip_special_tokens`.
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

    /// Adds a token.
    pub fn push(&mut self, id: u32, token: &[u8]) {
        self.bytes.extend_from_slice(token);
        self.entries.push((id, self.bytes.len()));
    }

    /// The bytes of all tokens.
    pub fn n_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
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

/// A text for a message: quoted, and cut where it is long.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
    }
}

/// A token for a message: as text where it is text, otherwise as bytes.
pub fn shown_token(token: &[u8]) -> String {
    match std::str::from_utf8(token) {
        Ok(text) => shown(text),
        Err(_) => {
            let bytes: String = token.iter().take(20).map(|b| format!("\\x{b:02x}")).collect();
            format!("b\"{bytes}\"{}", if token.len() > 20 { "…" } else { "" })
        }
    }
}
