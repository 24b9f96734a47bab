//! The sandbox that `cdi-uploadproxy` enters at its start.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use auth::Authority;
use auth::token::KeyTexts;
use testkit::{Running, in_own_network, without_landlock};

const LIMIT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// What the health port answers, once it does.
fn probe() -> String {
    let start = Instant::now();
    loop {
        if let Ok(mut stream) = TcpStream::connect("127.0.0.1:8444") {
            let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "nobody answers");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// With certificates in `folder`, and an API server at port 6443.
fn proxy(folder: &Path) -> Command {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let kubeconfig = r#"{"apiVersion":"v1","kind":"Config","current-context":"here",
        "clusters":[{"name":"here","cluster":{"server":"http://127.0.0.1:6443"}}],
        "users":[{"name":"me","user":{}}],
        "contexts":[{"name":"here","context":{"cluster":"here","user":"me"}}]}"#;
    let authority = Authority::make("signer", HOUR, SystemTime::now()).unwrap();
    let authority = Authority::read(&authority).unwrap();
    let server = authority.server(&["localhost".to_owned()], HOUR, SystemTime::now()).unwrap();
    let (certificate, key) = (write("tls.crt", &server.certificate), write("tls.key", &server.key));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-uploadproxy"));
    command
        .arg("-v=3")
        .arg(format!("-kubeconfig={}", write("kubeconfig", kubeconfig).display()))
        .env("APISERVER_PUBLIC_KEY", KeyTexts::generate().unwrap().public)
        .env("SERVER_CERT_FILE", &certificate)
        .env("SERVER_KEY_FILE", &key)
        .env("UPLOAD_CLIENT_CERT_FILE", &certificate)
        .env("UPLOAD_CLIENT_KEY_FILE", &key);
    command
}

#[test]
fn the_proxy_works_in_its_sandbox() {
    in_own_network(|| {
        let api = TcpListener::bind("127.0.0.1:6443").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let running = Running::start(&mut proxy(folder.path()));
        assert!(probe().starts_with("HTTP/1.1 200 OK"));
        api.accept().unwrap(); // it may connect to the API server
        TcpStream::connect("127.0.0.1:8443").unwrap();
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
fn a_required_sandbox_is_entered_or_the_proxy_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = proxy(folder.path());
    without_landlock(command.arg("-require-sandbox=true"));
    let finished = Running::start(&mut command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let expected =
        "cannot enter the sandbox: the kernel does not enforce files, tcp_listen, tcp_connect;";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}
