//! `cdi import`

use std::process::Stdio;
use std::time::{Duration, Instant};

use contract::Hasher;
use testkit::process::run;
use testkit::{
    Compressor, Fault, FaultServer, FileSystem, FileSystemKind, Fill, LoopDevice, MIB, QemuImg,
    Running, SparseDisk, compress, pattern,
};

use super::{Bench, LIMIT};

fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::sha256();
    hasher.update(bytes);
    hasher.finish().to_string()
}

#[test]
fn import_of_a_file_leaves_only_the_disk() {
    let bench = Bench::new();
    let disk = pattern(3 * MIB);
    bench.write("image", &disk);
    let finished = bench.cdi(&["import", "image", "--to", "disk.img"]).expect_success();
    assert_eq!(std::fs::read(bench.path("disk.img")).unwrap(), disk);
    assert_eq!(bench.files(), ["disk.img", "image"]);
    assert!(
        finished.stdout.starts_with(
            "disk.img is complete: 3 MiB from raw; 3 MiB read, 3 MiB of data written, in "
        ),
        "{}",
        finished.stdout
    );
    assert_eq!(finished.stdout.lines().count(), 1);
    assert!(finished.stderr.starts_with("Connecting\n"), "{}", finished.stderr);
    assert!(!finished.stderr.contains('\r'), "no bar in a log");
}

#[test]
fn json_prints_one_object_only() {
    let bench = Bench::new();
    let disk = pattern(MIB);
    bench.write("image", &disk);
    let finished =
        bench.cdi(&["import", "image", "--to", "disk.img", "--json", "--digest"]).expect_success();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["format"], "raw");
    assert_eq!(report["compression"], serde_json::json!([]));
    assert_eq!(report["virtualSize"], MIB);
    assert_eq!(report["bytesRead"], MIB);
    assert_eq!(report["bytesWritten"], MIB);
    assert_eq!(report["zeroBytes"], 0);
    assert_eq!(report["scratchBytes"], 0);
    assert_eq!(report["resumedAt"], 0);
    assert_eq!(report["digest"], sha256(&disk));
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(finished.stderr, "");
}

#[test]
fn quiet_prints_only_errors() {
    let bench = Bench::new();
    bench.write("image", pattern(MIB));
    let finished = bench.cdi(&["import", "image", "--to", "disk.img", "-q"]).expect_success();
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("", ""));
    let message = bench.cdi(&["import", "other", "--to", "disk.img", "-q"]).expect_refusal();
    assert_eq!(
        message,
        "error: cannot import other to disk.img\n  \
         because: cannot open other\n  \
         because: No such file or directory (os error 2)\n"
    );
}

#[test]
fn stdin_is_a_source() {
    let bench = Bench::new();
    let disk = pattern(2 * MIB);
    let Some(image) = compress(Compressor::GZIP, &disk) else { return };
    let input = std::fs::File::open(bench.write("image", &image)).unwrap();
    let mut command = bench.command(&["import", "-", "--to", "disk.img"]);
    let finished = run(command.stdin(Stdio::from(input)), LIMIT).expect_success();
    assert!(finished.stdout.contains("2 MiB from raw in gzip"), "{}", finished.stdout);
    assert_eq!(std::fs::read(bench.path("disk.img")).unwrap(), disk);
}

#[test]
fn disk_grows_to_the_requested_size_and_never_shrinks() {
    let bench = Bench::new();
    bench.write("image", pattern(3 * MIB));
    for (size, expected) in [("10Mi", 10 * MIB), ("1Mi", 3 * MIB)] {
        bench.cdi(&["import", "image", "--to", "disk.img", "--size", size]).expect_success();
        assert_eq!(std::fs::metadata(bench.path("disk.img")).unwrap().len(), expected, "{size}");
    }
}

#[test]
fn wrong_checksum_keeps_the_old_disk() {
    let bench = Bench::new();
    let image = pattern(MIB);
    bench.write("image", &image);
    bench.write("old.img", "old");
    let wrong = format!("sha256:{}", "0".repeat(64));
    for target in ["disk.img", "old.img"] {
        let message =
            bench.cdi(&["import", "image", "--to", target, "--checksum", &wrong]).expect_refusal();
        let expected = format!(
            "because: checksum validation failed: checksum mismatch: expected {wrong}, calculated {}",
            sha256(&image)
        );
        assert!(message.contains(&expected), "{message}");
    }
    assert_eq!(std::fs::read(bench.path("old.img")).unwrap(), b"old");
    assert_eq!(bench.files(), ["image", "old.img"]);
    bench
        .cdi(&["import", "image", "--to", "disk.img", "--checksum", &sha256(&image).to_uppercase()])
        .expect_success();
}

