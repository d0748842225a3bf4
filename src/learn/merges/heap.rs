//! A binary heap whose order is given with each call: it depends on what the heap does not know.

/// Things of which the best is on top.
#[derive(Debug)]
pub struct Heap<T>(Vec<T>);

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap(Vec::new())
    }
}

impl<T: Copy> Heap<T> {
    /// Puts one in.
    pub fn push(&mut self, new: T, better: impl Fn(&T, &T) -> bool) {
        let mut at = self.0.len();
        self.0.push(new);
        while at > 0 {
            let parent = (at - 1) / 2;
            if !better(&new, &self.0[parent]) {
                break;
            }
            self.0[at] = self.0[parent];
            at = parent;
        }
        self.0[at] = new;
    }

    /// Takes the best out.
    pub fn pop(&mut self, better: impl Fn(&T, &T) -> bool) -> Option<T> {
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
