//! Clients and servers that disconnect, stall or send too much: the right response, and no upload that looks complete.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use auth::TlsMinimum;
use contract::ByteCount;
use testkit::{MIB, RawClient, pattern, post_head};

use crate::world::{READY, Server, TARGET, TestCluster};

const PATH: &str = "/v1beta1/upload";

/// A valid upload succeeds.
#[track_caller]
fn expect_ready(cluster: &TestCluster, server: &Server, case: &str) {
    assert_eq!(server.disk(), None, "{case}: something looks finished");
    let (disk, token) = (pattern(2 * MIB), cluster.token("disk"));
    let mut answer = cluster.client().post(PATH, &token, &disk);
    while answer.status == 503 {
        answer = cluster.client().post(PATH, &token, &disk); // the failed upload is still being cleaned up
    }
    assert_eq!(answer.status, 200, "{case}: {answer:?}");
    assert!(server.disk().expect("a disk").starts_with(&disk), "{case}"); // it may have grown
}

#[test]
fn retry_succeeds_after_a_client_disconnects() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let (disk, token) = (pattern(2 * MIB), cluster.token("disk"));
    let chunked =
        format!("POST {PATH} HTTP/1.1\r\nHost: l\r\n{token}Transfer-Encoding: chunked\r\n\r\n");
    for n in [0, 1, 2048, disk.len() - 1] {
        let mut connection = cluster.client().connect();
        connection.send(post_head(PATH, &token, disk.len()).as_bytes());
        connection.send(&disk[..n]);
        drop(connection);
        let mut connection = cluster.client().connect();
        connection.send(chunked.as_bytes());
        connection.send(format!("{n:x}\r\n").as_bytes());
        connection.send(&disk[..n]);
        drop(connection);
    }
    expect_ready(&cluster, &server, "vanished");
}

#[test]
fn server_that_disconnects_is_a_bad_gateway() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let (disk, token) = (pattern(2 * MIB), cluster.token("disk"));
    let mut connection = cluster.client().connect();
    connection.send(post_head(PATH, &token, disk.len()).as_bytes());
    connection.send(&disk[..1000]);
    cluster.wait_until_busy(&token);
    server.kill(&cluster);
    connection.send(&disk[1000..]); // it does not know yet, and has to hear of it all the same
    let answer = connection.answer();
    assert_eq!(answer.status, 502, "{answer:?}");
    let server = cluster.ready("disk"); // as the controller would
    expect_ready(&cluster, &server, "another server");
}

#[test]
fn connection_is_retried_until_the_server_is_back() {
    let cluster = TestCluster::with(|settings| settings.server_patience = Duration::from_secs(60));
    let server = cluster.ready("disk");
    let (disk, token) = (pattern(2 * MIB), cluster.token("disk"));
    // An address that no other test has anything to do with.
    let place = TcpListener::bind("127.0.77.1:0").unwrap().local_addr().unwrap();
    let behind = cluster.relocate("disk", place);
    let client = cluster.client();
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.post(PATH, &token, &disk));
        // No server listened before; whether the client has noticed does not matter.
        std::thread::sleep(Duration::from_millis(50));
        let listener = TcpListener::bind(place).unwrap();
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(behind).unwrap();
        let carry = |mut from: &TcpStream, mut to: &TcpStream| {
            let _ = std::io::copy(&mut from, &mut to); // either side may leave first
            let _ = to.shutdown(Shutdown::Write);
        };
        let (here, there) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        scope.spawn(move || carry(&here, &there));
        carry(&far, &near);
        asking.join().unwrap()
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(server.disk().expect("a disk") == disk);
}

#[test]
fn early_response_reaches_the_client() {
    let cluster = TestCluster::new();
    cluster.set_pvc("disk", false, &[TARGET, READY]);
    let server =
        cluster.server("disk", |settings| settings.image_size = Some(ByteCount::mebibytes(4)));
    let token = cluster.token("disk");
    let mut connection = cluster.client().connect();
    let head =
        format!("POST {PATH} HTTP/1.1\r\nHost: l\r\n{token}Transfer-Encoding: chunked\r\n\r\n");
    connection.send(head.as_bytes());
    let chunk = [b"100000\r\n".as_slice(), &pattern(MIB), b"\r\n"].concat();
    for _ in 0..64 {
        connection.send(&chunk);
    }
    connection.send(b"0\r\n\r\n");
    let answer = connection.answer();
    assert_eq!(answer.status, 400);
    let expected = "effective image size is larger than the reported available storage";
    assert!(answer.body.contains(expected), "{}", answer.body);
    let answer = cluster.client().post(PATH, "", &pattern(16 * MIB));
    assert_eq!(answer.status, 400, "no token, and a body that is not read");
    expect_ready(&cluster, &server, "too large");
}

#[test]
fn idle_connections_do_not_disturb_uploads() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let idle: Vec<_> = (0..200)
        .map(|n| {
            let mut connection = cluster.client().connect();
            if n % 2 == 0 {
                connection.send(b"POST /v1beta1/upload HTTP/1.1\r\nHost: l\r\nX-Never: ");
            }
            connection
        })
        .collect();
    expect_ready(&cluster, &server, "idle ones");
    drop(idle);
}

#[test]
fn endless_request_head_is_disconnected() {
    let cluster = TestCluster::with(|settings| settings.patience = Duration::from_millis(200));
    let mut slow = cluster.client().connect();
    slow.send(b"POST /v1beta1/upload HTTP/1.1\r\nHost: l\r\n");
    slow.hung_up();
}

#[test]
fn oversized_request_head_is_refused() {
    let cluster = TestCluster::new();
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    assert_eq!(cluster.client().ask("GET", "/healthz", &long).status, 431);
    assert_eq!(cluster.client().ask("GET", "/healthz", "").status, 200);
}

#[test]
fn changed_tls_minimum_applies_to_the_next_connection() {
    let cluster = TestCluster::new();
    let old = &[&rustls::version::TLS12];
    let old = RawClient::speaking(cluster.address, &cluster.trusted, None, old);
    assert_eq!(old.ask("GET", "/healthz", "").status, 200);
    cluster.set_tls_minimum(TlsMinimum::parse("VersionTLS13", "").unwrap());
    let mut connection = old.connect();
    connection.send(b"GET /healthz HTTP/1.1\r\nHost: l\r\n\r\n");
    let message = connection.hung_up().expect("an alert");
    assert!(message.contains("ProtocolVersion"), "{message}");
    assert_eq!(cluster.client().ask("GET", "/healthz", "").status, 200);
    cluster.set_tls_minimum(TlsMinimum::default());
    assert_eq!(old.ask("GET", "/healthz", "").status, 200);
}
