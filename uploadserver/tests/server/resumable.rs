//! Resumable uploads: at any byte, in any format, after an interruption or a killed server.

use contract::Hasher;
use testkit::{
    Compressor, LoopDevice, MIB, Qcow2Options, QemuImg, RawClient, RawResponse, SparseDisk,
    compress, pattern, post_head,
};

use crate::server::{Server, UPLOADED};

const PATH: &str = "/v1beta1/upload-resumable";
const TUS: &str = "Tus-Resumable: 1.0.0\r\n";
const KIND: &str = "Content-Type: application/offset+octet-stream\r\n";
/// As much is looked at before anything is done.
const HEAD: u64 = 256 << 10;
/// Units in which a raw disk becomes durable.
const UNIT: u64 = 16 << 20;

/// A client of the protocol.
struct Tus {
    client: RawClient,
}

impl Tus {
    fn connect(server: &Server) -> Self {
        Self { client: server.client() }
    }

    fn create(&self, length: usize, metadata: &str) -> RawResponse {
        let headers = format!("{TUS}Upload-Length: {length}\r\n{metadata}");
        self.client.post(PATH, &headers, b"")
    }

    /// The path of a new upload.
    fn start_upload(&self, length: usize) -> String {
        let answer = self.create(length, "");
        assert_eq!(answer.status, 201, "{answer:?}");
        location(&answer)
    }

    fn head_upload(&self, path: &str) -> RawResponse {
        self.client.ask("HEAD", path, TUS)
    }

    /// The offset of the next byte. A request of a disconnected client may reach the server after this one and overtake
    /// it.
    fn offset(&self, path: &str) -> u64 {
        let mut answers = (0..20).map(|_| self.head_upload(path));
        let answer =
            answers.find(|answer| answer.status != 423).expect("disconnected requests end");
        assert_eq!(answer.status, 200, "{answer:?}");
        offset(&answer)
    }

    fn append(&self, path: &str, at: u64, headers: &str, body: &[u8]) -> RawResponse {
        let mut connection = self.client.connect();
        connection.send(head(path, at, headers, body.len()).as_bytes());
        connection.send(body);
        connection.answer_to("PATCH")
    }

    /// The response to `send`, which gets the offset of the next byte. Repeated if a request of a disconnected client
    /// overtakes it.
    fn resume(&self, path: &str, send: impl Fn(u64) -> RawResponse) -> RawResponse {
        let mut answers = (0..20).map(|_| send(self.offset(path)));
        let is_final = |answer: &RawResponse| ![409, 423].contains(&answer.status);
        answers.find(is_final).expect("disconnected requests end")
    }

    /// Announces all of `body`, sends its first `n` bytes, and disconnects.
    fn interrupt(&self, path: &str, at: u64, headers: &str, body: &[u8], n: usize) {
        let mut connection = self.client.connect();
        connection.send(head(path, at, headers, body.len()).as_bytes());
        connection.send(&body[..n]);
    }
}

fn head(path: &str, at: u64, headers: &str, length: usize) -> String {
    let headers = format!("{TUS}{KIND}Upload-Offset: {at}\r\n{headers}");
    post_head(path, &headers, length).replacen("POST", "PATCH", 1)
}

fn location(answer: &RawResponse) -> String {
    let found = answer.header("location").expect("a place");
    assert!(found.starts_with("upload-resumable/"), "{found}");
    format!("/v1beta1/{found}")
}

fn offset(answer: &RawResponse) -> u64 {
    answer.header("upload-offset").expect("an offset").parse().unwrap()
}

fn repr_digest(bytes: &[u8]) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    let mut hasher = Hasher::sha256();
    hasher.update(bytes);
    format!("Repr-Digest: sha-256=:{}:\r\n", STANDARD.encode(hasher.finish().hash()))
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(300_000).flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect()
}

const ZSTD: &str = "Content-Encoding: zstd\r\n";

