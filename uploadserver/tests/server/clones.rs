//! Clones: what the source of one sends, for each pair of kinds of volumes.

use std::io::Write;

use testkit::{LoopDevice, MIB, SparseDisk, arguments, pattern, require_tool};
use uploadserver::{Completed, ServerExit};

use crate::server::{CLONE_SOURCE, Server};

const PATH: &str = "/v1beta1/upload";
const DISK: &str = "X-CDI-Content-Type: blockdevice-clone\r\n";
const FILES: &str = "X-CDI-Content-Type: filesystem-clone\r\n";

fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.into_inner().unwrap()
}

fn cloned(preallocated: bool) -> ServerExit {
    ServerExit::Complete(Completed { cloned: true, preallocated })
}

/// A tar as a clone source sends it.
fn packed(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let tar = require_tool("tar")?;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("note"), b"next to the disk").unwrap();
    let mut file = std::fs::File::create(folder.path().join(name)).unwrap();
    // Holes are found by the file system.
    for (block, bytes) in bytes.chunks(4096).enumerate() {
        if bytes.iter().any(|byte| *byte != 0) {
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, block as u64 * 4096).unwrap();
        }
    }
    file.set_len(bytes.len() as u64).unwrap();
    file.flush().unwrap();
    Some(tar.run(arguments!["-c", "-S", "-C", folder.path(), "note", name]))
}

#[test]
fn device_is_cloned_to_a_file_whatever_its_content() {
    let Some(image) = testkit::tar(&[("disk", b"a guest's own archive")]) else { return };
    // Neither decoded nor made larger than it was.
    for disk in [SparseDisk::mixed(5 * MIB, 7).bytes(), image] {
        let server = Server::of_clone_with(|settings| {
            settings.image_size = Some(contract::ByteCount::mebibytes(8));
        });
        let answer = server.client().post(PATH, DISK, &framed(&disk));
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert!(server.disk().expect("a disk") == disk);
        let end = server.end();
        assert_eq!(end, cloned(false));
        let words = r#"{"preallocationApplied":false,"message":"Clone Complete"}"#;
        assert_eq!(end.message().unwrap().to_json(), words);
    }
}

#[test]
fn device_is_cloned_to_a_device() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let path = device.path().to_owned();
    let server = Server::of_clone_with(|settings| settings.destination = path.clone());
    let disk = SparseDisk::mixed(8 * MIB, 8).bytes();
    assert_eq!(server.client().post(PATH, DISK, &framed(&disk)).status, 200);
    assert_eq!(server.end(), cloned(false));
    assert!(device.bytes() == disk);
}

#[test]
fn files_are_cloned_with_their_holes() {
    let mut disk = vec![0; 16 << 20];
    disk[5 << 20..][..4096].copy_from_slice(&pattern(4096));
    let Some(tar) = packed("disk.img", &disk) else { return };
    for preallocate in [false, true] {
        let server = Server::of_clone_with(|settings| settings.preallocate = preallocate);
        let answer = server.client().post(PATH, FILES, &framed(&tar));
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert!(server.disk().expect("a disk") == disk);
        assert_eq!(std::fs::read(server.data().join("note")).unwrap(), b"next to the disk");
        let facts = std::fs::metadata(server.data().join("disk.img")).unwrap();
        let allocated = std::os::unix::fs::MetadataExt::blocks(&facts) * 512;
        assert_eq!(allocated >= disk.len() as u64, preallocate, "{allocated}");
        assert_eq!(server.end(), cloned(true));
    }
}

#[test]
fn disk_in_a_tar_is_cloned_to_a_device() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let path = device.path().to_owned();
    let disk = SparseDisk::mixed(6 * MIB, 11).bytes();
    let (Some(none), Some(tar)) = (packed("other", b"x"), packed("disk.img", &disk)) else {
        return;
    };
    let server = Server::of_clone_with(|settings| settings.destination = path.clone());
    let answer = server.client().post(PATH, FILES, &framed(&none));
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("no disk image found in tar"), "{}", answer.body);
    let answer = server.client().post(PATH, FILES, &framed(&tar));
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(server.end(), cloned(false));
    assert!(device.bytes()[..disk.len()] == disk);
}

#[test]
fn damaged_too_large_or_async_clone_is_rejected() {
    let server = Server::of_clone();
    let mut damaged = framed(&pattern(MIB));
    damaged[70_000] ^= 1;
    assert_eq!(server.client().post(PATH, DISK, &damaged).status, 500);
    let answer = server.client().post("/v1beta1/upload-async", DISK, &framed(b"x"));
    assert_eq!((answer.status, answer.body.as_str()), (500, "async clone not supported"));
    assert_eq!(server.disk(), None);
    let Some(device) = LoopDevice::filled_with(0xa5, MIB) else { return };
    let path = device.path().to_owned();
    let small = Server::of_clone_with(|settings| settings.destination = path.clone());
    assert_eq!(small.client().post(PATH, DISK, &framed(&pattern(2 * MIB))).status, 400);
}

/// The holder of an upload token sends through the upload proxy, whose certificate is not that of a clone source.
#[test]
fn upload_client_cannot_send_a_clone() {
    let server = Server::with(|settings| {
        settings.image_size = Some(contract::ByteCount::mebibytes(1));
    });
    let Some(tar) = packed("disk.img", &pattern(2 * MIB)) else { return };
    for (headers, body) in [(DISK, pattern(2 * MIB)), (FILES, tar)] {
        for path in [PATH, "/v1alpha1/upload", "/v1beta1/upload-async", "/v1beta1/clone"] {
            let answer = server.client().post(path, headers, &framed(&body));
            assert_eq!(answer.status, 403, "{path}: {}", answer.body);
            assert!(answer.body.contains("clone source"), "{path}: {}", answer.body);
        }
    }
    assert_eq!(server.client().ask("GET", "/v1beta1/clone", "").status, 403);
    assert_eq!(server.client_named(CLONE_SOURCE).post(PATH, DISK, &framed(b"x")).status, 401);
    assert!(server.files().is_empty(), "{:?}", server.files());
    let disk = pattern(MIB);
    assert_eq!(server.upload(PATH, &disk).status, 200);
    assert!(server.disk().expect("a disk") == disk);
}
