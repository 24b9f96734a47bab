//! `cdi-importer` while it runs: progress, waiting, stopping, resuming.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use contract::import::texts::TOO_SMALL;
use testkit::{Change, Compressor, Fault, FaultServer, FileSystem, FileSystemKind, LoopDevice};
use testkit::{MIB, Qcow2Options, QemuImg, Running, SparseDisk};
use testkit::{compress, in_own_network, pattern, require_tool};
use tests::{LIMIT, Pod};

const METRIC: &str =
    "kubevirt_cdi_import_progress_total{ownerUID=\"11111111-2222-3333-4444-555555555555\"} ";
const TIME_METRIC: &str = "kubevirt_cdi_import_activity_seconds_total{ownerUID=\"11111111-2222-3333-4444-555555555555\",activity=";

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The page of metrics under any path, once there is one.
pub fn page(path: &str, how: &[&str]) -> Option<String> {
    let curl = require_tool("curl")?;
    let url = format!("https://127.0.0.1:8443{path}");
    let retry = ["--retry", "20", "--retry-connrefused", "--retry-delay", "1"];
    let ask = ["--silent", "--show-error", "--fail", "--insecure", url.as_str()];
    let output = curl.run(retry.into_iter().chain(ask).chain(how.iter().copied()));
    Some(String::from_utf8(output).expect("a page is text"))
}

#[test]
fn progress_metric_has_the_format_that_controllers_read() {
    in_own_network(|| {
        let disk = pattern(8 * MIB);
        let server = FaultServer::in_memory(&disk).once(Fault::StallAt(4 * MIB));
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        let running = pod.start();
        server.wait_for_stall(LIMIT);
        let mut last = 0.0;
        for (path, how) in
            [("/metrics", "--http1.1"), ("/", "--http2"), ("/any/path?x=1", "--tlsv1.2")]
        {
            let Some(page) = page(path, &[how]) else { return };
            let line = page.lines().find_map(|line| line.strip_prefix(METRIC));
            let percent: f64 = line.unwrap_or_else(|| panic!("{page}")).parse().unwrap();
            assert!((last..100.0).contains(&percent), "{percent} after {last}");
            last = percent;
            for activity in ["network_wait", "write_wait", "sync"] {
                let line = format!("{TIME_METRIC}\"{activity}\"}} ");
                assert!(page.contains(&line), "{page}");
            }
            for name in ["files", "system_calls"] {
                let line = format!("kubevirt_cdi_sandbox{{restriction=\"{name}\"}} 1\n");
                assert!(page.contains(&line), "{page}");
            }
            assert!(!page.contains("tcp_connect"), "the source may be anywhere: {page}");
        }
        expect_confined(&running);
        server.heal();
        let message = running.wait(LIMIT).expect_success().stderr;
        assert!(message.contains("sandbox: files confined, system calls confined"), "{message}");
        assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk);
    });
}

#[test]
fn metrics_offer_only_what_the_tls_profile_of_the_environment_permits() {
    const SUITE: &str = "ECDHE-ECDSA-AES128-GCM-SHA256";
    const OTHER: &str = "ECDHE-ECDSA-AES256-GCM-SHA384";
    // Of the worker: minimum version and suites. Then whether clients with TLS 1.2 and SUITE or OTHER are served.
    let table = [
        ("", "", [true, true]),
        ("VersionTLS12", SUITE, [true, false]),
        ("VersionTLS13", "", [false, false]),
    ];
    in_own_network(|| {
        for (version, suites, expected) in table {
            let server = FaultServer::in_memory(&pattern(MIB)).once(Fault::StallAt(MIB / 2));
            let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
            let pod = pod.variable("TLS_MIN_VERSION", version).variable("TLS_CIPHERS", suites);
            let running = pod.start();
            server.wait_for_stall(LIMIT);
            // The controller uses TLS 1.3, whatever the profile.
            let Some(page) = page("/metrics", &["--tlsv1.3"]) else { return };
            assert!(page.contains(METRIC), "{version} {suites}: {page}");
            let served = [SUITE, OTHER].map(is_served_by_tls12);
            assert_eq!(served, expected, "{version} {suites}");
            server.heal();
            running.wait(LIMIT).expect_success();
        }
    });
}

/// Whether a client that supports TLS 1.2 with this cipher suite only gets the metrics.
fn is_served_by_tls12(suite: &str) -> bool {
    const EXIT_CODE_NO_HANDSHAKE: i32 = 35;
    let old = ["--tls-max", "1.2", "--ciphers", suite];
    let status = Command::new("curl")
        .args(["--silent", "--output", "/dev/null", "--insecure"])
        .args(old)
        .arg("https://127.0.0.1:8443/metrics")
        .status()
        .expect("curl is installed");
    assert!(matches!(status.code(), Some(0 | EXIT_CODE_NO_HANDSHAKE)), "{suite}: {status}");
    status.success()
}

