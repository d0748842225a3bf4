//! The neighbours of the occurrences of a merged pair, on one side.

/// Arrays indexed by id + 1, with 0 for a separator, so that a hash lookup is made per neighbour, not
/// per occurrence. A separator is recorded like a token, because the branch to avoid it could not be
/// predicted; it is skipped in the results.
#[derive(Debug)]
pub struct Neighbours {
    sums: Vec<NeighbourSum>,
    /// The indices of the distinct neighbours.
    touched: Vec<u32>,
    /// (index, position of the new token); the first `n_found` are valid.
    found: Vec<(u32, u32)>,
    n_found: usize,
}

/// The totals of one neighbour during a merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct NeighbourSum {
    pub weight: u64,
    /// The number of times it was found; later, where its next position goes.
    pub n: usize,
}

/// Its `n` is never 0, so it is never added to `touched`.
const SEPARATOR_SUM: NeighbourSum = NeighbourSum { weight: 0, n: 1 };

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours { sums: vec![SEPARATOR_SUM], touched: Vec::new(), found: Vec::new(), n_found: 0 }
    }
}

impl Neighbours {
    /// Makes room for ids below `n`.
    pub fn resize(&mut self, n: usize) {
        self.sums.resize(n + 1, NeighbourSum::default());
    }

    /// Makes room for `n` more occurrences.
    pub fn make_room(&mut self, n: usize) {
        // One more, for a separator that may be last.
        let needed = self.n_found + n + 1;
        if self.found.len() < needed {
            self.found.resize(needed, (0, 0));
        }
    }

    /// Records an occurrence.
    #[inline(always)]
    pub fn add(&mut self, index: usize, weight: u64, position: u32) {
        let sum = &mut self.sums[index];
        if sum.n == 0 {
            self.touched.push(index as u32);
        }
        sum.n += 1;
        sum.weight += weight;
        self.found[self.n_found] = (index as u32, position);
        self.n_found += usize::from(index != 0);
    }

    /// Subtracts weight from a recorded neighbour.
    pub fn subtract(&mut self, index: usize, weight: u64) {
        self.sums[index].weight -= weight;
    }

    /// The number of distinct neighbours.
    pub fn n_touched(&self) -> usize {
        self.touched.len()
    }

    /// The id of the i-th distinct neighbour.
    #[inline(always)]
    pub fn touched(&self, i: usize) -> u32 {
        self.touched[i] - 1
    }

    /// The totals of a neighbour.
    #[inline(always)]
    pub fn sum(&mut self, id: u32) -> &mut NeighbourSum {
        &mut self.sums[id as usize + 1]
    }

    /// Calls `visit` for each occurrence, in order, with the neighbour, its totals and the position of
    /// the new token.
    #[inline(always)]
    pub fn for_each_found(&mut self, mut visit: impl FnMut(u32, &mut NeighbourSum, u32)) {
        for &(index, position) in &self.found[..self.n_found] {
            visit(index - 1, &mut self.sums[index as usize], position);
        }
    }

    /// Moves the occurrences that another thread found, at later positions, here.
    pub fn absorb(&mut self, other: &mut Neighbours) {
        for &index in &other.touched {
            let theirs = other.sums[index as usize];
            let ours = &mut self.sums[index as usize];
            if ours.n == 0 {
                self.touched.push(index);
            }
            ours.n += theirs.n;
            ours.weight += theirs.weight;
        }
        self.make_room(other.n_found);
        self.found[self.n_found..self.n_found + other.n_found]
            .copy_from_slice(&other.found[..other.n_found]);
        self.n_found += other.n_found;
        other.clear();
    }

    pub fn clear(&mut self) {
        for &index in &self.touched {
            self.sums[index as usize] = NeighbourSum::default();
        }
        self.sums[0] = SEPARATOR_SUM;
        self.touched.clear();
        self.n_found = 0;
    }
}
