//! Disks in files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use tempfile::tempdir;
use testkit::{FileSystem, FileSystemKind};

use super::*;

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_has_its_name_only_when_it_is_finished() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, "old").unwrap();
    let disk = Disk::open(&path, &sparse(MIB)).unwrap();
    disk.write_at(0, b"new").unwrap();
    disk.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), [".disk.img.cdi-partial", "disk.img"]);
    disk.finish().unwrap();
    assert_eq!(names(directory.path()), ["disk.img"]);
    let facts = fs::metadata(&path).unwrap();
    assert_eq!((facts.len(), facts.permissions().mode() & 0o7777), (MIB, 0o660));
    assert_eq!(fs::read(&path).unwrap()[..4], *b"new\0");
}

#[test]
fn unwritten_ranges_are_not_allocated() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(64 * MIB)).unwrap();
    assert!(disk.starts_zeroed());
    disk.write_at(5 * MIB, &[1; 4096]).unwrap();
    disk.write_at(8 * MIB, &vec![2; MIB as usize]).unwrap();
    disk.zero_at(8 * MIB, MIB).unwrap();
    disk.finish().unwrap();
    let facts = fs::metadata(&path).unwrap();
    assert_eq!(facts.len(), 64 * MIB);
    assert!(allocated(&path) <= 64 * KIB, "{} bytes are allocated", allocated(&path));
}

#[test]
fn a_preallocated_file_stays_allocated() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let disk = Disk::open(&path, &DiskOptions { preallocate: true, ..sparse(8 * MIB) }).unwrap();
    assert!(disk.starts_zeroed());
    disk.write_at(MIB, &vec![2; 2 * MIB as usize]).unwrap();
    disk.zero_at(MIB + 100, MIB).unwrap();
    disk.finish().unwrap();
    let bytes = fs::read(&path).unwrap();
    let data = [MIB..MIB + 100, 2 * MIB + 100..3 * MIB];
    for (at, &byte) in (0..).zip(&bytes) {
        let expected = if data.iter().any(|range| range.contains(&at)) { 2 } else { 0 };
        assert_eq!(byte, expected, "byte {at}");
    }
    assert!(allocated(&path) >= 8 * MIB);
}

#[test]
fn a_dropped_disk_is_resumed() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let resume = DiskOptions { resume: true, ..sparse(MIB) };

    let disk = Disk::open(&path, &resume).unwrap();
    disk.write_at(7, b"kept").unwrap();
    let identity = disk.partial_identity();
    drop(disk);

    let disk = Disk::open(&path, &resume).unwrap();
    assert_eq!(disk.partial_identity(), identity);
    let mut read = [0; 4];
    disk.read_at(7, &mut read).unwrap();
    assert_eq!(&read, b"kept");
    drop(disk);

    for afresh in [sparse(MIB), DiskOptions { size: 2 * MIB, ..resume }] {
        let disk = Disk::open(&path, &afresh).unwrap();
        assert_ne!(disk.partial_identity(), identity);
        disk.read_at(7, &mut read).unwrap();
        assert_eq!(read, [0; 4]);
    }
}

#[test]
fn an_identity_survives_a_journal() {
    let directory = tempdir().unwrap();
    let disk = Disk::open(&directory.path().join("disk.img"), &sparse(MIB)).unwrap();
    let identity = disk.partial_identity();
    let written = serde_json::to_string(&identity).unwrap();
    assert_eq!(serde_json::from_str::<Identity>(&written).unwrap(), identity);
}

#[test]
fn an_abandoned_file_is_removed() {
    let directory = tempdir().unwrap();
    let disk = Disk::open(&directory.path().join("disk.img"), &sparse(MIB)).unwrap();
    disk.abandon().unwrap();
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_second_import_into_one_file_is_rejected() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(MIB)).unwrap();
    for resume in [false, true] {
        let second = Disk::open(&path, &DiskOptions { resume, ..sparse(MIB) });
        assert_message(second, &["another import is writing it"]);
    }
    disk.finish().unwrap();
    drop(Disk::open(&path, &sparse(MIB)).unwrap());
}

#[test]
fn a_file_that_was_replaced_meanwhile_is_not_called_finished() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(MIB)).unwrap();
    let partial = directory.path().join(".disk.img.cdi-partial");
    fs::remove_file(&partial).unwrap();
    fs::write(&partial, "something else").unwrap();
    assert_message(disk.finish(), &["removed or replaced"]);
    assert!(!path.exists());
}

