//! Clients and servers that vanish, crawl or shout: the right answer, and nothing that looks finished.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use auth::TlsMinimum;
use contract::ByteCount;
use testkit::{MIB, RawClient, pattern, post_head};

use crate::world::{READY, Server, TARGET, World};

const PATH: &str = "/v1beta1/upload";

/// Whatever happened before, a good upload works.
#[track_caller]
fn expect_ready(world: &World, server: &Server, case: &str) {
    assert_eq!(server.disk(), None, "{case}: something looks finished");
    let (disk, token) = (pattern(2 * MIB), world.token("disk"));
    let mut answer = world.client().post(PATH, &token, &disk);
    while answer.status == 503 {
        answer = world.client().post(PATH, &token, &disk); // the broken one is still being put away
    }
    assert_eq!(answer.status, 200, "{case}: {answer:?}");
    assert!(server.disk().expect("a disk").starts_with(&disk), "{case}"); // it may have grown
}

#[test]
fn a_client_that_vanishes_leaves_room_for_another_try() {
    let world = World::new();
    let server = world.ready("disk");
    let (disk, token) = (pattern(2 * MIB), world.token("disk"));
    let chunked =
        format!("POST {PATH} HTTP/1.1\r\nHost: l\r\n{token}Transfer-Encoding: chunked\r\n\r\n");
    for n in [0, 1, 2048, disk.len() - 1] {
        let mut connection = world.client().connect();
        connection.send(post_head(PATH, &token, disk.len()).as_bytes());
        connection.send(&disk[..n]);
        drop(connection);
        let mut connection = world.client().connect();
        connection.send(chunked.as_bytes());
        connection.send(format!("{n:x}\r\n").as_bytes());
        connection.send(&disk[..n]);
        drop(connection);
    }
    expect_ready(&world, &server, "vanished");
}

#[test]
fn a_server_that_vanishes_is_a_bad_gateway() {
    let world = World::new();
    let server = world.ready("disk");
    let (disk, token) = (pattern(2 * MIB), world.token("disk"));
    let mut connection = world.client().connect();
    connection.send(post_head(PATH, &token, disk.len()).as_bytes());
    connection.send(&disk[..1000]);
    world.wait_until_busy(&token);
    server.kill(&world);
    connection.send(&disk[1000..]); // it does not know yet, and has to hear of it all the same
    let answer = connection.answer();
    assert_eq!(answer.status, 502, "{answer:?}");
    let server = world.ready("disk"); // as the controller would
    expect_ready(&world, &server, "another server");
}

#[test]
fn a_server_that_is_back_soon_gets_the_upload() {
    let world = World::with(|settings| settings.server_patience = Duration::from_secs(60));
    let server = world.ready("disk");
    let (disk, token) = (pattern(2 * MIB), world.token("disk"));
    // An address that no other test has anything to do with.
    let place = TcpListener::bind("127.0.77.1:0").unwrap().local_addr().unwrap();
    let behind = world.relocate("disk", place);
    let client = world.client();
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.post(PATH, &token, &disk));
        // Nobody was there before this; whether the client has noticed does not matter.
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
fn an_answer_in_the_middle_gets_through() {
    let world = World::new();
    world.say("disk", false, &[TARGET, READY]);
    let server =
        world.server("disk", |settings| settings.image_size = Some(ByteCount::mebibytes(4)));
    let token = world.token("disk");
    let mut connection = world.client().connect();
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
    let words = "effective image size is larger than the reported available storage";
    assert!(answer.body.contains(words), "{}", answer.body);
    let answer = world.client().post(PATH, "", &pattern(16 * MIB));
    assert_eq!(answer.status, 400, "no token, and a body that nobody wants");
    expect_ready(&world, &server, "too large");
}

#[test]
fn idle_connections_disturb_nobody() {
    let world = World::new();
    let server = world.ready("disk");
    let idle: Vec<_> = (0..200)
        .map(|n| {
            let mut connection = world.client().connect();
            if n % 2 == 0 {
                connection.send(b"POST /v1beta1/upload HTTP/1.1\r\nHost: l\r\nX-Never: ");
            }
            connection
        })
        .collect();
    expect_ready(&world, &server, "idle ones");
    drop(idle);
}

#[test]
fn whoever_never_ends_to_ask_is_hung_up_on() {
    let world = World::with(|settings| settings.patience = Duration::from_millis(200));
    let mut slow = world.client().connect();
    slow.send(b"POST /v1beta1/upload HTTP/1.1\r\nHost: l\r\n");
    slow.hung_up();
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let world = World::new();
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    assert_eq!(world.client().ask("GET", "/healthz", &long).status, 431);
    assert_eq!(world.client().ask("GET", "/healthz", "").status, 200);
}

#[test]
fn old_tls_is_refused_as_the_cluster_wants_it_from_one_connection_to_the_next() {
    let world = World::new();
    let old = &[&rustls::version::TLS12];
    let old = RawClient::speaking(world.address, &world.trusted, None, old);
    assert_eq!(old.ask("GET", "/healthz", "").status, 200);
    world.set_floor(TlsMinimum::parse("VersionTLS13", "").unwrap());
    let mut connection = old.connect();
    connection.send(b"GET /healthz HTTP/1.1\r\nHost: l\r\n\r\n");
    let said = connection.hung_up().expect("an alert");
    assert!(said.contains("ProtocolVersion"), "{said}");
    assert_eq!(world.client().ask("GET", "/healthz", "").status, 200);
    world.set_floor(TlsMinimum::default());
    assert_eq!(old.ask("GET", "/healthz", "").status, 200);
}