/// From the kernel's accounting.
fn expect_confined(running: &Running) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid()))
        .expect("the process is there");
    for line in ["Uid:\t107", "NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(status.lines().any(|found| found.starts_with(line)), "{line}: {status}");
    }
}

#[test]
fn required_sandbox_fails_the_pod_without_landlock() {
    in_own_network(|| {
        let disk = pattern(MIB);
        let server = FaultServer::in_memory(&disk);
        let make = || Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        let pod = make().variable("REQUIRE_SANDBOX", "true").without_landlock();
        let finished = pod.run();
        assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
        let expected = "cannot enter the sandbox: the kernel does not enforce files, tcp_listen;";
        assert!(pod.termination_message().starts_with(expected), "{}", pod.termination_message());
        assert!(server.requests().is_empty() && pod.names_in("data").is_empty());

        let pod = make().without_landlock();
        let message = pod.run().expect_success().stderr;
        assert!(
            message.contains("sandbox: files NOT confined, system calls confined"),
            "{message}"
        );
        assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk);
    });
}

#[test]
fn node_pull_waits_for_the_image_and_releases_it() {
    in_own_network(|| {
        let disk = pattern(2 * MIB);
        let server = FaultServer::in_memory(&disk);
        let pod = Pod::new()
            .from_url(&server.url_of("/disk.img"))
            .variable("IMPORTER_IMAGE_SIZE", "")
            .variable("IMPORTER_PULL_METHOD", "node")
            .variable("IMPORTER_READY_FILE", "/shared/ready")
            .variable("IMPORTER_DONE_FILE", "/shared/done")
            .variable("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000")
            .file("shared/nothing", "");
        let running = pod.start();
        let Some(page) = page("/metrics", &[]) else { return };
        assert!(page.contains("# TYPE kubevirt_cdi_import_progress_total counter"), "{page}");
        assert!(!page.contains(METRIC), "nothing is known yet: {page}");
        assert!(server.requests().is_empty(), "no request before the file exists");
        std::fs::write(pod.path("shared/ready"), "vm.raw").unwrap();
        running.wait(LIMIT).expect_success();
        let asked: Vec<_> = server.requests().iter().map(|one| one.path().to_owned()).collect();
        assert!(asked.iter().all(|path| path == "/vm.raw" || path == "/info"), "{asked:?}");
        assert!(pod.path("shared/done").exists());
        assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk);
    });
}

#[test]
fn sigterm_stops_the_importer_at_once() {
    in_own_network(|| {
        for signal in [15, 2] {
            let server = FaultServer::in_memory(&pattern(8 * MIB)).always(Fault::StallAt(4 * MIB));
            let pod = Pod::new().from_url(&server.url());
            let running = pod.start();
            server.wait_for_stall(LIMIT);
            running.signal(signal);
            let finished = running.wait(Duration::from_secs(20));
            assert_eq!(finished.status.code(), Some(128 + signal), "{}", finished.stderr);
            assert!(!pod.path("data/disk.img").exists());
        }
    });
}

#[test]
fn killed_container_resumes() {
    in_own_network(|| {
        let disk = pattern(64 * MIB);
        // Slow enough for a checkpoint by eight connections, and never at its end.
        let server = FaultServer::in_memory(&disk)
            .always(Fault::SlowDown(MIB / 2))
            .always(Fault::StallAt(60 * MIB));
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        let running = pod.start();
        let journal = pod.path("data/.disk.img.cdi-journal");
        wait_until("there is a journal", || names_work(&journal));
        running.kill();
        server.heal();
        let message = pod.run().expect_success().stderr;
        let resumed =
            message.contains("already") && !message.contains(", 0 bytes were there already");
        assert!(resumed, "{message}");
        assert!(std::fs::read(pod.path("data/disk.img")).unwrap() == disk);
        assert_eq!(pod.names_in("data"), ["disk.img"]);
    });
}

#[test]
fn killed_device_import_resumes_with_a_journal_volume() {
    in_own_network(|| {
        let disk = pattern(64 * MIB);
        let Some(device) = LoopDevice::filled_with(0xaa, 64 * MIB) else { return };
        let server = FaultServer::in_memory(&disk)
            .always(Fault::SlowDown(MIB / 2))
            .always(Fault::StallAt(60 * MIB));
        let pod = Pod::on(&device).folder("journal").from_url(&server.url());
        let running = pod.start();
        let journal = pod.path("journal/.cdi-journal");
        wait_until("there is a journal", || names_work(&journal));
        running.kill();
        server.heal();
        let message = pod.run().expect_success().stderr;
        let resumed =
            message.contains("already") && !message.contains(", 0 bytes were there already");
        assert!(resumed, "{message}");
        assert!(device.bytes() == disk);
        assert_eq!(pod.names_in("journal"), [""; 0]);
    });
}

