//! Failures of `cdi-importer`: exit codes and termination messages that existing controllers, clients and
//! tests match on.

use std::os::unix::fs::PermissionsExt;

use testkit::{Fault, FaultServer, Finished, LoopDevice, MIB, Qcow2Options, QemuImg, SparseDisk};
use testkit::{in_own_network, pattern};
use tests::Pod;

/// Ends with this exit code and a termination message that begins with this text.
#[track_caller]
fn expect(pod: &Pod, finished: &Finished, code: i32, words: &str, case: &str) {
    assert_eq!(finished.status.code(), Some(code), "{case}: {}", finished.stderr);
    let message = pod.termination_message();
    match words {
        "" => assert_eq!(message, "", "{case}"),
        words => assert!(message.starts_with(words), "{case}: {message}"),
    }
}

#[test]
fn every_failure_has_its_exit_code_and_message() {
    in_own_network(|| {
        let server = FaultServer::in_memory(&pattern(2 * MIB))
            .at("/missing", Fault::Status(404))
            .at("/private", Fault::BasicAuth("anna".into(), "open sesame".into()))
            .at("/elsewhere", Fault::RedirectTo("/elsewhere".into()));
        let to = |path: &str| ("IMPORTER_ENDPOINT", server.url_of(path));
        let set = |name: &'static str, value: &str| (name, value.to_owned());
        let connect = "Unable to connect to http data source: ";
        type Case<'a> = (&'a str, Vec<(&'a str, String)>, i32, String);
        let table: Vec<Case<'_>> = vec![
            ("no image", vec![to("/missing")], 1, format!("{connect}expected status code 200, got 404. Status: 404 Not Found")),
            ("no credentials", vec![to("/private")], 1, format!("{connect}expected status code 200, got 401. Status: 401 Unauthorized")),
            ("redirects", vec![to("/elsewhere")], 1, format!("{connect}cannot follow the redirects")),
            ("no such scheme", vec![set("IMPORTER_ENDPOINT", "ftp://host/a")], 1, connect.into()),
            ("no address", vec![set("IMPORTER_ENDPOINT", "")], 1, connect.into()),
            ("glance", vec![set("IMPORTER_SOURCE", "glance")], 1, "Unknown data source: glance".into()),
            ("no source", vec![set("IMPORTER_SOURCE", "")], 1, "Unknown data source: ".into()),
            ("PREALLOCATION empty", vec![set("PREALLOCATION", "")], 1, String::new()),
            ("PREALLOCATION odd", vec![set("PREALLOCATION", "yes")], 1, String::new()),
            (
                "an archive of a registry",
                vec![set("IMPORTER_SOURCE", "registry"), set("IMPORTER_CONTENTTYPE", "archive")],
                1,
                String::new(),
            ),
            (
                "no content type of imageio",
                vec![set("IMPORTER_SOURCE", "imageio"), set("IMPORTER_CONTENTTYPE", "")],
                1,
                String::new(),
            ),
            (
                "an empty archive",
                vec![set("IMPORTER_SOURCE", "none"), set("IMPORTER_CONTENTTYPE", "archive")],
                1,
                "Cannot create empty disk with content type archive".into(),
            ),
            (
                "no checksum",
                vec![to("/"), set("IMPORTER_CHECKSUM", "sha256")],
                1,
                format!("{connect}invalid checksum: invalid checksum format: expected 'algorithm:hash', got 'sha256'"),
            ),
            (
                "no authorities",
                vec![to("/"), set("IMPORTER_CERT_DIR", "/certs")],
                1,
                format!("{connect}cannot list /certs"),
            ),
            ("no size", vec![to("/"), set("IMPORTER_IMAGE_SIZE", "large")], 1, "Unable to process data: ".into()),
            (
                "too large",
                vec![to("/"), set("IMPORTER_IMAGE_SIZE", "1Mi")],
                1,
                "Unable to process data: Unable to convert source data to target format: virtual image size 2097152 is \
                 larger than the reported available storage 1048576. A larger PVC is required"
                    .into(),
            ),
        ];
        for (case, variables, code, words) in table {
            let pod =
                variables.iter().fold(Pod::new(), |pod, (name, value)| pod.variable(name, value));
            let finished = pod.run();
            expect(&pod, &finished, code, &words, case);
            assert!(pod.names_in("data").is_empty(), "{case}");
        }
        let pod = Pod::without_volume().from_url(&server.url());
        expect(&pod, &pod.run(), 1, "", "no volume");
        let pod = Pod::new().variable("IMPORTER_SOURCE", "none");
        let read_only = std::fs::Permissions::from_mode(0o755);
        std::os::unix::fs::chown(pod.path("data"), Some(0), Some(0)).unwrap();
        std::fs::set_permissions(pod.path("data"), read_only).unwrap();
        expect(&pod, &pod.run(), 1, "Unable to create blank image: ", "a volume of another owner");
    });
}

