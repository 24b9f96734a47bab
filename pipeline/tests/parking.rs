//! Images with more clusters before their tables than the disk has free: parked behind the disk, or refused without a
//! trace.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{Memory, gzip, target};
use contract::ByteCount;
use pipeline::{Error, Options, Progress, Report, Target, import};
use proptest::prelude::*;
use testkit::{
    FileSystem, FileSystemKind, LoopDevice, Qcow2Options, QemuImg, SparseDisk, arguments,
    qcow2_options, sparse_disk,
};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 6 * MIB;
const FULL: &str = "more clusters precede their tables than memory and disk can hold, and ";

/// A full disk of three clusters, and two snapshots of it with other content: 40 MiB, and the disk.
fn snapshots(qemu: &QemuImg) -> (Vec<u8>, Vec<u8>) {
    let how = Qcow2Options { cluster_bits: 21, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::new(SIZE), &how);
    for (byte, snapshot) in [(1, "one"), (2, "two")] {
        qemu.qemu_io(image.path(), &[&format!("write -P {byte} 0 6M")]);
        qemu.run(arguments!["snapshot", "-c", snapshot, image.path()]);
    }
    qemu.qemu_io(image.path(), &["write -P 3 0 6M"]);
    (image.bytes(), qemu.to_raw(image.path(), "qcow2"))
}

fn small_memory() -> Options {
    Options { memory: ByteCount::mebibytes(4), ..Options::default() }
}

/// Read once from its start, of unknown length, and never again.
fn read_once(image: &[u8], path: &Path, options: &Options) -> Result<Report, Error> {
    read_once_to(image, &target(path), options)
}

fn read_once_to(image: &[u8], target: &Target, options: &Options) -> Result<Report, Error> {
    let mut source = Memory::new(image.to_vec(), false);
    source.facts.length = None;
    import(&source, target, options, &Arc::new(Progress::default()))
}

