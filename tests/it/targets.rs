//! Targets: full of old data, too small, full, read-only, mounted, existing.

use std::os::unix::fs::MetadataExt;

use testkit::{
    FaultServer, FileSystem, FileSystemKind, Fill, Image, KIB, MIB, Qcow2Options, QemuImg,
    SparseDisk, require_tool,
};
use tests::{Import, Target, wires};

/// Whether `cdi import` reports that the device or the file system is too small.
fn reports_too_small(message: &str) -> bool {
    message.contains("choose a larger device")
        || message.to_lowercase().contains("no space left on device")
}

#[test]
fn old_data_is_not_readable_in_gaps_or_behind_the_disk() {
    // Holes of all sizes: whole units, clusters, pages, sectors.
    let disk = SparseDisk::new(40 * MIB)
        .with(0, 512, Fill::Pattern)
        .with(MIB + 512, 100, Fill::Pattern)
        .with(3 * MIB, 4 * KIB, Fill::Byte(0))
        .with(20 * MIB, 3 * MIB + 700, Fill::Random(3))
        .with(40 * MIB - 512, 512, Fill::Pattern);
    let raw = Image::from_bytes(&disk.bytes());
    let mut images = vec![(raw, "raw")];
    if let Some(qemu) = QemuImg::require() {
        images.push((qemu.qcow2(&disk, &Qcow2Options::default()), "qcow2"));
    }
    for (image, case) in &images {
        for (len, from_stdin) in [(40 * MIB, false), (64 * MIB, false), (64 * MIB + 512, true)] {
            let Some(target) = Target::device(len) else { return };
            let import = if from_stdin {
                Import::from_stdin(image.path(), target.path())
            } else {
                Import::new(image.path(), target.path())
            };
            import.report();
            target.expect(&disk.bytes(), &format!("{case} to a device of {len}"));
        }
    }
}

#[test]
fn target_too_small_by_one_byte_is_refused_before_the_download() {
    for wire in wires().iter().filter(|wire| ["raw", "qcow2", "qcow2 -c"].contains(&wire.name)) {
        let server = FaultServer::in_memory(&wire.bytes);
        // A device is counted in sectors: one too few.
        let Some(target) = Target::device(wire.disk.len() as u64 - 512) else { return };
        let message = Import::new(server.url(), target.path()).refusal();
        assert!(reports_too_small(&message), "{}: {message}", wire.name);
        assert_eq!(server.requests().len(), 1, "{}: {:?}", wire.name, server.requests());
        assert!(server.body_bytes_sent() <= MIB, "{}: {}", wire.name, server.body_bytes_sent());
        target.expect(&vec![0xaa; wire.disk.len() - 512], wire.name);

        let Some(exact) = Target::device(wire.disk.len() as u64) else { return };
        Import::new(server.url(), exact.path()).report();
        exact.expect(&wire.disk, wire.name);
    }
    // One byte more than fits is a sector more than fits.
    let image = Image::from_bytes(&SparseDisk::mixed(2 * MIB + 1, 1).bytes());
    let Some(target) = Target::device(2 * MIB) else { return };
    assert!(reports_too_small(&Import::new(image.path(), target.path()).refusal()));
}

#[test]
fn compressed_disk_that_proves_too_large_is_refused() {
    crate::each(wires(), |wire| {
        let image = Image::from_bytes(&wire.bytes);
        let Some(target) = Target::device(wire.disk.len() as u64 / 2 / 512 * 512) else { return };
        let message = Import::new(image.path(), target.path()).refusal();
        assert!(reports_too_small(&message), "{}: {message}", wire.name);
        target.expect_unfinished(&wire.disk, wire.name);
    });
}

#[test]
fn full_file_system_fails_the_import_and_leaves_nothing() {
    let disk = SparseDisk::new(24 * MIB).with(0, 24 * MIB, Fill::Random(8)).bytes();
    for kind in [FileSystemKind::Ext4, FileSystemKind::Tmpfs] {
        let Some(file_system) = FileSystem::new(kind, 16 * MIB) else { return };
        let Some(wire) = testkit::compress(testkit::Compressor::ZSTD, &disk) else { return };
        let image = Image::from_bytes(&wire);
        let target = file_system.path().join("disk.img");
        let message = Import::new(image.path(), &target).refusal();
        assert!(reports_too_small(&message), "{kind:?}: {message}");
        assert!(!target.exists(), "{kind:?}");
        let left: u64 = std::fs::read_dir(file_system.path())
            .expect("cannot list")
            .map(|entry| {
                entry.expect("cannot list").metadata().expect("cannot look").blocks() * 512
            })
            .sum();
        assert!(left < MIB, "{kind:?}: {left} bytes are left behind");
    }
}

