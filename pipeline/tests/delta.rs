//! Stages of an import onto what the stage before has left: only changes are written, and nothing half-changed looks
//! finished.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod common;

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use common::{Memory, gzip, run, target};
use contract::ByteCount;
use pipeline::{Delta, Error, Extent, ExtentKind, Options, Progress, Target, import};
use testkit::disk::Fill;
use testkit::{Image, LoopDevice, QemuImg, SparseDisk, arguments, pattern};

const MIB: u64 = 1 << 20;
const LEN: u64 = 24 * MIB;

fn stage(name: &str, backing: Option<&str>) -> Options {
    let delta = Delta { stage: name.into(), backing: backing.map(Into::into) };
    Options { delta: Some(delta), ..Options::default() }
}

fn extent(range: Range<u64>, kind: ExtentKind) -> Extent {
    Extent { range, kind }
}

/// What has changed: some data, some zeroes; all else in the source is not to be examined.
fn changes() -> (Memory, Vec<Extent>) {
    use ExtentKind::{Data, Unchanged, Zero};
    let extents = vec![
        extent(0..MIB, Unchanged),
        extent(MIB..3 * MIB, Data),
        extent(3 * MIB..3 * MIB + 512, Zero),
        extent(3 * MIB + 512..17 * MIB, Unchanged),
        extent(17 * MIB..19 * MIB, Zero),
        extent(19 * MIB..LEN - 512, Unchanged),
        extent(LEN - 512..LEN, Data),
    ];
    let mut bytes = vec![0x77; LEN as usize]; // also in the unchanged extents
    bytes[3 * MIB as usize..][..512].fill(0);
    let mut source = Memory::new(bytes, true);
    source.extents = extents.clone();
    (source, extents)
}

fn before() -> Vec<u8> {
    pattern(LEN)
}

fn after() -> Vec<u8> {
    let mut disk = before();
    for Extent { range, kind } in changes().1 {
        let part = &mut disk[range.start as usize..range.end as usize];
        match kind {
            ExtentKind::Data => part.fill(0x77),
            ExtentKind::Zero => part.fill(0),
            ExtentKind::Unchanged => {}
        }
    }
    disk
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn only_what_has_changed_is_written_and_nothing_is_cut() {
    for longer in [0, 3 * MIB] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let tail = vec![9; longer as usize];
        fs::write(&path, [before(), tail.clone()].concat()).unwrap();
        let report = run(&changes().0, &path, &stage("one to two", None)).unwrap();
        assert_eq!((report.bytes_written, report.zero_bytes), (2 * MIB + 512, 2 * MIB + 512));
        assert!(report.bytes_read < 3 * MIB, "{report:?}");
        assert!(fs::read(&path).unwrap() == [after(), tail].concat(), "the disks differ");
        assert_eq!(names(directory.path()), ["disk.img"]);
    }
}

#[test]
fn target_grows_with_the_source_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, &before()[..20 * MIB as usize]).unwrap();
    run(&changes().0, &path, &stage("one to two", None)).unwrap();
    let mut expected = after();
    expected[20 * MIB as usize..LEN as usize - 512].fill(0);
    assert!(fs::read(&path).unwrap() == expected, "the disks differ");
}

#[test]
fn failed_stage_leaves_no_finished_disk_and_can_be_repeated() {
    for fails_at in (0..).step_by(7) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, before()).unwrap();
        let failed = run(&changes().0.failing_at(fails_at), &path, &stage("a", None));
        if failed.is_ok() {
            assert!(fails_at > 10, "it never failed");
            break;
        }
        if path.exists() {
            // It failed at the first look, before anything was changed.
            assert!(fs::read(&path).unwrap() == before(), "read {fails_at}: it was changed");
        } else {
            let error = run(&changes().0, &path, &stage("b", None)).unwrap_err();
            let text = format!("{:?}", error);
            assert!(text.contains("another stage"), "{text}");
        }
        // There may be no space for a second disk: none is needed.
        let full = Target { available: Some(ByteCount::new(0)), ..target(&path) };
        import(&changes().0, &full, &stage("a", None), &Arc::default()).unwrap();
        assert!(fs::read(&path).unwrap() == after(), "read {fails_at}: the disks differ");
        assert_eq!(names(directory.path()), ["disk.img"], "read {fails_at}");
    }
}

#[test]
fn restarting_removes_the_leftovers_of_a_failed_stage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, before()).unwrap();
    let reads_of_the_look = 3;
    run(&changes().0.failing_at(reads_of_the_look + 2), &path, &stage("a", None)).unwrap_err();
    assert!(!path.exists());
    run(&Memory::new(before(), true), &path, &Options::default()).unwrap();
    assert_eq!(names(directory.path()), ["disk.img"]);
    assert!(fs::read(&path).unwrap() == before());
}

#[test]
fn without_the_stage_before_there_is_nothing_to_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let error = run(&changes().0, &path, &stage("a", None)).unwrap_err();
    assert!(matches!(error, Error::Target { what: "change", .. }), "{error:?}");
    assert!(names(directory.path()).is_empty());
    let error = run(&changes().0, &path, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("a list of changes without the disk"), "{error}");
    fs::write(&path, before()).unwrap();
    let in_order = run(&Memory::new(gzip(&before()), true), &path, &stage("a", None)).unwrap_err();
    assert!(in_order.to_string().contains("a delta that is read in one go"), "{in_order}");
    assert!(fs::read(&path).unwrap() == before(), "a refusal costs nothing");
}