#[test]
fn interrupted_upload_resumes_at_any_byte() {
    let disk = SparseDisk::mixed(6 * MIB, 5);
    let raw = disk.bytes();
    let mut images = vec![("raw", raw.clone())];
    for (name, how) in [("gz", Compressor::GZIP), ("xz", Compressor::XZ), ("zst", Compressor::ZSTD)]
    {
        images.extend(compress(how, &raw).map(|bytes| (name, bytes)));
    }
    if let Some(qemu) = QemuImg::require() {
        let qcow2 = qemu.qcow2(&disk, &Qcow2Options::default()).bytes();
        images.extend(compress(Compressor::GZIP, &qcow2).map(|bytes| ("qcow2.gz", bytes)));
        images.push(("qcow2", qcow2));
    }
    for (name, image) in images {
        let server = Server::start();
        let tus = Tus::connect(&server);
        let path = tus.start_upload(image.len());
        assert_eq!(tus.offset(&path), 0, "{name}");
        let length = image.len() as u64;
        let cuts = [0, 1, 511, 512, HEAD - 1, HEAD, HEAD + 1, MIB, length / 2, length - 1];
        for cut in cuts {
            let at = tus.offset(&path);
            if at < cut && cut < length {
                tus.interrupt(&path, at, "", &image[at as usize..], (cut - at) as usize);
            }
            assert!(tus.offset(&path) <= cut.max(at), "{name}: more than was sent");
            assert_eq!(server.disk(), None, "{name}: something looks finished at {cut}");
        }
        let answer = tus
            .resume(&path, |at| tus.append(&path, at, &repr_digest(&image), &image[at as usize..]));
        assert_eq!((answer.status, &*answer.body), (204, ""), "{name}");
        assert_eq!(offset(&answer), length, "{name}");
        assert!(server.disk().expect("a disk") == raw, "{name}");
        assert_eq!(server.files(), ["disk.img"], "{name}: nothing else is left");
        assert_eq!(server.end(), UPLOADED);
    }
}

#[test]
fn interrupted_compressed_body_counts_decoded_bytes() {
    let image = SparseDisk::mixed(4 * MIB, 7).bytes();
    let server = Server::start();
    let tus = Tus::connect(&server);
    let path = tus.start_upload(image.len());
    for divisor in [1000, 7, 3, 2] {
        let at = tus.offset(&path);
        let body = packed(&image[at as usize..]);
        tus.interrupt(&path, at, ZSTD, &body, body.len() / divisor);
    }
    // A body that ends within a frame is an error, even if it is complete for HTTP.
    let answer = tus.resume(&path, |at| {
        let body = packed(&image[at as usize..]);
        tus.append(&path, at, ZSTD, &body[..body.len() - 1])
    });
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = tus.resume(&path, |at| tus.append(&path, at, ZSTD, b"no zstd at all"));
    assert_eq!(answer.status, 400, "{answer:?}");
    let at = tus.offset(&path);
    assert!(0 < at && at < image.len() as u64, "{at}");
    let answer =
        tus.resume(&path, |at| tus.append(&path, at, ZSTD, &packed(&image[at as usize..])));
    assert_eq!(answer.status, 204, "{answer:?}");
    assert!(server.disk().expect("a disk") == image);
}

#[test]
fn requests_get_the_responses_of_the_tus_protocol() {
    let server = Server::start();
    let tus = Tus::connect(&server);
    let answer = tus.client.ask("OPTIONS", PATH, "");
    assert_eq!((answer.status, answer.header("tus-version")), (204, Some("1.0.0")));
    assert_eq!(answer.header("tus-extension"), Some("creation"));
    let path = tus.start_upload(1000);
    let length = "Upload-Length: 1000\r\n";
    let wrong_kind = "Content-Type: application/octet-stream\r\nUpload-Offset: 0\r\n";
    let twice = "Upload-Offset: 0\r\nContent-Encoding: gzip\r\n";
    let override_ = format!("{TUS}X-HTTP-Method-Override: HEAD\r\n");
    let table: [(&str, &str, &str, u16); 16] = [
        ("POST", PATH, length, 412),
        ("POST", PATH, "Tus-Resumable: 0.2.2\r\nUpload-Length: 5\r\n", 412),
        ("POST", PATH, TUS, 400),
        ("POST", PATH, &format!("{TUS}Upload-Length: 0\r\n"), 400),
        ("HEAD", &path, "", 412),
        ("HEAD", &path, TUS, 200),
        ("POST", &path, &override_, 200),
        ("HEAD", "/v1beta1/upload-resumable/1", TUS, 404),
        ("HEAD", "/v1beta1/upload-resumable/", TUS, 404),
        ("PATCH", "/v1beta1/upload-resumable/1", &format!("{TUS}{KIND}Upload-Offset: 0\r\n"), 404),
        ("PATCH", &path, &format!("{TUS}{wrong_kind}"), 415),
        ("PATCH", &path, &format!("{TUS}{KIND}{twice}"), 415),
        ("PATCH", &path, &format!("{TUS}{KIND}"), 400),
        ("PATCH", &path, &format!("{TUS}{KIND}Upload-Offset: 1\r\n"), 409),
        ("DELETE", &path, TUS, 404),
        ("GET", PATH, TUS, 404),
    ];
    for (method, path, headers, status) in table {
        let answer = tus.client.ask(method, path, headers);
        assert_eq!(answer.status, status, "{method} {path} {headers}: {answer:?}");
        assert_eq!(answer.header("tus-resumable"), Some("1.0.0"), "{method} {path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{method} {path}");
    }
    let answer = tus.append(&path, 7, "", b"x");
    assert_eq!((answer.status, offset(&answer)), (409, 0));
    let answer = tus.append(&path, 0, "", &[1; 1001]);
    assert_eq!(answer.status, 413, "{answer:?}");
    for client in [server.stranger(), server.client_named("client")] {
        for (method, path) in [("POST", PATH), ("HEAD", &*path), ("PATCH", &*path)] {
            assert_eq!(client.ask(method, path, TUS).status, 401, "{method}");
        }
    }
    assert_eq!(server.disk(), None);
}

