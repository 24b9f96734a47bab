//! Clones to another volume of the same pod.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use cloner::{Error, Progress, SourceVolume, copy};
use contract::clone::VolumeMode;
use testkit::{FileSystem, FileSystemKind, Fill, LoopDevice, SparseDisk};

const MIB: u64 = 1 << 20;

fn disk(len: u64) -> SparseDisk {
    SparseDisk::new(len)
        .with(0, 5000, Fill::Text(1))
        .with(3 * MIB + 4096, MIB, Fill::Random(2))
        .with(len - 1000, 1000, Fill::Pattern)
}

fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

fn fill(directory: &Path, disk: &SparseDisk) {
    disk.write_to(&directory.join("disk.img"));
    std::fs::set_permissions(directory.join("disk.img"), PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::create_dir(directory.join("locked")).unwrap();
    std::fs::write(directory.join("locked/file"), b"content").unwrap();
    std::fs::hard_link(directory.join("locked/file"), directory.join("twin")).unwrap();
    symlink("/etc/passwd", directory.join("link")).unwrap();
    std::fs::set_permissions(directory.join("locked"), PermissionsExt::from_mode(0o500)).unwrap();
}

fn check(source: &Path, target: &Path, disk: &SparseDisk, preallocate: bool) {
    let progress = Progress::default();
    let volume = SourceVolume::open(source, VolumeMode::Filesystem).unwrap();
    // Twice: the second finds what the first has left.
    for _ in 0..2 {
        copy(&volume, target, VolumeMode::Filesystem, preallocate, &progress).unwrap();
        let copied = target.join("disk.img");
        assert!(std::fs::read(&copied).unwrap() == disk.bytes());
        assert_eq!(copied.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(preallocate, allocated(&copied) >= disk.len());
        assert_eq!(std::fs::read(target.join("twin")).unwrap(), b"content");
        let number = |name: &str| target.join(name).metadata().unwrap().ino();
        assert_eq!(number("twin"), number("locked/file"));
        assert_eq!(target.join("locked").metadata().unwrap().permissions().mode() & 0o777, 0o500);
        assert_eq!(std::fs::read_link(target.join("link")).unwrap(), Path::new("/etc/passwd"));
        let names = std::fs::read_dir(target).unwrap().count();
        assert_eq!(names, 4 + usize::from(target.join("lost+found").exists()));
    }
    assert_eq!(progress.value(), Some(100.0));
}

#[test]
fn tree_is_copied_sparse_or_preallocated() {
    let disk = disk(24 * MIB);
    for preallocate in [false, true] {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(source.path(), &disk);
        check(source.path(), target.path(), &disk, preallocate);
    }
}

#[test]
fn tree_is_copied_to_another_file_system() {
    for kind in [FileSystemKind::Ext4, FileSystemKind::Tmpfs] {
        let Some(other) = FileSystem::new(kind, 96 * MIB) else { return };
        // The larger one is copied as a disk.
        for disk in [disk(8 * MIB), disk(24 * MIB + 77)] {
            let directory = tempfile::tempdir().unwrap();
            fill(directory.path(), &disk);
            check(directory.path(), other.path(), &disk, false);
        }
    }
}

#[test]
fn files_of_one_file_system_are_reflinked() {
    for kind in [FileSystemKind::Xfs, FileSystemKind::Btrfs] {
        let Some(volume) = FileSystem::new(kind, 320 * MIB) else { return };
        let (source, target) = (volume.path().join("source"), volume.path().join("target"));
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&target).unwrap();
        // More than the file system could hold as a copy.
        let disk = SparseDisk::new(96 * MIB).with(0, 80 * MIB, Fill::Random(1));
        fill(&source, &disk);
        for copy_number in 0..3 {
            let target = target.join(copy_number.to_string());
            std::fs::create_dir(&target).unwrap();
            check(&source, &target, &disk, false);
        }
    }
}

#[test]
fn disk_is_copied_between_devices_and_files() {
    let disk = disk(6 * MIB);
    let Some(source) = LoopDevice::new(disk.len()) else { return };
    let Some(target) = LoopDevice::filled_with(0xaa, 8 * MIB) else { return };
    source.write_at(0, &disk.bytes());
    let expected = |target: &LoopDevice| {
        let bytes = target.bytes();
        assert!(bytes[..disk.len() as usize] == disk.bytes());
        assert!(bytes[disk.len() as usize..].iter().all(|byte| *byte == 0), "old data shows");
    };
    let device = SourceVolume::open(source.path(), VolumeMode::Block).unwrap();
    copy(&device, target.path(), VolumeMode::Block, false, &Progress::default()).unwrap();
    expected(&target);

    let directory = tempfile::tempdir().unwrap();
    copy(&device, directory.path(), VolumeMode::Filesystem, false, &Progress::default()).unwrap();
    let file = directory.path().join("disk.img");
    assert!(std::fs::read(&file).unwrap() == disk.bytes());
    assert!(allocated(&file) < 3 * MIB);

    let Some(other) = LoopDevice::filled_with(0x55, 8 * MIB) else { return };
    let tree = SourceVolume::open(directory.path(), VolumeMode::Filesystem).unwrap();
    copy(&tree, other.path(), VolumeMode::Block, false, &Progress::default()).unwrap();
    expected(&other);
}

#[test]
fn disk_that_does_not_fit_leaves_no_file() {
    let Some(small) = FileSystem::new(FileSystemKind::Tmpfs, 4 * MIB) else { return };
    let directory = tempfile::tempdir().unwrap();
    SparseDisk::new(8 * MIB)
        .with(0, 8 * MIB, Fill::Random(1))
        .write_to(&directory.path().join("disk.img"));
    let tree = SourceVolume::open(directory.path(), VolumeMode::Filesystem).unwrap();
    let error =
        copy(&tree, small.path(), VolumeMode::Filesystem, false, &Progress::default()).unwrap_err();
    assert!(matches!(error, Error::Target { .. }), "{error}");
    assert_eq!(std::fs::read_dir(small.path()).unwrap().count(), 0);
    let empty = tempfile::tempdir().unwrap();
    let nothing = SourceVolume::open(empty.path(), VolumeMode::Filesystem).unwrap();
    let Some(device) = LoopDevice::new(MIB) else { return };
    assert!(copy(&nothing, device.path(), VolumeMode::Block, false, &Progress::default()).is_err());
}
