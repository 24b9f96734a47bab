//! Processes that have entered the sandbox try what a compromised program would. Each runs in a child process, as a
//! restriction is never lifted.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod attacks;
#[cfg(feature = "cluster")]
mod control_plane;
mod sys;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use testkit::{skip, without_landlock, without_seccomp};

/// Runs a test that is ignored otherwise, in a process of its own.
fn child(name: &str, prepare: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    prepare(&mut command);
    command.output().unwrap()
}

/// The same, which has to succeed.
fn expect_success(name: &str, prepare: impl FnOnce(&mut Command)) {
    let output = child(name, prepare);
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}{}", text[0], text[1]);
    assert!(text[0].contains("1 passed"), "there is no test {name}: {}", text[0]);
    // What the kernel of this machine made it leave out.
    eprint!("{}", text[1]);
}

#[test]
fn refused_system_calls_fail() {
    expect_success("attacks::by_system_calls", |_| ());
}

#[test]
fn files_outside_the_policy_cannot_be_opened() {
    expect_success("attacks::on_files", |_| ());
}

#[test]
fn tcp_ports_outside_the_policy_cannot_be_used() {
    expect_success("attacks::on_ports", |_| ());
}

#[test]
fn policy_without_ports_refuses_all_connections() {
    expect_success("attacks::without_any_port", |_| ());
    expect_success("attacks::without_any_port", without_landlock);
}

#[test]
fn ordinary_work_succeeds_in_the_sandbox() {
    expect_success("attacks::none_of_it_in_ordinary_work", |_| ());
}

#[test]
fn kernel_without_landlock_still_refuses_system_calls() {
    expect_success("attacks::without_landlock", without_landlock);
}

#[test]
fn container_without_seccomp_still_restricts_files_and_ports() {
    expect_success("attacks::without_seccomp", without_seccomp);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn system_call_of_another_architecture_kills_the_process() {
    let output = child("attacks::by_i386_system_call", |_| ());
    match output.status.signal() {
        Some(libc::SIGSYS) => (),
        // No kernel with programs of 32 bits has such a call.
        Some(libc::SIGSEGV) => skip("this kernel has no system calls of i386"),
        _ => panic!("{}: {}", output.status, String::from_utf8_lossy(&output.stdout)),
    }
}
