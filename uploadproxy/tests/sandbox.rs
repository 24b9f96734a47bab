//! The sandbox that `cdi-uploadproxy` enters at its start.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use auth::CertificateAuthority;
use auth::token::KeyTexts;
use testkit::sandbox::{end_sandboxed, expect_sandbox_required, kubeconfig, wait_for_health};
use testkit::{Running, in_own_network};

const HOUR: Duration = Duration::from_secs(3600);

/// With certificates in `folder`, and an API server at port 6443.
fn proxy(folder: &Path) -> Command {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let kubeconfig = kubeconfig("http://127.0.0.1:6443", "{}");
    let ca = CertificateAuthority::create("signer", HOUR, SystemTime::now()).unwrap();
    let ca = CertificateAuthority::from_identity(&ca).unwrap();
    let server = ca.server(&["localhost".to_owned()], HOUR, SystemTime::now()).unwrap();
    let (certificate, key) = (write("tls.crt", &server.certificate), write("tls.key", &server.key));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cdi-uploadproxy"));
    command
        .arg("-v=3")
        .arg(format!("-kubeconfig={}", write("kubeconfig", &kubeconfig).display()))
        .env("APISERVER_PUBLIC_KEY", KeyTexts::generate().unwrap().public)
        .env("SERVER_CERT_FILE", &certificate)
        .env("SERVER_KEY_FILE", &key)
        .env("UPLOAD_CLIENT_CERT_FILE", &certificate)
        .env("UPLOAD_CLIENT_KEY_FILE", &key);
    command
}

#[test]
fn proxy_works_in_its_sandbox() {
    in_own_network(|| {
        let api = TcpListener::bind("127.0.0.1:6443").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let running = Running::start(&mut proxy(folder.path()));
        assert!(wait_for_health().starts_with("HTTP/1.1 200 OK"));
        api.accept().unwrap(); // it may connect to the API server
        TcpStream::connect("127.0.0.1:8443").unwrap();
        end_sandboxed(running);
    });
}

#[test]
fn required_sandbox_is_entered_or_the_proxy_exits() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = proxy(folder.path());
    command.arg("-require-sandbox=true");
    expect_sandbox_required(&mut command, "files, tcp_listen, tcp_connect");
}
