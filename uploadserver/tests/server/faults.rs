//! Clients and images that go wrong: the right answer, nothing that looks finished, and another try.

use std::time::Duration;

use contract::ByteCount;
use testkit::{
    Change, Compressor, MIB, Qcow2Options, QemuImg, SparseDisk, compress, pattern, post_head,
};

use crate::server::Server;

const PATH: &str = "/v1beta1/upload";
/// Of a client that was waited for in vain.
const SILENT: &str = "sent nothing";

/// Whatever happened before, a good upload works.
#[track_caller]
fn expect_ready(server: &Server, case: &str) {
    assert_eq!(server.disk(), None, "{case}: something looks finished");
    let disk = pattern(2 * MIB);
    let mut answer = server.upload(PATH, &disk);
    // The broken one is still being put away; or we are the one who is silent for too long, on a busy machine.
    while answer.status == 503 || answer.body.contains(SILENT) {
        answer = server.upload(PATH, &disk);
    }
    assert_eq!(answer.status, 200, "{case}: {answer:?}");
    assert!(server.disk().expect("a disk").starts_with(&disk), "{case}"); // it may have grown
}

#[test]
fn interrupted_body_permits_another_upload() {
    let disk = pattern(2 * MIB);
    let server = Server::start();
    for n in [0, 1, 511, 512, 2048, disk.len() - 1] {
        let mut connection = server.client().connect();
        connection.send(post_head(PATH, "", disk.len()).as_bytes());
        connection.send(&disk[..n]);
        drop(connection);
        assert_eq!(server.disk(), None, "cut at {n}");
    }
    expect_ready(&server, "cut");
}

#[test]
fn chunked_body_without_last_chunk_leaves_no_disk() {
    let server = Server::start();
    let mut connection = server.client().connect();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: l\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.send(head.as_bytes());
    connection.send(b"400\r\n");
    connection.send(&pattern(0x400));
    connection.send(b"\r\n");
    drop(connection);
    expect_ready(&server, "no last chunk");
}

#[test]
fn silent_client_gets_an_error_and_others_may_upload() {
    let server = Server::with(|settings| settings.client_silence_max = Duration::from_millis(300));
    let mut silent = server.client().connect();
    silent.send(post_head(PATH, "", 1000).as_bytes());
    silent.send(&[1; 999]);
    let answer = silent.answer();
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains(SILENT), "{}", answer.body);
    expect_ready(&server, "silence");
}

#[test]
fn too_large_image_is_rejected_during_the_body() {
    let server = Server::with(|settings| settings.image_size = Some(ByteCount::mebibytes(4)));
    // Without Content-Length, and far longer than all buffers.
    let mut connection = server.client().connect();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: l\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.send(head.as_bytes());
    let chunk = [b"100000\r\n".as_slice(), &pattern(MIB), b"\r\n"].concat();
    for _ in 0..64 {
        connection.send(&chunk);
    }
    connection.send(b"0\r\n\r\n");
    let answer = connection.answer();
    assert_eq!(answer.status, 400);
    let words =
        "Saving stream failed: effective image size is larger than the reported available storage";
    assert!(answer.body.starts_with(words), "{}", answer.body);
    // With Content-Length, before anything is written.
    let answer = server.upload(PATH, &pattern(32 * MIB));
    assert_eq!(answer.status, 400);
    assert!(answer.body.starts_with(words), "{}", answer.body);
    expect_ready(&server, "too large");
}

#[test]
fn image_of_the_pvcs_size_fits_with_any_overhead() {
    let server = Server::with(|settings| {
        settings.image_size = Some(ByteCount::mebibytes(8));
        settings.overhead = "0.055".parse().unwrap();
    });
    let disk = pattern(8 * MIB);
    assert_eq!(server.upload(PATH, &disk).status, 200);
    assert!(server.disk().expect("a disk") == disk);
}

#[test]
fn smaller_disk_grows_to_the_usable_size_of_the_pvc() {
    let server = Server::with(|settings| {
        settings.image_size = Some(ByteCount::mebibytes(10));
        settings.overhead = "0.055".parse().unwrap();
    });
    assert_eq!(server.upload(PATH, &pattern(MIB)).status, 200);
    assert_eq!(server.disk().expect("a disk").len() as u64, 9 * MIB);
}

