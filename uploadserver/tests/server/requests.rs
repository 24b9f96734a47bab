//! Method × path × client × body → status and text.

use testkit::{Compressor, MIB, Qcow2Options, QemuImg, SparseDisk, compress, pattern};

use crate::server::{CLIENT, Server, UPLOADED, authority};

#[test]
fn other_requests_have_their_documented_responses() {
    let server = Server::start();
    let (client, stranger) = (server.client(), server.stranger());
    let table = [
        ("GET", "/healthz", 200),
        ("POST", "/healthz", 200),
        ("GET", "/metrics", 200),
        ("HEAD", "/v1beta1/upload-async", 200),
        ("HEAD", "/v1alpha1/upload-async", 200),
        ("HEAD", "/v1beta1/upload-form-async", 200),
        ("HEAD", "/v1beta1/upload", 404),
        ("HEAD", "/v1beta1/upload-archive", 404),
        ("GET", "/v1beta1/upload", 404),
        ("PUT", "/v1beta1/upload", 404),
        ("OPTIONS", "/v1beta1/upload", 404),
        ("DELETE", "/v1alpha1/upload-form", 404),
        ("POST", "/v1/upload", 404),
        ("GET", "/", 404),
    ];
    for (method, path, status) in table {
        for (who, client) in [("client", &client), ("stranger", &stranger)] {
            let found = client.ask(method, path, "").status;
            assert_eq!(found, status, "{who}: {method} {path}");
        }
    }
    assert_eq!(stranger.ask("GET", "/healthz", "").body, "OK");
}

#[test]
fn only_the_expected_client_may_upload() {
    let server = Server::start();
    let body = pattern(MIB);
    for path in ["/v1beta1/upload", "/v1alpha1/upload-async", "/v1beta1/upload-archive"] {
        assert_eq!(server.stranger().post(path, "", &body).status, 401, "{path}");
        for name in ["", "client", "a/b-c/d", &format!("{CLIENT}.evil")] {
            assert_eq!(
                server.client_named(name).post(path, "", &body).status,
                401,
                "{name} {path}"
            );
        }
    }
    let (other, _) = authority();
    let mut connection = server.client_of(&other, CLIENT).connect();
    connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(connection.hung_up().is_some(), "another authority");
    assert_eq!(server.disk(), None);
}

#[test]
fn every_path_and_body_format_writes_the_same_disk() {
    let raw = SparseDisk::mixed(8 * MIB, 5).bytes();
    let form = |before: &str| {
        let mut body = format!(
            "{before}--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"disk.img\"\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(&raw);
        body.extend_from_slice(b"\r\n--b--\r\n");
        body
    };
    let text = "--b\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\r\n";
    let multipart = "Content-Type: multipart/form-data; boundary=b\r\n";
    let curl = "Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n";
    let table: [(&str, &str, &str, Vec<u8>); 6] = [
        ("plain", "/v1beta1/upload", "", raw.clone()),
        ("async", "/v1alpha1/upload-async", "", raw.clone()),
        ("as curl sends it", "/v1beta1/upload", curl, raw.clone()),
        ("form", "/v1beta1/upload-form", multipart, form("")),
        ("form with another part", "/v1alpha1/upload-form-async", multipart, form(text)),
        ("another content", "/v1beta1/upload", "X-CDI-Content-Type: kubevirt\r\n", raw.clone()),
    ];
    for (case, path, headers, body) in table {
        let server = Server::start();
        let answer = server.client().post(path, headers, &body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{case}");
        assert!(server.disk().expect("a disk") == raw, "{case}");
        assert_eq!(server.end(), UPLOADED);
    }
}

#[test]
fn chunked_body_is_complete_with_its_last_chunk() {
    let raw = SparseDisk::mixed(3 * MIB, 6).bytes();
    let server = Server::start();
    let mut connection = server.client().connect();
    connection
        .send(b"POST /v1beta1/upload HTTP/1.1\r\nHost: l\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in raw.chunks(100_000) {
        connection.send(&[format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    connection.send(b"0\r\n\r\n");
    assert_eq!(connection.answer().status, 200);
    assert!(server.disk().expect("a disk") == raw);
}

#[test]
fn every_image_format_is_streamed_into_the_disk() {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(12 * MIB, 9);
    let qcow2 = qemu.qcow2(&disk, &Qcow2Options::default()).bytes();
    let zlib = qemu.qcow2(&disk, &Qcow2Options { compressed: true, ..Qcow2Options::default() });
    let mut images = vec![("qcow2", qcow2.clone()), ("qcow2 zlib", zlib.bytes())];
    for (name, how) in [("gz", Compressor::GZIP), ("xz", Compressor::XZ), ("zst", Compressor::ZSTD)]
    {
        images.extend(compress(how, &disk.bytes()).map(|bytes| (name, bytes)));
        images.extend(compress(how, &qcow2).map(|bytes| (name, bytes)));
    }
    for (name, image) in images {
        let server = Server::start();
        let answer = server.upload("/v1beta1/upload", &image);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{name}");
        assert!(server.disk().expect("a disk") == disk.bytes(), "{name}");
        let left = std::fs::read_dir(server.data()).unwrap().count();
        assert_eq!(left, 1, "{name}: nothing but the disk");
    }
}

#[test]
fn archive_is_unpacked_into_the_volume() {
    let files: [(&str, &[u8]); 2] = [("a", b"one"), ("b", &pattern(MIB))];
    let Some(tar) = testkit::tar(&files) else { return };
    let packed = [("gz", Compressor::GZIP), ("xz", Compressor::XZ), ("zst", Compressor::ZSTD)];
    let packed = packed.map(|(name, how)| compress(how, &tar).map(|bytes| (name, bytes)));
    for (name, body) in packed.into_iter().flatten().chain([("plain", tar)]) {
        let server = Server::start();
        let answer = server.upload("/v1alpha1/upload-archive", &body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{name}");
        for (file, content) in files {
            assert!(std::fs::read(server.data().join(file)).unwrap() == content, "{name} {file}");
        }
        assert_eq!(server.end(), UPLOADED);
    }
}

#[test]
fn invalid_archive_leaves_the_directory_empty() {
    let server = Server::start();
    let answer = server.upload("/v1beta1/upload-archive", &pattern(MIB));
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(answer.body.starts_with("Saving stream failed: "), "{}", answer.body);
    assert_eq!(std::fs::read_dir(server.data()).unwrap().count(), 0);
    let Some(tar) = testkit::tar(&[("a", b"one")]) else { return };
    assert_eq!(server.upload("/v1beta1/upload-archive", &tar).status, 200);
}
