//! Every format, to a file and to a device, from every kind of source, with every server behaviour.

use testkit::{Fault, FaultServer, Image, KIB, MIB, Random};
use tests::{Import, Kind, Target, Wire, wires};

use crate::each;

const KINDS: [Kind; 2] = [Kind::File, Kind::Device];

/// The expected result of an import.
#[derive(Clone, Copy)]
enum ExpectedImport {
    /// The disk, byte for byte.
    Whole,
    /// An error that contains this text, and no target that looks complete.
    Refused(&'static str),
}

/// Imports each format to each kind of target from a server that `script` creates, and checks the result.
fn check(script: fn(FaultServer, &Wire) -> FaultServer, expected: ExpectedImport) {
    let cases: Vec<_> = wires().iter().flat_map(|wire| KINDS.map(|kind| (wire, kind))).collect();
    each(&cases, |(wire, kind)| {
        let Some(target) = Target::new(*kind, wire.disk.len() as u64) else { return };
        let server = script(FaultServer::in_memory(&wire.bytes), wire);
        let case = format!("{} to {kind:?}", wire.name);
        let finished = Import::new(server.url(), target.path()).run();
        match expected {
            ExpectedImport::Whole => {
                assert!(finished.success(), "{case}: {}", finished.stderr);
                target.expect(&wire.disk, &case);
            }
            ExpectedImport::Refused(words) => {
                let message = finished.expect_refusal();
                assert!(message.contains(words), "{case}: {message}");
                target.expect_unfinished(&wire.disk, &case);
            }
        }
    });
}

/// Offsets in the wire bytes: in the middle, and after the bytes that the probe reads.
fn middle(wire: &Wire) -> u64 {
    wire.bytes.len() as u64 / 2 + 300 * KIB
}

#[test]
fn import_succeeds_from_a_correct_server() {
    check(|server, _| server, ExpectedImport::Whole);
}

#[test]
fn import_resumes_a_broken_connection() {
    check(|server, wire| server.once(Fault::CloseAt(middle(wire))), ExpectedImport::Whole);
}

#[test]
fn import_succeeds_without_ranges() {
    check(|server, _| server.always(Fault::IgnoreRange), ExpectedImport::Whole);
}

#[test]
fn import_succeeds_without_content_length() {
    check(
        |server, _| server.always(Fault::IgnoreRange).always(Fault::Chunked),
        ExpectedImport::Whole,
    );
}

#[test]
fn import_succeeds_without_validator() {
    check(|server, _| server.always(Fault::NoEtag), ExpectedImport::Whole);
}

#[test]
fn import_succeeds_after_503() {
    check(|server, _| server.on(1, Fault::Status(503)).on(2, Fault::Hangup), ExpectedImport::Whole);
}

#[test]
fn image_that_changes_during_the_import_is_refused() {
    check(
        |server, wire| server.once(Fault::CloseAt(middle(wire))).on(3, Fault::ChangeEtag),
        ExpectedImport::Refused("changed"),
    );
}

#[test]
fn server_that_always_fails_at_one_byte_fails_the_import() {
    check(
        |server, wire| server.always(Fault::CloseAt(needed_byte(wire))),
        ExpectedImport::Refused("gave up"),
    );
}

/// Offset of a byte that an import reads: in the middle of the longest range that one requests. Not all bytes are read, and which
/// are depends on how the image is divided among requests.
fn needed_byte(wire: &Wire) -> u64 {
    let server = FaultServer::in_memory(&wire.bytes);
    let target = Target::file();
    Import::new(server.url(), target.path()).report();
    let len = wire.bytes.len() as u64;
    let ranges = server.ranges();
    let bounds = ranges.iter().filter_map(|range| {
        let (begin, last) = range.split_once('-')?;
        let (begin, last) = (begin.parse::<u64>().ok()?, last.parse().unwrap_or(len - 1));
        (begin > 0).then_some((begin, last.min(len - 1)))
    });
    let longest = bounds.max_by_key(|(begin, last)| last.saturating_sub(*begin));
    longest.map_or(middle(wire), |(begin, last)| begin.midpoint(last))
}

#[test]
fn import_succeeds_from_a_file() {
    let cases: Vec<_> = wires().iter().flat_map(|wire| KINDS.map(|kind| (wire, kind))).collect();
    each(&cases, |(wire, kind)| {
        let Some(target) = Target::new(*kind, wire.disk.len() as u64) else { return };
        let image = Image::from_bytes(&wire.bytes);
        let report = Import::new(image.path(), target.path()).report();
        target.expect(&wire.disk, wire.name);
        let (format, compression) = wire.layers.split_last().expect("there is always a format");
        assert_eq!(report["format"], *format, "{}", wire.name);
        assert_eq!(report["compression"], serde_json::json!(compression), "{}", wire.name);
        assert_eq!(report["virtualSize"], wire.disk.len() as u64, "{}", wire.name);
        assert_eq!(report["resumedAt"], 0, "{}", wire.name);
        let written = report["bytesWritten"].as_u64().expect("a number");
        let zero = report["zeroBytes"].as_u64().expect("a number");
        assert_eq!(written + zero, wire.disk.len() as u64, "{}: {report}", wire.name);
        assert!(zero >= MIB, "{}: {report}", wire.name);
    });
}

#[test]
fn format_is_detected_under_a_url_that_names_none_or_another() {
    const PATHS: [&str; 5] =
        ["/product-software", "/disk.qcow2", "/disk.iso", "/disk.raw.xz", "/a?file=disk.vmdk"];
    let cases: Vec<_> =
        wires().iter().enumerate().map(|(at, wire)| (wire, PATHS[at % PATHS.len()])).collect();
    each(&cases, |(wire, path)| {
        let server = FaultServer::in_memory(&wire.bytes);
        let target = Target::file();
        let report = Import::new(server.url_of(path), target.path()).report();
        let case = format!("{} from {path}", wire.name);
        target.expect(&wire.disk, &case);
        assert_eq!(report["format"], wire.layers[wire.layers.len() - 1], "{case}");
    });
}

#[test]
fn import_succeeds_with_a_small_memory_budget() {
    each(wires(), |wire| {
        let (server, image) = (FaultServer::in_memory(&wire.bytes), Image::from_bytes(&wire.bytes));
        let file = Target::file();
        Import::new(image.path(), file.path()).option("--memory", "1Mi").report();
        file.expect(&wire.disk, wire.name);
        let Some(device) = Target::new(Kind::Device, wire.disk.len() as u64) else { return };
        Import::new(server.url(), device.path()).option("--memory", "1Mi").report();
        device.expect(&wire.disk, wire.name);
    });
}

/// Faults of all kinds at random places. A script is reported by its number.
fn random_script(server: FaultServer, wire: &Wire, number: u64) -> FaultServer {
    let mut random = Random::new(number);
    (0..1 + random.below(6)).fold(server, |server, _| {
        let (nth, at) = (1 + random.below(6), random.below(wire.bytes.len() as u64));
        match random.below(14) {
            0..=2 => server.once(Fault::CloseAt(at)),
            3 => server.on(nth, Fault::CloseAfter(at)),
            4 => server.on(nth, Fault::Status(503)),
            5 => server.on(nth, Fault::StatusWithRetryAfter(429, 0)),
            6 => server.on(nth, Fault::Hangup),
            7 => server.on(nth, Fault::WrongLength(1 + (at % 1000) as i64)),
            8 => server.on(nth, Fault::IgnoreRange),
            9 => server.always(Fault::ShortRange(1 + at)),
            10 => server.on(nth, Fault::WrongRange(512)),
            11 => server.on(nth, Fault::Chunked),
            12 => server.always(Fault::WeakEtag),
            _ => server.on(nth, Fault::ChangeEtag),
        }
    })
}

#[test]
fn random_faults_end_in_the_disk_or_an_error() {
    let numbers: Vec<u64> = (0..60).collect();
    each(&numbers, |number| {
        let wire = &wires()[*number as usize % wires().len()];
        let server = random_script(FaultServer::in_memory(&wire.bytes), wire, *number);
        let case = format!("script {number} of {}", wire.name);
        let target = Target::file();
        let finished = Import::new(server.url(), target.path()).run();
        if finished.success() {
            target.expect(&wire.disk, &case);
        } else {
            let message = finished.expect_refusal();
            assert!(message.contains("http://127.0.0.1"), "{case}: {message}");
            target.expect_unfinished(&wire.disk, &case);
        }
    });
}

#[test]
fn import_succeeds_from_stdin() {
    each(wires(), |wire| {
        let (image, target) = (Image::from_bytes(&wire.bytes), Target::file());
        Import::from_stdin(image.path(), target.path()).report();
        target.expect(&wire.disk, wire.name);
    });
}

#[test]
fn checksum_of_wire_bytes_is_verified() {
    each(wires(), |wire| {
        let right = format!("sha256:{}", sha256(&wire.bytes));
        let server = FaultServer::in_memory(&wire.bytes).once(Fault::CloseAt(middle(wire)));
        let target = Target::file();
        let report = Import::new(server.url(), target.path()).option("--checksum", &right).report();
        assert_eq!(report["digest"], right, "{}", wire.name);
        target.expect(&wire.disk, wire.name);

        let wrong = format!("sha256:{}", "0".repeat(64));
        for kind in KINDS {
            let Some(target) = Target::new(kind, wire.disk.len() as u64) else { continue };
            let message =
                Import::new(server.url(), target.path()).option("--checksum", &wrong).refusal();
            assert!(
                message.contains("checksum mismatch: expected sha256:000"),
                "{}: {message}",
                wire.name
            );
            target.expect_unfinished(&wire.disk, wire.name);
        }
    });
}

#[test]
fn truncated_image_is_refused() {
    let compressed_or_indexed = wires().iter().filter(|wire| wire.layers != ["raw"]);
    let cut = |wire: &'static Wire| {
        let len = wire.bytes.len();
        [1, len / 3, len / 2, len - len / 50, len - 1].map(move |len| (wire, len))
    };
    let cases: Vec<_> = compressed_or_indexed.flat_map(cut).collect();
    each(&cases, |(wire, len)| {
        let case = format!("{} cut to {len} of {}", wire.name, wire.bytes.len());
        let target = Target::file();
        for from_stdin in [false, true] {
            let image = Image::from_bytes(&wire.bytes[..*len]);
            let import = if from_stdin {
                Import::from_stdin(image.path(), target.path())
            } else {
                Import::new(image.path(), target.path())
            };
            let finished = import.run();
            // One byte is a raw disk; a cluster's padding and a stream's trailer of padding may be missing.
            if finished.success() {
                let disk = if *len == 1 { &wire.bytes[..1] } else { &wire.disk };
                target.expect(disk, &case);
                std::fs::remove_file(target.path()).expect("cannot remove a disk");
            } else {
                finished.expect_refusal();
                target.expect_unfinished(&wire.disk, &case);
            }
        }
    });
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
