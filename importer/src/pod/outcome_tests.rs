use contract::ByteCount;

use super::*;

fn outcome_text(failure: &Failure, source: &SourceKind) -> (u8, String) {
    let Outcome { code, message } = failure.outcome(source);
    (code, message.unwrap_or_else(|| "(nothing)".into()))
}

fn boxed(text: &str) -> Box<dyn StdError + Send + Sync> {
    text.into()
}

#[test]
fn every_failure_has_the_documented_code_and_message() {
    let io = |kind: io::ErrorKind| io::Error::from(kind);
    let target = |kind| {
        Failure::Import(Pipeline::Target {
            what: "write to",
            path: "/data/disk.img".into(),
            source: io(kind),
        })
    };
    let http = || SourceKind::Http;
    let table: Vec<(Failure, SourceKind, u8, &str)> = vec![
        (Failure::Job(BadImportJob::Preallocation { got: String::new() }), http(), 1, "(nothing)"),
        (
            Failure::Job(BadImportJob::Checksum {
                kind: http(),
                source: contract::BadChecksum::Empty,
            }),
            http(),
            1,
            "Unable to connect to http data source: invalid checksum: checksum hash value cannot be empty",
        ),
        (
            Failure::Job(BadImportJob::NegativeImageSize),
            http(),
            1,
            "Unable to process data: IMPORTER_IMAGE_SIZE cannot be used: it is less than zero",
        ),
        (Failure::Volume(io(io::ErrorKind::NotFound)), http(), 1, "(nothing)"),
        (Failure::Sync(io(io::ErrorKind::Other)), http(), 1, "(nothing)"),
        (
            Failure::Refused(Refusal::UnknownSource("glance".into())),
            SourceKind::Unknown("glance".into()),
            1,
            "Unknown data source: glance",
        ),
        (
            Failure::Refused(Refusal::BlankArchive),
            SourceKind::Blank,
            1,
            "Cannot create empty disk with content type archive",
        ),
        (
            Failure::Refused(Refusal::ContentType { source: SourceKind::Registry }),
            SourceKind::Registry,
            1,
            "(nothing)",
        ),
        (
            Failure::NotReady { path: "/shared/ready".into() },
            http(),
            1,
            "Timeout waiting for file /shared/ready",
        ),
        (
            Failure::Connect(boxed("expected status code 200, got 404. Status: 404 Not Found")),
            http(),
            1,
            "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found",
        ),
        (
            Failure::Connect(boxed("Failed to read registry image: no such image")),
            SourceKind::Registry,
            1,
            "Unable to process data: Unable to transfer source data to scratch space: Failed to read registry \
             image: no such image",
        ),
        (
            Failure::Import(Pipeline::Source {
                name: "host".into(),
                source: boxed("the connection broke"),
            }),
            http(),
            1,
            "Unable to process data: Unable to transfer source data to target file: failed to pull image: the \
             connection broke",
        ),
        (
            Failure::Import(Pipeline::TooLarge {
                needed: ByteCount::new(9),
                offered: ByteCount::new(8),
            }),
            http(),
            1,
            "Unable to process data: Unable to convert source data to target format: virtual image size 9 is larger \
             than the reported available storage 8. A larger PVC is required",
        ),
        (
            Failure::Import(Pipeline::Decode {
                name: "host".into(),
                source: formats::Error::L1TooBig { entries: 9, max: 8 },
            }),
            http(),
            1,
            "Unable to process data: Unable to convert source data to target format: cannot decode host: L1 size too \
             big: 9 entries, where 8 are allowed",
        ),
        (
            Failure::Import(Pipeline::Decode {
                name: "host".into(),
                source: formats::Error::Foreign(formats::sniff::Foreign {
                    name: "a zip archive",
                    advice: "extract the disk image from it first",
                }),
            }),
            http(),
            1,
            "Unable to process data: Unable to convert source data to target format: cannot decode host: the image is \
             a zip archive, which is not supported: extract the disk image from it first, or set the source format to \
             raw to store it unchanged (annotation cdi.kubevirt.io/storage.sourceFormat: raw)",
        ),
        (
            Failure::Import(Pipeline::Decode {
                name: "host".into(),
                source: formats::Error::Empty { what: "image" },
            }),
            http(),
            1,
            "Unable to process data: Unable to obtain information about data source: could not process image \
             header: EOF",
        ),
        (
            Failure::Import(Pipeline::Untar(boxed("it is no archive"))),
            http(),
            1,
            "Unable to process data: Unable to transfer source data to target directory: unable to untar files from \
             endpoint: it is no archive",
        ),
        (
            target(io::ErrorKind::StorageFull),
            http(),
            1,
            "Unable to process data: Unable to transfer source data to target file: unable to write to file: no space \
             left on device",
        ),
        (
            target(io::ErrorKind::QuotaExceeded),
            http(),
            1,
            "Unable to process data: Unable to transfer source data to target file: unable to write to file: disk \
             quota exceeded",
        ),
        (
            target(io::ErrorKind::PermissionDenied),
            http(),
            1,
            "Unable to process data: Unable to transfer source data to target file: cannot write to /data/disk.img: \
             permission denied",
        ),
        (
            Failure::Import(Pipeline::Scratch {
                path: "/scratch".into(),
                source: io(io::ErrorKind::PermissionDenied),
            }),
            http(),
            1,
            "Unable to process data: Unable to transfer source data to scratch space: cannot write to scratch space in \
             /scratch: permission denied",
        ),
        (
            Failure::Import(Pipeline::Checksum {
                expected: "md5:1".into(),
                calculated: "md5:2".into(),
            }),
            http(),
            0,
            r#"{"message":"Unable to process data: Unable to transfer source data to target file: checksum validation failed: checksum mismatch: expected md5:1, calculated md5:2"}"#,
        ),
        (
            Failure::Blank(boxed("disk\nfull")),
            SourceKind::Blank,
            1,
            "Unable to create blank image: disk full",
        ),
    ];
    for (failure, source, code, expected) in table {
        assert_eq!(outcome_text(&failure, &source), (code, expected.to_owned()), "{failure:?}");
    }
}

