//! The C library's allocator, told how much to keep.

/// Batches come and go in pieces of many sizes, on many threads. Left to itself glibc keeps an arena for each thread and
/// raises the size from which on it asks the system for single pieces: the demo's million rows then peak at 275 to 450 MB
/// resident. Giving every piece back at once costs a quarter of all CPU in page faults, so what is usual for a batch stays.
#[cfg(target_env = "gnu")]
pub fn bound_what_is_kept() {
    const KIB: libc::c_int = 1024;
    // SAFETY: mallopt takes numbers only; it is called before any other thread is started.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 2048 * KIB);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 8192 * KIB);
        libc::mallopt(libc::M_TOP_PAD, 1024 * KIB);
    }
}

/// Other C libraries have no such settings.
#[cfg(not(target_env = "gnu"))]
pub fn bound_what_is_kept() {}
