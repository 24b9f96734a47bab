//! `cdi-importer` with the environment of upstream CDI's controllers: volume, termination message and log
//! of successful imports.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::Value;
use testkit::{Compressor, Fault, FaultServer, LoopDevice, MIB, Qcow2Options, QemuImg, SparseDisk};
use testkit::{compress, in_own_network, pattern};
use tests::Pod;

const COMPLETE: &str =
    r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"message":"Import Complete"}"#;

/// 100 MiB less the overhead of 6 %: 100 / 1.06 = 94.3.
const USABLE: u64 = 94 * MIB;

#[track_caller]
fn expect_disk(pod: &Pod, disk: &[u8], len: u64) {
    let path = pod.path("data/disk.img");
    let facts = std::fs::metadata(&path).expect("there is no disk");
    assert_eq!(facts.len(), len);
    assert_eq!(facts.permissions().mode() & 0o7777, 0o660);
    assert_eq!((facts.uid(), facts.gid()), (107, 107));
    let found = std::fs::read(&path).expect("the disk cannot be read");
    assert!(found[..disk.len()] == *disk, "the disk differs");
    assert!(found[disk.len()..].iter().all(|byte| *byte == 0), "something lies behind the disk");
    assert_eq!(pod.names_in("data"), ["disk.img"], "left behind");
}

#[test]
fn importer_pod_imports_with_upstream_cdis_environment() {
    in_own_network(|| {
        let raw = SparseDisk::mixed(24 * MIB, 3).bytes();
        let mut images = vec![("raw", raw.clone())];
        if let Some(qemu) = QemuImg::require() {
            let disk = SparseDisk::mixed(24 * MIB, 3);
            images.push(("qcow2", qemu.qcow2(&disk, &Qcow2Options::default()).bytes()));
        }
        images.extend(compress(Compressor::GZIP, &raw).map(|bytes| ("raw.gz", bytes)));
        for (name, image) in images {
            let server = FaultServer::in_memory(&image);
            let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "100Mi");
            let message = pod.run().expect_success().stderr;
            assert_eq!(pod.termination_message(), COMPLETE, "{name}");
            assert_eq!(pod.virtual_size(), Some(USABLE), "{name}");
            expect_disk(&pod, &raw, USABLE);
            let committed =
                "Successfully completed fsync(/data/disk.img) syscall, committed to disk";
            assert!(message.contains(committed), "{name}: {message}");
            let agent = server.requests()[0].header("user-agent").map(str::to_owned);
            assert_eq!(agent.as_deref(), Some("cdi-golang-importer"));
        }
    });
}

#[test]
fn klog_flags_are_accepted() {
    in_own_network(|| {
        let disk = pattern(MIB);
        let server = FaultServer::in_memory(&disk);
        for line in [
            "-v=1",
            "--v 9 -logtostderr=true -stderrthreshold=INFO",
            "-alsologtostderr -vmodule a=2 -log_dir /tmp -skip_headers -one_output -unknown=1",
            "",
        ] {
            let arguments: Vec<_> = line.split_whitespace().collect();
            let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
            let pod = pod.arguments(&arguments);
            pod.run().expect_success();
            assert_eq!(pod.termination_message(), COMPLETE, "{line}");
            assert_eq!(pod.virtual_size(), Some(MIB), "{line}");
            expect_disk(&pod, &disk, MIB);
        }
    });
}

#[test]
fn json_log_has_one_object_per_line() {
    in_own_network(|| {
        let disk = pattern(MIB);
        for goes_well in [true, false] {
            let server = FaultServer::in_memory(&disk);
            let server = if goes_well { server } else { server.always(Fault::Status(404)) };
            let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
            let finished = pod.arguments(&["-v=3", "--logging-format=json"]).run();
            assert_eq!(finished.status.success(), goes_well, "{}", finished.stderr);
            let lines = finished.stderr.lines();
            let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
            assert!(!lines.is_empty());
            for line in lines {
                for member in ["timestamp", "level", "target", "message"] {
                    assert!(line[member].is_string(), "no {member}: {line}");
                }
            }
        }
    });
}

#[test]
fn device_import_overwrites_old_data() {
    in_own_network(|| {
        let disk = SparseDisk::mixed(12 * MIB, 4).bytes();
        let Some(device) = LoopDevice::filled_with(0xaa, 14 * MIB) else { return };
        let server = FaultServer::in_memory(&disk);
        // The request of the PVC is ignored: the size of the device counts.
        let pod = Pod::on(&device).from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "1Mi");
        let message = pod.run().expect_success().stderr;
        assert_eq!(pod.termination_message(), COMPLETE);
        assert_eq!(pod.virtual_size(), None, "a device may be larger than its disk");
        let found = device.bytes();
        assert!(found[..disk.len()] == disk, "the disk differs");
        assert!(found[disk.len()..].iter().all(|byte| *byte == 0), "old bytes show");
        assert!(message.contains("fsync(/dev/cdi-block-volume)"), "{message}");
    });
}

