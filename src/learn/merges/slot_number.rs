//! The numbers that slots are made of: 16 bits where that is enough, for slots are most of the
//! memory that merging needs and most of what it waits for.

use crate::base::pages::Zeroable;

/// A token number in a slot, or a count.
pub trait SlotNumber: Zeroable + Eq + Send + Sync + std::fmt::Debug + 'static {
    /// Stands between two pieces.
    const WALL: Self;
    /// Stands where a token used to begin or end, inside a longer one.
    const INSIDE: Self;
    /// Counts from here on are numbers in a list of large counts.
    const HEAVY: u32;

    /// From a number that is known to fit.
    fn new(number: u32) -> Self;
    /// As a number.
    fn number(self) -> u32;
    /// Where a token is noted in a table: its number + 1, and 0 for the wall.
    fn place(self) -> usize;
}

impl SlotNumber for u16 {
    const WALL: u16 = u16::MAX;
    const INSIDE: u16 = u16::MAX - 1;
    const HEAVY: u32 = 1 << 15;

    #[inline(always)]
    fn new(number: u32) -> u16 {
        number as u16
    }

    #[inline(always)]
    fn number(self) -> u32 {
        u32::from(self)
    }

    #[inline(always)]
    fn place(self) -> usize {
        usize::from(self.wrapping_add(1))
    }
}

impl SlotNumber for u32 {
    const WALL: u32 = u32::MAX;
    const INSIDE: u32 = u32::MAX - 1;
    const HEAVY: u32 = 1 << 31;

    #[inline(always)]
    fn new(number: u32) -> u32 {
        number
    }

    #[inline(always)]
    fn number(self) -> u32 {
        self
    }

    #[inline(always)]
    fn place(self) -> usize {
        self.wrapping_add(1) as usize
    }
}