#[test]
fn extents_that_contradict_each_other_are_refused() {
    use ExtentKind::Data;
    let table = [
        vec![extent(5..LEN, Data)],
        vec![extent(0..MIB, Data), extent(2 * MIB..LEN, Data)],
        vec![extent(0..MIB, Data), extent(0..LEN, Data)],
        vec![extent(0..LEN + 1, Data)],
        vec![extent(0..MIB, Data)],
        vec![extent(0..0, Data)],
    ];
    for extents in table {
        let mut source = Memory::new(before(), true);
        source.extents = extents.clone();
        let directory = tempfile::tempdir().unwrap();
        let error =
            run(&source, &directory.path().join("disk.img"), &Options::default()).unwrap_err();
        let text = format!("{error:?}");
        assert!(text.contains("makes no sense"), "{extents:?}: {text}");
    }
}

#[test]
fn a_device_keeps_what_has_not_changed() {
    let Some(device) = LoopDevice::filled_with(3, LEN + MIB) else { return };
    let progress = Arc::new(Progress::default());
    let onto = |source: &Memory, options: &Options| {
        import(source, &target(device.path()), options, &progress).unwrap()
    };
    onto(&Memory::new(before(), true), &Options::default());
    let tail = device.bytes()[LEN as usize..].to_vec();
    onto(&changes().0, &stage("a", None));
    assert!(device.bytes() == [after(), tail].concat(), "the disks differ");
}

/// An overlay on a disk, with every kind of cluster that an overlay can have, and the disk seen through it.
fn overlay(qemu: &QemuImg, directory: &Path, how: &str) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let base = directory.join("checkpoint-1");
    SparseDisk::new(LEN).with(0, LEN, Fill::Pattern).write_to(&base);
    let overlay = directory.join("overlay.qcow2");
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-o", how, "-b"];
    let create = create.map(std::ffi::OsString::from).into_iter();
    qemu.run(create.chain(arguments![&base, &overlay]));
    let changes = [
        "write -P 0x11 0 64k",
        "write -P 0x22 1M 3M",
        "write -z 5M 1M",
        "write -z -u 7M 64k",
        "write -P 0x33 9000 7",
        "write -z 10M 4k",
        "discard 12M 2M",
        "write -P 0x44 25165312 512",
        "write -P 0 20M 1M",
    ];
    qemu.qemu_io(&overlay, &changes);
    let seen = qemu.to_raw(&overlay, "qcow2");
    (fs::read(&base).unwrap(), fs::read(&overlay).unwrap(), seen)
}

#[test]
fn a_qcow2_with_a_backing_file_changes_what_it_holds_and_zeroes_what_it_calls_zero() {
    let Some(qemu) = QemuImg::require() else { return };
    for how in ["cluster_size=64k", "cluster_size=512", "compat=0.10", "extended_l2=on"] {
        let directory = tempfile::tempdir().unwrap();
        let (base, overlay, seen) = overlay(&qemu, directory.path(), how);
        let path = directory.path().join("disk.img");
        fs::write(&path, base).unwrap();
        let source = Memory::new(overlay, true);
        let report = run(&source, &path, &stage("1 to 2", Some("checkpoint-1"))).unwrap();
        assert!(fs::read(&path).unwrap() == seen, "{how}: the disks differ");
        assert!(report.bytes_written < 12 * MIB, "{how}: {report:?}");
    }
}

#[test]
fn formats_without_zero_entries_are_rejected_before_a_write() {
    let Some(qemu) = QemuImg::require() else { return };
    let base = Image::from_bytes(&before());
    for format in ["vmdk", "vdi", "vpc", "vhdx"] {
        let image = qemu.convert(base.path(), "raw", format, &[] as &[&str]).bytes();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, before()).unwrap();
        for backing in [None, Some("checkpoint-1")] {
            let source = Memory::new(image.clone(), true);
            let error = run(&source, &path, &stage("a", backing)).unwrap_err().to_string();
            assert!(error.contains("a delta in a "), "{format}: {error}");
            assert!(fs::read(&path).unwrap() == before(), "{format}: it was changed");
        }
    }
}

#[test]
fn a_footer_of_a_guest_s_own_stays() {
    let Some(qemu) = QemuImg::require() else { return };
    let base = Image::from_bytes(&before());
    let fixed = ["-o", "subformat=fixed,force_size=on"];
    let disk = qemu.convert(base.path(), "raw", "vpc", &fixed).bytes();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let mut source = Memory::new(disk.clone(), true);
    source.is_disk = true;
    run(&source, &path, &Options::default()).unwrap();
    assert!(fs::read(&path).unwrap() == disk, "the disks differ");
}

#[test]
fn a_qcow2_on_another_base_is_refused_before_anything_is_touched() {
    let Some(qemu) = QemuImg::require() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (base, overlay, _) = overlay(&qemu, directory.path(), "cluster_size=64k");
    let alone = Image::from_bytes(&base);
    let alone = qemu.convert(alone.path(), "raw", "qcow2", &[] as &[&str]).bytes();
    let path = directory.path().join("disk.img");
    fs::write(&path, &base).unwrap();
    for (image, options, expected) in [
        (&overlay, stage("a", Some("checkpoint-2")), "and not since checkpoint-2"),
        (&overlay, stage("a", None), "invalid backing file"),
        (&overlay, Options::default(), "invalid backing file"),
        (&alone, stage("a", Some("checkpoint-1")), "since no image, and not since checkpoint-1"),
    ] {
        let error = run(&Memory::new(image.clone(), true), &path, &options).unwrap_err();
        let text = std::error::Error::source(&error).unwrap().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(fs::read(&path).unwrap() == base, "{expected}: it was changed");
    }
}