#[test]
fn invalid_image_is_rejected_with_its_reason() {
    let server = Server::start();
    let mut damaged = compress(Compressor::GZIP, &pattern(MIB)).unwrap_or_default();
    let middle = damaged.len() / 2;
    damaged.iter_mut().skip(middle).take(9).for_each(|byte| *byte ^= 0x55);
    let mut unknown = vec![0; 1024];
    unknown[..4].copy_from_slice(b"QFI\xfb");
    let zip = [b"PK\x03\x04".as_slice(), &pattern(4096)].concat();
    let table: [(&str, Vec<u8>, &str); 5] = [
        (
            "a zip archive",
            zip,
            "to store it unchanged (annotation cdi.kubevirt.io/storage.sourceFormat: raw)",
        ),
        ("empty", vec![], "the image is empty"),
        ("no gzip", [b"\x1f\x8b\x08\x00".as_slice(), &pattern(4096)].concat(), "gzip stream"),
        ("a damaged gzip", damaged, "the gzip stream is damaged near byte"),
        ("qcow2 version 0", unknown, "qcow2 version 0 is not supported"),
    ];
    for (case, body, words) in table {
        if middle == 0 && case == "a damaged gzip" {
            continue; // there is no gzip here
        }
        let answer = server.upload(PATH, &body);
        assert_eq!(answer.status, 400, "{case}: {answer:?}");
        assert!(answer.body.starts_with("Saving stream failed: cannot decode "), "{}", answer.body);
        assert!(answer.body.contains(words), "{case}: {}", answer.body);
        assert!(!answer.body.contains("available storage"), "{case}: {}", answer.body);
    }
    expect_ready(&server, "no image");
}

#[test]
fn raw_source_format_stores_the_bytes_unchanged() {
    let zip = [b"PK\x03\x04".as_slice(), &pattern(MIB)].concat();
    for (case, body) in [("zip", Some(zip)), ("gzip", compress(Compressor::GZIP, &pattern(MIB)))] {
        let Some(body) = body else { continue };
        let server = Server::with(|settings| settings.format = pipeline::SourceFormat::Raw);
        let answer = server.upload(PATH, &body);
        assert_eq!(answer.status, 200, "{case}: {answer:?}");
        let disk = server.disk().expect("a disk");
        assert!(
            disk.len() == body.len().next_multiple_of(512) && disk.starts_with(&body),
            "{case}"
        );
    }
}

#[test]
fn form_without_a_file_is_rejected_and_frees_the_slot() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n--b--\r\n";
    let server = Server::start();
    for (case, headers) in [
        ("no file", "Content-Type: multipart/form-data; boundary=b\r\n"),
        ("no boundary", "Content-Type: multipart/form-data\r\n"),
        ("no form", "Content-Type: text/plain\r\n"),
        ("no type", ""),
    ] {
        let answer = server.client().post("/v1beta1/upload-form", headers, part.as_bytes());
        assert_eq!(answer.status, 400, "{case}: {answer:?}");
    }
    expect_ready(&server, "no form");
}

#[test]
fn too_long_request_head_is_rejected() {
    let server = Server::start();
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    assert_eq!(server.client().ask("GET", "/healthz", &long).status, 431);
    expect_ready(&server, "a long head");
}

#[test]
fn image_that_needs_scratch_space_is_a_server_error() {
    let Some(qemu) = QemuImg::require() else { return };
    // More snapshots than a tiny disk can park, and a body cannot be read twice.
    let history =
        vec![Change::Snapshot, Change::Write { at: 0, len: 1000, byte: 7 }, Change::Snapshot];
    let how = Qcow2Options { history, cluster_bits: 21, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::mixed(2 * MIB, 4), &how).bytes();
    let server = Server::start();
    let answer = server.upload(PATH, &image);
    assert!([200, 500].contains(&answer.status), "{answer:?}");
    if answer.status == 500 {
        assert!(answer.body.contains("scratch space"), "{}", answer.body);
    }
}
