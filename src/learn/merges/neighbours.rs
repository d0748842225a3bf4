//! The tokens that stand beside the occurrences of a merge, on one side.

/// Indexed directly by *place* (the token's number + 1, and 0 for a wall), so that a hash look-up
/// is paid per neighbour, not per occurrence. A wall is noted like a token, for whether one stands
/// there cannot be foreseen and not to ask is cheaper; it is skipped in the results.
#[derive(Debug)]
pub struct Neighbours {
    sums: Vec<NeighbourSum>,
    /// The neighbours there are.
    touched: Vec<u32>,
    /// (place, position of the new token), `n_found` of them.
    found: Vec<(u32, u32)>,
    n_found: usize,
}

/// What is vocab of one neighbour during a merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct NeighbourSum {
    pub weight: u64,
    /// How often it was found; then, where its next position goes.
    pub n: usize,
}

/// Never touched for the first time, so never among the touched.
const WALL_SUM: NeighbourSum = NeighbourSum { weight: 0, n: 1 };

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours { sums: vec![WALL_SUM], touched: Vec::new(), found: Vec::new(), n_found: 0 }
    }
}

impl Neighbours {
    /// Makes room for tokens up to `n`.
    pub fn resize(&mut self, n: usize) {
        self.sums.resize(n + 1, NeighbourSum::default());
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
    pub fn add(&mut self, place: usize, weight: u64, position: u32) {
        let sum = &mut self.sums[place];
        if sum.n == 0 {
            self.touched.push(place as u32);
        }
        sum.n += 1;
        sum.weight += weight;
        self.found[self.n_found] = (place as u32, position);
        self.n_found += usize::from(place != 0);
    }

    /// Takes weight off a neighbour that was noted.
    pub fn take(&mut self, place: usize, weight: u64) {
        self.sums[place].weight -= weight;
    }

    /// How many neighbours there are.
    pub fn n_touched(&self) -> usize {
        self.touched.len()
    }

    /// The token number of one of them.
    #[inline(always)]
    pub fn touched(&self, i: usize) -> u32 {
        self.touched[i] - 1
    }

    /// What is vocab of a neighbour.
    #[inline(always)]
    pub fn sum(&mut self, id: u32) -> &mut NeighbourSum {
        &mut self.sums[id as usize + 1]
    }

    /// Calls `visit` with what was found, in order: the neighbour, what is vocab of it, and the
    /// position of the new token.
    #[inline(always)]
    pub fn for_each_found(&mut self, mut visit: impl FnMut(u32, &mut NeighbourSum, u32)) {
        for &(place, position) in &self.found[..self.n_found] {
            visit(place - 1, &mut self.sums[place as usize], position);
        }
    }

    /// Adds what another thread found further on, and empties it.
    pub fn absorb(&mut self, other: &mut Neighbours) {
        for &place in &other.touched {
            let theirs = other.sums[place as usize];
            let ours = &mut self.sums[place as usize];
            if ours.n == 0 {
                self.touched.push(place);
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

    /// Empties it.
    pub fn clear(&mut self) {
        for &place in &self.touched {
            self.sums[place as usize] = NeighbourSum::default();
        }
        self.sums[0] = WALL_SUM;
        self.touched.clear();
        self.n_found = 0;
    }
}
