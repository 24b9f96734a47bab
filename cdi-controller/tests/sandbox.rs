//! The sandbox that `cdi-controller` enters at its start.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::Running;
use testkit::sandbox::{end_sandboxed, expect_sandbox_required, kubeconfig};

const LIMIT: Duration = Duration::from_secs(60);

/// The program, with an API server that accepts connections and never answers.
struct Controller {
    folder: TempDir,
    command: Command,
    _api: TcpListener,
}

impl Controller {
    fn new() -> Self {
        let api = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let server = format!("http://{}", api.local_addr().unwrap());
        std::fs::write(&file, kubeconfig(&server, "{}")).unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-controller"));
        command
            .arg("-v=3")
            .arg("-metrics-port=0")
            .arg("-leader-election=false")
            .arg(format!("-kubeconfig={}", file.display()))
            .arg(format!("-ready-file={}", at("tmp/ready")))
            .arg(format!("-certificates={}", at("certificates")))
            .arg(format!("-token-keys={}", at("keys")));
        Self { folder, command, _api: api }
    }

    fn ready(&self) -> std::path::PathBuf {
        self.folder.path().join("tmp/ready")
    }
}

fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < LIMIT, "{} is not created", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_controller_works_in_its_sandbox() {
    let mut controller = Controller::new();
    let running = Running::start(&mut controller.command);
    wait_for(&controller.ready());
    let finished = end_sandboxed(running);
    assert!(!controller.ready().exists(), "the readiness file still exists");
    assert!(finished.stderr.contains("TCP connections to any port"), "{}", finished.stderr);
}

#[test]
fn a_required_sandbox_is_entered_or_the_controller_ends() {
    let mut controller = Controller::new();
    controller.command.arg("-require-sandbox=true");
    expect_sandbox_required(&mut controller.command, "files, tcp_listen");
    assert!(!controller.ready().exists());
}
