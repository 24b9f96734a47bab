//! System calls that no safe crate offers: the only `unsafe` of this crate.
#![allow(unsafe_code)]

/// Ends the process without the destructors of C libraries.
pub fn exit_without_destructors(code: i32) -> ! {
    // SAFETY: the call takes no pointer and never returns.
    unsafe { libc::_exit(code) }
}