#[test]
fn qcow2_image_is_imported_over_http_by_ranges() {
    let Some(qemu_img) = QemuImg::require() else { return };
    let bench = Bench::new();
    let disk = testkit::SparseDisk::mixed(8 * MIB, 1);
    let image = qemu_img.qcow2(&disk, &testkit::Qcow2Options::default());
    let server = FaultServer::in_memory(&image.bytes());
    let finished =
        bench.cdi(&["import", &server.url(), "--to", "disk.img", "--json"]).expect_success();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((&report["format"], &report["route"]), (&"qcow2".into(), &"ranges".into()));
    assert!(std::fs::read(bench.path("disk.img")).unwrap() == disk.bytes());
}

#[test]
fn killed_import_resumes_unless_no_resume_is_set() {
    let disk = pattern(32 * MIB);
    for (extra, resumes) in [(None, true), (Some("--no-resume"), false)] {
        let bench = Bench::new();
        let server = FaultServer::in_memory(&disk).always(Fault::StallAt(24 * MIB));
        let url = server.url();
        let arguments = [
            "import",
            &url,
            "--to",
            "disk.img",
            "--json",
            "--checkpoint-every",
            "0s",
            "--connections",
            "2",
        ];
        let running = Running::start(&mut bench.command(&arguments));
        let deadline = Instant::now() + LIMIT;
        while !bench.files().iter().any(|name| name.ends_with("journal")) {
            assert!(Instant::now() < deadline, "no journal");
            std::thread::sleep(Duration::from_millis(5));
        }
        running.kill();
        assert!(!bench.path("disk.img").exists(), "a half-written disk has no name");
        server.heal();
        let again = [&arguments[..], extra.as_slice()].concat();
        let finished = bench.cdi(&again).expect_success();
        let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        assert_eq!(report["resumedAt"].as_u64().unwrap() > 0, resumes, "{report}");
        assert!(std::fs::read(bench.path("disk.img")).unwrap() == disk);
        assert_eq!(bench.files(), ["disk.img"]);
    }
}

#[test]
fn password_is_used_and_not_shown() {
    let bench = Bench::new();
    let disk = pattern(MIB);
    let server =
        FaultServer::in_memory(&disk).always(Fault::BasicAuth("anna".into(), "hush".into()));
    let file = bench.write("password", "hush\n");
    let url = server.url();
    let arguments = ["-vv", "import", &url, "--to", "disk.img", "--user", "anna"];
    let message = bench.cdi(&arguments).expect_refusal();
    assert!(message.contains("set CDI_PASSWORD or --password-file"), "{message}");
    let from_environment =
        run(bench.command(&arguments).env("CDI_PASSWORD", "hush"), LIMIT).expect_success();
    let from_file = [&arguments[..], &["--password-file", file.to_str().unwrap()]].concat();
    let from_file = bench.cdi(&from_file).expect_success();
    let wrong = run(bench.command(&arguments).env("CDI_PASSWORD", "hush!"), LIMIT);
    for finished in [from_environment, from_file, wrong.clone()] {
        assert!(!finished.stderr.contains("hush") && !finished.stdout.contains("hush"));
    }
    let message = wrong.expect_refusal();
    assert!(
        message.contains("expected status code 200, got 401. Status: 401 Unauthorized"),
        "{message}"
    );
}

#[test]
fn headers_and_cas_are_used() {
    let bench = Bench::new();
    let disk = pattern(MIB);
    let server = FaultServer::in_memory(&disk)
        .tls()
        .always(Fault::RequireHeader("X-Token".into(), "hush".into()));
    bench.write("ca.pem", server.ca_pem());
    bench.write("headers", "X-Token: hush\n");
    let url = server.url();
    let message = bench.cdi(&["import", &url, "--to", "disk.img"]).expect_refusal();
    assert!(message.contains("cannot verify the certificate"), "{message}");
    let trusted = ["import", &url, "--to", "disk.img", "--ca", "ca.pem"];
    let message = bench.cdi(&trusted).expect_refusal();
    assert!(message.contains("expected status code 200, got 403"), "{message}");
    bench.cdi(&[&trusted[..], &["--header-file", "headers"]].concat()).expect_success();
    let insecure = ["import", &url, "--to", "disk.img", "--insecure", "--header", "X-Token: hush"];
    bench.cdi(&insecure).expect_success();
}

