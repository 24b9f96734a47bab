//! Images from pipes and devices, and unreadable sources.

use std::fs::File;
use std::process::Stdio;

use testkit::{
    Image, LoopDevice, MIB, Qcow2Options, QemuImg, Running, SparseDisk, arguments, require_tool,
};
use tests::{Import, LIMIT, Target, report, wires};

#[test]
fn import_succeeds_from_a_pipe() {
    let Some(cat) = require_tool("cat") else { return };
    crate::each(wires(), |wire| {
        let (image, target) = (Image::from_bytes(&wire.bytes), Target::file());
        let mut source =
            cat.command([image.path()]).stdout(Stdio::piped()).spawn().expect("cannot run cat");
        let mut command = Import::new("-", target.path()).command();
        command.stdin(source.stdout.take().expect("it is piped"));
        report(&Running::start(&mut command).wait(LIMIT).expect_success());
        source.wait().expect("cannot wait for cat");
        target.expect(&wire.disk, wire.name);
    });
}

#[test]
fn import_succeeds_from_a_named_pipe() {
    let Some(mkfifo) = require_tool("mkfifo") else { return };
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    mkfifo.run([&fifo]);
    let disk = SparseDisk::mixed(6 * MIB, 3).bytes();
    let target = Target::file();
    let running = Import::new(&fifo, target.path()).start();
    std::fs::write(&fifo, &disk).unwrap();
    running.wait(LIMIT).expect_success();
    target.expect(&disk, "named pipe");
}

#[test]
fn import_succeeds_from_a_device() {
    let disk = SparseDisk::mixed(6 * MIB, 3).bytes();
    let Some(source) = LoopDevice::new(6 * MIB) else { return };
    source.write_at(0, &disk);
    let target = Target::file();
    Import::new(source.path(), target.path()).report();
    target.expect(&disk, "device");
}

#[test]
fn import_of_a_device_to_itself_is_refused() {
    let disk = SparseDisk::mixed(6 * MIB, 3).bytes();
    let Some(device) = LoopDevice::new(6 * MIB) else { return };
    device.write_at(0, &disk);
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    for source in [device.path(), &link] {
        let message = Import::new(source, device.path()).refusal();
        assert!(message.contains("source and target"), "{message}");
        assert!(device.bytes() == disk, "the device was touched");
    }
}

#[test]
fn file_may_be_imported_to_itself() {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(6 * MIB, 3);
    let target = Target::file();
    std::fs::write(target.path(), qemu.qcow2(&disk, &Qcow2Options::default()).bytes()).unwrap();
    Import::new(target.path(), target.path()).report();
    target.expect(&disk.bytes(), "in its own place");
}

#[test]
fn unreadable_source_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::file();
    let message = Import::new(folder.path().join("none"), target.path()).refusal();
    assert!(message.contains("none") && message.contains("No such file or directory"), "{message}");
    let message = Import::new(folder.path(), target.path()).refusal();
    assert!(message.contains("directory"), "{message}");
    let message = Import::new("s3://bucket/key", target.path()).refusal();
    assert!(message.contains("s3://"), "{message}");
    target.expect_unfinished(&[], "refused");
}

#[test]
fn offsets_beyond_four_gigabytes_are_correct() {
    let Some(qemu) = QemuImg::require() else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("large.qcow2");
    qemu.run(arguments!["create", "-q", "-f", "qcow2", image, "6G"]); // as much has to be free
    let last = (6_u64 << 30) - 65536;
    let write = format!("write -P 4 {last} 64k");
    qemu.qemu_io(&image, &["write -P 1 0 64k", "write -P 2 4095M 2M", "write -P 3 5G 1M", &write]);
    for from_stdin in [false, true] {
        let target = Target::file();
        let mut command = Import::new(&image, target.path()).command();
        if from_stdin {
            command = Import::new("-", target.path()).command();
            command.stdin(File::open(&image).unwrap());
        }
        let report = report(&Running::start(&mut command).wait(LIMIT).expect_success());
        assert_eq!(report["bytesWritten"], (3 << 20) + (2 << 16), "{report}");
        assert!(qemu.same((&image, "qcow2"), (target.path(), "raw")), "{report}");
    }
}
