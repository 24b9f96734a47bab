//! The sandbox that `cdi-operator` enters at its start.

use std::net::TcpListener;
use std::process::Command;

use testkit::sandbox::{end_sandboxed, expect_sandbox_required, kubeconfig, wait_for_health};
use testkit::{Running, in_own_network};

#[test]
fn the_operator_works_in_its_sandbox() {
    in_own_network(|| {
        let api = TcpListener::bind("127.0.0.1:6443").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, kubeconfig("http://127.0.0.1:6443", "{}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-operator"));
        command.arg("-v=3").arg(format!("-kubeconfig={}", file.display()));
        let running = Running::start(&mut command);
        assert!(wait_for_health().starts_with("HTTP/1.1 200 OK"));
        api.accept().unwrap(); // it may connect to the API server
        end_sandboxed(running);
    });
}

#[test]
fn a_required_sandbox_is_entered_or_the_operator_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-operator"));
    command.args(["-kubeconfig=/nonexistent", "-require-sandbox=true"]);
    expect_sandbox_required(&mut command, "files, tcp_listen, tcp_connect");
}
