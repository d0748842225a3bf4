//! The numbers in slots: 16 bits if that is enough, since slots are most of the memory that merging
//! needs and waits for. Half the width saved a quarter of the time of replacing on English
//! (docs/performance.md).

use crate::base::pages::Zeroable;

/// A token id or a count in a slot.
pub trait SlotNumber: Zeroable + Eq + Send + Sync + std::fmt::Debug + 'static {
    /// Separates two pieces.
    const SEPARATOR: Self;
    /// Replaces an id inside a longer token.
    const INSIDE: Self;
    /// Counts from here on are indices into a list of large counts.
    const LARGE_COUNT: u32;

    /// From a number that must fit.
    fn new(number: u32) -> Self;
    fn number(self) -> u32;
    /// Its index in [`Neighbours`](super::neighbours::Neighbours): the id + 1, or 0 for the separator.
    fn index(self) -> usize;
}

impl SlotNumber for u16 {
    const SEPARATOR: u16 = u16::MAX;
    const INSIDE: u16 = u16::MAX - 1;
    const LARGE_COUNT: u32 = 1 << 15;

    #[inline(always)]
    fn new(number: u32) -> u16 {
        number as u16
    }

    #[inline(always)]
    fn number(self) -> u32 {
        u32::from(self)
    }

    #[inline(always)]
    fn index(self) -> usize {
        usize::from(self.wrapping_add(1))
    }
}

impl SlotNumber for u32 {
    const SEPARATOR: u32 = u32::MAX;
    const INSIDE: u32 = u32::MAX - 1;
    const LARGE_COUNT: u32 = 1 << 31;

    #[inline(always)]
    fn new(number: u32) -> u32 {
        number
    }

    #[inline(always)]
    fn number(self) -> u32 {
        self
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.wrapping_add(1) as usize
    }
}
