//! Clones between our own two pods: only what is data, and nothing twice.

use std::time::Duration;

use clonestream::extents::{DATA_MAX, Entry, EntryKind, Packer, Preamble, Writer};
use clonestream::offer::{HEADER, Identity, Offer, PATH, Position};
use testkit::{LoopDevice, MIB, SparseDisk, pattern};
use uploadserver::{Completed, End};

use crate::server::Server;

const CLONED: End = End::Complete(Completed { cloned: true, preallocated: false });
const SOURCE: Identity = Identity([7; 16]);

/// What a source sends of its entries, from `begin` on.
fn stream(entries: &[(Entry, &[u8])], begin: Position) -> Vec<u8> {
    let preamble = Preamble { identity: SOURCE, begin };
    let mut writer = Writer::begin(Vec::new(), &preamble).unwrap();
    let mut packer = Packer::new().unwrap();
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

fn on_device(device: &LoopDevice) -> Server {
    let path = device.path().to_owned();
    Server::with(|settings| settings.destination = path)
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
    let server = Server::with(|settings| {
        settings.destination = path;
        settings.patience = Duration::from_millis(300);
    });
    let mut disk = vec![0; 8 << 20];
    disk[..2 << 20].copy_from_slice(&pattern(2 * MIB));
    disk[5 << 20..6 << 20].copy_from_slice(&pattern(MIB));
    let entries = [(Entry::disk(8 * MIB), &*disk)];
    let whole = stream(&entries, Position::default());
    let mut begin = Position::default();
    for part in 0..2 {
        let body = stream(&entries, begin);
        let mut connection = server.client().connect();
        let head = format!("POST {PATH} HTTP/1.1\r\nHost: l\r\nTransfer-Encoding: chunked\r\n\r\n");
        connection.send(head.as_bytes());
        let sent = &body[..body.len() / 2];
        connection.send(format!("{:x}\r\n", sent.len()).as_bytes());
        connection.send(sent);
        connection.send(b"\r\n");
        // And then nothing, until the server has had enough.
        assert_eq!(connection.answer().status, 500);
        let (identity, position) = offered(&server).durable.unwrap();
        assert_eq!(identity, SOURCE);
        assert!(position > begin, "{part}: {position:?}");
        begin = position;
    }
    assert_eq!(offered(&server).begin_for(Identity([8; 16])), Position::default());
    let body = stream(&entries, begin);
    assert!(body.len() < whole.len() / 2, "{} of {}", body.len(), whole.len());
    assert_eq!(server.client().post(PATH, "", &body).status, 200);
    assert_eq!(server.end(), CLONED);
    assert!(device.bytes() == disk);
}

#[test]
fn the_disk_among_files_is_what_a_device_gets() {
    let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
    let disk = SparseDisk::mixed(6 * MIB, 5).bytes();
    let file = |path: &str, size: u64| Entry {
        path: path.as_bytes().to_vec(),
        kind: EntryKind::Regular,
        size,
        mode: 0o660,
        modified: (0, 0),
    };
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
    let disk = SparseDisk::mixed(4 * MIB, 6).bytes();
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
fn a_file_and_a_stranger_are_offered_nothing() {
    let server = Server::start();
    assert_eq!(server.client().ask("GET", PATH, "").status, 404);
    let disk = vec![1; 1 << 20];
    let body = stream(&[(Entry::disk(MIB), &disk)], Position::default());
    assert_eq!(server.client().post(PATH, "", &body).status, 404);
    assert_eq!(server.client_named("somebody").ask("GET", PATH, "").status, 401);
    assert_eq!(server.disk(), None);
}
