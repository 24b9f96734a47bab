//! Programs that use the API server.

use std::net::{TcpListener, TcpStream};
use std::path::Path;

use runtime::{Flags, SandboxPolicy, TcpConnect, enter_control_plane_sandbox};
use testkit::{skip, without_landlock};

use crate::{expect_success, sys};

const FLAGS: [&str; 3] = ["kubeconfig", "server", "require-sandbox"];

#[test]
fn control_plane_program_reaches_only_the_api_server() {
    expect_success("control_plane::with_a_kubeconfig", |_| ());
}

#[test]
fn required_sandbox_fails_without_landlock() {
    expect_success("control_plane::on_an_old_kernel", without_landlock);
}

#[test]
fn kubeconfig_with_a_credential_program_disables_the_sandbox() {
    expect_success("control_plane::with_a_program_for_credentials", |_| ());
}

fn flags(kubeconfig: &Path, more: &[&str]) -> Flags {
    let kubeconfig = format!("-kubeconfig={}", kubeconfig.display());
    let arguments = std::iter::once(kubeconfig.as_str()).chain(more.iter().copied());
    Flags::parse(arguments.map(str::to_owned), &FLAGS)
}

/// A kubeconfig with this server and these credentials.
fn kubeconfig(folder: &Path, server: &str, user: &str) -> std::path::PathBuf {
    let path = folder.join("kubeconfig");
    let text = testkit::sandbox::kubeconfig(server, user);
    std::fs::write(&path, text).unwrap();
    path
}

fn policy() -> SandboxPolicy {
    SandboxPolicy { connect: TcpConnect::Ports(Vec::new()), ..SandboxPolicy::default() }
}

#[test]
#[ignore = "run in a child process"]
fn with_a_kubeconfig() {
    let [api, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [api, other] = [&api, &other].map(|one| one.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path(), &format!("http://{api}"), "{}");
    let state = enter_control_plane_sandbox(&flags(&file, &[]), policy()).unwrap();
    assert!(state.system_calls);
    std::fs::read(&file).unwrap();
    TcpStream::connect(api).unwrap();
    assert!(std::process::Command::new("/bin/true").status().is_err());
    if state.tcp_connect != Some(true) {
        return skip("this kernel's Landlock does not restrict TCP");
    }
    let error = TcpStream::connect(other).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(std::fs::write(folder.path().join("new"), "").is_err());
}

#[test]
#[ignore = "run in a child process, on a kernel without Landlock"]
fn on_an_old_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let file = kubeconfig(folder.path(), "https://api.example:6443", "{}");
    let required = flags(&file, &["-require-sandbox=true"]);
    let error = enter_control_plane_sandbox(&required, policy()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot enter the sandbox: the kernel does not enforce files"),
        "{error}"
    );
}

#[test]
#[ignore = "run in a child process"]
fn with_a_program_for_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let user = r#"{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"aws"}}"#;
    let file = kubeconfig(folder.path(), "https://api.example:6443", user);
    let required = flags(&file, &["-require-sandbox=true"]);
    assert!(enter_control_plane_sandbox(&required, policy()).is_err());
    let state = enter_control_plane_sandbox(&flags(&file, &[]), policy()).unwrap();
    assert!(!state.system_calls && !state.files, "{state}");
    assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    assert_eq!(sys::call(libc::SYS_seccomp, [99, 0, 0]), Err(libc::EINVAL), "no filter is there");
}
