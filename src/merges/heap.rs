//! A binary heap whose order is given with each call: it depends on the tokens, which the heap
//! does not know.

use super::pairs::Pair;

/// A pair and the count it had when it was put in.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Its count then.
    pub count: u64,
    /// The pair.
    pub pair: Pair,
}

/// Candidates, the best on top.
#[derive(Debug, Default)]
pub struct Heap(Vec<Candidate>);

impl Heap {
    /// Puts a candidate in.
    pub fn push(&mut self, candidate: Candidate, better: impl Fn(&Candidate, &Candidate) -> bool) {
        let mut at = self.0.len();
        self.0.push(candidate);
        while at > 0 {
            let parent = (at - 1) / 2;
            if !better(&candidate, &self.0[parent]) {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = candidate;
    }

    /// Takes the best out.
    pub fn pop(&mut self, better: impl Fn(&Candidate, &Candidate) -> bool) -> Option<Candidate> {
        let last = self.0.pop()?;
        let Some(&top) = self.0.first() else { return Some(last) };
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.0.len() {
                break;
            }
            if child + 1 < self.0.len() && better(&self.0[child + 1], &self.0[child]) {
                child += 1;
            }
            if !better(&self.0[child], &last) {
                break;
            }
            self.0[at] = self.0[child];
            at = child;
        }
        self.0[at] = last;
        Some(top)
    }
}
