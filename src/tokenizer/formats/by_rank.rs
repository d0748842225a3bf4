//! Whether ids alone say how tokens merge, as a rank file has it.
//!
//! In a rank file two neighbours merge where their concatenation is a token, the lowest id first,
//! and a piece that is a token is that token. A list of merges says the same, on every text, if
//!
//! 1. the ids of the results never fall along the list, and
//! 2. for each token, merging its own bytes by rank up to two parts gives a pair that is listed.
//!
//! For consider two neighbours, somewhere in a text, whose concatenation is the token *t*. Nothing
//! has merged across the ends of *t*, so what happened inside is what happens to the bytes of *t*
//! alone: the two are the pair of point 2. Hence a rule by rank never meets a pair that is not in
//! the list, and the two rules take the same steps. Likewise a piece that is a token becomes that
//! token by merging, except for a token that never comes down to two parts: such a one exists only
//! for pieces that are tokens, and needs `ignore_merges`.

use std::collections::HashSet;

use super::check::shown_token;
use super::index::TokenIndex;
use crate::base::error::{Error, Result};
use crate::tokenizer::spec::{Merge, Spec};

/// Fails unless `merges`, the list of `spec`, is what its ids say. `with_whole` permits tokens that
/// only whole pieces become.
pub(super) fn check(spec: &Spec, merges: &[Merge], with_whole: bool) -> Result<()> {
    let refused = |message: String| {
        Error::tokenizer(message)
            .with_hint("such a tokenizer cannot be written in this format; save a tokenizer.json")
    };
    if let Some(i) = merges.windows(2).position(|pair| pair[0].result > pair[1].result) {
        return Err(refused(format!(
            "the ids do not follow the order of the merges: merge {i} makes {}, the next one {}",
            merges[i].result,
            merges[i + 1].result
        )));
    }
    let index = TokenIndex::new(&spec.tokens)?;
    let listed: HashSet<Merge> = merges.iter().copied().collect();
    for (id, token) in spec.tokens.iter().filter(|(_, token)| token.len() > 1) {
        let found = last_pair(&index, token);
        let agrees = match found {
            Some((left, right)) => listed.contains(&Merge { left, right, result: id }),
            None => with_whole,
        };
        if !agrees {
            return Err(refused(format!(
                "the ids do not say how the token {} (id {id}) is made{}",
                shown_token(token),
                match found {
                    Some((left, right)) => format!(": by them it is {left} and {right}"),
                    None => " and no merge makes it".to_owned(),
                }
            )));
        }
    }
    Ok(())
}

/// The two tokens that are left when `token` is merged by rank until only the whole is to be made;
/// `None` if it stays in more parts.
fn last_pair(index: &TokenIndex<'_>, token: &[u8]) -> Option<(u32, u32)> {
    // Quadratic in the length of a token, which is short.
    let mut ends: Vec<usize> = (1..=token.len()).collect();
    let start = |ends: &[usize], i: usize| if i == 0 { 0 } else { ends[i - 1] };
    while ends.len() > 2 {
        let lowest = (0..ends.len() - 1)
            .filter_map(|i| Some((index.id(&token[start(&ends, i)..ends[i + 1]])?, i)))
            .min()?;
        ends.remove(lowest.1);
    }
    Some((index.id(&token[..ends[0]])?, index.id(&token[ends[0]..])?))
}
