//! The tokens that stand beside the occurrences of a merge, on one side.

use super::slots::WALL;

/// Indexed directly by token number, so that a hash look-up is paid per neighbour, not per
/// occurrence. A wall is noted like a token, for whether one stands there cannot be foreseen and
/// not to ask is cheaper; it is left out of what is found.
#[derive(Debug)]
pub struct Neighbours {
    /// By token number + 1; the first is the wall's.
    sums: Vec<Sum>,
    /// The neighbours there are.
    touched: Vec<u32>,
    /// (neighbour, position of the new token), `n_found` of them.
    found: Vec<(u32, u32)>,
    n_found: usize,
}

/// What is known of one neighbour during a merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    pub weight: u64,
    /// How often it was found; then, where its next position goes.
    pub n: usize,
}

/// Never touched for the first time, so never among the touched.
const WALL_SUM: Sum = Sum { weight: 0, n: 1 };

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours { sums: vec![WALL_SUM], touched: Vec::new(), found: Vec::new(), n_found: 0 }
    }
}

#[inline(always)]
fn place(id: u32) -> usize {
    id.wrapping_add(1) as usize
}

const _: () = assert!(WALL.wrapping_add(1) == 0);

impl Neighbours {
    /// Makes room for tokens up to `n`.
    pub fn resize(&mut self, n: usize) {
        self.sums.resize(n + 1, Sum::default());
    }

    /// Makes room for `n` more to be found.
    pub fn make_room(&mut self, n: usize) {
        // One more, for the wall that may come last.
        let needed = self.n_found + n + 1;
        if self.found.len() < needed {
            self.found.resize(needed, (0, 0));
        }
    }

    /// Notes a neighbour.
    #[inline(always)]
    pub fn add(&mut self, id: u32, weight: u64, position: u32) {
        let sum = &mut self.sums[place(id)];
        if sum.n == 0 {
            self.touched.push(id);
        }
        sum.n += 1;
        sum.weight += weight;
        self.found[self.n_found] = (id, position);
        self.n_found += usize::from(id != WALL);
    }

    /// Takes weight off a neighbour that was noted.
    pub fn take(&mut self, id: u32, weight: u64) {
        self.sums[place(id)].weight -= weight;
    }

    /// The neighbours there are.
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// What is known of a neighbour.
    #[inline(always)]
    pub fn sum(&mut self, id: u32) -> &mut Sum {
        &mut self.sums[place(id)]
    }

    /// What was found: (neighbour, position of the new token), in order.
    pub fn found(&self) -> &[(u32, u32)] {
        &self.found[..self.n_found]
    }

    /// Adds what another thread found further on, and empties it.
    pub fn absorb(&mut self, other: &mut Neighbours) {
        for &id in &other.touched {
            let theirs = other.sums[place(id)];
            let ours = &mut self.sums[place(id)];
            if ours.n == 0 {
                self.touched.push(id);
            }
            ours.n += theirs.n;
            ours.weight += theirs.weight;
        }
        self.make_room(other.n_found);
        self.found[self.n_found..self.n_found + other.n_found].copy_from_slice(other.found());
        self.n_found += other.n_found;
        other.clear();
    }

    /// Empties it.
    pub fn clear(&mut self) {
        for &id in &self.touched {
            self.sums[place(id)] = Sum::default();
        }
        self.sums[0] = WALL_SUM;
        self.touched.clear();
        self.n_found = 0;
    }
}
