//! `cdi inspect`

use testkit::{FaultServer, MIB, Qcow2Options, QemuImg, SparseDisk, pattern};

use super::Bench;

#[test]
fn raw_file_is_reported_as_raw() {
    let bench = Bench::new();
    bench.write("image", pattern(MIB));
    let finished = bench.cdi(&["inspect", "image"]).expect_success();
    let found: Vec<_> =
        finished.stdout.lines().map(|line| line.split_once(':').unwrap().0).collect();
    assert_eq!(
        found,
        ["source", "wire size", "compression", "format", "virtual size", "route", "because"]
    );
    assert!(
        finished.stdout.contains("virtual size:   1 MiB (1048576 bytes)\n"),
        "{}",
        finished.stdout
    );
    assert_eq!(finished.stderr, "");
}

#[test]
fn qcow2_image_reports_its_allocated_size() {
    let Some(qemu_img) = QemuImg::require() else { return };
    let bench = Bench::new();
    let disk = SparseDisk::new(64 * MIB).with(8 * MIB, MIB, testkit::Fill::Random(1));
    let image = qemu_img.qcow2(&disk, &Qcow2Options::default());
    let server = FaultServer::in_memory(&image.bytes());
    let finished = bench.cdi(&["inspect", &server.url(), "--json"]).expect_success();
    let found: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(found["format"], "qcow2");
    assert_eq!(found["virtualSize"], 64 * MIB);
    assert_eq!(found["allocatedSize"], MIB);
    assert_eq!(found["wireSize"], image.bytes().len());
    assert_eq!(found["route"], "ranges");
    assert!(server.body_bytes_sent() < MIB, "only tables are fetched");
}

#[test]
fn image_that_an_import_would_refuse_is_not_an_error() {
    let bench = Bench::new();
    bench.write("image", [b"QFI\xfb\0\0\0\x01".as_slice(), &[0; 1024]].concat());
    let finished = bench.cdi(&["inspect", "image"]).expect_success();
    assert!(finished.stdout.contains("route:          refused\n"), "{}", finished.stdout);
}
