//! Over the network, as far as that is in one machine.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use cloner::{Error, Progress, RetryPolicy, SourceVolume, UploadServer, send};
use clonestream::extents::EntryKind;
use clonestream::offer::StreamPosition;
use contract::clone::{ClientIdentity, VolumeMode};
use snap::read::FrameDecoder;
use tempfile::TempDir;
use testkit::{Fill, LoopDevice, SparseDisk, arguments, require_tool};

use crate::receiver::{Receiver, Script};

const MIB: u64 = 1 << 20;
const RETRIES: RetryPolicy = RetryPolicy {
    retries_max: 3,
    delay_min: Duration::from_millis(1),
    delay_max: Duration::from_millis(2),
};

fn identity(certificate: &str, key: &str) -> ClientIdentity {
    ClientIdentity { certificate: certificate.to_owned(), key: key.to_owned() }
}

fn upload_server(receiver: &Receiver) -> UploadServer {
    let url = receiver.url.parse().unwrap();
    UploadServer::new(&url, &identity(&receiver.certificate, &receiver.key), &receiver.authority)
        .unwrap()
}

fn send_to(
    receiver: &Receiver,
    volume: &SourceVolume,
    preallocate: bool,
) -> Result<Progress, Error> {
    let progress = Progress::default();
    let sent = send(volume, preallocate, "uid", &upload_server(receiver), RETRIES, &progress);
    sent.map(|()| progress)
}

fn unwrapped(stream: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameDecoder::new(stream).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Something like a disk: a quarter of data, the rest zeroes, some of them in the middle of data.
fn disk(len: u64) -> SparseDisk {
    SparseDisk::new(len)
        .with(0, 70_000, Fill::Text(1))
        .with(len / 3, len / 8, Fill::Random(2))
        .with(len / 3 + 300_000, 40_000, Fill::Byte(0))
        .with(len / 2, len / 8, Fill::Pattern)
        .with(len - 512, 512, Fill::Text(3))
}

/// A raw file that is read as if it were a device.
fn device(disk: &SparseDisk) -> (tempfile::NamedTempFile, SourceVolume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    disk.write_to(file.path());
    let volume = SourceVolume::open(file.path(), VolumeMode::Block).unwrap();
    (file, volume)
}

/// A volume with a disk in it, and what else may lie about.
fn tree(disk: &SparseDisk) -> (TempDir, SourceVolume) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    disk.write_to(&at("disk.img"));
    std::fs::set_permissions(at("disk.img"), PermissionsExt::from_mode(0o660)).unwrap();
    std::fs::create_dir_all(at("folder/deeper")).unwrap();
    std::fs::create_dir_all(at("lost+found")).unwrap();
    std::fs::write(at("folder/file"), vec![7; 100_000]).unwrap();
    std::fs::write(at("folder/deeper/empty"), b"").unwrap();
    std::fs::hard_link(at("folder/file"), at("twin")).unwrap();
    symlink("../nowhere", at("folder/link")).unwrap();
    let volume = SourceVolume::open(directory.path(), VolumeMode::Filesystem).unwrap();
    (directory, volume)
}

#[test]
fn upstream_server_gets_every_byte_of_a_device() {
    for len in [512, MIB - 512, MIB, 5 * MIB + 512] {
        let disk = disk(len.max(200_000));
        let (_file, volume) = device(&disk);
        let receiver = Receiver::new(Script { old: true, ..Script::default() });
        let progress = send_to(&receiver, &volume, false).unwrap();
        let received = receiver.received();
        assert_eq!(
            received.requests,
            ["GET /v1beta1/clone", "POST /v1beta1/upload blockdevice-clone"]
        );
        assert!(unwrapped(&received.old[0]) == disk.bytes(), "{len}");
        assert_eq!(progress.value(), Some(100.0));
    }
}

