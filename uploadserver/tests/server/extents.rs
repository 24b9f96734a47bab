//! Clones between our own two pods: only what is data, and nothing twice.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use clonestream::extents::{Coding, DATA_MAX, Entry, EntryKind, ExtentWriter, Packer, Preamble};
use clonestream::offer::{HEADER, PATH, SourceIdentity, StreamOffer, StreamPosition};
use testkit::{
    FileSystem, FileSystemKind, Fill, LoopDevice, MIB, RawResponse, SparseDisk, pattern,
};
use uploadserver::{Completed, ServerExit};

use crate::server::Server;

const CLONED: ServerExit = ServerExit::Complete(Completed { cloned: true, preallocated: false });
const FILES: &str = "x-cdi-content-type: filesystem-clone\r\n";
const SOURCE: SourceIdentity = SourceIdentity([7; 16]);

/// What a source sends of its entries, from `begin` on.
fn stream(entries: &[(Entry, &[u8])], begin: StreamPosition) -> Vec<u8> {
    let preamble = Preamble { identity: SOURCE, begin };
    let mut writer = ExtentWriter::create(Vec::new(), &preamble).unwrap();
    let mut packer = Packer::new();
    for (entry, content) in entries.iter().skip(begin.entry as usize) {
        let from = writer.next_entry_start() as usize;
        writer.write_entry(entry).unwrap();
        for piece in content[from..].chunks(DATA_MAX / 16) {
            if piece.iter().all(|byte| *byte == 0) {
                writer.write_zeroes(piece.len() as u64).unwrap()
            } else {
                writer.write_data(&packer.pack(piece, Coding::Lz4), piece).unwrap()
            }
        }
    }
    writer.finish().unwrap()
}

fn file(path: &str, size: u64) -> Entry {
    let (path, kind) = (path.as_bytes().to_vec(), EntryKind::Regular);
    Entry { path, kind, size, mode: 0o660, modified: (0, 0) }
}

/// A volume with a disk, and what else there may be.
fn tree(disk: &[u8]) -> [(Entry, &[u8]); 7] {
    let folder = |path| Entry { kind: EntryKind::Directory, mode: 0o555, ..file(path, 0) };
    let twin = EntryKind::HardLink(b"folder/note".to_vec());
    let away = EntryKind::Symlink(b"/etc".to_vec());
    [
        (file("a-note", 2), b"a\n"),
        (Entry { mode: 0o600, ..file("disk.img", disk.len() as u64) }, disk),
        (folder("folder"), b""),
        (file("folder/note", 4), b"note"),
        (Entry { kind: away, ..file("folder/away", 0) }, b""),
        (Entry { kind: twin, ..file("twin", 0) }, b""),
        (file("zero", 0), b""),
    ]
}

fn expect_tree(folder: &Path, disk: &[u8]) {
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    assert!(read("disk.img") == disk);
    assert_eq!([read("a-note"), read("folder/note"), read("zero")], [&b"a\n"[..], b"note", b""]);
    assert_eq!(fs::read_link(folder.join("folder/away")).unwrap(), Path::new("/etc"));
    let facts = |name: &str| fs::metadata(folder.join(name)).unwrap();
    assert_eq!(facts("twin").ino(), facts("folder/note").ino());
    let modes =
        ["disk.img", "folder", "twin"].map(|name| facts(name).permissions().mode() & 0o7777);
    assert_eq!(modes, [0o600, 0o555, 0o660]);
}

/// Sends part of a body, and then nothing, until the server has had enough.
fn interrupt(server: &Server, headers: &str, sent: &[u8]) {
    let mut connection = server.client().connect();
    let head =
        format!("POST {PATH} HTTP/1.1\r\nHost: l\r\n{headers}Transfer-Encoding: chunked\r\n\r\n");
    let mut bytes = head.into_bytes();
    if !sent.is_empty() {
        bytes.extend(format!("{:x}\r\n", sent.len()).into_bytes());
        bytes.extend(sent);
        bytes.extend(b"\r\n");
    }
    connection.send(&bytes);
    assert_eq!(connection.answer().status, 500);
}

