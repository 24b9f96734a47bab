//! Whole imports of qcow2 images, by ranges and in one pass, compared with what `qemu-img` reads from them.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod common;

use std::fs;
use std::time::Duration;

use common::{Memory, check, run};
use contract::ByteCount;
use pipeline::{Error, Options};
use proptest::prelude::*;
use testkit::{Change, Fill, Qcow2Options, QemuImg, SparseDisk, qcow2_options, sparse_disk};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_image_that_qemu_img_writes_comes_out_the_same(
        disk in sparse_disk(12 << 20),
        how in qcow2_options(),
        memory in prop_oneof![Just(4), Just(32)],
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.qcow2(&disk, &how);
        let mut expected = qemu.to_raw(image.path(), "qcow2");
        expected.resize(expected.len().next_multiple_of(512), 0);
        let options = Options { memory: ByteCount::mebibytes(memory), ..Options::default() };
        check(&image.bytes(), &expected, &options);
    }
}

#[test]
fn a_killed_import_by_ranges_is_resumed() {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(96 << 20, 7);
    let image = qemu.qcow2(&disk, &Qcow2Options::default()).bytes();
    let options = Options { checkpoint_every: Duration::ZERO, ..Options::default() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let reads = image.len() / 100_000;
    let mut source = Memory::new(image.clone(), true).failing_at(reads - 50);
    source.facts.streams_max = 2; // the more there are, the less each of them has done
    let error = run(&source, &path, &options);
    assert!(matches!(error, Err(Error::Source { .. })), "{error:?}");
    assert!(!path.exists());
    let report = run(&Memory::new(image, true), &path, &options).unwrap();
    assert!(report.resumed_at > 0, "{report:?}");
    assert!(fs::read(&path).unwrap() == disk.bytes());
}

#[test]
fn without_scratch_an_image_in_an_impossible_order_is_refused_with_the_reason() {
    let Some(qemu) = QemuImg::require() else { return };
    // A full disk leaves no free clusters to park in, and its table comes last: it was resized.
    let image = tables_last(&qemu);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let options = Options { memory: ByteCount::mebibytes(4), ..Options::default() };
    match run(&Memory::new(image.clone(), false), &path, &options) {
        Err(Error::NeedsScratch { because }) => assert!(!because.is_empty()),
        Ok(report) => assert_eq!(report.scratch_bytes, 0, "it fitted into the target after all"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn bytes_of_a_failed_pass_are_not_counted() {
    let Some(qemu) = QemuImg::require() else { return };
    let history = vec![
        Change::Snapshot,
        Change::Write { at: 870, len: 21, byte: 235 },
        Change::Grow(71),
        Change::Discard { at: 999, len: 100 },
        Change::Write { at: 113, len: 82, byte: 232 },
    ];
    let how = Qcow2Options {
        cluster_bits: 10,
        compressed: true,
        zstd: true,
        refcount_bits: 64,
        out_of_order: true,
        history,
        ..Qcow2Options::default()
    };
    let disk = SparseDisk::new(4080128)
        .with(1835008, 2 << 20, Fill::Byte(85))
        .with(682718, 534371, Fill::Random(1))
        .with(1311078, 103111, Fill::Text(2))
        .with(712704, 45056, Fill::Text(3))
        .with(1310720, 327680, Fill::Byte(154))
        .with(15115, 911517, Fill::Pattern);
    let image = qemu.qcow2(&disk, &how);
    let options = Options { memory: ByteCount::mebibytes(4), ..Options::default() };
    check(&image.bytes(), &qemu.to_raw(image.path(), "qcow2"), &options);
}

/// An image whose L1 table was moved behind 24 MiB of data.
fn tables_last(qemu: &QemuImg) -> Vec<u8> {
    let raw = testkit::Image::from_bytes(&testkit::pattern(24 << 20));
    let image = qemu.convert(raw.path(), "raw", "qcow2", &["-o", "cluster_size=512"]);
    let path = image.path().as_os_str().to_owned();
    qemu.run(["resize".into(), path, "4G".into()]);
    image.bytes()
}
