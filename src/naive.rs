//! Plain, slow versions, so simple that they are unlikely to be wrong: the oracles of tests and
//! fuzzing. Nothing else uses them.

use std::collections::HashMap;

use crate::learn::merges::TieBreak;

/// Learns merges by counting all pairs again for every merge.
pub fn learn(
    pieces: &[(Vec<u8>, u64)],
    n_merges: usize,
    tie_break: TieBreak,
    min_frequency: u64,
    max_token_length: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut words: Vec<(Vec<Vec<u8>>, u64)> = pieces
        .iter()
        .map(|(piece, count)| (piece.iter().map(|&b| vec![b]).collect(), *count))
        .collect();
    let mut order = IdOrder::new(tie_break);
    let mut merges = Vec::new();
    while merges.len() < n_merges {
        let mut counts = HashMap::<(&[u8], &[u8]), u64>::new();
        for (word, count) in &words {
            for pair in word.windows(2) {
                *counts.entry((&pair[0], &pair[1])).or_default() += count;
            }
        }
        let best = counts
            .into_iter()
            .filter(|&((a, b), n)| {
                n >= min_frequency.max(1) && a.len() + b.len() <= max_token_length
            })
            .max_by(|&(a, n), &(b, m)| {
                n.cmp(&m).then_with(|| match tie_break {
                    TieBreak::Bytes => a.cmp(&b),
                    TieBreak::HuggingFace | TieBreak::RustBpe => order.of(b).cmp(&order.of(a)),
                })
            });
        let Some(((left, right), _)) = best else { break };
        let (left, right) = (left.to_vec(), right.to_vec());
        for (word, _) in &mut words {
            *word = merge_pair(word, &left, &right);
        }
        order.add([&left[..], &right[..]].concat());
        merges.push((left, right));
    }
    merges
}

/// Tokens by id: the bytes, then the merges in order. The bytes are in the order of their values or,
/// in `tokenizers`, of the characters that spell them in its byte-level alphabet.
struct IdOrder(HashMap<Vec<u8>, usize>);

impl IdOrder {
    fn new(tie_break: TieBreak) -> Self {
        let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
        let mut bytes: Vec<u8> = (0..=255).collect();
        if tie_break == TieBreak::HuggingFace {
            bytes.sort_by_key(|&b| !printable(b));
        }
        IdOrder(bytes.into_iter().enumerate().map(|(i, b)| (vec![b], i)).collect())
    }

    fn of(&self, pair: (&[u8], &[u8])) -> (usize, usize) {
        (self.0[pair.0], self.0[pair.1])
    }

    fn add(&mut self, token: Vec<u8>) {
        let next = self.0.len();
        self.0.entry(token).or_insert(next);
    }
}

/// Replaces every occurrence of the pair, from the left.
fn merge_pair(word: &[Vec<u8>], left: &[u8], right: &[u8]) -> Vec<Vec<u8>> {
    let mut merged = Vec::with_capacity(word.len());
    let mut i = 0;
    while i < word.len() {
        if i + 1 < word.len() && word[i] == left && word[i + 1] == right {
            merged.push([left, right].concat());
            i += 2;
        } else {
            merged.push(word[i].clone());
            i += 1;
        }
    }
    merged
}

/// Encodes a piece into byte strings: the merge of the lowest rank first, the leftmost of equal ones,
/// until no pair merges.
pub fn encode(piece: &[u8], ranks: &HashMap<(Vec<u8>, Vec<u8>), usize>) -> Vec<Vec<u8>> {
    let mut tokens: Vec<Vec<u8>> = piece.iter().map(|&b| vec![b]).collect();
    loop {
        let best = tokens
            .windows(2)
            .enumerate()
            .filter_map(|(i, pair)| {
                ranks.get(&(pair[0].clone(), pair[1].clone())).map(|&rank| (rank, i))
            })
            .min();
        let Some((_, i)) = best else { return tokens };
        let right = tokens.remove(i + 1);
        tokens[i].extend(right);
    }
}