/// As a kubelet does that was restarted without an API server: the number of the device is another volume's by the time that the
/// source responds.
#[test]
fn device_that_is_unmapped_before_the_import_is_still_the_one_that_is_written() {
    in_own_network(|| {
        let disk = pattern(8 * MIB);
        let Some(device) = LoopDevice::new(8 * MIB) else { return };
        let server = FaultServer::in_memory(&disk).always(Fault::Status(503));
        let pod = Pod::on(&device).from_url(&server.url());
        let running = pod.start();
        wait_until("the source is requested", || !server.requests().is_empty());
        let volume = device.detach();
        let other = LoopDevice::filled_with(0xa5, 8 * MIB).unwrap();
        server.heal();
        running.wait(LIMIT).expect_success();
        assert!(other.bytes().iter().all(|byte| *byte == 0xa5), "another volume was written");
        assert!(std::fs::read(volume.path()).unwrap() == disk, "the disk differs");
    });
}

fn names_work(journal: &Path) -> bool {
    std::fs::read_to_string(journal).is_ok_and(|text| text.contains("\"start\""))
}

#[test]
fn scratch_space_is_requested_only_if_needed() {
    in_own_network(|| {
        let (Some(parked), Some(image)) = (image_with_many_snapshots(), image_out_of_order())
        else {
            return;
        };
        let server = FaultServer::in_memory(&parked);
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        pod.run().expect_success();
        assert!(pod.termination_message().contains("\"scratchSpaceRequired\":false"));

        let server = FaultServer::in_memory(&image);
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        let pod = pod.file("shared/nothing", "").variable("IMPORTER_DONE_FILE", "/shared/done");
        pod.run().expect_success();
        assert_eq!(
            pod.termination_message(),
            r#"{"scratchSpaceRequired":true,"preallocationApplied":false,"message":"Import Complete"}"#
        );
        assert!(pod.names_in("data").is_empty() && pod.path("shared/done").exists());
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "").scratch();
        pod.run().expect_success();
        assert!(pod.termination_message().contains("\"scratchSpaceRequired\":false"));
        assert_eq!(pod.names_in("data"), ["disk.img"]);
        assert!(pod.names_in("scratch").is_empty());
    });
}

#[test]
fn too_small_scratch_space_and_volume_have_different_errors() {
    in_own_network(|| {
        let Some(image) = image_out_of_order() else { return };
        let server = FaultServer::in_memory(&image);
        let Some(full) = FileSystem::new(FileSystemKind::Tmpfs, 2 * MIB) else { return };
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        let pod = pod.mounting("scratch", &full);
        assert_eq!(pod.run().status.code(), Some(1));
        let words = pod.termination_message();
        assert!(words.contains("not enough free space in scratch space at /scratch"), "{words}");
        assert!(TOO_SMALL.iter().all(|text| !words.contains(text)), "{words}");
        assert!(pod.names_in("data").is_empty() && pod.names_in("scratch").is_empty());
    });
}

#[test]
fn scratch_space_is_requested_where_the_volume_has_no_space_to_park_in() {
    in_own_network(|| {
        let Some(image) = image_with_many_snapshots() else { return };
        let Some(volume) = FileSystem::new(FileSystemKind::Tmpfs, 9 * MIB) else { return };
        let server = FaultServer::in_memory(&image);
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "");
        std::fs::remove_dir(pod.path("data")).unwrap();
        let pod = pod.mounting("data", &volume);
        let log = pod.run().expect_success().stderr;
        assert!(log.contains("the volume has space for 524288 bytes behind the disk"), "{log}");
        assert!(pod.termination_message().contains("\"scratchSpaceRequired\":true"));
        assert!(pod.names_in("data").is_empty());
    });
}

/// 8 MiB, compressed, so that it can be read in order only.
fn image_out_of_order() -> Option<Vec<u8>> {
    let (image, _) = QemuImg::require()?.qcow2_with_a_cluster_used_twice(8 * MIB);
    compress(Compressor::GZIP.level(1), &image)
}

/// A disk of 8 MiB and 64 MiB of its past, compressed, so that it can be read in order only.
fn image_with_many_snapshots() -> Option<Vec<u8>> {
    let qemu = QemuImg::require()?;
    let history = (1..9)
        .flat_map(|byte| [Change::Write { at: 0, len: 1000, byte }, Change::Snapshot])
        .collect();
    let how = Qcow2Options { history, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::new(8 * MIB), &how);
    compress(Compressor::GZIP.level(1), &image.bytes())
}