#[test]
fn unreachable_server_is_named_in_message_and_log() {
    in_own_network(|| {
        let server = FaultServer::in_memory(&pattern(MIB)).tls();
        let pod = Pod::new().from_url(&server.url());
        let finished = pod.run();
        let words =
            "Unable to connect to http data source: HTTP request errored: https://127.0.0.1:";
        expect(&pod, &finished, 1, words, "a certificate of an unknown CA");
        assert!(finished.stderr.contains("HTTP request errored"), "{}", finished.stderr);
        let pod = Pod::new().from_url(&server.url()).variable("INSECURE_TLS", "true");
        pod.run().expect_success();

        let pod = Pod::new().from_url("http://127.0.0.1:1/disk.img");
        let finished = pod.run();
        expect(&pod, &finished, 1, "Unable to connect to http data source: ", "no server");
        assert!(
            pod.termination_message().contains("cannot connect to 127.0.0.1:1"),
            "{}",
            pod.termination_message()
        );
        assert!(finished.stderr.contains("HTTP request errored"), "{}", finished.stderr);

        let page =
            FaultServer::in_memory(&pattern(MIB)).always(Fault::ContentType("text/html".into()));
        let message = Pod::new().from_url(&page.url()).run().expect_success().stderr;
        let expected =
            "Unexpected content type 'text/html'. Content might not be a KubeVirt image.";
        assert!(message.contains(expected), "{message}");
    });
}

#[test]
fn invalid_image_has_upstream_cdis_message() {
    in_own_network(|| {
        let mut hostile = pattern(MIB);
        hostile[..4].copy_from_slice(b"QFI\xfb");
        hostile[4..8].copy_from_slice(&3_u32.to_be_bytes());
        hostile[8..104].fill(0);
        hostile[20..24].copy_from_slice(&16_u32.to_be_bytes()); // clusters of 64 KiB
        hostile[24..32].copy_from_slice(&(1_u64 << 30).to_be_bytes());
        hostile[36..40].copy_from_slice(&u32::MAX.to_be_bytes()); // entries of the first table
        hostile[40..48].copy_from_slice(&(1_u64 << 16).to_be_bytes());
        hostile[48..56].copy_from_slice(&(1_u64 << 17).to_be_bytes());
        hostile[56..60].copy_from_slice(&1_u32.to_be_bytes());
        hostile[96..100].copy_from_slice(&4_u32.to_be_bytes());
        hostile[100..104].copy_from_slice(&104_u32.to_be_bytes());
        for (case, image, words) in [
            (
                "nothing",
                Vec::new(),
                "Unable to process data: Unable to obtain information about data source: could not process image header: EOF",
            ),
            (
                "a hostile qcow2",
                hostile,
                "Unable to process data: Unable to convert source data to target format: ",
            ),
        ] {
            let server = FaultServer::in_memory(&image);
            let pod = Pod::new().from_url(&server.url());
            expect(&pod, &pod.run(), 1, words, case);
            assert!(
                case == "nothing" || pod.termination_message().contains("L1 size too big"),
                "{}",
                pod.termination_message()
            );
            assert!(pod.names_in("data").is_empty(), "{case}");
        }
    });
}

