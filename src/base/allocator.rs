//! What glibc's allocator does with memory.

/// Gives back what the allocator keeps of freed memory. Tables that grew and were freed leave holes
/// that count as ours: with a limit of 150 MB, a second count in the same process reached 155 MB
/// without this. A matter of milliseconds, and only of glibc.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it may be called at any time from any thread, and touches only free memory.
        unsafe {
            malloc_trim(0);
        }
    }
}

/// Where the address space is limited (`ulimit -v`), lets all threads share one arena: glibc maps
/// 64 MB for each thread otherwise, of which little is ever used.
#[cfg(feature = "python")]
pub fn spare_address_space() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a limit to be written to, and a setting that may be changed at any time.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) == 0
                && limit.rlim_cur != libc::RLIM_INFINITY
            {
                libc::mallopt(libc::M_ARENA_MAX, 1);
            }
        }
    }
}
