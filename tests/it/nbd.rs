//! Disks that NBD servers export, through the whole program.

use testkit::disk::Fill;
use testkit::{Image, MIB, NbdServer, Qcow2Options, QemuImg, SparseDisk};
use tests::{Import, Target, report};

fn disk() -> SparseDisk {
    SparseDisk::mixed(64 * MIB, 11).with(20 * MIB, 30 * MIB, Fill::Byte(0))
}

#[test]
fn nbd_export_is_imported_without_its_holes() {
    let Some(qemu) = QemuImg::require() else { return };
    let image = qemu.qcow2(&disk(), &Qcow2Options::default());
    let Some(server) = NbdServer::qemu(image.path(), "qcow2") else { return };
    for target in [Some(Target::file()), Target::device(64 * MIB)].into_iter().flatten() {
        let report = report(&Import::new(server.uri(), target.path()).run().expect_success());
        assert!(report["bytesRead"].as_u64().unwrap() < 40 * MIB, "{report}");
        assert_eq!(report["route"], "ranges");
        target.expect(&disk().bytes(), "nbd");
    }
}

#[test]
fn nbd_error_names_the_export_and_a_remedy() {
    let image = Image::from_bytes(&[1; 4096]);
    let file = image.path().to_str().expect("a temporary file has a simple name").to_owned();
    let Some(server) = NbdServer::nbdkit(&["file", &file]) else { return };
    let target = Target::file();
    let secure = server.uri().replace("nbd+unix", "nbds+unix");
    let message = Import::new(secure, target.path()).run().expect_refusal();
    assert!(message.contains("use nbd:// instead of nbds://"), "{message}");
    let message = Import::new("nbd://127.0.0.1:1/x", target.path()).run().expect_refusal();
    assert!(
        message.contains("nbd://127.0.0.1:1/x") && message.contains("cannot connect"),
        "{message}"
    );
    assert!(!target.path().exists());
}
