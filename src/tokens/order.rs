//! Which split a document goes to, and where in it.
//!
//! Both are functions of the seed and of the document's number in the corpus (from 0, in the order
//! of the sources), so they depend neither on threads nor on what any other document is.
//!
//! ```text
//! mix(x)        SplitMix64's output function
//! draw(d, n)    mix(mix(seed + d) + n · 0x9E3779B97F4A7C15), all modulo 2^64
//! split         val if floor(draw(1, n) / 2^11) < floor(val_fraction · 2^53), else train
//! order         by draw(2, n), of equal ones by n
//! ```

/// What decides where documents go.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    split: u64,
    shuffle: u64,
    /// A document is for validation if its draw, of 53 bits, is below this.
    val: u64,
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Order {
    /// The order of a seed; `val_fraction` is from 0 to 1.
    pub fn new(seed: u64, val_fraction: Option<f64>) -> Self {
        Order {
            split: mix(seed.wrapping_add(1)),
            shuffle: mix(seed.wrapping_add(2)),
            val: (val_fraction.unwrap_or(0.0) * (1u64 << 53) as f64) as u64,
        }
    }

    /// The split of a document: 0, or 1 for validation.
    pub fn split(&self, number: u64) -> usize {
        usize::from(mix(self.split.wrapping_add(number.wrapping_mul(STEP))) >> 11 < self.val)
    }

    /// Shuffled documents stand in the order of this.
    pub fn key(&self, number: u64) -> u64 {
        mix(self.shuffle.wrapping_add(number.wrapping_mul(STEP)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_disk_depends_on_these_numbers() {
        let order = Order::new(7, Some(0.25));
        let splits: Vec<usize> = (0..16).map(|n| order.split(n)).collect();
        assert_eq!(splits, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0]);
        assert_eq!(mix(STEP), 0xE220_A839_7B1D_CDAF, "the first number of SplitMix64");
        assert_eq!(order.key(0), mix(mix(9)));
        assert_eq!(order.key(1), mix(mix(9).wrapping_add(STEP)));
    }

    #[test]
    fn fractions_are_met() {
        for fraction in [0.0, 0.001, 0.1, 0.5, 1.0] {
            let order = Order::new(1, Some(fraction));
            let n = (0..100_000).map(|n| order.split(n)).sum::<usize>() as f64;
            assert!((n - fraction * 1e5).abs() < 500.0, "{fraction}: {n}");
        }
        assert_eq!(Order::new(1, None).split(3), 0);
    }
}