#[test]
fn only_files_and_block_devices_are_targets() {
    let directory = tempdir().unwrap();
    let link = directory.path().join("link");
    symlink(directory.path(), &link).unwrap();
    assert_message(Disk::open(directory.path(), &sparse(0)), &["it is a directory"]);
    assert_message(Disk::open(&link, &sparse(0)), &["it is a directory", "link"]);
    assert_message(Disk::open(Path::new("/dev/null"), &sparse(0)), &["neither", "/dev/null"]);
    assert_message(Disk::open(Path::new("/"), &sparse(0)), &["it is a directory"]);
    let nowhere = directory.path().join("none/disk.img");
    assert_message(Disk::open(&nowhere, &sparse(0)), &["create", "none", "No such file"]);
}

#[test]
fn a_link_is_replaced_and_its_target_kept() {
    let directory = tempdir().unwrap();
    let (secret, path) = (directory.path().join("secret"), directory.path().join("disk.img"));
    fs::write(&secret, "untouched").unwrap();
    symlink(&secret, &path).unwrap();
    Disk::open(&path, &sparse(512)).unwrap().finish().unwrap();
    assert_eq!(fs::read(&secret).unwrap(), b"untouched");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());

    // The same for the place of the unfinished file.
    symlink(&secret, directory.path().join(".disk.img.cdi-partial")).unwrap();
    assert!(Disk::open(&path, &sparse(512)).is_err());
    assert_eq!(fs::read(&secret).unwrap(), b"untouched");
}

#[test]
fn nothing_reaches_over_the_end() {
    let directory = tempdir().unwrap();
    let disk = Disk::open(&directory.path().join("disk.img"), &sparse(1000)).unwrap();
    disk.write_at(990, &[1; 10]).unwrap();
    disk.zero_at(1000, 0).unwrap();
    assert_message(disk.read_at(991, &mut [0; 10]), &["10 bytes at 991", "1000 bytes"]);
    assert!(disk.write_at(991, &[1; 10]).is_err());
    assert!(disk.zero_at(u64::MAX, 2).is_err());
    assert_message(disk.finish(), &["an earlier write"]);
}

#[test]
fn bytes_parked_behind_the_disk_are_cut_off_before_the_file_has_its_name() {
    const SIZE: u64 = MIB + 512;
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    for features in EVERY_WAY {
        for preallocate in [false, true] {
            let options = DiskOptions { preallocate, ..sparse(SIZE) };
            let disk = Disk::open_with(&path, &options, features).unwrap();
            assert!(disk.park_at(SIZE, b"x").is_err(), "space was not requested");
            drop(disk);

            let disk = Disk::open_with(&path, &options, features).unwrap();
            let space = disk.parking_space(u64::MAX).range;
            assert!(space.end >= 4 * MIB, "{space:?}");
            let parked: Vec<u8> = (0..2 * MIB).map(|at| (at % 251) as u8 + 1).collect();
            disk.park_at(KIB, &parked).unwrap(); // across the end
            let mut read = vec![0; parked.len()];
            disk.read_parked_at(KIB, &mut read).unwrap();
            assert!(read == parked);
            assert!(disk.write_at(SIZE - 1, b"xy").is_err(), "only parked bytes may be there");
            drop(disk);

            let resume = DiskOptions { resume: true, ..options };
            let disk = Disk::open_with(&path, &resume, features).unwrap();
            disk.read_at(0, &mut read[..SIZE as usize]).unwrap();
            assert!(
                crate::zeroes::is_zero(&read[..SIZE as usize]),
                "what was longer is not resumed"
            );
            disk.parking_space(u64::MAX);
            disk.park_at(KIB, &parked).unwrap();
            disk.clear_parked_at(KIB, MIB).unwrap(); // across the end, and only a part
            disk.write_at(0, b"data").unwrap();
            disk.finish().unwrap();
            let mut expected = vec![0; SIZE as usize];
            expected[..4].copy_from_slice(b"data");
            assert!(fs::read(&path).unwrap() == expected, "{features:?} {preallocate}");
            let found = allocated(&path);
            assert!(found <= SIZE + 64 * KIB, "{found} bytes are still allocated");
        }
    }
}

