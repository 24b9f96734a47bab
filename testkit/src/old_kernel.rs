//! Programs run as on a kernel that lacks a feature: its system calls fail as they do there.

use std::process::Command;

use crate::sys::{self, RefusedCalls};

/// As on a kernel without Landlock.
pub fn without_landlock(command: &mut Command) {
    let first = libc::SYS_landlock_create_ruleset;
    let last = libc::SYS_landlock_restrict_self;
    sys::refuse_calls(command, RefusedCalls { first, last, error: libc::ENOSYS });
}

/// As in a container whose runtime allows no filters of system calls.
pub fn without_seccomp(command: &mut Command) {
    let only = libc::SYS_seccomp;
    sys::refuse_calls(command, RefusedCalls { first: only, last: only, error: libc::EPERM });
}
