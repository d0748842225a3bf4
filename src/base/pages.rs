//! Large zeroed arrays in huge pages, and prefetching.
//!
//! Random access to tables of many megabytes spends much of its time on address translation and on
//! page faults. Huge pages help with both, but must be requested before the first touch, so large
//! arrays have mappings of their own.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::base::memory::{out_of_memory, try_reserve};

/// Types of which zeroed memory is a valid value, and which need no drop.
///
/// # Safety
/// Both must hold, and the alignment must be at most 4096.
pub unsafe trait Zeroable: Copy {}

// SAFETY: zero is a valid number, numbers need no drop, and the alignment is 2.
unsafe impl Zeroable for u16 {}
// SAFETY: zero is a valid number, numbers need no drop, and the alignment is 4.
unsafe impl Zeroable for u32 {}
// SAFETY: zero is a valid number, numbers need no drop, and the alignment is at most 8.
unsafe impl Zeroable for u64 {}

/// Arrays of at least this many bytes are mapped.
const MIN_MAPPED_BYTES: usize = 1 << 20;

/// A zeroed array of fixed length.
#[derive(Debug)]
pub struct Pages<T> {
    start: NonNull<T>,
    len: usize,
    /// Owns the memory that `start` points to.
    _memory: Memory<T>,
}

#[derive(Debug)]
enum Memory<T> {
    Allocated { _values: Vec<T> },
    Mapped { _map: memmap2::MmapMut },
}

// SAFETY: the array owns its memory alone and hands out references only for borrows of itself, so it is
// `Send` if its values are, as a `Vec` is.
unsafe impl<T: Zeroable + Send> Send for Pages<T> {}
// SAFETY: a shared array only hands out shared references to its values, as a `Vec` does.
unsafe impl<T: Zeroable + Sync> Sync for Pages<T> {}

impl<T: Zeroable> Pages<T> {
    /// `len` zeros; unwinds if there is no memory for them.
    pub fn new(len: usize) -> Self {
        Pages::try_new(len).unwrap_or_else(|| out_of_memory(len.saturating_mul(size_of::<T>())))
    }

    /// `len` zeros, or None if there is no memory for them.
    pub fn try_new(len: usize) -> Option<Self> {
        let size = len.checked_mul(size_of::<T>())?;
        if size >= MIN_MAPPED_BYTES {
            let mut map = memmap2::MmapMut::map_anon(size).ok()?;
            #[cfg(target_os = "linux")]
            // Without huge pages everything works, only slower.
            let _ = map.advise(memmap2::Advice::HugePage);
            let start = NonNull::from(&mut map[..]).cast();
            return Some(Pages { start, len, _memory: Memory::Mapped { _map: map } });
        }
        // SAFETY: zeroed memory is a valid value of a `Zeroable`.
        let zero: T = unsafe { std::mem::zeroed() };
        let mut values = vec![zero; len];
        let start = NonNull::from(&mut values[..]).cast();
        Some(Pages { start, len, _memory: Memory::Allocated { _values: values } })
    }

    /// The address of the first value.
    #[inline(always)]
    pub fn start(&self) -> *const T {
        self.start.as_ptr()
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` points to `len` values that live as long as `self`; a mapping starts at a
        // page boundary, so it is aligned.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: `start` points to `len` values that live as long as `self` and are aligned (see `deref`);
        // `self` is mutably borrowed and owns them alone, so no other reference to them exists.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// An empty list with capacity for `n` values if there is memory for them, in huge pages if large.
pub fn with_room<T>(n: usize) -> Vec<T> {
    let mut list: Vec<T> = Vec::new();
    // `n` is an estimate, so a failure is not an error.
    if !try_reserve(|| list.try_reserve_exact(n)) {
        return list;
    }
    #[cfg(target_os = "linux")]
    if n.saturating_mul(size_of::<T>()) >= MIN_MAPPED_BYTES {
        const PAGE: usize = 4096;
        let start = list.as_ptr() as usize;
        let (first, end) = (start.next_multiple_of(PAGE), start + n * size_of::<T>());
        // SAFETY: the range consists of whole pages within the allocation of the list, and the advice does
        // not change their content.
        unsafe { libc::madvise(first as *mut _, (end - first) / PAGE * PAGE, libc::MADV_HUGEPAGE) };
    }
    list
}

/// Prefetches the cache line of `values[at]`; `at` may be out of bounds.
#[inline(always)]
pub fn prefetch<T>(values: &[T], at: usize) {
    prefetch_line(values.as_ptr().wrapping_add(at));
}

/// Prefetches the cache line of an address, which need not be valid.
#[inline(always)]
pub fn prefetch_line<T>(value: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of SSE, which every x86-64 processor has; it has no architectural
    // effect and ignores invalid addresses.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(value.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint of the base instruction set; it writes nothing, changes no flags and ignores invalid
    // addresses. The standard library has no stable function for it.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{}]",
            in(reg) value,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_can_be_written() {
        for len in [0, 1, 1000, MIN_MAPPED_BYTES / 4 - 1, MIN_MAPPED_BYTES / 4, MIN_MAPPED_BYTES] {
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