#[test]
fn loop_device_is_sent_like_a_file() {
    let disk = disk(3 * MIB + 512);
    let Some(device) = LoopDevice::new(disk.len()) else { return };
    device.write_at(0, &disk.bytes());
    let volume = SourceVolume::open(device.path(), VolumeMode::Block).unwrap();
    let old = Receiver::new(Script { old: true, ..Script::default() });
    send_to(&old, &volume, false).unwrap();
    assert!(unwrapped(&old.received().old[0]) == disk.bytes());
    let new = Receiver::new(Script::default());
    send_to(&new, &volume, false).unwrap();
    assert!(new.received().entries[0].1 == disk.bytes());
}

#[test]
fn upstream_server_gets_an_archive_that_tar_unpacks() {
    let Some(tar) = require_tool("tar") else { return };
    let disk = disk(6 * MIB);
    for preallocate in [false, true] {
        let (source, volume) = tree(&disk);
        let receiver = Receiver::new(Script { old: true, ..Script::default() });
        send_to(&receiver, &volume, preallocate).unwrap();
        let received = receiver.received();
        assert_eq!(received.requests[1], "POST /v1beta1/upload filesystem-clone");
        let archive = unwrapped(&received.old[0]);
        assert!(archive.len().is_multiple_of(10240));
        assert_eq!(preallocate, archive.len() as u64 > disk.len());

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive.tar");
        std::fs::write(&path, archive).unwrap();
        let target = directory.path().join("target");
        std::fs::create_dir(&target).unwrap();
        tar.run(arguments!["-x", "--preserve-permissions", "-C", target, "-f", path]);
        same_tree(source.path(), &target);
        let allocated = target.join("disk.img").metadata().unwrap().blocks() * 512;
        assert_eq!(preallocate, allocated >= disk.len(), "{allocated}");
    }
}

fn same_tree(source: &Path, target: &Path) {
    for name in ["disk.img", "folder/file", "folder/deeper/empty", "twin"] {
        let (one, other) = (source.join(name), target.join(name));
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap(), "{name}");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&one), mode(&other), "{name}");
    }
    assert_eq!(std::fs::read_link(target.join("folder/link")).unwrap(), Path::new("../nowhere"));
    let number = |name: &str| target.join(name).metadata().unwrap().ino();
    assert_eq!(number("twin"), number("folder/file"));
    assert!(!target.join("lost+found").exists());
}

#[test]
fn extent_stream_has_little_more_than_the_data() {
    let disk = disk(32 * MIB);
    let (_file, volume) = device(&disk);
    let receiver = Receiver::new(Script::default());
    let progress = send_to(&receiver, &volume, false).unwrap();
    let received = receiver.received();
    assert_eq!(received.requests, ["GET /v1beta1/clone", "POST /v1beta1/clone blockdevice-clone"]);
    assert!(received.whole && received.entries.len() == 1);
    assert_eq!(received.entries[0].0.kind, EntryKind::Disk);
    assert!(received.entries[0].1 == disk.bytes());
    assert!(received.body_bytes as u64 <= 8 * MIB, "{}", received.body_bytes);
    assert_eq!(progress.value(), Some(100.0));
}

#[test]
fn extent_stream_has_the_whole_tree() {
    let disk = disk(6 * MIB);
    let (_source, volume) = tree(&disk);
    let receiver = Receiver::new(Script::default());
    send_to(&receiver, &volume, false).unwrap();
    let received = receiver.received();
    let named: Vec<_> = received
        .entries
        .iter()
        .map(|(entry, _)| (String::from_utf8_lossy(&entry.path).into_owned(), entry.kind.clone()))
        .collect();
    assert_eq!(
        named,
        [
            ("disk.img".into(), EntryKind::Regular),
            ("folder".into(), EntryKind::Directory),
            ("folder/deeper".into(), EntryKind::Directory),
            ("folder/deeper/empty".into(), EntryKind::Regular),
            ("folder/file".into(), EntryKind::Regular),
            ("folder/link".to_owned(), EntryKind::Symlink(b"../nowhere".to_vec())),
            ("twin".into(), EntryKind::HardLink(b"folder/file".to_vec())),
        ]
    );
    assert!(received.entries[0].1 == disk.bytes() && received.entries[4].1 == vec![7; 100_000]);
    assert_eq!(received.entries[0].0.mode, 0o660);
}

