//! Four times as many connections as there are slots, of each kind, from one address and from many.

use tokio::io::AsyncWriteExt;

use crate::attack::{Attack, attack};
use crate::server::{NO_TIME_LIMIT, Server, connect_tcp, read_to_end};

const FRIEND: &str = "127.0.0.1";
const CONNECTIONS: usize = 64;

/// Floods a server whose time limits never end a connection while an upload goes on, and requests a page.
async fn play(kind: Attack, source: impl Fn(usize) -> String) {
    let mut server = Server::start(NO_TIME_LIMIT).await;
    let mut upload = server.connect(FRIEND, &["http/1.1"]).await.unwrap();
    let head = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nConnection: close\r\n\r\n12345";
    upload.write_all(head.as_bytes()).await.unwrap();
    server.accepted.recv().await.unwrap();
    let mut held = Vec::new();
    for n in 0..CONNECTIONS {
        held.extend(attack(&server, &source(n), kind).await);
    }
    assert!(!held.is_empty(), "no attack");
    for n in 0..3 {
        let answer = server.get(FRIEND, "/healthz").await;
        assert!(answer.ends_with("\r\n\r\nOK"), "{kind:?} {n}: {answer:?}");
    }
    upload.write_all(b"67890").await.unwrap();
    let answer = read_to_end(upload).await;
    assert!(answer.ends_with("\r\n\r\n10"), "{kind:?}: {answer:?}");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_from_one_address_disturbs_no_other_client() {
    for kind in Attack::ALL {
        play(kind, |_| "127.0.0.2".to_owned()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_from_many_addresses_disturbs_no_other_client() {
    for kind in Attack::ALL {
        play(kind, |n| format!("127.0.1.{}", n + 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_from_the_clients_own_address_does_not_disturb_it() {
    for kind in Attack::ALL {
        play(kind, |_| FRIEND.to_owned()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_waits_while_accepted_requests_hold_all_slots() {
    let mut server = Server::start(NO_TIME_LIMIT).await;
    let mut uploads = Vec::new();
    for _ in 0..NO_TIME_LIMIT.connections {
        let mut upload = server.connect(FRIEND, &["http/1.1"]).await.unwrap();
        let head = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\n";
        upload.write_all(head.as_bytes()).await.unwrap();
        server.accepted.recv().await.unwrap();
        uploads.push(upload);
    }
    let address = server.address;
    let waiting = async { server.get(FRIEND, "/healthz").await };
    let finish = async {
        for mut upload in uploads {
            upload.write_all(b"x").await.unwrap();
            assert!(read_to_end(upload).await.ends_with("\r\n\r\n1"));
        }
    };
    let (answer, ()) = tokio::join!(waiting, finish);
    assert!(answer.ends_with("\r\n\r\nOK"), "{answer:?} at {address}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_port_responds_during_a_flood_of_that_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(runtime::health::serve(Some(listener)));
    for many in [false, true] {
        let mut held = Vec::new();
        for n in 0..200 {
            let source = if many { format!("127.0.2.{}", n + 1) } else { FRIEND.to_owned() };
            held.extend(connect_tcp(&source, address).await);
        }
        for (path, expected) in [("/healthz", "200"), ("/readyz", "200"), ("/metrics", "404")] {
            let mut probe = connect_tcp(FRIEND, address).await.unwrap();
            let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            probe.write_all(head.as_bytes()).await.unwrap();
            let answer = read_to_end(probe).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{path}: {answer:?}");
        }
        drop(held);
    }
}