fn needs_scratch(result: Result<Report, Error>) -> String {
    match result {
        Err(Error::NeedsScratch { because }) => because,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_takes_what_its_disk_cannot_hold_and_ends_with_the_disk() {
    let Some(qemu) = QemuImg::require() else { return };
    let (image, expected) = snapshots(&qemu);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    for preallocate in [false, true] {
        for grow_to in [None, Some(ByteCount::new(SIZE + 512)), Some(ByteCount::mebibytes(60))] {
            for image in [image.clone(), gzip(&image)] {
                let target = Target { preallocate, grow_to, ..target(&path) };
                let report = read_once_to(&image, &target, &small_memory()).unwrap();
                assert_eq!((&*report.route, report.scratch_bytes), ("one pass", 0));
                let mut whole = expected.clone();
                whole.resize(grow_to.map_or(SIZE, ByteCount::get) as usize, 0);
                assert!(fs::read(&path).unwrap() == whole, "{preallocate} {grow_to:?}");
                assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            }
        }
    }
}

#[test]
fn a_volume_without_space_behind_the_disk_requests_scratch_space_and_keeps_nothing() {
    let Some(qemu) = QemuImg::require() else { return };
    let (image, expected) = snapshots(&qemu);
    let Some(volume) = FileSystem::new(FileSystemKind::Tmpfs, SIZE + 2 * MIB) else { return };
    let path = volume.path().join("disk.img");
    let because = needs_scratch(read_once(&image, &path, &small_memory()));
    assert_eq!(because, format!("{FULL}the volume has space for 1048576 bytes behind the disk"));
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);

    // The limit of the volume counts, not that of a file system which it shares with others.
    let directory = tempfile::tempdir().unwrap();
    let shared = directory.path().join("disk.img");
    let limited = Target { available: Some(ByteCount::new(SIZE)), ..target(&shared) };
    let because = needs_scratch(read_once_to(&image, &limited, &small_memory()));
    assert_eq!(because, format!("{FULL}the volume has space for 0 bytes behind the disk"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    let options = Options { scratch: Some(directory.path().into()), ..small_memory() };
    let report = read_once(&image, &path, &options).unwrap();
    assert_eq!(report.scratch_bytes, image.len() as u64);
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn a_device_takes_what_its_disk_cannot_hold_if_it_is_larger() {
    let Some(qemu) = QemuImg::require() else { return };
    let (image, expected) = snapshots(&qemu);
    for preallocate in [false, true] {
        let larger = SIZE + 16 * MIB;
        let Some(device) = LoopDevice::filled_with(0xaa, larger) else { return };
        let target = Target { preallocate, ..target(device.path()) };
        read_once_to(&image, &target, &small_memory()).unwrap();
        let mut whole = expected.clone();
        whole.resize(larger as usize, 0);
        assert!(device.bytes() == whole, "{preallocate}");
    }
    let Some(device) = LoopDevice::filled_with(0xaa, SIZE) else { return };
    let because = needs_scratch(read_once(&image, device.path(), &small_memory()));
    assert_eq!(because, format!("{FULL}the device is exactly as large as the disk"));
    assert!(pipeline::zeroes::is_zero(&device.bytes()[..MIB as usize]), "it looks like a disk");
}

#[test]
fn an_image_of_a_quarter_of_the_memory_is_parked_there_as_a_whole() {
    let Some(qemu) = QemuImg::require() else { return };
    let (image, expected) = snapshots(&qemu);
    let Some(device) = LoopDevice::filled_with(0xaa, SIZE) else { return };
    let memory = ByteCount::new(4 * image.len() as u64);
    let options = Options { memory, ..Options::default() };
    read_once(&image, device.path(), &options).unwrap();
    assert!(device.bytes() == expected);
    needs_scratch(read_once(&image, device.path(), &small_memory()));
}

#[test]
fn an_import_that_fails_while_bytes_are_parked_behind_the_disk_leaves_nothing() {
    let Some(qemu) = QemuImg::require() else { return };
    let (image, expected) = snapshots(&qemu);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, "old").unwrap();
    for read in [100, 200, 300, 350, 380, 390, 395] {
        let source = Memory::new(image.clone(), false).failing_at(read);
        let error = common::run(&source, &path, &small_memory());
        assert!(matches!(error, Err(Error::Source { .. })), "{error:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "read {read}");
        assert_eq!(fs::read(&path).unwrap(), b"old", "read {read}");
    }
    read_once(&image, &path, &small_memory()).unwrap();
    assert!(fs::read(&path).unwrap() == expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_image_of_qemu_img_needs_scratch_space_for_its_clusters(
        disk in sparse_disk(6 * MIB),
        how in qcow2_options(),
        grow_to in prop_oneof![Just(None), (1..9_u64).prop_map(|mib| Some(ByteCount::mebibytes(mib)))],
        on_device in any::<bool>(),
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.qcow2(&disk, &how);
        let mut expected = qemu.to_raw(image.path(), "qcow2");
        expected.resize(expected.len().next_multiple_of(512), 0);
        let image = image.bytes();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        // A little more than all that could have to be parked.
        let length = (expected.len() + image.len() + (4 << 20)).next_multiple_of(512) as u64;
        let device = if on_device { LoopDevice::filled_with(0xaa, length) } else { None };
        let result = match &device {
            Some(device) => read_once(&image, device.path(), &small_memory()),
            None => read_once_to(&image, &Target { grow_to, ..target(&path) }, &small_memory()),
        };
        match result {
            Err(Error::NeedsScratch { because }) => {
                prop_assert!(!because.starts_with(FULL), "{because}");
                prop_assert!(!path.exists());
            }
            result => {
                result.unwrap();
                let whole = device.as_ref().map_or(grow_to.map_or(0, ByteCount::get), |_| length);
                expected.resize(expected.len().max(whole as usize), 0);
                let found = device.as_ref().map_or_else(|| fs::read(&path).unwrap(), LoopDevice::bytes);
                prop_assert!(found == expected, "another disk");
            }
        }
    }
}
