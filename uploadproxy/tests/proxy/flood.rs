//! More connections than the proxy has slots for: an upload in progress is finished, and another one begun.

use std::net::SocketAddr;

use testkit::{MIB, pattern, post_head};
use tokio::net::TcpSocket;

use crate::world::TestCluster;

const PATH: &str = "/v1beta1/upload";

#[test]
fn upload_continues_during_a_flood() {
    let cluster = TestCluster::with(|settings| settings.connections = 64);
    let many = |n: usize| [127, 0, 8, 1 + u8::try_from(n % 250).unwrap()];
    let one = |_: usize| [127, 0, 0, 2];
    let sources: [(&str, &dyn Fn(usize) -> [u8; 4]); 2] = [("one", &one), ("many", &many)];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (name, source) in sources {
        let server = cluster.ready(name);
        let (disk, token) = (pattern(2 * MIB), cluster.token(name));
        let mut upload = cluster.client().connect();
        upload.send(post_head(PATH, &token, disk.len()).as_bytes());
        upload.send(&disk[..1000]);
        cluster.wait_until_busy(&token);
        let held = runtime.block_on(async {
            let mut held = Vec::new();
            for n in 0..500 {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(SocketAddr::from((source(n), 0))).unwrap();
                held.push(socket.connect(cluster.address).await.unwrap());
            }
            held
        });
        // A request without a good token, whose body never ends, is not protected either.
        let bodies: Vec<_> = (0..100)
            .map(|_| {
                let mut slow = cluster.client().connect();
                slow.send(post_head(PATH, "", 1000).as_bytes());
                slow
            })
            .collect();
        assert_eq!(cluster.client().ask("GET", "/healthz", "").status, 200, "{name}");
        upload.send(&disk[1000..]);
        let answer = upload.answer();
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        assert!(server.disk().expect("a disk").starts_with(&disk), "{name}");
        drop((held, bodies));
    }
}
