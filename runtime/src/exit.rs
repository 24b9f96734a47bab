//! The end of a worker process, while other threads still run.

use std::io::{Write, stderr, stdout};

use crate::sys;

/// Ends the process at once, as `main` of a worker program does: threads that still serve metrics or a connection end with
/// it. Nothing is dropped. Standard output and error are flushed.
///
/// A return from `main` would run the destructors of C libraries while these threads run. The one of AWS-LC frees its random
/// number generator, and a thread that draws from it at this moment aborts the process: a complete import would fail.
pub fn exit_process(code: u8) -> ! {
    exit_with(code.into())
}

pub(crate) fn exit_with(code: i32) -> ! {
    // A failure cannot be reported anywhere.
    let _ = stdout().flush();
    let _ = stderr().flush();
    sys::exit_without_destructors(code)
}
