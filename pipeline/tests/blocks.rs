//! Whole imports of vmdk, vdi, vhd, vhdx and OVA, by ranges and in one pass, compared with what `qemu-img` reads from them.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod common;

use std::fs;

use common::{Memory, check, gzip, run};
use contract::{ByteCount, Checksum};
use pipeline::{Error, Options, inspect};
use proptest::prelude::*;
use testkit::{BlockOptions, Fill, MIB, QemuImg, SparseDisk, block_options, ova, sparse_disk};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_image_that_qemu_img_writes_comes_out_the_same(
        disk in sparse_disk(12 * MIB),
        how in block_options(),
        memory in prop_oneof![Just(4), Just(32)],
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.blocks(&disk, &how);
        let expected = qemu.to_raw(image.path(), how.format);
        let options = Options { memory: ByteCount::mebibytes(memory), ..Options::default() };
        check(&image.bytes(), &expected, &options);
    }
}

#[test]
fn nothing_is_fetched_but_tables_and_data() {
    let Some(qemu) = QemuImg::require() else { return };
    for how in BlockOptions::each() {
        let image = qemu.blocks(&SparseDisk::new(64 * MIB).with(MIB, 9000, Fill::Pattern), &how);
        let directory = tempfile::tempdir().unwrap();
        let source = Memory::new(image.bytes(), true);
        let report = run(&source, &directory.path().join("disk.img"), &Options::default()).unwrap();
        let is_full = how.options.contains("fixed") || how.options.contains("static=on");
        // A block of a vhdx may be 8 MiB.
        assert!(is_full || report.bytes_read <= 9 * MIB, "{how:?}: {report:?}");
        assert_eq!(report.bytes_written, 12 << 10, "{how:?}");
    }
}

#[test]
fn the_footer_of_a_fixed_vhd_is_no_part_of_the_disk() {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(3 * MIB, 5);
    let how = BlockOptions::new("vpc", "subformat=fixed,force_size=on");
    let image = qemu.blocks(&disk, &how).bytes();
    assert_eq!(image.len() as u64, 3 * MIB + 512);
    let mut other = image.clone();
    other[3 << 20 | 100] ^= 1; // its checksum is wrong now: these are bytes of a disk
    let cut = image[512..].to_vec(); // its size is wrong
    for (image, expected) in [(image, disk.bytes()), (other.clone(), other), (cut.clone(), cut)] {
        for source in [
            Memory::new(image.clone(), true),
            Memory::new(image.clone(), false),
            Memory::new(gzip(&image), false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            let report = run(&source, &path, &Options::default()).unwrap();
            assert!(fs::read(&path).unwrap() == expected, "{report:?}");
            assert_eq!(report.virtual_size, expected.len() as u64);
        }
    }
}

/// A machine with one disk, and that disk.
fn machine(qemu: &QemuImg) -> Option<(Vec<u8>, Vec<u8>)> {
    let disk = SparseDisk::mixed(6 * MIB, 8);
    let how = BlockOptions::new("vmdk", "subformat=streamOptimized");
    let image = qemu.blocks(&disk, &how).bytes();
    let files: [(&str, &[u8]); 3] = [("a.mf", b"sums"), ("a.vmdk", &image), ("cd.iso", &[7; 9000])];
    Some((ova(&files)?, disk.bytes()))
}

#[test]
fn the_disk_in_an_ova_is_found_and_streamed() {
    let Some(qemu) = QemuImg::require() else { return };
    let Some((archive, disk)) = machine(&qemu) else { return };
    for (ranges, route) in [(true, "ranges"), (false, "one pass")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let source = Memory::new(archive.clone(), ranges);
        let report = run(&source, &path, &Options::default()).unwrap();
        assert!(fs::read(&path).unwrap() == disk, "{route}");
        assert_eq!((&*report.format, &*report.route), ("vmdk in ova", route));
        let inspection = inspect(&source, &Options::default()).unwrap();
        assert_eq!((&*inspection.format, &*inspection.route), ("vmdk in ova", route));
        assert_eq!(inspection.virtual_size, Some(6 * MIB));
    }
}

#[test]
fn the_checksum_of_an_ova_is_that_of_the_archive() {
    let Some(qemu) = QemuImg::require() else { return };
    let Some((archive, disk)) = machine(&qemu) else { return };
    let mut hasher = contract::Hasher::sha256();
    hasher.update(&archive);
    let checksum: Checksum = hasher.finish();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let options = Options { checksum: Some(checksum), ..Options::default() };
    let report = run(&Memory::new(archive.clone(), true), &path, &options).unwrap();
    assert!(fs::read(&path).unwrap() == disk);
    assert_eq!(report.digest, Some(checksum.to_string()));
    let wrong = run(&Memory::new([&archive[..], &[0; 512]].concat(), true), &path, &options);
    assert!(matches!(wrong, Err(Error::Checksum { .. })), "{wrong:?}");
    let unseekable = run(&Memory::new(archive, false), &path, &options);
    assert!(matches!(unseekable, Err(Error::Unsupported { .. })), "{unseekable:?}");
}

#[test]
fn an_ova_without_exactly_one_disk_is_rejected() {
    let Some(qemu) = QemuImg::require() else { return };
    let how = BlockOptions::new("vmdk", "subformat=streamOptimized");
    let image = qemu.blocks(&SparseDisk::mixed(MIB, 8), &how).bytes();
    let several = ova(&[("a.vmdk", &image), ("b.vmdk", &image)]);
    let none = ova(&[("firmware.nvram", &image)]);
    let nested = ova(&[("a.vmdk", &image)]).and_then(|inner| ova(&[("inner.img", &inner)]));
    for (archive, phrase) in [
        (&several, "several disks (a.vmdk, b.vmdk;"),
        (&none, "an OVA without a disk of a known kind"),
        (&nested, "an OVA in an OVA"),
    ] {
        let Some(archive) = archive else { return };
        for (ranges, packed) in [(true, false), (false, false), (true, true)] {
            let (archive, phrase) = if packed {
                (gzip(archive), "an OVA in a compressed stream")
            } else {
                (archive.clone(), phrase)
            };
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            let error = run(&Memory::new(archive, ranges), &path, &Options::default()).unwrap_err();
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text += &format!(": {error}");
                cause = error.source();
            }
            assert!(text.contains(phrase), "{text}");
            assert!(!path.exists());
        }
    }
}

#[test]
fn metadata_behind_the_head_is_fetched_or_searched() {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(4 * MIB, 2);
    let how = BlockOptions::new("vhdx", "block_size=1M,log_size=8M");
    let image = qemu.blocks(&disk, &how).bytes();
    check(&image, &disk.bytes(), &Options::default());
    let too_far = BlockOptions::new("vhdx", "block_size=1M,log_size=32M");
    let image = qemu.blocks(&disk, &too_far).bytes();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    run(&Memory::new(image.clone(), true), &path, &Options::default()).unwrap();
    assert!(fs::read(&path).unwrap() == disk.bytes());
    let error = run(&Memory::new(image, false), &path, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("save it in a file first"), "{error}");
}
