//! What the tests of the programs' sandboxes have in common.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Finished, Running, skip, without_landlock};

const LIMIT: Duration = Duration::from_secs(60);

/// The text of a kubeconfig for the API server at `server` (a URL). `user`: JSON with the credentials, `{}` for none.
pub fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Config","current-context":"here",
        "clusters":[{{"name":"here","cluster":{{"server":"{server}"}}}}],
        "users":[{{"name":"me","user":{user}}}],
        "contexts":[{{"name":"here","context":{{"cluster":"here","user":"me"}}}}]}}"#
    )
}

/// The response of the health port of a program that is starting, once it responds.
///
/// # Panics
/// When it does not within a minute.
pub fn wait_for_health() -> String {
    let start = Instant::now();
    loop {
        if let Ok(mut stream) = TcpStream::connect("127.0.0.1:8444") {
            let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).expect("cannot send a probe");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("cannot read the response to a probe");
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "the health port does not respond");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that the kernel filters the system calls of a process, and gives it no more privileges.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn expect_filtered(pid: u32) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.expect("cannot read the status of the process");
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}

/// Ends a program that works in its sandbox, and checks that its log reports the sandbox. Where the kernel lacks a part of it, the
/// test counts as skipped.
///
/// # Panics
/// When the program fails, or its log does not report that system calls are confined.
#[track_caller]
pub fn end_sandboxed(running: Running) -> Finished {
    expect_filtered(running.pid());
    running.signal(15);
    let finished = running.wait(LIMIT).expect_success();
    assert!(finished.stderr.contains("system calls confined"), "{}", finished.stderr);
    if finished.stderr.contains("NOT confined") {
        skip("this kernel does not enforce the whole sandbox");
    }
    finished
}

/// Checks that a program which requires its sandbox ends without Landlock, and names the restrictions that are `missing`.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn expect_sandbox_required(command: &mut Command, missing: &str) {
    without_landlock(command);
    let finished = Running::start(command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    let expected = format!("cannot enter the sandbox: the kernel does not enforce {missing};");
    assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
}
