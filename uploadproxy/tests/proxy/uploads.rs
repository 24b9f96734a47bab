//! What is handed on, and how it arrives.

use testkit::{Compressor, MIB, SparseDisk, compress, pattern, post_head};

use crate::world::{CONTENT, PRIME, READY, TARGET, World};

const PATH: &str = "/v1beta1/upload";

#[test]
fn every_path_arrives_at_the_server_of_its_claim() {
    let world = World::new();
    let disk = SparseDisk::mixed(8 * MIB, 3).bytes();
    let form = [
        b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n".as_slice(),
        &disk,
        b"\r\n--b--\r\n",
    ]
    .concat();
    let multipart = "Content-Type: multipart/form-data; boundary=b\r\n";
    let curl = "Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n";
    let table = [
        ("upload", "v1beta1", curl, &disk),
        ("upload-async", "v1alpha1", "", &disk),
        ("upload-form", "v1beta1", multipart, &form),
        ("upload-form-async", "v1alpha1", multipart, &form),
    ];
    for (name, version, headers, body) in table {
        let claim = format!("{name}.{version}"); // dots are none of a service's name
        let server = world.server(&claim.replace('.', "-"), |_| ());
        world.say(&claim, false, &[TARGET, READY]);
        let headers = [headers, &world.token(&claim), "Origin: https://page\r\n"].concat();
        let path = format!("/{version}/{name}?query=dropped");
        let answer = world.client().post(&path, &headers, body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{path}");
        assert!(server.disk().expect("a disk") == disk, "{path}");
        world.end(server);
    }
}

#[test]
fn questions_are_answered_by_the_server() {
    let world = World::new();
    let _server = world.ready("disk");
    let token = world.token("disk");
    for (method, path, status) in [
        ("HEAD", "/v1beta1/upload-async", 200),
        ("HEAD", "/v1beta1/upload-form-async", 200),
        ("HEAD", "/v1beta1/upload", 404),
        ("GET", "/v1beta1/upload", 404),
        ("PUT", "/v1alpha1/upload", 404),
        ("DELETE", "/v1alpha1/upload-async", 404),
    ] {
        let found = world.client().ask(method, path, &token).status;
        assert_eq!(found, status, "{method} {path}");
    }
}

#[test]
fn files_go_to_the_archive_path_whichever_way_they_came() {
    let Some(tar) = testkit::tar(&[("a", b"one")]) else { return };
    let Some(packed) = compress(Compressor::GZIP, &tar) else { return };
    let world = World::new();
    for (claim, path) in [("one", "/v1beta1/upload"), ("two", "/v1alpha1/upload-form-async")] {
        let server = world.server(claim, |_| ());
        world.say(claim, false, &[TARGET, READY, (CONTENT, "archive")]);
        let token = world.token(claim);
        assert_eq!(world.client().ask("HEAD", path, &token).status, 404, "so clients are content");
        assert_eq!(world.client().post(path, &token, &packed).status, 200, "{path}");
        assert_eq!(std::fs::read(server.data.join("a")).unwrap(), b"one");
    }
}

#[test]
fn a_claim_that_is_not_ready_is_waited_for() {
    let world = World::new();
    let server = world.server("prime-1", |_| ());
    world.say("disk", true, &[]);
    let disk = pattern(MIB);
    let (client, token) = (world.client(), world.token("disk"));
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| client.post(PATH, &token, &disk));
        world.say("prime-1", false, &[TARGET]);
        world.say("disk", true, &[(PRIME, "prime-1")]);
        world.say("prime-1", false, &[TARGET, READY]);
        assert_eq!(answer.join().unwrap().status, 200);
    });
    assert!(server.disk().expect("a disk") == disk);
}

#[test]
fn renewed_certificates_disturb_no_upload_that_runs() {
    let world = World::new();
    let server = world.ready("disk");
    let (disk, token) = (pattern(2 * MIB), world.token("disk"));
    let mut connection = world.client().connect();
    connection.send(post_head(PATH, &token, disk.len()).as_bytes());
    connection.send(&disk[..MIB as usize]);
    world.wait_until_busy(&token);
    world.forget_certificates();
    assert_eq!(world.client().post(PATH, &token, b"x").status, 500, "nobody to trust");
    connection.send(&disk[MIB as usize..]);
    assert_eq!(connection.answer().status, 200);
    assert!(server.disk().expect("a disk") == disk);
}

/// Of a client's headers only those of uploads arrive: a body that calls itself a clone is an image like any other.
#[test]
fn an_upload_that_calls_itself_a_clone_is_an_upload() {
    let world = World::new();
    for (claim, content) in [("device", "blockdevice-clone"), ("files", "filesystem-clone")] {
        let server = world.ready(claim);
        let disk = pattern(MIB);
        let headers = format!("{}x-cdi-content-type: {content}\r\n", world.token(claim));
        let answer = world.client().post(PATH, &headers, &disk);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{content}");
        assert!(server.disk().expect("a disk") == disk, "{content}");
        let end = world.end(server);
        assert_eq!(end.message().unwrap().message.as_deref(), Some("Upload Complete"));
    }
}
