//! The same faults on every kind of source that is read over HTTP: a web server, both object stores, and a registry's
//! blobs. The result is the right bytes or an error.

use std::time::Duration;

use importer::{GcsOptions, HttpOptions, RetryPolicy, S3Credentials, S3Options, Secret};
use testkit::{Fault, FaultServer, KIB, MIB, pattern};
use tests::container::{Blob, ContainerImage, Tar};
use tests::registry::StandIn;
use tests::{LIMIT, error_chain};

use crate::each;
use crate::s3_server::{KEY_ID, SECRET_KEY};

const LEN: u64 = 6 * MIB;

/// The kind of source that the fault server imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Web,
    S3,
    Gcs,
    /// A registry that redirects to another server for blobs, as most do.
    Registry,
}

const ORIGINS: [Origin; 4] = [Origin::Web, Origin::S3, Origin::Gcs, Origin::Registry];

/// The expected result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedTransfer {
    /// All bytes, and the right ones.
    Whole,
    /// An error.
    Refused,
    /// Either.
    WholeOrRefused,
}

type Script = fn(FaultServer) -> FaultServer;

/// Faults at byte n, at boundaries and in the middle; requests without a response; responses that contradict their
/// headers.
const FAULTS: &[(&str, Script, ExpectedTransfer)] = &[
    ("nothing", |server| server, ExpectedTransfer::Whole),
    ("closed at byte 1", |server| server.once(Fault::CloseAt(1)), ExpectedTransfer::Whole),
    (
        "closed behind the head",
        |server| server.once(Fault::CloseAt(256 * KIB)),
        ExpectedTransfer::Whole,
    ),
    (
        "closed in the middle",
        |server| server.once(Fault::CloseAt(3 * MIB + 1)),
        ExpectedTransfer::Whole,
    ),
    (
        "closed at the last byte",
        |server| server.once(Fault::CloseAt(LEN - 1)),
        ExpectedTransfer::Whole,
    ),
    (
        "closed three times",
        |server| {
            let server = server.once(Fault::CloseAt(MIB)).once(Fault::CloseAt(3 * MIB));
            server.once(Fault::CloseAt(5 * MIB))
        },
        ExpectedTransfer::Whole,
    ),
    ("closed always", |server| server.always(Fault::CloseAt(3 * MIB)), ExpectedTransfer::Refused),
    (
        "stalled at the head",
        |server| server.once(Fault::StallAt(100 * KIB)),
        ExpectedTransfer::Whole,
    ),
    (
        "stalled in the middle",
        |server| server.once(Fault::StallAt(3 * MIB)),
        ExpectedTransfer::Whole,
    ),
    ("no response at first", |server| server.on(1, Fault::Hangup), ExpectedTransfer::Whole),
    ("no response later", |server| server.on(2, Fault::Hangup), ExpectedTransfer::Whole),
    ("500 at first", |server| server.on(1, Fault::Status(500)), ExpectedTransfer::Whole),
    ("503 later", |server| server.on(2, Fault::Status(503)), ExpectedTransfer::Whole),
    ("503 always", |server| server.always(Fault::Status(503)), ExpectedTransfer::Refused),
    ("429", |server| server.on(1, Fault::StatusWithRetryAfter(429, 0)), ExpectedTransfer::Whole),
    (
        "429 later",
        |server| server.on(2, Fault::StatusWithRetryAfter(429, 0)),
        ExpectedTransfer::Whole,
    ),
    (
        "503 and when to come again",
        |server| server.on(2, Fault::StatusWithRetryAfter(503, 0)),
        ExpectedTransfer::Whole,
    ),
    ("404 always", |server| server.always(Fault::Status(404)), ExpectedTransfer::Refused),
    (
        "404 in the middle",
        |server| server.once(Fault::CloseAt(MIB)).on(3, Fault::Status(404)),
        ExpectedTransfer::WholeOrRefused,
    ),
    ("announces more", |server| server.on(2, Fault::WrongLength(1000)), ExpectedTransfer::Whole),
    ("announces less", |server| server.on(2, Fault::WrongLength(-1000)), ExpectedTransfer::Whole),
    (
        "announces more at first",
        |server| server.on(1, Fault::WrongLength(1000)),
        ExpectedTransfer::WholeOrRefused,
    ),
    ("parts of parts", |server| server.always(Fault::ShortRange(MIB)), ExpectedTransfer::Whole),
    (
        "other parts",
        |server| server.on(2, Fault::WrongRange(512)),
        ExpectedTransfer::WholeOrRefused,
    ),
    (
        "the whole for a part",
        |server| server.on(2, Fault::IgnoreRange),
        ExpectedTransfer::WholeOrRefused,
    ),
    (
        "no parts, and closed",
        |server| server.always(Fault::IgnoreRange).once(Fault::CloseAt(3 * MIB)),
        ExpectedTransfer::Whole,
    ),
    ("chunks", |server| server.on(2, Fault::Chunked), ExpectedTransfer::WholeOrRefused),
    ("no HTTP", |server| server.on(2, Fault::Nonsense), ExpectedTransfer::WholeOrRefused),
    (
        "a weak tag, and closed",
        |server| server.always(Fault::WeakEtag).once(Fault::CloseAt(3 * MIB)),
        ExpectedTransfer::WholeOrRefused,
    ),
    (
        "no tag, and closed",
        |server| server.always(Fault::NoEtag).once(Fault::CloseAt(3 * MIB)),
        ExpectedTransfer::WholeOrRefused,
    ),
];

