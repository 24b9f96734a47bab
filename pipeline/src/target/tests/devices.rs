//! Disks on block devices full of old data.

use std::os::unix::fs::symlink;

use tempfile::tempdir;
use testkit::{FileSystem, LoopDevice, require_tool};

use super::*;
use crate::sys;
use crate::testing::GARBAGE;

const SIZE: u64 = 5 * MIB + 512;
const LENGTH: u64 = 8 * MIB;

/// What fills the device's first bytes while an import is not finished: nothing but the mark.
#[track_caller]
fn assert_looks_unfinished(device: &LoopDevice) {
    let head = &device.bytes()[..MIB as usize];
    assert!(crate::zeroes::is_zero(&head[..head.len() - 4096]));
}

/// Zeroes all that has to be zeroed on a target that is not zeroed itself.
fn clean(disk: &Disk) {
    if !disk.starts_zeroed() {
        disk.zero_at(0, disk.size()).unwrap();
    }
}

fn is_fast(features: IoFeatures) -> bool {
    features.unmap.is_some_and(|limits| limits.rest_max > Duration::ZERO)
}

#[test]
fn old_bytes_never_show_through() {
    for (features, preallocate) in
        EVERY_WAY.into_iter().flat_map(|features| [(features, false), (features, true)])
    {
        let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
        let options = DiskOptions { preallocate, ..sparse(SIZE) };
        let disk = Disk::open_with(device.path(), &options, features).unwrap();
        assert_eq!(
            disk.starts_zeroed(),
            is_fast(features) && !preallocate,
            "{features:?} {preallocate}"
        );
        clean(&disk);
        disk.write_at(10, b"first").unwrap();
        disk.write_at(3 * MIB - 1, &vec![7; MIB as usize]).unwrap();
        disk.write_at(SIZE - 4, b"last").unwrap();
        disk.finish().unwrap();

        let mut expected = vec![0; LENGTH as usize];
        expected[10..15].copy_from_slice(b"first");
        expected[3 * MIB as usize - 1..][..MIB as usize].fill(7);
        expected[SIZE as usize - 4..][..4].copy_from_slice(b"last");
        assert!(device.bytes() == expected, "{features:?} {preallocate}");
    }
}

#[test]
fn a_new_device_that_unmaps_slowly_is_not_written_where_it_is_zero() {
    let features = IoFeatures { direct: true, unmap: SLOW };
    let Some(device) = LoopDevice::new(64 * MIB) else { return };
    let disk = Disk::open_with(device.path(), &sparse(64 * MIB), features).unwrap();
    assert!(!disk.starts_zeroed());
    disk.zero_at(0, 32 * MIB).unwrap();
    disk.write_at(32 * MIB, &vec![7; MIB as usize]).unwrap();
    disk.zero_at(33 * MIB, 31 * MIB).unwrap();
    disk.finish().unwrap();
    let mut expected = vec![0; 64 * MIB as usize];
    expected[32 * MIB as usize..][..MIB as usize].fill(7);
    assert!(device.bytes() == expected);
    let backing = device.detach();
    assert!(allocated(backing.path()) < 4 * MIB, "the head and the data");
}

#[test]
fn a_loop_device_can_discard_and_is_left_as_it_is() {
    let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
    assert!(sys::can_discard(&device::open(device.path()).unwrap()));
    assert!(device.bytes().iter().all(|&byte| byte == GARBAGE));
}

#[test]
fn bytes_parked_behind_the_disk_are_zeroed_in_the_end() {
    for (features, size) in
        EVERY_WAY.into_iter().flat_map(|features| [(features, SIZE), (features, 5000)])
    {
        let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
        let disk = Disk::open_with(device.path(), &sparse(size), features).unwrap();
        clean(&disk);
        let space = disk.parking_space(0).range;
        assert_eq!(space, MIB..LENGTH, "never where the first bytes of a disk are");
        let at = space.start.max(size);
        let parked = vec![7; (LENGTH - at) as usize];
        disk.park_at(at, &parked).unwrap();
        let mut read = vec![0; parked.len()];
        disk.read_parked_at(at, &mut read).unwrap();
        assert!(read == parked);
        assert_looks_unfinished(&device);
        assert!(disk.park_at(LENGTH, b"x").is_err());
        disk.clear_parked_at(at, 600_000).unwrap();
        // A call that was refused must not count as a failed write in this test of what remains.
        drop(disk);

        let disk = Disk::open_with(device.path(), &sparse(size), features).unwrap();
        clean(&disk);
        disk.parking_space(0);
        disk.park_at(at, &parked).unwrap();
        disk.write_at(size - 1, b"!").unwrap();
        disk.finish().unwrap();
        let mut expected = vec![0; LENGTH as usize];
        expected[size as usize - 1] = b'!';
        assert!(device.bytes() == expected, "{features:?} {size}");
    }
}

#[test]
fn a_device_as_large_as_its_disk_has_no_space_to_park_in() {
    let Some(device) = LoopDevice::new(LENGTH) else { return };
    let disk = Disk::open(device.path(), &sparse(LENGTH)).unwrap();
    let space = disk.parking_space(u64::MAX);
    assert_eq!(space.range.end, LENGTH);
    assert_eq!(space.limited_by, "the device is exactly as large as the disk");
    drop(disk);
    let disk = Disk::open(device.path(), &sparse(LENGTH - 512)).unwrap();
    let space = disk.parking_space(u64::MAX);
    assert_eq!(space.limited_by, "the device ends 512 bytes behind the disk");
}