/// Sends the rest. On a busy machine it is we who fall silent in between, and go on once more.
fn resume(server: &Server, headers: &str, entries: &[(Entry, &[u8])]) -> RawResponse {
    let mut answers = (0..100).map(|_| {
        let begin = offered(server).start_for(SOURCE);
        server.client().post(PATH, headers, &stream(entries, begin))
    });
    let is_final = |answer: &RawResponse| !answer.body.contains("sent nothing");
    answers.find(is_final).expect("the earlier request ends")
}

fn on_device(device: &LoopDevice) -> Server {
    let path = device.path().to_owned();
    Server::of_clone_with(|settings| settings.destination = path)
}

fn offered(server: &Server) -> StreamOffer {
    loop {
        let answer = server.client().ask("GET", PATH, "");
        if answer.status != 503 {
            assert_eq!(answer.status, 200, "{answer:?}");
            return answer.header(HEADER).unwrap().parse().unwrap();
        }
        // The one that broke off is still being put away.
    }
}

#[test]
fn device_gets_data_and_zeroes() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let server = on_device(&device);
    assert_eq!(offered(&server), StreamOffer { version: 1, durable: None });
    let disk = SparseDisk::mixed(8 * MIB, 3).bytes();
    let body = stream(&[(Entry::disk(8 * MIB), &disk)], StreamPosition::default());
    let answer = server.client().post(PATH, "", &body);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn interrupted_clone_resumes_at_the_durable_position() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let path = device.path().to_owned();
    let server = Server::of_clone_with(|settings| {
        settings.destination = path;
        settings.client_silence_max = Duration::from_secs(1);
    });
    let mut disk = vec![0; 8 << 20];
    disk[..2 << 20].copy_from_slice(&pattern(2 * MIB));
    disk[5 << 20..6 << 20].copy_from_slice(&pattern(MIB));
    let entries = [(Entry::disk(8 * MIB), &*disk)];
    let whole = stream(&entries, StreamPosition::default());
    let mut begin = StreamPosition::default();
    for part in 0..2 {
        let body = stream(&entries, begin);
        interrupt(&server, "", &body[..body.len() / 2]);
        let (identity, position) = offered(&server).durable.unwrap();
        assert_eq!(identity, SOURCE);
        assert!(position > begin, "{part}: {position:?}");
        begin = position;
    }
    assert_eq!(offered(&server).start_for(SourceIdentity([8; 16])), StreamPosition::default());
    assert!(stream(&entries, begin).len() < whole.len() / 2, "{begin:?} of {}", whole.len());
    let answer = resume(&server, "", &entries);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn device_gets_the_disk_of_a_tree() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let disk = SparseDisk::mixed(6 * MIB, 5).bytes();
    let folder = Entry { kind: EntryKind::Directory, ..file("folder", 0) };
    let entries: [(Entry, &[u8]); 4] = [
        (folder, b""),
        (file("folder/note", 4), b"note"),
        (file("disk.img", disk.len() as u64), &disk),
        (file("z-disk.img", 3), b"not"),
    ];
    let server = on_device(&device);
    let none = stream(&entries[..2], StreamPosition::default());
    let answer = server.client().post(PATH, "", &none);
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("no disk image found"), "{}", answer.body);
    let body = stream(&entries, StreamPosition::default());
    let answer = server.client().post(PATH, "", &body);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes()[..disk.len()] == disk);
}

