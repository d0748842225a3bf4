//! Large arrays of zeros, and memory asked for ahead of its use.
//!
//! Tables of many megabytes that are read here and there spend much of their time on address
//! translation, and on being handed over by the system page by page. Huge pages help with both,
//! but have to be asked for before the first touch, so large arrays are mapped by themselves.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::base::memory::{out_of_memory, try_reserve};

/// Values for which all bytes zero is a value, and which need not be dropped.
///
/// # Safety
/// An implementor promises just that, and an alignment of at most 4096.
pub unsafe trait Zeroable: Copy {}

// SAFETY: a number is one, whatever its bytes.
unsafe impl Zeroable for u16 {}
// SAFETY: as above.
unsafe impl Zeroable for u32 {}
// SAFETY: as above.
unsafe impl Zeroable for u64 {}

/// From this many bytes on an array is mapped.
const LARGE: usize = 1 << 20;

/// A fixed number of values, zero at first.
#[derive(Debug)]
pub struct Pages<T> {
    start: NonNull<T>,
    len: usize,
    /// Keeps the memory that `start` points to.
    _memory: Memory<T>,
}

#[derive(Debug)]
enum Memory<T> {
    Allocated { _values: Vec<T> },
    Mapped { _map: memmap2::MmapMut },
}

// SAFETY: the array owns its memory and hands it out by the usual rules of borrowing.
unsafe impl<T: Zeroable + Send> Send for Pages<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroable + Sync> Sync for Pages<T> {}

impl<T: Zeroable> Pages<T> {
    /// `len` zeros; unwinds where there is no memory for them.
    pub fn new(len: usize) -> Self {
        Pages::try_new(len).unwrap_or_else(|| out_of_memory(len.saturating_mul(size_of::<T>())))
    }

    /// The same for who can do without.
    pub fn try_new(len: usize) -> Option<Self> {
        let size = len.checked_mul(size_of::<T>())?;
        if size >= LARGE {
            let mut map = memmap2::MmapMut::map_anon(size).ok()?;
            #[cfg(target_os = "linux")]
            // Without huge pages all works as well, only slower.
            let _ = map.advise(memmap2::Advice::HugePage);
            let start = NonNull::from(&mut map[..]).cast();
            return Some(Pages { start, len, _memory: Memory::Mapped { _map: map } });
        }
        // SAFETY: `Zeroable` says that zeros are a value.
        let zero: T = unsafe { std::mem::zeroed() };
        let mut values = vec![zero; len];
        let start = NonNull::from(&mut values[..]).cast();
        Some(Pages { start, len, _memory: Memory::Allocated { _values: values } })
    }

    /// The first value, for those who look after borrowing themselves.
    #[inline(always)]
    pub fn start(&self) -> *const T {
        self.start.as_ptr()
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` points to `len` values that live as long as `self`; a mapping begins at a
        // page, which is aligned enough.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// An empty list with room for `n` values, in huge pages if it is long.
pub fn with_room<T>(n: usize) -> Vec<T> {
    let mut list: Vec<T> = Vec::new();
    // It is a guess, and to fail is not what a guess is for.
    if !try_reserve(|| list.try_reserve_exact(n)) {
        return list;
    }
    #[cfg(target_os = "linux")]
    if n.saturating_mul(size_of::<T>()) >= LARGE {
        const PAGE: usize = 4096;
        let start = list.as_ptr() as usize;
        let (first, end) = (start.next_multiple_of(PAGE), start + n * size_of::<T>());
        // SAFETY: whole pages within the list, and advice changes nothing that is in them.
        unsafe { libc::madvise(first as *mut _, (end - first) / PAGE * PAGE, libc::MADV_HUGEPAGE) };
    }
    list
}

/// Asks for the cache line of `values[at]` before it is needed. A place outside asks for nothing
/// that matters.
#[inline(always)]
pub fn prefetch<T>(values: &[T], at: usize) {
    prefetch_line(values.as_ptr().wrapping_add(at));
}

/// Asks for the cache line of a value before it is needed. Any address will do.
#[inline(always)]
pub fn prefetch_line<T>(value: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads nothing and may be given any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(value.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_can_be_written() {
        for len in [0, 1, 1000, LARGE / 4 - 1, LARGE / 4, LARGE] {
            let mut pages = Pages::<u32>::new(len);
            assert_eq!(pages.len(), len);
            assert!(pages.iter().all(|&value| value == 0));
            if let Some(last) = pages.last_mut() {
                *last = 7;
                assert_eq!(pages[len - 1], 7);
            }
        }
    }
}
