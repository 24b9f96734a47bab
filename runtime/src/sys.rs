//! System calls that no safe crate offers: the only `unsafe` of this crate.
#![allow(unsafe_code)]

/// Ends the process without the destructors of C libraries.
pub fn exit_without_destructors(code: i32) -> ! {
    // SAFETY: the call takes no pointer and never returns.
    unsafe { libc::_exit(code) }
}

/// Lets all threads allocate from one heap. By default glibc gives each of several threads a heap of its own, and one does not
/// use what was freed in another: an import whose target is slow took up to 20 MiB more. With musl there is one anyway.
/// Of use before the first thread starts.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and nothing else changes the settings of the allocator. If it fails, all is as before.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