#[test]
fn too_large_disk_has_the_message_that_controllers_match() {
    let Some(image) = testkit::compress(testkit::Compressor::GZIP, &pattern(4 * MIB)) else {
        return;
    };
    in_own_network(|| {
        let server = FaultServer::in_memory(&image);
        let pod = Pod::new().from_url(&server.url()).variable("IMPORTER_IMAGE_SIZE", "2Mi");
        let finished = pod.run();
        expect(&pod, &finished, 1, "Unable to process data: ", "too large");
        let known = contract::import::texts::TOO_SMALL;
        let words = pod.termination_message();
        assert!(known.iter().any(|text| words.contains(text)), "{words}");
        assert!(pod.names_in("data").is_empty());
    });
}

#[test]
fn failed_registry_transfer_is_reported_as_image_pull_failure() {
    in_own_network(|| {
        let server = FaultServer::in_memory(&pattern(8 * MIB))
            .when(|request| request.number > 1, Fault::Status(403));
        let pod = Pod::new().from_url(&server.url());
        let words = "Unable to process data: Unable to transfer source data to target file: failed to pull image: ";
        expect(&pod, &pod.run(), 1, words, "refused in the middle");
        assert!(!pod.path("data/disk.img").exists());
    });
}

#[test]
fn checksum_mismatch_leaves_no_disk_and_is_final() {
    in_own_network(|| {
        let disk = pattern(4 * MIB);
        let server = FaultServer::in_memory(&disk);
        let wrong = format!("sha256:{}", "00".repeat(32));
        let ends = |pod: &Pod| {
            let finished = pod.run();
            assert_eq!(finished.status.code(), Some(0), "{}", finished.stderr);
            let words = pod.termination_message();
            assert!(words.starts_with(r#"{"message":"Unable to process data: "#), "{words}");
            let mismatch = format!(
                "checksum validation failed: checksum mismatch: expected {wrong}, calculated sha256:"
            );
            assert!(words.contains(&mismatch) && words.ends_with("\"}"), "{words}");
        };
        let pod =
            Pod::new().from_url(&server.url()).variable("IMPORTER_CHECKSUM", &wrong).scratch();
        let pod = pod.file("data/lost+found/kept", "").file("scratch/tmpimage", "");
        ends(&pod);
        assert_eq!(pod.names_in("data"), ["lost+found"]);
        assert!(pod.names_in("scratch").is_empty());
        let Some(device) = LoopDevice::filled_with(0xaa, 4 * MIB) else { return };
        let pod = Pod::on(&device).from_url(&server.url()).variable("IMPORTER_CHECKSUM", &wrong);
        ends(&pod);
        assert!(device.bytes()[..MIB as usize] != disk[..MIB as usize], "it looks like the disk");
    });
}

#[test]
fn size_detection_has_upstream_cdis_exit_codes() {
    in_own_network(|| {
        let detect = |pod: Pod, arguments: &[&str]| {
            let pod = pod.called("cdi-image-size-detection").arguments(arguments);
            let code = pod.run().status.code();
            (code, pod.termination_message())
        };
        let disk = |bytes: &[u8]| {
            let pod = Pod::new();
            std::fs::write(pod.path("data/disk.img"), bytes).unwrap();
            pod
        };
        let path = ["-image-path", "/data/disk.img"];
        let size = |bytes: u64| (Some(0), bytes.to_string());
        assert_eq!(detect(disk(&pattern(3 * MIB)), &path), size(3 * MIB));
        assert_eq!(detect(disk(&pattern(700)), &["-image-path=file:///data/disk.img"]), size(1024));
        let with_gzip_in_it = [&[0x1f, 0x8b, 8, 0][..], &pattern(MIB)[4..]].concat();
        assert_eq!(detect(disk(&with_gzip_in_it), &path), size(MIB));
        if let Some(qemu) = QemuImg::require() {
            let image =
                qemu.qcow2(&SparseDisk::mixed(5 * MIB, 1), &Qcow2Options::default()).bytes();
            assert_eq!(detect(disk(&image), &path), size(5 * MIB));
            assert_eq!(detect(disk(&image[..100]), &path).0, Some(2));
        }
        assert_eq!(detect(disk(&[]), &path).0, Some(2));
        assert_eq!(detect(Pod::new(), &path).0, Some(3));
        assert_eq!(detect(Pod::new(), &["-image-path", "/data"]).0, Some(3));
        assert_eq!(detect(Pod::new(), &["-v=1"]).0, Some(1));
    });
}
