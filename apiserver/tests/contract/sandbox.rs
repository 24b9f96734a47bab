//! The sandbox that the program enters at its start. All other tests here run in it too.

use std::process::Command;
use std::time::Duration;

use testkit::{Running, without_landlock};

use crate::program::Program;

#[tokio::test]
async fn the_program_serves_in_its_sandbox() {
    let program = Program::start().await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert_eq!(program.stop().await, Some(0));
}

#[test]
fn a_required_sandbox_is_entered_or_the_program_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-apiserver"));
    command.args(["-kubeconfig=/nonexistent", "-require-sandbox=true"]);
    without_landlock(&mut command);
    let finished = Running::start(&mut command).wait(Duration::from_secs(60));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let expected =
        "cannot enter the sandbox: the kernel does not enforce files, tcp_listen, tcp_connect;";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}
