//! Blocks that are allocated ahead of writes to a sparse file.

use testkit::{FileSystem, FileSystemKind};

use super::*;
use crate::buffer::Pool;

const SIZE: u64 = 160 * MIB;

/// Writes 1 MiB of ones at `at`, by a direct request.
fn write(disk: &Disk, at: u64) {
    let mut bytes = Pool::new(MIB as usize, 1).take();
    bytes.fill(1);
    disk.write_at(at, &bytes).unwrap();
}

#[track_caller]
fn assert_ones(path: &Path, at: &[u64], size: u64) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, size);
    for (number, mib) in bytes.chunks(MIB as usize).enumerate() {
        let expected = u8::from(at.contains(&(number as u64 * MIB)));
        assert!(mib.iter().all(|byte| *byte == expected), "MiB {number}");
    }
}

#[test]
fn a_window_is_allocated_at_once_and_released_where_nothing_was_written() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Ext4, 256 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    let partial = file::partial_path(&path).unwrap();
    // The last one of 32 MiB, as the disk ends there.
    for (at, expected) in [(5 * MIB, 64 * MIB), (70 * MIB, 64 * MIB), (150 * MIB, 32 * MIB)] {
        let disk = Disk::open(&path, &sparse(SIZE)).unwrap();
        write(&disk, at);
        let found = allocated(&partial);
        assert!((expected..expected + 64 * KIB).contains(&found), "{found} bytes are allocated");
        disk.finish().unwrap();
        let found = allocated(&path);
        assert!((MIB..MIB + 64 * KIB).contains(&found), "{found} bytes are allocated");
        assert_ones(&path, &[at], SIZE);
    }
}

#[test]
fn a_resumed_import_releases_what_the_killed_one_has_allocated() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Ext4, 256 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    let resume = DiskOptions { resume: true, ..sparse(SIZE) };
    let disk = Disk::open(&path, &resume).unwrap();
    write(&disk, 0);
    write(&disk, 127 * MIB);
    disk.sync().unwrap();
    drop(disk);
    assert!(allocated(&file::partial_path(&path).unwrap()) >= 128 * MIB);
    let disk = Disk::open(&path, &resume).unwrap();
    disk.finish().unwrap();
    assert!(allocated(&path) <= 2 * MIB + 64 * KIB, "{} bytes are allocated", allocated(&path));
    assert_ones(&path, &[0, 127 * MIB], SIZE);
}

#[test]
fn a_stage_of_an_import_allocates_ahead_and_releases_too() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Ext4, 256 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(SIZE)).unwrap();
    write(&disk, MIB);
    disk.finish().unwrap();
    let disk = Disk::reopen(&path, SIZE, false, "second").unwrap();
    write(&disk, 99 * MIB);
    assert!(allocated(&file::delta_path(&path, "second").unwrap()) >= 64 * MIB);
    disk.finish().unwrap();
    assert!(allocated(&path) <= 2 * MIB + 64 * KIB, "{} bytes are allocated", allocated(&path));
    assert_ones(&path, &[MIB, 99 * MIB], SIZE);
}

#[test]
fn a_disk_with_holes_larger_than_its_file_system_still_fits() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Ext4, 64 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(SIZE)).unwrap();
    let at: Vec<u64> = (0..16).map(|number| number * 10 * MIB).collect();
    for at in &at {
        write(&disk, *at);
    }
    let found = allocated(&file::partial_path(&path).unwrap());
    assert!(found <= 17 * MIB, "{found} bytes are allocated");
    disk.finish().unwrap();
    assert_ones(&path, &at, SIZE);
}

#[test]
fn space_that_others_take_meanwhile_only_ends_the_allocation_ahead() {
    let Some(file_system) = FileSystem::new(FileSystemKind::Ext4, 256 * MIB) else { return };
    let path = file_system.path().join("disk.img");
    let disk = Disk::open(&path, &sparse(SIZE)).unwrap();
    write(&disk, 0);
    file_system.fill_until(16 * MIB);
    // In two windows, by threads of which each may be the one that runs out of space.
    let at: Vec<u64> = (0..8).map(|number| 64 * MIB + number * 11 * MIB).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (disk, at) = (&disk, &at);
            scope.spawn(move || at.iter().skip(thread).step_by(4).for_each(|at| write(disk, *at)));
        }
    });
    disk.finish().unwrap();
    let at: Vec<u64> = std::iter::once(0).chain(at).collect();
    assert_ones(&path, &at, SIZE);
}