#[test]
fn wrong_checksum_leaves_no_disk_and_a_second_one_is_rejected() {
    let image = pattern(2 * MIB);
    let server = Server::start();
    let tus = Tus::connect(&server);
    let path = tus.start_upload(image.len());
    let answer = tus.append(&path, 0, &repr_digest(b"something else"), &image);
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("checksum mismatch"), "{}", answer.body);
    assert!(!answer.body.contains("storage"), "{}", answer.body);
    assert_eq!((server.disk(), server.files()), (None, vec![]));
    assert_eq!(tus.head_upload(&path).status, 410);
    let answer = tus.create(image.len(), &repr_digest(&image));
    assert_eq!(answer.status, 201, "{answer:?}");
    let path = location(&answer);
    let answer = tus.append(&path, 0, &repr_digest(b"something else"), &image);
    assert_eq!(answer.status, 400, "the first request has stated it");
    assert_eq!(tus.append(&path, 0, "", &image).status, 204);
    assert!(server.disk().expect("a disk") == image);
}

#[test]
fn raw_disk_resumes_in_the_next_process() {
    let image = SparseDisk::mixed(3 * UNIT + 5 * MIB, 11).bytes();
    let name = "Upload-Metadata: fingerprint YWJj\r\n"; // abc
    let mut server = Server::with(|settings| settings.checkpoint_every = Default::default());
    let tus = Tus::connect(&server);
    let answer = tus.create(image.len(), name);
    assert_eq!(answer.status, 201, "{answer:?}");
    let path = location(&answer);
    let sent = (2 * UNIT + MIB) as usize;
    assert_eq!(tus.append(&path, 0, "", &image[..sent]).status, 204);
    while !server.files().iter().any(|name| name == ".disk.img.cdi-journal") {}
    server = server.again();
    assert_eq!(server.disk(), None);
    let tus = Tus::connect(&server);
    let answer = tus.create(image.len(), name);
    assert_eq!((answer.status, location(&answer)), (200, path.clone()), "it is known");
    let at = tus.offset(&path);
    assert!(at.is_multiple_of(UNIT) && UNIT <= at && at <= sent as u64, "{at}");
    // Nothing is lost by a second restart either.
    server = server.again();
    let tus = Tus::connect(&server);
    assert!(tus.offset(&path) >= at);
    let at = tus.offset(&path);
    let answer = tus.append(&path, at, &repr_digest(&image), &image[at as usize..]);
    assert_eq!(answer.status, 204, "{answer:?}");
    let disk = server.disk().expect("a disk");
    assert!(disk == image, "another disk");
    assert_eq!(server.files(), ["disk.img"]);
    assert_eq!(server.end(), UPLOADED);
}

#[test]
fn other_images_start_again_in_the_next_process() {
    let raw = pattern(3 * MIB);
    let Some(image) = compress(Compressor::GZIP, &raw) else { return };
    let name = "Upload-Metadata: fingerprint YWJj\r\n";
    let mut server = Server::start();
    let tus = Tus::connect(&server);
    let answer = tus.create(image.len(), name);
    assert_eq!(tus.append(&location(&answer), 0, "", &image[..image.len() / 2]).status, 204);
    server = server.again();
    let tus = Tus::connect(&server);
    assert_eq!(tus.head_upload(&location(&answer)).status, 404);
    let answer = tus.create(image.len(), name);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(tus.append(&location(&answer), 0, "", &image).status, 204);
    assert!(server.disk().expect("a disk") == raw);
}