#[test]
fn messages_about_lack_of_space_match_those_of_controllers() {
    let target = |kind| {
        let path = "/data/disk.img".into();
        Failure::Import(Pipeline::Target { what: "write to", path, source: io::Error::from(kind) })
    };
    let needed = ByteCount::new(9);
    for failure in [
        target(io::ErrorKind::StorageFull),
        target(io::ErrorKind::QuotaExceeded),
        Failure::Import(Pipeline::TooLarge { needed, offered: ByteCount::new(8) }),
    ] {
        let (_, phrase) = outcome_text(&failure, &SourceKind::Http);
        assert!(texts::TOO_SMALL.iter().any(|text| phrase.contains(text)), "{phrase}");
        let has_sizes = phrase.contains(&format!(" 9{}8.", texts::LARGER_THAN));
        assert_eq!(
            has_sizes,
            matches!(failure, Failure::Import(Pipeline::TooLarge { .. })),
            "{phrase}"
        );
    }
}

#[test]
fn full_scratch_space_is_not_reported_as_a_full_volume() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
        let path = "/scratch".into();
        let full = Failure::Import(Pipeline::Scratch { path, source: io::Error::from(kind) });
        let (code, phrase) = outcome_text(&full, &SourceKind::Http);
        assert_eq!(code, 1);
        assert!(phrase.contains("scratch space at /scratch"), "{phrase}");
        assert!(phrase.contains("larger") && phrase.contains("qemu-img convert"), "{phrase}");
        assert!(texts::TOO_SMALL.iter().all(|text| !phrase.contains(text)), "{phrase}");
    }
}