#[test]
fn every_source_survives_each_fault() {
    let cases: Vec<_> = ORIGINS
        .into_iter()
        .flat_map(|origin| FAULTS.iter().map(move |fault| (origin, fault)))
        .collect();
    each(&cases, |(origin, (name, script, expected))| {
        let server = script(FaultServer::in_memory(&origin.served(&pattern(LEN))));
        let case = format!("{origin:?}: {name}");
        match (origin.read(&server), expected) {
            (Ok(bytes), ExpectedTransfer::Whole | ExpectedTransfer::WholeOrRefused) => {
                assert!(bytes == pattern(LEN), "{case}: other bytes");
            }
            (Ok(_), ExpectedTransfer::Refused) => panic!("{case}: it should have been refused"),
            (Err(message), ExpectedTransfer::Whole) => panic!("{case}: {message}"),
            (Err(message), ExpectedTransfer::Refused | ExpectedTransfer::WholeOrRefused) => {
                assert!(
                    !message.contains("hush") && !message.contains("Signature"),
                    "{case}: {message}"
                );
            }
        }
    });
}

#[test]
fn replaced_image_is_not_mixed_with_the_old_one() {
    each(&ORIGINS, |origin| {
        let disk = pattern(LEN);
        let mut other = disk.clone();
        other[MIB as usize..].fill(7);
        let server = FaultServer::in_memory(&origin.served(&disk)).always(Fault::StallAt(3 * MIB));
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| origin.read(&server));
            server.wait_for_stall(LIMIT);
            server.replace(&origin.served(&other));
            server.heal();
            reader.join().expect("the reader does not panic")
        });
        let message = read.expect_err("two images in one");
        let words = match origin {
            Origin::Registry => "is not what the image names",
            _ => "changed during the import",
        };
        assert!(message.contains(words), "{origin:?}: {message}");
    });
}

#[test]
fn changed_etag_means_another_image_except_for_blobs_named_by_digest() {
    each(&ORIGINS, |origin| {
        let server = FaultServer::in_memory(&origin.served(&pattern(LEN)))
            .once(Fault::CloseAt(3 * MIB))
            .on(3, Fault::ChangeEtag);
        match (origin, origin.read(&server)) {
            (Origin::Registry, read) => assert!(read.expect("the same bytes") == pattern(LEN)),
            (_, read) => {
                let message = read.expect_err("another tag");
                assert!(message.contains("changed during the import"), "{origin:?}: {message}");
            }
        }
    });
}

impl Origin {
    /// What the fault server has to serve for a disk.
    fn served(self, disk: &[u8]) -> Vec<u8> {
        match self {
            Self::Registry => layer(disk).bytes,
            Self::Web | Self::S3 | Self::Gcs => disk.to_vec(),
        }
    }

    /// Reads all of it in this process, with little patience.
    fn read(self, server: &FaultServer) -> Result<Vec<u8>, String> {
        let endpoint = Some(server.url_of(""));
        let credentials = S3Credentials::Keys {
            access_key_id: KEY_ID.into(),
            secret_key: Secret::new(SECRET_KEY),
            session_token: None,
        };
        let mut options = HttpOptions {
            stall_timeout: Duration::from_secs(1),
            retry: RetryPolicy {
                delay_first: Duration::from_millis(1),
                delay_max: Duration::from_millis(5),
                ..RetryPolicy::default()
            },
            s3: S3Options { endpoint: endpoint.clone(), credentials, ..S3Options::default() },
            gcs: GcsOptions { endpoint, ..GcsOptions::default() },
            ..HttpOptions::default()
        };
        match self {
            Self::Web => read(&server.url(), &options),
            Self::S3 => read("s3://images/disk.img", &options),
            Self::Gcs => read("gs://images/disk.img", &options),
            Self::Registry => {
                let layer = layer(&pattern(LEN));
                let image = ContainerImage::new("amd64", &[], vec![layer.clone()]);
                let blob = server.url_via("localhost", "/blob");
                let registry = StandIn::start().image("a", "v1", &image);
                let registry = registry.redirect("a", &layer, &blob);
                options.insecure_hosts = vec![registry.host()];
                options.registry.architecture = Some("amd64".into());
                read(&format!("docker://{}/a:v1", registry.host()), &options)
            }
        }
    }
}

fn layer(disk: &[u8]) -> Blob {
    Blob::plain(Tar::default().file("disk/disk.img", disk))
}

fn read(location: &str, options: &HttpOptions) -> Result<Vec<u8>, String> {
    let source = importer::source(location, options).map_err(|error| error_chain(&error))?;
    let (mut stream, mut all) = (source.open(0, None), Vec::new());
    while let Some(bytes) = stream.next().map_err(|error| error_chain(&*error))? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}
