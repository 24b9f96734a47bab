//! More connections than the program has slots, from clients without credentials, do not stop reviews.

use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::program::Program;

/// More than twice as many as there are slots.
const CONNECTIONS: usize = 1200;

/// A connection that sends `bytes` and then nothing.
async fn silent(source: [u8; 4], to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((source, 0))).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    let _ = stream.write_all(bytes).await; // it may have been closed for a newer one
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_and_probes_succeed_during_a_flood() {
    let program = Program::start().await;
    let one = |_: usize| [127, 0, 0, 2];
    let many =
        |n: usize| [127, 0, 3 + u8::try_from(n / 250).unwrap(), 1 + u8::try_from(n % 250).unwrap()];
    let sources: [&dyn Fn(usize) -> [u8; 4]; 2] = [&one, &many];
    for source in sources {
        // The second begins a handshake and does not go on with it.
        for bytes in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
            let mut held = Vec::new();
            for n in 0..CONNECTIONS {
                held.push(silent(source(n), program.address, bytes).await);
            }
            let request = json!({
                "uid": "1-2-3",
                "kind": { "group": "cdi.kubevirt.io", "version": "v1beta1", "kind": "DataVolume" },
                "resource": { "group": "cdi.kubevirt.io", "version": "v1beta1", "resource": "datavolumes" },
                "name": "disk", "namespace": "target", "operation": "CREATE",
                "userInfo": { "username": "anna" },
                "object": { "metadata": { "name": "disk" }, "spec": { "source": { "blank": {} },
                    "storage": { "resources": { "requests": { "storage": "1Gi" } } } } },
            });
            let response = program.admit("/datavolume-validate", request).await;
            assert_eq!(response["allowed"], true, "{response}");
            assert_eq!(program.client(None).get("/healthz").await.body, "OK");
            let mut probe = TcpStream::connect(program.probes).await.unwrap();
            probe
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            let mut response = String::new();
            probe.read_to_string(&mut response).await.unwrap();
            assert!(response.ends_with("\r\n\r\nOK"), "{response}");
            drop(held);
        }
    }
}
