//! The one thing neither the standard library nor rustix offers: what a child, with all its children, has cost.
#![allow(unsafe_code)]

use std::io;
use std::process::Child;
use std::time::Duration;

/// How a process ended, and what it and every descendant that was waited for used.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// It exited with 0.
    pub success: bool,
    /// Time on a core, in user and in kernel mode.
    pub cpu: Duration,
    /// The largest resident set of any one of these processes.
    pub peak_rss_bytes: u64,
}

/// Waits for `child` to end. To be called once, instead of [`Child::wait`].
///
/// # Errors
/// Of the operating system.
pub fn wait_with_usage(child: &Child) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live, writable values of the types that wait4 fills.
        let pid = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
        if pid >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.unsigned_abs())
            + Duration::from_micros(value.tv_usec.unsigned_abs())
    };
    Ok(Ended {
        success: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak_rss_bytes: usage.ru_maxrss.unsigned_abs() * 1024, // Linux counts KiB
    })
}
