//! Each time limit by itself, with slots to spare.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use runtime::https::Limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::server::{NO_TIME_LIMIT, PATIENT, Server, http2, read_to_end};

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn client_without_request_is_disconnected() {
    let server = Server::start(Limits { patience: SHORT, ..NO_TIME_LIMIT }).await;
    read_to_end(server.connect_tcp("127.0.0.1").await.unwrap()).await;
    for protocols in [&[][..], &["http/1.1"], &["h2"]] {
        read_to_end(server.connect("127.0.0.1", protocols).await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_http2_headers_are_disconnected() {
    let server = Server::start(Limits { patience: SHORT, ..NO_TIME_LIMIT }).await;
    let mut stream = server.connect("127.0.0.1", &["h2"]).await.unwrap();
    // The preface, empty settings, and HEADERS of stream 1 without END_HEADERS.
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(b"\0\0\0\x04\0\0\0\0\0");
    bytes.extend(b"\0\0\x01\x01\0\0\0\0\x01\x82");
    stream.write_all(&bytes).await.unwrap();
    read_to_end(stream).await;
}

/// A client that sends a request at the moment when the server closes cannot know whether it was received: the cluster's API server
/// then fails the webhook call.
#[tokio::test(flavor = "multi_thread")]
async fn idle_http1_stays_open_for_longer_than_a_first_request_may_take() {
    let server = Server::start(Limits { patience: SHORT, ..NO_TIME_LIMIT }).await;
    // On a busy machine the handshake may take too long.
    let mut stream = loop {
        if let Ok(mut stream) = server.connect("127.0.0.1", &["http/1.1"]).await
            && get_healthz(&mut stream).await.is_ok()
        {
            break stream;
        }
    };
    tokio::time::sleep(SHORT * 4).await;
    get_healthz(&mut stream).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http1_is_closed_even_if_a_head_has_begun() {
    let server = Server::start(Limits { idle: SHORT, ..NO_TIME_LIMIT }).await;
    for next in ["", "GET /healthz HTTP/1.1\r\n"] {
        let mut stream = server.connect("127.0.0.1", &["http/1.1"]).await.unwrap();
        get_healthz(&mut stream).await.unwrap();
        let _ = stream.write_all(next.as_bytes()).await; // it may be closed already
        read_to_end(stream).await;
    }
}

/// A request on a connection that stays open.
async fn get_healthz(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nOK") {
        response.push(stream.read_u8().await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http2_is_closed_even_if_it_responds_to_pings() {
    let server = Server::start(Limits { idle: SHORT, ..NO_TIME_LIMIT }).await;
    let stream = server.connect("127.0.0.1", &["h2"]).await.unwrap();
    let (mut sender, connection) = http2(stream).await.unwrap();
    let request = Request::get("https://localhost/healthz").body(Full::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    let ended = tokio::time::timeout(PATIENT, connection).await.expect("it is still open");
    let _ = ended.unwrap(); // in good order, or not
    assert!(sender.is_closed());
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_response_closes_its_connection() {
    // Either the body waits to be sent, or the protocol's buffers hold it.
    let server = Server::start(Limits { sending: SHORT, idle: SHORT, ..NO_TIME_LIMIT }).await;
    let stream = server.connect("127.0.0.1", &["h2"]).await.unwrap();
    let (mut sender, connection) = http2(stream).await.unwrap();
    let request = Request::get("https://localhost/large").body(Full::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let ended = tokio::time::timeout(PATIENT, connection).await.expect("it is still open");
    let _ = ended.unwrap();
    drop(answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_may_take_longer_than_any_limit() {
    let limits = Limits { idle: SHORT, sending: SHORT, patience: PATIENT, ..NO_TIME_LIMIT };
    let mut server = Server::start(limits).await;
    let mut upload = server.connect("127.0.0.1", &["http/1.1"]).await.unwrap();
    let head = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
    upload.write_all(head.as_bytes()).await.unwrap();
    server.accepted.recv().await.unwrap();
    tokio::time::sleep(SHORT * 4).await;
    upload.write_all(b"xx").await.unwrap();
    assert!(read_to_end(upload).await.ends_with("\r\n\r\n2"));
}

/// The kernel probes a client that sends nothing during an upload: it may be gone, with its node, and the volume of the upload is
/// reserved for it.
#[tokio::test(flavor = "multi_thread")]
async fn silent_client_of_an_upload_is_probed() {
    const ESTABLISHED: &str = "01";
    const PROBE_TIMER: &str = "02";
    let mut server = Server::start(NO_TIME_LIMIT).await;
    let mut upload = server.connect("127.0.0.1", &["http/1.1"]).await.unwrap();
    let head = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n";
    upload.write_all(head.as_bytes()).await.unwrap();
    server.accepted.recv().await.unwrap();
    let end = |address: SocketAddr| format!(":{:04X}", address.port());
    let (here, there) = (end(server.address), end(upload.get_ref().0.local_addr().unwrap()));
    let has_timer = || {
        // `number: address:port address:port state queues timer:when …`
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        sockets.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let is_it = words[1].ends_with(&here) && words[2].ends_with(&there);
            is_it && words[3] == ESTABLISHED && words[5].starts_with(PROBE_TIMER)
        })
    };
    // Another timer may run for a moment, as that of a delayed acknowledgement.
    while !has_timer() {
        tokio::time::sleep(SHORT).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_closes_gracefully_at_its_lifetime() {
    let server = Server::start(Limits { lifetime: Some(SHORT), ..NO_TIME_LIMIT }).await;
    let stream = server.connect("127.0.0.1", &["h2"]).await.unwrap();
    let (_sender, connection) = http2(stream).await.unwrap();
    let ended = tokio::time::timeout(PATIENT, connection).await.expect("it is still open");
    ended.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn http1_connection_ends_with_the_first_response_after_its_lifetime() {
    let server = Server::start(Limits { lifetime: Some(SHORT), ..NO_TIME_LIMIT }).await;
    let mut stream = server.connect("127.0.0.1", &["http/1.1"]).await.unwrap();
    tokio::time::sleep(SHORT * 4).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let response = read_to_end(stream).await;
    assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nOK"), "{response}");
}
