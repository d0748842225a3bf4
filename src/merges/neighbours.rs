//! The tokens that stand beside the occurrences of a merge, on one side.

/// Indexed directly by token number, so that a hash look-up is paid per neighbour, not per
/// occurrence.
#[derive(Debug, Default)]
pub struct Neighbours {
    pub sums: Vec<Sum>,
    /// The neighbours there are.
    pub touched: Vec<u32>,
    /// (neighbour, position of the pair)
    pub found: Vec<(u32, u32)>,
}

/// What is known of one neighbour during a merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    pub weight: u64,
    /// How often it was found; then, where its next position goes.
    pub n: usize,
}

impl Neighbours {
    /// Makes room for tokens up to `n`.
    pub fn resize(&mut self, n: usize) {
        self.sums.resize(n, Sum::default());
    }

    /// Notes a neighbour.
    #[inline(always)]
    pub fn add(&mut self, id: u32, weight: u64, position: u32) {
        let sum = &mut self.sums[id as usize];
        if sum.n == 0 {
            self.touched.push(id);
        }
        sum.n += 1;
        sum.weight += weight;
        self.found.push((id, position));
    }

    /// Adds what another thread found further on, and empties it.
    pub fn absorb(&mut self, other: &mut Neighbours) {
        for &id in &other.touched {
            let theirs = std::mem::take(&mut other.sums[id as usize]);
            let ours = &mut self.sums[id as usize];
            if ours.n == 0 {
                self.touched.push(id);
            }
            ours.n += theirs.n;
            ours.weight += theirs.weight;
        }
        other.touched.clear();
        self.found.append(&mut other.found);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        for &id in &self.touched {
            self.sums[id as usize] = Sum::default();
        }
        self.touched.clear();
        self.found.clear();
    }
}