#[test]
fn the_space_behind_the_disk_is_half_of_what_the_whole_disk_leaves_free() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Tmpfs, 16 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    for preallocate in [false, true] {
        let disk = Disk::open(&path, &DiskOptions { preallocate, ..sparse(10 * MIB) }).unwrap();
        let space = |file_max| disk.parking_space(file_max).range;
        assert_eq!(space(u64::MAX), 0..13 * MIB, "{preallocate}");
        assert_eq!(space(11 * MIB), 0..11 * MIB, "{preallocate}");
        assert_eq!(space(MIB), 0..10 * MIB, "{preallocate}");
    }
    let disk = Disk::open(&path, &sparse(17 * MIB)).unwrap();
    assert_eq!(disk.parking_space(u64::MAX).range, 0..17 * MIB, "the disk has holes");
}

#[test]
fn parking_behind_the_disk_fails_when_others_have_used_the_space() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Tmpfs, 16 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(4 * MIB)).unwrap();
    assert_eq!(disk.parking_space(u64::MAX).range.end, 10 * MIB);
    fs::write(file_system.path().join("other"), vec![1; 14 * MIB as usize]).unwrap();
    let error = disk.park_at(4 * MIB, &vec![2; 4 * MIB as usize]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(disk.finish().is_err());
    assert!(!path.exists());
}

#[test]
fn disks_of_every_odd_size_can_be_created() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("disk.img");
    for size in [0, 1, 511, 512, 4095, 4096, 4097, 100_000, 300_001] {
        for features in EVERY_WAY {
            let expected: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + 1).collect();
            let disk = Disk::open_with(&path, &sparse(size), features).unwrap();
            disk.write_at(0, &expected).unwrap();
            disk.finish().unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{size} {features:?}");
        }
    }
}

#[test]
fn a_full_file_system_is_reported_with_the_text_of_controllers() {
    const CAPACITY: u64 = 16 * MIB;
    for kind in [FileSystemKind::Ext4, FileSystemKind::Tmpfs] {
        let Some(file_system) = FileSystem::new(kind, CAPACITY) else { return };
        let path = file_system.path().join("disk.img");
        for features in EVERY_WAY {
            let disk = Disk::open_with(&path, &sparse(2 * CAPACITY), features).unwrap();
            let piece = vec![1; MIB as usize];
            let mut pieces = (0..2 * CAPACITY).step_by(piece.len());
            let failed = pieces.find_map(|at| disk.write_at(at, &piece).err());
            assert_message(Err::<(), _>(failed.unwrap()), &["no space left on device"]);
            assert_message(disk.sync(), &["an earlier write"]);
            assert_message(disk.finish(), &["an earlier write"]);
            assert!(!path.exists(), "{kind:?}");

            let preallocated = DiskOptions { preallocate: true, ..sparse(2 * CAPACITY) };
            let disk = Disk::open_with(&path, &preallocated, features);
            assert_message(disk, &["preallocate", "no space left on device"]);
            assert!(!partial_exists(&path), "{kind:?}: what did fit is still there");
        }
    }
}

fn partial_exists(path: &Path) -> bool {
    file::partial_path(path).unwrap().exists()
}

#[test]
fn a_read_only_file_system_is_reported() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Tmpfs, MIB) else { return };
    file_system.make_read_only();
    let disk = Disk::open(&file_system.path().join("disk.img"), &sparse(MIB));
    assert_message(disk, &["create", "disk.img", "Read-only file system"]);
}

#[test]
fn what_an_unfinished_import_occupies_is_available_to_the_next() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Tmpfs, 16 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    assert_eq!(available(&path).unwrap(), 16 * MIB);
    let disk = Disk::open(&path, &sparse(10 * MIB)).unwrap();
    disk.write_at(0, &vec![1; 4 * MIB as usize]).unwrap();
    drop(disk);
    assert_eq!(available(&path).unwrap(), 16 * MIB);
    Disk::open(&path, &sparse(10 * MIB)).unwrap().abandon().unwrap();
    assert!(available(Path::new("no/such/folder/disk.img")).is_err());
}

/// The kernel reports a failure once: to the thread that writes, while another one sees no error.
#[test]
fn sync_waits_for_calls_that_may_report_a_lost_write() {
    let directory = tempdir().unwrap();
    let disk = Disk::open(&directory.path().join("disk.img"), &sparse(MIB)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let failed = disk.record_failure(|| {
            let (sender, disk) = (sender.clone(), &disk);
            scope.spawn(move || sender.send(disk.sync()));
            // However long it takes: it ends after this.
            assert!(receiver.recv_timeout(Duration::from_millis(200)).is_err());
            Err::<(), _>(io::Error::other("lost"))
        });
        assert_message(failed, &["lost"]);
        assert_message(receiver.recv().unwrap(), &["an earlier write"]);
    });
}
