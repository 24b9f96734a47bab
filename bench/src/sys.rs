//! What neither the standard library nor rustix offers: the cost of a child with all its children, and TUN devices.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
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
    /// Voluntary context switches.
    pub waits: u64,
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
        waits: usage.ru_nvcsw.unsigned_abs(),
    })
}

/// A new TUN device of this name (at most 15 bytes), without a header before its packets. It exists until the file is closed, and
/// reading does not wait for packets.
///
/// # Errors
/// Of the operating system, which requires root.
pub fn open_tun(name: &str) -> io::Result<File> {
    let flags = libc::O_NONBLOCK;
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?;
    // SAFETY: `ifreq` is plain data, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`, which lives until the call is over.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