#[test]
fn unwritable_directory_is_named() {
    let image = Image::from_bytes(&SparseDisk::mixed(MIB, 1).bytes());
    let Some(file_system) = FileSystem::new(FileSystemKind::Ext4, 8 * MIB) else { return };
    file_system.make_read_only();
    let target = file_system.path().join("disk.img");
    let message = Import::new(image.path(), &target).refusal();
    assert!(message.contains("Read-only file system") && message.contains("disk.img"), "{message}");
    let nowhere = Target::file().folder().join("no/such/folder/disk.img");
    let message = Import::new(image.path(), &nowhere).refusal();
    assert!(message.contains("No such file or directory"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let message = Import::new(image.path(), folder.path()).refusal();
    assert!(
        message.to_lowercase().contains("directory") || message.contains("folder"),
        "{message}"
    );
}

#[test]
fn device_in_use_is_refused() {
    let Some(device) = testkit::LoopDevice::new(16 * MIB) else { return };
    let tools = require_tool("mkfs.ext4").zip(require_tool("e2fsck"));
    let Some((mkfs, fsck)) = tools else { return };
    mkfs.run(testkit::arguments!["-q", "-F", device.path()]);
    let image = Image::from_bytes(&SparseDisk::mixed(MIB, 1).bytes());
    let mounted = FileSystem::of_device(device.path());
    let message = Import::new(image.path(), device.path()).refusal();
    assert!(
        message.contains("busy") || message.contains("in use") || message.contains("mounted"),
        "{message}"
    );
    drop(mounted);
    // Mounting itself changes some bytes; an import would have begun with the superblock.
    fsck.run(testkit::arguments!["-fn", device.path()]);
    Import::new(image.path(), device.path()).report();
}

#[test]
fn existing_file_is_replaced_only_by_a_complete_disk() {
    let disk = SparseDisk::mixed(4 * MIB, 1).bytes();
    let target = Target::file();
    std::fs::write(target.path(), b"the disk of yesterday").expect("cannot write");
    let broken = Image::from_bytes(b"QFI\xfb\0\0\0\x03 and then nothing");
    Import::new(broken.path(), target.path()).refusal();
    assert_eq!(std::fs::read(target.path()).expect("cannot read"), b"the disk of yesterday");
    Import::new(Image::from_bytes(&disk).path(), target.path()).report();
    target.expect(&disk, "replaced");
}

#[test]
fn zeroes_become_holes_unless_preallocated() {
    let disk = SparseDisk::new(64 * MIB).with(10 * MIB, MIB, Fill::Random(2));
    let image = Image::from_bytes(&disk.bytes());
    let sparse = Target::file();
    let report = Import::new(image.path(), sparse.path()).report();
    sparse.expect(&disk.bytes(), "sparse");
    assert_eq!(report["bytesWritten"], MIB, "the data and nothing more: {report}");
    assert!(allocated(&sparse) <= 2 * MIB, "{}", allocated(&sparse));

    let whole = Target::file();
    Import::new(image.path(), whole.path()).flag("--preallocate").report();
    whole.expect(&disk.bytes(), "preallocated");
    assert!(allocated(&whole) >= 64 * MIB, "{}", allocated(&whole));

    let grown = Target::file();
    Import::new(image.path(), grown.path()).option("--size", "100Mi").report();
    let mut longer = disk.bytes();
    longer.resize(100 << 20, 0);
    grown.expect(&longer, "grown");
}

#[test]
fn partial_last_sector_is_padded() {
    for len in [0_u64, 1, 511, 512, 513, 4095, 4097, MIB - 1, MIB + 1] {
        let disk = testkit::pattern(len);
        let image = Image::from_bytes(&disk);
        for from_stdin in [false, true] {
            let target = Target::file();
            let import = if from_stdin {
                Import::from_stdin(image.path(), target.path())
            } else {
                Import::new(image.path(), target.path())
            };
            let finished = import.run();
            if len == 0 && !finished.success() {
                continue; // an empty image may as well be called a mistake
            }
            finished.expect_success();
            target.expect(&disk, &format!("{len} bytes"));
        }
        let Some(device) = Target::device(2 * MIB) else { continue };
        if len > 0 {
            Import::new(image.path(), device.path()).report();
            device.expect(&disk, &format!("{len} bytes to a device"));
        }
    }
}

fn allocated(target: &Target) -> u64 {
    std::fs::metadata(target.path()).expect("cannot look").blocks() * 512
}