#[test]
fn damaged_stream_or_unknown_start_is_rejected() {
    let Some(device) = LoopDevice::filled_with(0xa5, 4 * MIB) else { return };
    let server = on_device(&device);
    // Bytes that cannot be compressed: elsewhere a bit may mean nothing, and then nothing has changed.
    let disk = SparseDisk::new(4 * MIB).with(MIB, 2 * MIB, Fill::Random(6)).bytes();
    let entries = [(Entry::disk(4 * MIB), &*disk)];
    let good = stream(&entries, StreamPosition::default());
    for at in (0..good.len()).step_by(good.len() / 20) {
        let mut damaged = good.clone();
        damaged[at] ^= 0x10;
        let answer = server.client().post(PATH, "", &damaged);
        assert_eq!(answer.status, 500, "{at}");
    }
    let elsewhere = stream(&entries, StreamPosition { entry: 0, at: MIB });
    assert_eq!(server.client().post(PATH, "", &elsewhere).status, 500);
    let large = stream(&[(Entry::disk(5 * MIB), &vec![1; 5 << 20])], StreamPosition::default());
    assert_eq!(server.client().post(PATH, "", &large).status, 400);
    assert_eq!(server.client().post(PATH, "", &good).status, 200);
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn directory_gets_the_disk_of_a_device_with_its_holes() {
    let mut disk = vec![0; 16 << 20];
    disk[5 << 20..6 << 20].copy_from_slice(&pattern(MIB));
    for preallocate in [false, true] {
        let server = Server::of_clone_with(|settings| settings.preallocate = preallocate);
        assert_eq!(offered(&server), StreamOffer { version: 1, durable: None });
        let body = stream(&[(Entry::disk(16 * MIB), &disk)], StreamPosition::default());
        let answer = server.client().post(PATH, "", &body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert!(server.disk().unwrap() == disk);
        assert_eq!(server.files(), ["disk.img"]);
        let facts = fs::metadata(server.data().join("disk.img")).unwrap();
        assert_eq!(facts.permissions().mode() & 0o7777, 0o660);
        let allocated = facts.blocks() * 512;
        assert_eq!(allocated >= 16 * MIB, preallocate, "{allocated}");
        assert_eq!(server.end(), CLONED);
    }
}

#[test]
fn directory_gets_the_whole_tree() {
    let disk = SparseDisk::mixed(6 * MIB, 5).bytes();
    let server = Server::of_clone();
    // Files of a killed process, and of the time before.
    fs::create_dir_all(server.data().join("twin/of/another")).unwrap();
    let body = stream(&tree(&disk), StreamPosition::default());
    let answer = server.client().post(PATH, FILES, &body);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    expect_tree(&server.data(), &disk);
    assert_eq!(server.files(), ["a-note", "disk.img", "folder", "twin", "zero"]);
    // As upstream reports it: the source knows whether it was preallocated.
    assert_eq!(server.end(), ServerExit::Complete(Completed { cloned: true, preallocated: true }));
}

#[test]
fn interrupted_tree_is_invisible_and_resumes() {
    let disk = SparseDisk::mixed(3 * MIB, 8).bytes();
    let tree = tree(&disk);
    let server =
        Server::of_clone_with(|settings| settings.client_silence_max = Duration::from_millis(100));
    let mut begin = StreamPosition::default();
    let mut sent = 0;
    for _ in 0..20 {
        let body = stream(&tree, begin);
        // A little further each time: the beginning, entries, data, and almost the end.
        interrupt(&server, FILES, &body[..body.len().min(sent % body.len())]);
        sent += 40_009;
        let visible: Vec<_> =
            server.files().into_iter().filter(|name| !name.starts_with('.')).collect();
        assert!(visible.is_empty(), "{visible:?}");
        let position = offered(&server).start_for(SOURCE);
        assert!(position >= begin, "{position:?} {begin:?}");
        begin = position;
    }
    assert!(begin > StreamPosition::default());
    let answer = resume(&server, FILES, &tree);
    assert_eq!(answer.status, 200, "{answer:?}");
    expect_tree(&server.data(), &disk);
    assert_eq!(server.files(), ["a-note", "disk.img", "folder", "twin", "zero"]);
}

#[test]
fn damaged_stream_leaves_nothing_in_the_directory() {
    let disk = SparseDisk::mixed(2 * MIB, 6).bytes();
    let tree = tree(&disk);
    let good = stream(&tree, StreamPosition::default());
    let mut server = Server::of_clone();
    for at in (0..good.len()).step_by(good.len() / 12) {
        let mut damaged = good.clone();
        damaged[at] ^= 0x10;
        let status = server.client().post(PATH, FILES, &damaged).status;
        // Compressed data has bits that mean nothing: then all has come as it was.
        if status == 200 {
            expect_tree(&server.data(), &disk);
            server = Server::of_clone();
            continue;
        }
        assert_eq!(status, 500, "{at}");
        assert!(server.files().iter().all(|name| name.starts_with('.')), "{at}");
    }
    let ways_out = ["up/file", "up"].map(|path| file(path, 1));
    let up = Entry { kind: EntryKind::Symlink(b"..".to_vec()), ..file("up", 0) };
    for (out, status) in ways_out.into_iter().zip([500, 200]) {
        let server = Server::of_clone();
        let body = stream(&[(up.clone(), b""), (out, b"x")], StreamPosition::default());
        assert_eq!(server.client().post(PATH, FILES, &body).status, status);
        assert!(!server.folder.path().join("file").exists());
        assert!(status == 200 || server.files().is_empty(), "{:?}", server.files());
    }
    // The old stream is another way to fill the same volume.
    let framed = {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        std::io::Write::write_all(&mut encoder, &disk).unwrap();
        encoder.into_inner().unwrap()
    };
    let headers = "x-cdi-content-type: blockdevice-clone\r\n";
    assert_eq!(server.client().post("/v1beta1/upload", headers, &framed).status, 200);
    assert!(server.disk().unwrap() == disk);
    assert_eq!(server.files(), ["disk.img"]);
}

#[test]
fn full_file_system_is_reported_and_left_empty() {
    let Some(volume) = FileSystem::new(FileSystemKind::Ext4, 16 * MIB) else { return };
    let path = volume.path().join("disk.img");
    let server = Server::of_clone_with(|settings| settings.destination = path.clone());
    let disk = pattern(24 * MIB);
    for entries in [
        &[(Entry::disk(24 * MIB), &*disk)],
        &[(file("disk.img", 24 * MIB), &*disk)],
        &[(file("folder/file", 24 * MIB), &*disk)],
    ] {
        let answer = server.client().post(PATH, FILES, &stream(entries, StreamPosition::default()));
        assert_eq!(answer.status, 400, "{}", answer.body);
        let left: Vec<_> =
            fs::read_dir(volume.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(left, ["lost+found"]);
    }
    let small = pattern(MIB);
    let body = stream(&[(file("disk.img", MIB), &small)], StreamPosition::default());
    assert_eq!(server.client().post(PATH, FILES, &body).status, 200);
    assert!(fs::read(&path).unwrap() == small);
}

#[test]
fn files_of_a_killed_process_are_removed() {
    let disk = SparseDisk::mixed(3 * MIB, 9).bytes();
    let server =
        Server::of_clone_with(|settings| settings.client_silence_max = Duration::from_millis(100));
    let body = stream(&tree(&disk), StreamPosition::default());
    // On a busy machine, the client may time out before the first byte.
    while server.files().is_empty() {
        interrupt(&server, FILES, &body[..body.len() * 3 / 4]);
    }
    let left = server.data().join(".cdi-clone-partial.7");
    let server = server.again();
    fs::write(&left, b"as if it had been killed").unwrap();
    let server = server.again();
    assert!(server.files().is_empty(), "{:?}", server.files());
    assert_eq!(offered(&server).durable, None);
    let answer = resume(&server, FILES, &tree(&disk));
    assert_eq!(answer.status, 200, "{answer:?}");
    expect_tree(&server.data(), &disk);
}

#[test]
fn unknown_client_gets_no_offer() {
    let server = Server::of_clone();
    assert_eq!(server.client_named("unknown").ask("GET", PATH, "").status, 401);
    let body = stream(&[(Entry::disk(MIB), &vec![1; 1 << 20])], StreamPosition::default());
    assert_eq!(server.client_named("unknown").post(PATH, "", &body).status, 401);
    assert_eq!(server.disk(), None);
}
