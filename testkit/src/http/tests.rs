use std::io::{Read, Write};

use super::*;
use crate::disk::pattern;
use crate::proxy::Proxy;
use crate::tool::require_tool;

/// Sends one GET with these header lines and returns head and body, however they end.
fn get(server: &FaultServer, headers: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "GET /image HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end..].to_vec())
}

#[test]
fn a_healthy_server_serves_all_and_parts() {
    let image = pattern(100_000);
    let server = FaultServer::in_memory(&image);
    let (head, body) = get(&server, "");
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Length: 100000\r\n"),
        "{head}"
    );
    assert_eq!(body, image);
    let (head, body) = get(&server, "Range: bytes=500-999\r\nIf-Range: \"generation-1\"\r\n");
    assert!(
        head.contains("206") && head.contains("Content-Range: bytes 500-999/100000\r\n"),
        "{head}"
    );
    assert_eq!(body, image[500..1000]);
    assert!(get(&server, "Range: bytes=100000-\r\n").0.contains("416"));
    assert_eq!(get(&server, "Range: bytes=5-\r\nIf-Range: \"other\"\r\n").1, image);
    assert_eq!(server.ranges(), ["", "500-999", "100000-", "5-"]);
    assert_eq!(server.body_bytes_sent(), 200_500);
}

#[test]
fn faults_apply_to_the_scripted_requests() {
    let image = pattern(100_000);
    let server = FaultServer::in_memory(&image)
        .on(1, Fault::CloseAfter(10))
        .on(2, Fault::StatusWithRetryAfter(429, 7))
        .once(Fault::CloseAt(50_000))
        .on(5, Fault::ChangeEtag)
        .on(6, Fault::Chunked)
        .on(7, Fault::Hangup)
        .on(8, Fault::WrongLength(5));
    assert_eq!(get(&server, "").1, image[..10]);
    assert!(get(&server, "Range: bytes=0-9\r\n").0.contains("Retry-After: 7\r\n"));
    assert_eq!(get(&server, "Range: bytes=0-9\r\n").1, image[..10]);
    // The first GET was due to break there too, but the earlier break won: `once` is used up.
    assert_eq!(get(&server, "Range: bytes=49000-\r\n").1, image[49_000..]);
    assert!(get(&server, "").0.contains("\"generation-2\""));
    let (head, body) = get(&server, "Range: bytes=0-9\r\n");
    assert!(
        !head.contains("Content-Length")
            && body.starts_with(b"a\r\n")
            && body.ends_with(b"0\r\n\r\n")
    );
    assert_eq!(get(&server, ""), (String::new(), Vec::new()));
    assert!(get(&server, "").0.contains("Content-Length: 100005\r\n"));
}

#[test]
fn stalled_response_is_observed_and_continues_after_heal() {
    let image = pattern(100_000);
    let server = FaultServer::in_memory(&image).always(Fault::StallAt(60_000));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| get(&server, "").1);
        server.wait_for_stall(Duration::from_secs(30));
        assert_eq!(server.body_bytes_sent(), 60_000);
        server.heal();
        assert_eq!(client.join().unwrap(), image[..60_000]);
    });
    assert_eq!(get(&server, "").1, image);
}

#[test]
fn fault_replaces_those_before() {
    let image = pattern(100_000);
    let server = FaultServer::in_memory(&image).always(Fault::StallAfter(1000));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| get(&server, "").1);
        server.wait_for_stall(Duration::from_secs(30));
        server.fail_with(Fault::CloseAt(60_000));
        assert_eq!(client.join().unwrap(), image[..1000]);
    });
    assert_eq!(get(&server, "").1, image[..60_000]);
}

#[test]
fn access_is_checked() {
    let server =
        FaultServer::in_memory(b"secret").always(Fault::BasicAuth("me".into(), "pass".into()));
    assert!(get(&server, "").0.contains("401"));
    assert_eq!(get(&server, "Authorization: Basic bWU6cGFzcw==\r\n").1, b"secret");
}

#[test]
fn curl_agrees_over_tls_and_through_a_proxy() {
    let Some(curl) = require_tool("curl") else { return };
    let image = pattern(300_000);
    let server =
        FaultServer::in_memory(&image).tls().at("/old", Fault::RedirectTo("/image".into()));
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), server.ca_pem()).unwrap();
    let proxy = Proxy::start().basic_auth("me", "pass");
    let address = proxy.url().replace("http://", "http://me:pass@");
    let ca_path = ca.path().to_str().unwrap();
    let old = server.url_of("/old");
    assert_eq!(
        curl.run(["-sfL", "--noproxy", "", "--cacert", ca_path, "-x", &address, &old]),
        image
    );
    assert_eq!(proxy.requests()[0].target, format!("127.0.0.1:{}", server.port()));

    let plain = FaultServer::in_memory(&image);
    assert_eq!(curl.run(["-sf", "--noproxy", "", "-x", &address, &plain.url()]), image);
    assert_eq!(proxy.requests()[1].target, plain.url());
    assert!(!curl.command(["-sf", &server.url()]).status().unwrap().success());
}
