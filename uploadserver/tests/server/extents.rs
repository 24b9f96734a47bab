//! Clones between our own two pods: only what is data, and nothing twice.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use clonestream::extents::{DATA_MAX, Entry, EntryKind, Packer, Preamble, Writer};
use clonestream::offer::{HEADER, Identity, Offer, PATH, Position};
use testkit::{
    FileSystem, FileSystemKind, Fill, LoopDevice, MIB, RawResponse, SparseDisk, pattern,
};
use uploadserver::{Completed, End};

use crate::server::Server;

const CLONED: End = End::Complete(Completed { cloned: true, preallocated: false });
const FILES: &str = "x-cdi-content-type: filesystem-clone\r\n";
const SOURCE: Identity = Identity([7; 16]);

/// What a source sends of its entries, from `begin` on.
fn stream(entries: &[(Entry, &[u8])], begin: Position) -> Vec<u8> {
    let preamble = Preamble { identity: SOURCE, begin };
    let mut writer = Writer::begin(Vec::new(), &preamble).unwrap();
    let mut packer = Packer::new();
    for (entry, content) in entries.iter().skip(begin.entry as usize) {
        let from = writer.begin_of_next() as usize;
        writer.entry(entry).unwrap();
        for piece in content[from..].chunks(DATA_MAX / 16) {
            match piece.iter().all(|byte| *byte == 0) {
                true => writer.zeroes(piece.len() as u64).unwrap(),
                false => writer.data(&packer.pack(piece)).unwrap(),
            }
        }
    }
    writer.end().unwrap()
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
fn break_off(server: &Server, headers: &str, sent: &[u8]) {
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
fn go_on(server: &Server, headers: &str, entries: &[(Entry, &[u8])]) -> RawResponse {
    let mut answers = (0..100).map(|_| {
        let begin = offered(server).begin_for(SOURCE);
        server.client().post(PATH, headers, &stream(entries, begin))
    });
    let is_told = |answer: &RawResponse| !answer.body.contains("said nothing");
    answers.find(is_told).expect("an end")
}

fn on_device(device: &LoopDevice) -> Server {
    let path = device.path().to_owned();
    Server::of_clone_with(|settings| settings.destination = path)
}

fn offered(server: &Server) -> Offer {
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
fn a_device_gets_what_is_data_and_zeroes_elsewhere() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let server = on_device(&device);
    assert_eq!(offered(&server), Offer { version: 1, durable: None });
    let disk = SparseDisk::mixed(8 * MIB, 3).bytes();
    let body = stream(&[(Entry::disk(8 * MIB), &disk)], Position::default());
    let answer = server.client().post(PATH, "", &body);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn whoever_broke_off_goes_on_where_it_broke() {
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
    let whole = stream(&entries, Position::default());
    let mut begin = Position::default();
    for part in 0..2 {
        let body = stream(&entries, begin);
        break_off(&server, "", &body[..body.len() / 2]);
        let (identity, position) = offered(&server).durable.unwrap();
        assert_eq!(identity, SOURCE);
        assert!(position > begin, "{part}: {position:?}");
        begin = position;
    }
    assert_eq!(offered(&server).begin_for(Identity([8; 16])), Position::default());
    assert!(stream(&entries, begin).len() < whole.len() / 2, "{begin:?} of {}", whole.len());
    let answer = go_on(&server, "", &entries);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn the_disk_among_files_is_what_a_device_gets() {
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
    let none = stream(&entries[..2], Position::default());
    let answer = server.client().post(PATH, "", &none);
    assert_eq!(answer.status, 500);
    assert!(answer.body.contains("no disk image found"), "{}", answer.body);
    let body = stream(&entries, Position::default());
    let answer = server.client().post(PATH, "", &body);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes()[..disk.len()] == disk);
}

#[test]
fn a_stream_that_is_damaged_or_of_another_beginning_is_none() {
    let Some(device) = LoopDevice::filled_with(0xa5, 4 * MIB) else { return };
    let server = on_device(&device);
    // Bytes that cannot be compressed: elsewhere a bit may mean nothing, and then nothing has changed.
    let disk = SparseDisk::new(4 * MIB).with(MIB, 2 * MIB, Fill::Random(6)).bytes();
    let entries = [(Entry::disk(4 * MIB), &*disk)];
    let good = stream(&entries, Position::default());
    for at in (0..good.len()).step_by(good.len() / 20) {
        let mut damaged = good.clone();
        damaged[at] ^= 0x10;
        let answer = server.client().post(PATH, "", &damaged);
        assert_eq!(answer.status, 500, "{at}");
    }
    let elsewhere = stream(&entries, Position { entry: 0, at: MIB });
    assert_eq!(server.client().post(PATH, "", &elsewhere).status, 500);
    let large = stream(&[(Entry::disk(5 * MIB), &vec![1; 5 << 20])], Position::default());
    assert_eq!(server.client().post(PATH, "", &large).status, 400);
    assert_eq!(server.client().post(PATH, "", &good).status, 200);
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn a_folder_gets_the_disk_of_a_device_with_its_holes() {
    let mut disk = vec![0; 16 << 20];
    disk[5 << 20..6 << 20].copy_from_slice(&pattern(MIB));
    for preallocate in [false, true] {
        let server = Server::of_clone_with(|settings| settings.preallocate = preallocate);
        assert_eq!(offered(&server), Offer { version: 1, durable: None });
        let body = stream(&[(Entry::disk(16 * MIB), &disk)], Position::default());
        let answer = server.client().post(PATH, "", &body);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert!(server.disk().unwrap() == disk);
        assert_eq!(server.files(), ["disk.img"]);
        let facts = fs::metadata(server.data().join("disk.img")).unwrap();
        assert_eq!(facts.permissions().mode() & 0o7777, 0o660);
        let room = facts.blocks() * 512;
        assert_eq!(room >= 16 * MIB, preallocate, "{room}");
        assert_eq!(server.end(), CLONED);
    }
}

#[test]
fn a_folder_gets_the_whole_tree() {
    let disk = SparseDisk::mixed(6 * MIB, 5).bytes();
    let server = Server::of_clone();
    // What a lost process has left, and what was there before.
    fs::create_dir_all(server.data().join("twin/of/somebody")).unwrap();
    let body = stream(&tree(&disk), Position::default());
    let answer = server.client().post(PATH, FILES, &body);
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    expect_tree(&server.data(), &disk);
    assert_eq!(server.files(), ["a-note", "disk.img", "folder", "twin", "zero"]);
    // By contract: the source knows better.
    assert_eq!(server.end(), End::Complete(Completed { cloned: true, preallocated: true }));
}

#[test]
fn a_tree_that_broke_off_anywhere_is_not_seen_and_is_gone_on_with() {
    let disk = SparseDisk::mixed(3 * MIB, 8).bytes();
    let tree = tree(&disk);
    let server =
        Server::of_clone_with(|settings| settings.client_silence_max = Duration::from_millis(100));
    let mut begin = Position::default();
    let mut sent = 0;
    for _ in 0..20 {
        let body = stream(&tree, begin);
        // A little further each time: the beginning, entries, data, and almost the end.
        break_off(&server, FILES, &body[..body.len().min(sent % body.len())]);
        sent += 40_009;
        let visible: Vec<_> =
            server.files().into_iter().filter(|name| !name.starts_with('.')).collect();
        assert!(visible.is_empty(), "{visible:?}");
        let position = offered(&server).begin_for(SOURCE);
        assert!(position >= begin, "{position:?} {begin:?}");
        begin = position;
    }
    assert!(begin > Position::default());
    let answer = go_on(&server, FILES, &tree);
    assert_eq!(answer.status, 200, "{answer:?}");
    expect_tree(&server.data(), &disk);
    assert_eq!(server.files(), ["a-note", "disk.img", "folder", "twin", "zero"]);
}

#[test]
fn what_is_damaged_leaves_nothing_in_a_folder() {
    let disk = SparseDisk::mixed(2 * MIB, 6).bytes();
    let tree = tree(&disk);
    let good = stream(&tree, Position::default());
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
        let body = stream(&[(up.clone(), b""), (out, b"x")], Position::default());
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
fn a_full_file_system_is_told_and_left_empty() {
    let Some(volume) = FileSystem::new(FileSystemKind::Ext4, 16 * MIB) else { return };
    let path = volume.path().join("disk.img");
    let server = Server::of_clone_with(|settings| settings.destination = path.clone());
    let disk = pattern(24 * MIB);
    for entries in [
        &[(Entry::disk(24 * MIB), &*disk)],
        &[(file("disk.img", 24 * MIB), &*disk)],
        &[(file("folder/file", 24 * MIB), &*disk)],
    ] {
        let answer = server.client().post(PATH, FILES, &stream(entries, Position::default()));
        assert_eq!(answer.status, 400, "{}", answer.body);
        let left: Vec<_> =
            fs::read_dir(volume.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(left, ["lost+found"]);
    }
    let small = pattern(MIB);
    let body = stream(&[(file("disk.img", MIB), &small)], Position::default());
    assert_eq!(server.client().post(PATH, FILES, &body).status, 200);
    assert!(fs::read(&path).unwrap() == small);
}

#[test]
fn what_a_lost_process_has_left_is_removed() {
    let disk = SparseDisk::mixed(3 * MIB, 9).bytes();
    let server =
        Server::of_clone_with(|settings| settings.client_silence_max = Duration::from_millis(100));
    let body = stream(&tree(&disk), Position::default());
    // A busy machine may fall silent before anything was begun.
    while server.files().is_empty() {
        break_off(&server, FILES, &body[..body.len() * 3 / 4]);
    }
    let left = server.data().join(".cdi-clone-partial.7");
    let server = server.again();
    fs::write(&left, b"as if it had been killed").unwrap();
    let server = server.again();
    assert!(server.files().is_empty(), "{:?}", server.files());
    assert_eq!(offered(&server).durable, None);
    let answer = go_on(&server, FILES, &tree(&disk));
    assert_eq!(answer.status, 200, "{answer:?}");
    expect_tree(&server.data(), &disk);
}

#[test]
fn a_stranger_is_offered_nothing() {
    let server = Server::of_clone();
    assert_eq!(server.client_named("somebody").ask("GET", PATH, "").status, 401);
    let body = stream(&[(Entry::disk(MIB), &vec![1; 1 << 20])], Position::default());
    assert_eq!(server.client_named("somebody").post(PATH, "", &body).status, 401);
    assert_eq!(server.disk(), None);
}