#[test]
fn interrupted_transfer_resumes_at_the_durable_position() {
    let disk = disk(16 * MIB);
    let bytes = disk.bytes();
    let breaks = vec![100, 700_000, 1_500_000, 60];
    for of_tree in [false, true] {
        let script = Script { breaks: breaks.clone(), ..Script::default() };
        let receiver = Receiver::new(script);
        let (_folder, tree) = tree(&disk);
        let (_file, device) = device(&disk);
        send_to(&receiver, if of_tree { &tree } else { &device }, false).unwrap();
        let received = receiver.received();
        assert!(received.whole && received.entries[0].1 == bytes);
        assert_eq!(received.starts.len(), 5);
        assert!(received.starts.is_sorted(), "{:?}", received.starts);
        assert!(received.starts[4] > StreamPosition { entry: 0, at: MIB }, "{:?}", received.starts);
        // A piece or two may be sent again, and no more.
        let sent_once = {
            let receiver = Receiver::new(Script::default());
            send_to(&receiver, if of_tree { &tree } else { &device }, false).unwrap();
            receiver.received().body_bytes
        };
        assert!(received.body_bytes < sent_once + (5 << 20), "{} {sent_once}", received.body_bytes);
    }
}

#[test]
fn transfer_without_progress_fails_after_all_retries() {
    let (_file, volume) = device(&disk(4 * MIB));
    let receiver = Receiver::new(Script { breaks: vec![10; 100], ..Script::default() });
    let error = send_to(&receiver, &volume, false).unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    assert!(!receiver.received().whole);
    let posts = receiver.received().requests.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(posts, 4, "one attempt and three retries");
}

#[test]
fn busy_server_is_retried_and_rejection_is_final() {
    let (_file, volume) = device(&disk(2 * MIB));
    let receiver =
        Receiver::new(Script { offers: vec![503], answers: vec![503, 502], ..Script::default() });
    send_to(&receiver, &volume, false).unwrap();
    assert!(receiver.received().whole);

    let receiver = Receiver::new(Script { answers: vec![400], ..Script::default() });
    let error = send_to(&receiver, &volume, false).unwrap_err();
    assert_eq!(error.to_string(), "Unexpected status code 400: so.");
    assert_eq!(receiver.received().requests.len(), 2, "one offer and one upload");
    let receiver = Receiver::new(Script { old: true, answers: vec![500], ..Script::default() });
    assert!(send_to(&receiver, &volume, false).is_err());
    assert_eq!(receiver.received().requests.len(), 2, "a snappy stream is not sent twice");
}

#[test]
fn interrupted_snappy_stream_is_not_taken_as_complete() {
    let (_file, volume) = device(&disk(4 * MIB));
    let script = Script { old: true, breaks: vec![100_000], ..Script::default() };
    let receiver = Receiver::new(script);
    assert!(send_to(&receiver, &volume, false).is_err());
    assert!(receiver.received().old.is_empty());
}

#[test]
fn peers_without_a_valid_certificate_are_rejected() {
    let (_file, volume) = device(&disk(MIB));
    let receiver = Receiver::new(Script::default());
    let url = receiver.url.parse().unwrap();
    let retries = RetryPolicy { retries_max: 0, ..RETRIES };
    let attempt = |certificate: &str, key: &str, authority: &str| {
        let upload_server =
            UploadServer::new(&url, &identity(certificate, key), authority).unwrap();
        send(&volume, false, "uid", &upload_server, retries, &Progress::default())
    };
    let (stranger, its_key) = &receiver.stranger;
    assert!(attempt(stranger, its_key, &receiver.authority).is_err());
    assert!(attempt(&receiver.certificate, &receiver.key, stranger).is_err());
    assert!(receiver.received().requests.is_empty());
    assert!(attempt(&receiver.certificate, &receiver.key, &receiver.authority).is_ok());

    let refused =
        UploadServer::new(&url, &identity(&receiver.certificate, "no key"), &receiver.authority);
    assert_eq!(refused.unwrap_err().to_string(), "cannot use the client key");
    assert!(
        UploadServer::new(&url, &identity(&receiver.certificate, &receiver.key), "no PEM").is_err()
    );
}
