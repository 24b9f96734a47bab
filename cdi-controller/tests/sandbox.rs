//! The sandbox that `cdi-controller` enters at its start.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::{Running, without_landlock};

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
        let kubeconfig = folder.path().join("kubeconfig");
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Config","current-context":"here",
            "clusters":[{{"name":"here","cluster":{{"server":"http://{}"}}}}],
            "users":[{{"name":"me","user":{{}}}}],
            "contexts":[{{"name":"here","context":{{"cluster":"here","user":"me"}}}}]}}"#,
            api.local_addr().unwrap()
        );
        std::fs::write(&kubeconfig, text).unwrap();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-controller"));
        command
            .arg("-v=3")
            .arg("-metrics-port=0")
            .arg("-leader-election=false")
            .arg(format!("-kubeconfig={}", kubeconfig.display()))
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
        assert!(start.elapsed() < LIMIT, "{} is not made", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_controller_works_in_its_sandbox() {
    let mut controller = Controller::new();
    let running = Running::start(&mut controller.command);
    wait_for(&controller.ready());
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    running.signal(15);
    let finished = running.wait(LIMIT).expect_success();
    assert!(!controller.ready().exists(), "the file that says that it is up is still there");
    let expected = "system calls confined";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    assert!(finished.stderr.contains("TCP connections to any port"), "{}", finished.stderr);
    if finished.stderr.contains("NOT confined") {
        testkit::skip("this kernel does not enforce the whole sandbox");
    }
}

#[test]
fn a_required_sandbox_is_entered_or_the_controller_ends() {
    let mut controller = Controller::new();
    without_landlock(controller.command.arg("-require-sandbox=true"));
    let finished = Running::start(&mut controller.command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let expected = "cannot enter the sandbox: the kernel does not enforce files, tcp_listen;";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    assert!(!controller.ready().exists());
}
