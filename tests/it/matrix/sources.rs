//! The columns: where an image comes from.

use std::sync::Arc;

use importer::{
    GcsOptions, HttpOptions, ImageioSettings, Intervals, S3Credentials, S3Options, Secret, StopFlag,
};
use parking_lot::Mutex;
use pipeline::Source as Opened;
use testkit::imageio::DISK;
use testkit::{FaultServer, Image, NbdServer, Ovirt, OvirtState};
use tests::container::ContainerImage;
use tests::registry::StandIn;

use super::formats::Wire;
use crate::s3_server::{KEY_ID, S3Server, SECRET_KEY};

/// Opens the same image again and again, from a server that lives as long as this.
pub type Opener = Box<dyn Fn() -> Result<Arc<dyn Opened>, importer::Error> + Send + Sync>;

/// Where an image comes from.
pub struct Source {
    pub name: &'static str,
    /// Starts a server of some bytes.
    pub serve: fn(&[u8]) -> Opener,
    /// The program without which the source is skipped.
    pub needs: Option<&'static str>,
    pub kind: Kind,
}

/// The content that a source may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An image of any format, in any compression.
    Images,
    /// A container disk, which may not be compressed.
    ContainerDisks,
    /// A guest's disk, whatever its bytes resemble.
    Disks,
}

/// The expected result for an image.
pub enum Expected<'a> {
    Disk(&'a [u8]),
    /// Exactly these bytes, which are not probed.
    AsItIs(&'a [u8]),
    Refused(String),
}

impl Kind {
    pub fn expects(self, wire: &Wire) -> Expected<'_> {
        match self {
            Self::Disks if wire.bytes == wire.disk => Expected::Disk(&wire.disk),
            Self::Disks => Expected::AsItIs(&wire.bytes),
            Self::ContainerDisks if wire.compression != "none" => {
                Expected::Refused(format!("is compressed ({})", wire.compression))
            }
            Self::ContainerDisks | Self::Images => match wire.refused() {
                Some(words) => Expected::Refused(words.to_owned()),
                None => Expected::Disk(&wire.disk),
            },
        }
    }
}

pub const SOURCES: &[Source] = &[
    Source { name: "http", serve: http, needs: None, kind: Kind::Images },
    Source { name: "file", serve: file, needs: None, kind: Kind::Images },
    Source { name: "s3", serve: s3, needs: None, kind: Kind::Images },
    Source { name: "gcs", serve: gcs, needs: None, kind: Kind::Images },
    Source { name: "nbd", serve: nbd, needs: Some("nbdkit"), kind: Kind::Images },
    Source { name: "registry", serve: registry, needs: None, kind: Kind::ContainerDisks },
    Source { name: "oci-archive", serve: oci_archive, needs: None, kind: Kind::ContainerDisks },
    Source { name: "imageio", serve: imageio, needs: None, kind: Kind::Disks },
];

fn http(bytes: &[u8]) -> Opener {
    let server = FaultServer::in_memory(bytes);
    Box::new(move || importer::source(&server.url(), &HttpOptions::default()))
}

fn file(bytes: &[u8]) -> Opener {
    let image = Image::from_bytes(bytes);
    Box::new(move || {
        let path = image.path().to_str().expect("a temporary file has a simple name");
        importer::source(path, &HttpOptions::default())
    })
}

fn s3(bytes: &[u8]) -> Opener {
    let server = S3Server::private();
    server.put("disk.img", bytes);
    let credentials = S3Credentials::Keys {
        access_key_id: KEY_ID.into(),
        secret_key: Secret::new(SECRET_KEY),
        session_token: None,
    };
    let s3 = S3Options { endpoint: Some(server.endpoint()), credentials, ..S3Options::default() };
    let options = HttpOptions { s3, ..HttpOptions::default() };
    Box::new(move || {
        let _alive = &server;
        importer::source("s3://images/disk.img", &options)
    })
}

fn gcs(bytes: &[u8]) -> Opener {
    let server = FaultServer::in_memory(bytes);
    let gcs = GcsOptions { endpoint: Some(server.url_of("")), ..GcsOptions::default() };
    let options = HttpOptions { gcs, ..HttpOptions::default() };
    Box::new(move || {
        let _alive = &server;
        importer::source("gs://images/disk.img", &options)
    })
}

/// A new server each time: an import that is refused disconnects during a response, and nbdkit has exited after that.
fn nbd(bytes: &[u8]) -> Opener {
    let image = Image::from_bytes(bytes);
    let servers = Mutex::new(Vec::new());
    Box::new(move || {
        let path = image.path().to_str().expect("a temporary file has a simple name");
        let server = NbdServer::nbdkit(&["file", path]).expect("it is there");
        let source = importer::source(&server.uri(), &HttpOptions::default());
        servers.lock().push(server);
        source
    })
}

fn registry(bytes: &[u8]) -> Opener {
    let server = StandIn::start().image("disk", "v1", &ContainerImage::disk(bytes));
    let options = HttpOptions { insecure_hosts: vec![server.host()], ..for_amd64() };
    let location = format!("docker://{}/disk:v1", server.host());
    Box::new(move || {
        let _alive = &server;
        importer::source(&location, &options)
    })
}

fn oci_archive(bytes: &[u8]) -> Opener {
    let archive = Image::from_bytes(&ContainerImage::disk(bytes).archive(&["v1"]));
    Box::new(move || {
        let location = format!("oci-archive:{}", archive.path().display());
        importer::source(&location, &for_amd64())
    })
}

fn for_amd64() -> HttpOptions {
    let mut options = HttpOptions::default();
    options.registry.architecture = Some("amd64".into());
    options
}

fn imageio(bytes: &[u8]) -> Opener {
    let ovirt = Ovirt::start(OvirtState { bytes: bytes.to_vec(), ..OvirtState::default() });
    Box::new(move || {
        let settings = ImageioSettings {
            endpoint: ovirt.endpoint(),
            username: "admin@internal".into(),
            password: Secret::new("hush"),
            disk_id: DISK.into(),
            checkpoints: importer::Checkpoints::default(),
            http: HttpOptions::default(),
            stop: StopFlag::default(),
            intervals: Intervals::default(),
        };
        importer::imageio(&settings).map(|stage| stage.source)
    })
}
