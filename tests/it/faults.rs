//! The same faults on every kind of source that comes over HTTP: a web server, both object stores, and a registry's
//! blobs. Whatever happens on the way, the bytes are right or it is an error.

use std::time::Duration;

use importer::{GcsOptions, HttpOptions, RetryPolicy, S3Credentials, S3Options, Secret};
use testkit::{Fault, FaultServer, KIB, MIB, pattern};
use tests::container::{Blob, ContainerImage, Tar};
use tests::registry::StandIn;
use tests::{LIMIT, told};

use crate::each;
use crate::s3_server::{KEY_ID, SECRET_KEY};

const LEN: u64 = 6 * MIB;

/// Which kind of source the fault server plays a part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Web,
    S3,
    Gcs,
    /// The blobs of a registry lie elsewhere, as they mostly do.
    Registry,
}

const ORIGINS: [Origin; 4] = [Origin::Web, Origin::S3, Origin::Gcs, Origin::Registry];

/// What has to become of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// All bytes, and the right ones.
    Whole,
    /// An error.
    Refused,
    /// Either.
    WholeOrRefused,
}

type Script = fn(FaultServer) -> FaultServer;

/// Byte n, at borders and in the middle; what a server can do instead of answering; answers that are not what they say.
const FAULTS: &[(&str, Script, Fate)] = &[
    ("nothing", |server| server, Fate::Whole),
    ("closed at byte 1", |server| server.once(Fault::CloseAt(1)), Fate::Whole),
    ("closed behind the head", |server| server.once(Fault::CloseAt(256 * KIB)), Fate::Whole),
    ("closed in the middle", |server| server.once(Fault::CloseAt(3 * MIB + 1)), Fate::Whole),
    ("closed at the last byte", |server| server.once(Fault::CloseAt(LEN - 1)), Fate::Whole),
    (
        "closed three times",
        |server| {
            let server = server.once(Fault::CloseAt(MIB)).once(Fault::CloseAt(3 * MIB));
            server.once(Fault::CloseAt(5 * MIB))
        },
        Fate::Whole,
    ),
    ("closed always", |server| server.always(Fault::CloseAt(3 * MIB)), Fate::Refused),
    ("stalled at the head", |server| server.once(Fault::StallAt(100 * KIB)), Fate::Whole),
    ("stalled in the middle", |server| server.once(Fault::StallAt(3 * MIB)), Fate::Whole),
    ("no answer at first", |server| server.on(1, Fault::Hangup), Fate::Whole),
    ("no answer later", |server| server.on(2, Fault::Hangup), Fate::Whole),
    ("500 at first", |server| server.on(1, Fault::Status(500)), Fate::Whole),
    ("503 later", |server| server.on(2, Fault::Status(503)), Fate::Whole),
    ("503 always", |server| server.always(Fault::Status(503)), Fate::Refused),
    ("429", |server| server.on(1, Fault::StatusWithRetryAfter(429, 0)), Fate::Whole),
    ("429 later", |server| server.on(2, Fault::StatusWithRetryAfter(429, 0)), Fate::Whole),
    (
        "503 and when to come again",
        |server| server.on(2, Fault::StatusWithRetryAfter(503, 0)),
        Fate::Whole,
    ),
    ("404 always", |server| server.always(Fault::Status(404)), Fate::Refused),
    (
        "404 in the middle",
        |server| server.once(Fault::CloseAt(MIB)).on(3, Fault::Status(404)),
        Fate::WholeOrRefused,
    ),
    ("announces more", |server| server.on(2, Fault::WrongLength(1000)), Fate::Whole),
    ("announces less", |server| server.on(2, Fault::WrongLength(-1000)), Fate::Whole),
    (
        "announces more at first",
        |server| server.on(1, Fault::WrongLength(1000)),
        Fate::WholeOrRefused,
    ),
    ("parts of parts", |server| server.always(Fault::ShortRange(MIB)), Fate::Whole),
    ("other parts", |server| server.on(2, Fault::WrongRange(512)), Fate::WholeOrRefused),
    ("the whole for a part", |server| server.on(2, Fault::IgnoreRange), Fate::WholeOrRefused),
    (
        "no parts, and closed",
        |server| server.always(Fault::IgnoreRange).once(Fault::CloseAt(3 * MIB)),
        Fate::Whole,
    ),
    ("chunks", |server| server.on(2, Fault::Chunked), Fate::WholeOrRefused),
    ("no HTTP", |server| server.on(2, Fault::Nonsense), Fate::WholeOrRefused),
    (
        "a weak tag, and closed",
        |server| server.always(Fault::WeakEtag).once(Fault::CloseAt(3 * MIB)),
        Fate::WholeOrRefused,
    ),
    (
        "no tag, and closed",
        |server| server.always(Fault::NoEtag).once(Fault::CloseAt(3 * MIB)),
        Fate::WholeOrRefused,
    ),
];

#[test]
fn a_fault_costs_no_byte_of_any_source() {
    let cases: Vec<_> = ORIGINS
        .into_iter()
        .flat_map(|origin| FAULTS.iter().map(move |fault| (origin, fault)))
        .collect();
    each(&cases, |(origin, (name, script, fate))| {
        let server = script(FaultServer::in_memory(&origin.served(&pattern(LEN))));
        let case = format!("{origin:?}: {name}");
        match (origin.read(&server), fate) {
            (Ok(bytes), Fate::Whole | Fate::WholeOrRefused) => {
                assert!(bytes == pattern(LEN), "{case}: other bytes");
            }
            (Ok(_), Fate::Refused) => panic!("{case}: it should have been refused"),
            (Err(said), Fate::Whole) => panic!("{case}: {said}"),
            (Err(said), Fate::Refused | Fate::WholeOrRefused) => {
                assert!(!said.contains("hush") && !said.contains("Signature"), "{case}: {said}");
            }
        }
    });
}

#[test]
fn an_image_that_is_replaced_in_the_middle_is_never_put_together() {
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
        let said = read.expect_err("two images in one");
        let words = match origin {
            Origin::Registry => "is not what the image names",
            _ => "changed during the import",
        };
        assert!(said.contains(words), "{origin:?}: {said}");
    });
}

#[test]
fn another_tag_is_another_image_except_where_bytes_are_named_by_their_digest() {
    each(&ORIGINS, |origin| {
        let server = FaultServer::in_memory(&origin.served(&pattern(LEN)))
            .once(Fault::CloseAt(3 * MIB))
            .on(3, Fault::ChangeEtag);
        match (origin, origin.read(&server)) {
            (Origin::Registry, read) => assert!(read.expect("the same bytes") == pattern(LEN)),
            (_, read) => {
                let said = read.expect_err("another tag");
                assert!(said.contains("changed during the import"), "{origin:?}: {said}");
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
    let source = importer::source(location, options).map_err(|error| told(&error))?;
    let (mut stream, mut all) = (source.open(0, None), Vec::new());
    while let Some(bytes) = stream.next().map_err(|error| told(&*error))? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}
