//! One HTTP/1 request on a connection of its own, by hyper's client.

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response};

/// Sends the only request of a connection, which another task polls.
///
/// The sender is dropped before the response is awaited. A connection that ends at the moment at which the request is queued
/// leaves it in the queue until the sender is dropped (hyper issue 4122), so a caller that keeps the sender would wait forever.
///
/// # Errors
/// When the connection ends before the head of the response.
pub async fn send_only_request<B>(
    mut sender: SendRequest<B>,
    request: Request<B>,
) -> hyper::Result<Response<Incoming>>
where
    B: Body + 'static,
{
    let response = sender.send_request(request);
    drop(sender);
    response.await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn request() -> Request<Full<Bytes>> {
        Request::new(Full::new(Bytes::from_static(b"question")))
    }

    #[tokio::test]
    async fn response_is_read_although_the_sender_was_dropped() {
        let (client, mut server) = tokio::io::duplex(1024);
        let (sender, connection) = http1::handshake(TokioIo::new(client)).await.unwrap();
        let connection = tokio::spawn(connection);
        let answering = tokio::spawn(async move {
            let mut head = vec![0; 1024];
            let count = server.read(&mut head).await.unwrap();
            assert!(head[..count].starts_with(b"GET / HTTP/1.1"), "{head:?}");
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nanswer").await.unwrap();
            server
        });
        let response = send_only_request(sender, request()).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "answer");
        answering.await.unwrap();
        connection.await.unwrap().unwrap();
    }

    /// Of some thousand connections, some end exactly while the request is queued.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn connection_that_ends_while_the_request_is_sent_is_an_error() {
        for attempt in 0..20_000 {
            let (client, server) = tokio::io::duplex(1024);
            let (sender, connection) = http1::handshake(TokioIo::new(client)).await.unwrap();
            let connection = tokio::spawn(connection);
            drop(server);
            let ended = tokio::time::timeout(PATIENCE, send_only_request(sender, request())).await;
            assert!(ended.expect("the request ends").is_err(), "attempt {attempt}");
            let _ = connection.await;
        }
    }
}