#[test]
fn first_bytes_are_written_last() {
    let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
    let disk = Disk::open(device.path(), &sparse(SIZE)).unwrap();
    assert_eq!(disk.held_back(), MIB);
    assert_looks_unfinished(&device);
    let bytes: Vec<u8> = (0..2 * MIB).map(|at| (at % 251) as u8 + 1).collect();
    disk.write_at(0, &bytes).unwrap();
    disk.zero_at(MIB - 100, 200).unwrap();
    disk.sync().unwrap();
    assert_looks_unfinished(&device);

    let mut expected = bytes.clone();
    expected[MIB as usize - 100..][..200].fill(0);
    let mut read = vec![0; expected.len()];
    disk.read_at(0, &mut read).unwrap();
    assert!(read == expected, "what is held back has to be read from memory");
    disk.finish().unwrap();
    assert!(device.bytes()[..expected.len()] == expected);
}

#[test]
fn a_dropped_disk_is_resumed_without_its_first_bytes() {
    for features in EVERY_WAY {
        let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
        let disk = Disk::open_with(device.path(), &sparse(SIZE), features).unwrap();
        let (identity, starts_zeroed) = (disk.partial_identity(), disk.starts_zeroed());
        clean(&disk);
        disk.write_at(0, b"lost").unwrap();
        disk.write_at(MIB, b"kept").unwrap();
        disk.sync().unwrap();
        drop(disk);
        assert_looks_unfinished(&device);

        let resume = DiskOptions { resume: true, ..sparse(SIZE) };
        let disk = Disk::open_with(device.path(), &resume, features).unwrap();
        assert_eq!((disk.partial_identity(), disk.starts_zeroed()), (identity, starts_zeroed));
        disk.write_at(100, b"again").unwrap();
        disk.finish().unwrap();
        let mut expected = vec![0; LENGTH as usize];
        expected[100..105].copy_from_slice(b"again");
        expected[MIB as usize..][..4].copy_from_slice(b"kept");
        assert!(device.bytes() == expected, "{features:?}");

        let disk = Disk::open_with(device.path(), &resume, features).unwrap();
        assert_ne!(disk.partial_identity(), identity, "it was finished");
    }
}

#[test]
fn a_disk_of_another_size_is_not_resumed() {
    let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
    let identity = Disk::open(device.path(), &sparse(SIZE)).unwrap().partial_identity();
    let options = DiskOptions { resume: true, ..sparse(SIZE + 512) };
    let disk = Disk::open(device.path(), &options).unwrap();
    assert_ne!(disk.partial_identity().mark, identity.mark);
}

#[test]
fn an_abandoned_device_cannot_be_resumed() {
    let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
    let disk = Disk::open(device.path(), &sparse(SIZE)).unwrap();
    let identity = disk.partial_identity();
    disk.write_at(0, b"boot").unwrap();
    disk.abandon().unwrap();
    assert!(crate::zeroes::is_zero(&device.bytes()[..MIB as usize]));
    let resume = DiskOptions { resume: true, ..sparse(SIZE) };
    assert_ne!(Disk::open(device.path(), &resume).unwrap().partial_identity(), identity);
}

#[test]
fn small_disks_and_small_devices_are_complete_too() {
    for (length, size) in [(512, 512), (4096, 1), (3 * MIB, 5000), (MIB, MIB), (LENGTH, MIB + 1)] {
        for features in EVERY_WAY {
            let Some(device) = LoopDevice::filled_with(GARBAGE, length) else { return };
            let disk = Disk::open_with(device.path(), &sparse(size), features).unwrap();
            clean(&disk);
            disk.write_at(size - 1, b"!").unwrap();
            disk.finish().unwrap();
            let mut expected = vec![0; length as usize];
            expected[size as usize - 1] = b'!';
            assert!(device.bytes() == expected, "{size} on {length} {features:?}");
        }
    }
}

#[test]
fn a_device_one_byte_too_small_is_left_alone() {
    let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
    let disk = Disk::open(device.path(), &sparse(LENGTH + 1));
    assert_message(disk, &["8388609", "is larger than the reported available", "8388608"]);
    assert!(device.bytes().iter().all(|&byte| byte == GARBAGE));
    assert_eq!(available(device.path()).unwrap(), LENGTH);
}

#[test]
fn a_device_in_use_is_refused() {
    let Some(device) = LoopDevice::new(16 * MIB) else { return };
    let disk = Disk::open(device.path(), &sparse(LENGTH)).unwrap();
    assert_message(Disk::open(device.path(), &sparse(LENGTH)), &["it is in use"]);
    drop(disk);
    let Some(mkfs) = require_tool("mkfs.ext4") else { return };
    mkfs.run(["-q".as_ref(), "-F".as_ref(), device.path().as_os_str()]);
    let Some(_mounted) = FileSystem::of_device(device.path()) else { return };
    assert_message(Disk::open(device.path(), &sparse(LENGTH)), &["it is in use: mounted"]);
}

#[test]
fn a_read_only_device_is_refused() {
    let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return };
    let Some(blockdev) = require_tool("blockdev") else { return };
    blockdev.run(["--setro".as_ref(), device.path().as_os_str()]);
    let disk = Disk::open(device.path(), &sparse(SIZE));
    // Before anything can fail: the next user of the device would find it so.
    blockdev.run(["--setrw".as_ref(), device.path().as_os_str()]);
    assert_message(disk, &[&device.path().display().to_string(), "it is read-only"]);
    assert!(device.bytes().iter().all(|&byte| byte == GARBAGE));
}

#[test]
fn a_link_to_a_device_is_followed() {
    let Some(device) = LoopDevice::new(LENGTH) else { return };
    let directory = tempdir().unwrap();
    let link = directory.path().join("disk");
    symlink(device.path(), &link).unwrap();
    let disk = Disk::open(&link, &sparse(SIZE)).unwrap();
    disk.write_at(0, b"here").unwrap();
    disk.finish().unwrap();
    assert_eq!(device.bytes()[..4], *b"here");
}