#[test]
fn idle_upload_is_replaced_by_another_one() {
    let image = pattern(2 * MIB);
    let server = Server::start();
    let tus = Tus::connect(&server);
    let first = tus.start_upload(image.len());
    assert_eq!(tus.append(&first, 0, "", &image[..MIB as usize]).status, 204);
    let second = tus.start_upload(image.len());
    assert_ne!(first, second);
    assert_eq!(tus.head_upload(&first).status, 404);
    // While an upload is continued, others are rejected.
    let mut slow = tus.client.connect();
    slow.send(head(&second, 0, "", image.len()).as_bytes());
    slow.send(&image[..MIB as usize]);
    while !server.files().iter().any(|name| name == ".disk.img.cdi-upload") {} // it has started
    assert_eq!(tus.create(image.len(), "").status, 503);
    assert_eq!(server.upload("/v1beta1/upload", &image).status, 503);
    slow.send(&image[MIB as usize..]);
    assert_eq!(slow.answer_to("PATCH").status, 204);
    assert!(server.disk().expect("a disk") == image);
}

#[test]
fn single_request_upload_replaces_an_idle_resumable_one() {
    let image = pattern(2 * MIB);
    let server = Server::start();
    let tus = Tus::connect(&server);
    let path = tus.start_upload(image.len());
    assert_eq!(tus.append(&path, 0, "", &image[..MIB as usize]).status, 204);
    assert_eq!(server.upload("/v1beta1/upload", &image).status, 200);
    assert!(server.disk().expect("a disk") == image);
    assert_eq!(server.files(), ["disk.img"]);
    assert_eq!(server.end(), UPLOADED);
}

#[test]
fn later_request_takes_over_from_a_hanging_connection() {
    let image = pattern(2 * MIB);
    let server = Server::start();
    let tus = Tus::connect(&server);
    let path = tus.start_upload(image.len());
    let mut hanging = tus.client.connect();
    hanging.send(head(&path, 0, "", image.len()).as_bytes());
    hanging.send(&image[..MIB as usize]);
    while !server.files().iter().any(|name| name == ".disk.img.cdi-upload") {} // it has started
    let at = tus.offset(&path);
    assert!(at >= HEAD, "{at}");
    assert_eq!(hanging.answer_to("PATCH").status, 423);
    assert_eq!(tus.append(&path, at, "", &image[at as usize..]).status, 204);
    assert!(server.disk().expect("a disk") == image);
}

#[test]
fn too_large_image_ends_the_upload_with_its_reason() {
    let server = Server::with(|settings| {
        settings.image_size = Some(contract::ByteCount::mebibytes(4));
    });
    let tus = Tus::connect(&server);
    let image = pattern(32 * MIB);
    let path = tus.start_upload(image.len());
    let answer = tus.append(&path, 0, "", &image);
    assert_eq!(answer.status, 400, "{answer:?}");
    let words = "effective image size is larger than the reported available storage";
    assert!(answer.body.contains(words), "{}", answer.body);
    assert_eq!(tus.head_upload(&path).status, 410);
    assert_eq!((server.disk(), server.files()), (None, vec![]));
    assert_eq!(server.upload("/v1beta1/upload", &image[..MIB as usize]).status, 200);
}

#[test]
fn device_shows_no_disk_before_the_upload_is_complete() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let path = device.path().to_owned();
    let server = Server::with(|settings| settings.destination = path.clone());
    let image = SparseDisk::mixed(6 * MIB, 8).bytes();
    let tus = Tus::connect(&server);
    let upload = tus.start_upload(image.len());
    for end in [HEAD, 3 * MIB, 6 * MIB - 1] {
        let at = tus.offset(&upload);
        tus.interrupt(&upload, at, "", &image[at as usize..], (end - at) as usize);
    }
    let answer = tus
        .resume(&upload, |at| tus.append(&upload, at, &repr_digest(&image), &image[at as usize..]));
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_eq!(server.end(), UPLOADED);
    let found = device.bytes();
    assert!(found[..image.len()] == image, "another disk");
    assert!(found[image.len()..].iter().all(|byte| *byte == 0), "old bytes show");
}
