//! The sandbox that the program enters at its start. All other tests here run in it too.

use std::process::Command;

use testkit::sandbox::{expect_filtered, expect_sandbox_required};

use crate::program::Program;

#[tokio::test]
async fn program_serves_in_its_sandbox() {
    let program = Program::start().await;
    expect_filtered(program.pid());
    assert_eq!(program.stop().await, Some(0));
}

#[test]
fn required_sandbox_is_entered_or_the_program_exits() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-apiserver"));
    command.args(["-kubeconfig=/nonexistent", "-require-sandbox=true"]);
    expect_sandbox_required(&mut command, "files, tcp_listen, tcp_connect");
}