#[test]
fn thin_image_larger_than_the_free_space_is_imported() {
    let (Some(qemu_img), Some(small)) =
        (QemuImg::require(), FileSystem::new(FileSystemKind::Tmpfs, 32 * MIB))
    else {
        return;
    };
    let bench = Bench::new();
    let disk = SparseDisk::new(1024 * MIB).with(5 * MIB, 4 * MIB, Fill::Pattern);
    bench.write("image.qcow2", qemu_img.qcow2(&disk, &testkit::Qcow2Options::default()).bytes());
    let target = small.path().join("disk.img");
    let arguments = ["import", "image.qcow2", "--to", target.to_str().unwrap()];
    let finished = bench.cdi(&arguments).expect_success();
    assert!(!finished.stderr.contains("warning"), "its data fits: {}", finished.stderr);
    assert_eq!(std::fs::metadata(&target).unwrap().len(), 1024 * MIB);
}

#[test]
fn full_file_system_fails_the_import_after_a_warning() {
    let Some(small) = FileSystem::new(FileSystemKind::Tmpfs, 16 * MIB) else { return };
    let bench = Bench::new();
    bench.write("image", pattern(48 * MIB));
    let target = small.path().join("disk.img");
    let arguments = ["import", "image", "--to", target.to_str().unwrap()];
    let message = bench.cdi(&arguments).expect_refusal();
    let name = target.display();
    for words in [
        format!("warning: {name} may not fit: its disk "),
        format!("because: the file system of {name} is full ("),
        "because: no space left on device".to_owned(),
    ] {
        assert!(message.contains(&words), "{words}: {message}");
    }
    assert!(!message.contains("PVC"), "{message}");
    assert!(!target.exists());
}

#[test]
fn too_small_device_is_reported_as_a_device() {
    let Some(device) = LoopDevice::new(MIB) else { return };
    let bench = Bench::new();
    bench.write("image", pattern(2 * MIB));
    let path = device.path().to_str().unwrap();
    let message = bench.cdi(&["import", "image", "--to", path, "-q"]).expect_refusal();
    let words =
        format!("the disk needs 2 MiB, the device {path} has 1 MiB: choose a larger device");
    assert!(message.contains(&words), "{message}");
    assert!(!message.contains("PVC"), "{message}");
}

#[test]
fn archive_is_refused_unless_the_format_is_raw() {
    let bench = Bench::new();
    let zip = [&b"PK\x03\x04"[..], &pattern(MIB)[4..]].concat();
    bench.write("disk.img.zip", &zip);
    let arguments = ["import", "disk.img.zip", "--to", "disk.img"];
    let message = bench.cdi(&arguments).expect_refusal();
    let words = "because: the image is a zip archive, which is not supported: extract the disk image from it first";
    assert!(message.contains(words), "{message}");
    assert_eq!(bench.files(), ["disk.img.zip"]);
    bench.cdi(&[&arguments[..], &["--format", "raw"]].concat()).expect_success();
    assert!(std::fs::read(bench.path("disk.img")).unwrap() == zip);
}

#[test]
fn bzip2_and_lz4_images_are_decompressed() {
    let bench = Bench::new();
    let disk = pattern(3 * MIB);
    for how in [Compressor::BZIP2, Compressor::LZ4] {
        let Some(image) = compress(how, &disk) else { continue };
        bench.write("image", &image);
        let finished = bench.cdi(&["import", "image", "--to", "disk.img"]).expect_success();
        let words = format!("3 MiB from raw in {}", how.program);
        assert!(finished.stdout.contains(&words), "{}", finished.stdout);
        assert!(std::fs::read(bench.path("disk.img")).unwrap() == disk);
    }
}

#[test]
fn target_that_cannot_be_created_is_named() {
    let bench = Bench::new();
    bench.write("image", pattern(MIB));
    let arguments = ["import", "image", "--to", "no/such/disk.img", "-q"];
    let message = bench.cdi(&arguments).expect_refusal();
    let expected = "error: cannot import image to no/such/disk.img\n  because: ";
    assert!(message.starts_with(expected), "{message}");
}