#[test]
fn preallocation_is_done_only_if_requested() {
    in_own_network(|| {
        let disk = SparseDisk::new(16 * MIB).with(MIB, MIB, testkit::Fill::Pattern).bytes();
        let server = FaultServer::in_memory(&disk);
        for wanted in ["false", "true"] {
            let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "16Mi");
            let pod = pod.variable("FILESYSTEM_OVERHEAD", "0").variable("PREALLOCATION", wanted);
            pod.run().expect_success();
            let allocated = std::fs::metadata(pod.path("data/disk.img")).unwrap().blocks() * 512;
            assert_eq!(allocated >= 16 * MIB, wanted == "true", "{allocated} bytes");
            let applied = format!("\"preallocationApplied\":{wanted}");
            assert!(pod.termination_message().contains(&applied), "{}", pod.termination_message());
        }
    });
}

#[test]
fn blank_disk_is_created_as_documented() {
    in_own_network(|| {
        let blank = |pod: Pod, preallocate: &str| {
            let pod =
                pod.variable("IMPORTER_SOURCE", "none").variable("PREALLOCATION", preallocate);
            pod.variable("IMPORTER_IMAGE_SIZE", "100Mi")
                .variable("IMPORTER_CHECKSUM", "not looked at")
        };
        for preallocate in ["false", "true"] {
            let pod = blank(Pod::new(), preallocate);
            pod.run().expect_success();
            let words =
                format!(r#"{{"preallocationApplied":{preallocate},"message":"Import Complete"}}"#);
            assert_eq!(pod.termination_message(), words);
            assert_eq!(pod.virtual_size(), Some(USABLE));
            expect_disk(&pod, &[], USABLE);
            let allocated = std::fs::metadata(pod.path("data/disk.img")).unwrap().blocks() * 512;
            assert_eq!(allocated >= USABLE, preallocate == "true", "{allocated} bytes");
        }
        let Some(device) = LoopDevice::filled_with(0xaa, 4 * MIB) else { return };
        let pod = blank(Pod::on(&device), "false");
        pod.run().expect_success();
        assert_eq!(pod.termination_message(), "", "as upstream CDI does");
        assert!(device.bytes().iter().all(|byte| *byte == 0), "old bytes show");
        let Some(device) = LoopDevice::filled_with(0xaa, 4 * MIB) else { return };
        let pod = blank(Pod::on(&device), "true");
        pod.run().expect_success();
        assert_eq!(
            pod.termination_message(),
            r#"{"preallocationApplied":true,"message":"Import Complete"}"#
        );
        assert!(device.bytes().iter().all(|byte| *byte == 0), "zeroes are written");
    });
}

#[test]
fn pod_secrets_reach_only_the_server() {
    in_own_network(|| {
        let disk = pattern(MIB);
        let server = FaultServer::in_memory(&disk)
            .tls()
            .always(Fault::BasicAuth("anna".into(), "hush-password".into()))
            .always(Fault::RequireHeader("x-open".into(), "plain".into()))
            .always(Fault::RequireHeader("x-kubevirt-export-token".into(), "hush-token".into()));
        let pod = Pod::new()
            .from_url(&server.url())
            .variable("IMPORTER_IMAGE_SIZE", "")
            .variable("IMPORTER_ACCESS_KEY_ID", "anna")
            .variable("IMPORTER_SECRET_KEY", "hush-password")
            .variable("IMPORTER_EXTRA_HEADER_0", "X-Open: plain")
            .file("extraheaders/0/token", "x-kubevirt-export-token:hush-token\n")
            .variable("IMPORTER_CERT_DIR", "/certs")
            .file("certs/any-name", server.ca_pem());
        let finished = pod.run().expect_success();
        expect_disk(&pod, &disk, MIB);
        let message = [finished.stdout, finished.stderr, pod.termination_message()].concat();
        assert!(!message.contains("hush"), "{message}");
        // The proxy's CAs are found by their path.
        let pod = Pod::new().from_url(&server.url()).file("proxycerts/ca.crt", server.ca_pem());
        assert!(pod.run().stderr.contains("got 401"));
    });
}

#[test]
fn files_of_an_earlier_attempt_are_replaced() {
    in_own_network(|| {
        let disk = pattern(2 * MIB);
        let server = FaultServer::in_memory(&disk);
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "").scratch();
        let pod =
            pod.file("data/disk.img", "half a disk").file("scratch/tmpimage", "half an image");
        pod.run().expect_success();
        expect_disk(&pod, &disk, 2 * MIB);
        assert!(pod.names_in("scratch").is_empty());
    });
}
