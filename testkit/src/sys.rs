//! What the standard library does not offer of the operating system.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// How a child ended, and the CPU time of it and its own children.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

/// Reaps the child if it has ended. No other code may wait for it.
pub(crate) fn try_reap(pid: u32) -> io::Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: `rusage` is plain integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable variables of the types that wait4 fills.
    match unsafe { libc::wait4(pid as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) } {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some(Ended {
            status: ExitStatus::from_raw(status),
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
        })),
    }
}

/// Sends a signal to a child that has not been reaped.
pub(crate) fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::kill(pid as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes programs that this process starts take signals as one started from a terminal does: a shell's background job, which a
/// test run may be, inherits ignored signals, and so would they.
///
/// Not between fork and exec: without such a step the standard library starts programs without a copy of this process's page
/// tables. With gigabytes of test images, those copies took a third of the time of the tests.
pub(crate) fn respect_signals() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT] {
        // SAFETY: `sigaction` is plain integers and a null handler, for which all zeroes is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live, writable variable, and null changes nothing.
        if unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: no handler is passed.
        if action.sa_sigaction == libc::SIG_IGN
            && unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// System calls that fail: those from one number to another.
#[derive(Clone, Copy)]
pub(crate) struct RefusedCalls {
    pub(crate) first: libc::c_long,
    pub(crate) last: libc::c_long,
    pub(crate) error: i32,
}

/// Makes these system calls fail in the program, and in all that it starts.
pub(crate) fn refuse_calls(command: &mut Command, refused: RefusedCalls) {
    let statement =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let jump = libc::BPF_JMP | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        // The number of the call is the first member of `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(jump | libc::BPF_JGE, 0, 2, refused.first as u32),
        statement(jump | libc::BPF_JGT, 1, 0, refused.last as u32),
        statement(answer, 0, 0, libc::SECCOMP_RET_ERRNO | refused.error.unsigned_abs()),
        statement(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program =
            libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
        // SAFETY: takes numbers only.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel copies the program, which lives until then.
        match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(install) };
}

/// Is this process the administrator?
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Gives this thread, and all that it starts, a network of its own: without any interface that is up.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}
