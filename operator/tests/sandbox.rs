//! The sandbox that `cdi-operator` enters at its start.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Running, in_own_network, without_landlock};

const LIMIT: Duration = Duration::from_secs(60);

/// What the health port answers, once it does.
fn probe() -> String {
    let start = Instant::now();
    loop {
        if let Ok(mut stream) = TcpStream::connect("127.0.0.1:8444") {
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "nobody answers");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_operator_works_in_its_sandbox() {
    in_own_network(|| {
        let api = TcpListener::bind("127.0.0.1:6443").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = r#"{"apiVersion":"v1","kind":"Config","current-context":"here",
            "clusters":[{"name":"here","cluster":{"server":"http://127.0.0.1:6443"}}],
            "users":[{"name":"me","user":{}}],
            "contexts":[{"name":"here","context":{"cluster":"here","user":"me"}}]}"#;
        std::fs::write(&kubeconfig, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-operator"));
        command.arg("-v=3").arg(format!("-kubeconfig={}", kubeconfig.display()));
        let running = Running::start(&mut command);
        assert!(probe().starts_with("HTTP/1.1 200 OK"));
        api.accept().unwrap(); // it may connect to the API server
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "{line}: {status}");
        }
        running.signal(15);
        let said = running.wait(LIMIT).expect_success().stderr;
        assert!(said.contains("system calls confined"), "{said}");
        if said.contains("NOT confined") {
            testkit::skip("this kernel does not enforce the whole sandbox");
        }
    });
}

#[test]
fn a_required_sandbox_is_entered_or_the_operator_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-operator"));
    without_landlock(command.args(["-kubeconfig=/nonexistent", "-require-sandbox=true"]));
    let finished = Running::start(&mut command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let expected =
        "cannot enter the sandbox: the kernel does not enforce files, tcp_listen, tcp_connect;";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}
