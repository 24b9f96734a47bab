//! One import as a controller orders it from a worker's pod, and how the worker answers.
//!
//! The names and texts here are read by programs that already exist: controllers that start these pods, clients and
//! monitoring that match on what comes back. Both directions are here, so that neither end can drift.

mod environment;
mod go_bool;
mod message;
pub mod paths;
pub mod texts;

use std::fmt;

pub use environment::{BadJob, name};
pub use go_bool::go_bool;
pub use message::{
    ExitMessage, MESSAGE_LEN_MAX, VddkInfo, is_label_key, is_label_value, termination_text,
};

use crate::byte_count::ByteCount;
use crate::checksum::Checksum;
use crate::overhead::Overhead;

/// Where an image comes from: the kinds that controllers know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A web server.
    Http,
    /// An S3 store.
    S3,
    /// Google's object store.
    Gcs,
    /// An empty disk; written `none`.
    Blank,
    /// A container image.
    Registry,
    /// oVirt's image transfer.
    Imageio,
    /// VMware's disk library.
    Vddk,
    /// Anything else, as it was written. No worker has a source for it.
    Unknown(String),
}

impl SourceKind {
    const KNOWN: [Self; 7] =
        [Self::Http, Self::S3, Self::Gcs, Self::Blank, Self::Registry, Self::Imageio, Self::Vddk];

    /// As it is written in the environment.
    pub fn name(&self) -> &str {
        match self {
            Self::Http => "http",
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Blank => "none",
            Self::Registry => "registry",
            Self::Imageio => "imageio",
            Self::Vddk => "vddk",
            Self::Unknown(name) => name,
        }
    }

    fn named(name: &str) -> Self {
        let known = Self::KNOWN.into_iter().find(|kind| kind.name() == name);
        known.unwrap_or_else(|| Self::Unknown(name.to_owned()))
    }
}

/// What the volume is to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    /// A disk.
    #[default]
    Kubevirt,
    /// The files of an archive.
    Archive,
    /// Neither word. Sources that care refuse it; the others take it for a disk.
    Other,
}

/// User and password, or key and secret key. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The key `accessKeyId` of the Secret.
    pub access_key: String,
    /// The key `secretKey` of the Secret.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// The stage of an import in several stages, by which a running machine is brought over with little standstill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// The snapshot to bring over; empty where there are no stages.
    pub current: String,
    /// The snapshot that the volume holds already; empty at the first stage.
    pub previous: String,
    /// Nothing comes after this one.
    pub last: bool,
}

/// Through whom servers are asked. May hold passwords, so it is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyVariables {
    /// `http_proxy`.
    pub http: String,
    /// `https_proxy`.
    pub https: String,
    /// `no_proxy`.
    pub except: String,
}

impl fmt::Debug for ProxyVariables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| if text.is_empty() { "(none)" } else { "(secret)" };
        let Self { http, https, except } = self;
        write!(formatter, "http {}, https {}, except {except:?}", shown(http), shown(https))
    }
}

/// One import: everything that a controller tells the pod by its environment. Text that does not apply is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportJob {
    /// Where the image comes from.
    pub source: SourceKind,
    /// An address, an image reference, or nothing.
    pub endpoint: String,
    /// What the volume is to hold.
    pub content: ContentType,
    /// What the claim requests. `None`: the disk keeps the size of its image.
    pub image_size: Option<ByteCount>,
    /// Label of the metrics: the object that progress is shown on.
    pub owner_uid: String,
    /// What the file system of the volume may use for itself.
    pub overhead: Overhead,
    /// Take any certificate of any server.
    pub insecure_tls: bool,
    /// The disk, of imageio.
    pub disk_id: String,
    /// The virtual machine, of vddk.
    pub uuid: String,
    /// The disk's file, of vddk.
    pub backing_file: String,
    /// Of the server's certificate, of vddk.
    pub thumbprint: String,
    /// The image is pulled by the node, and served by a container beside this one.
    pub node_pull: bool,
    /// Wait for this file, which that container makes, before asking it.
    pub ready_file: String,
    /// Make this file at the end, so that that container ends.
    pub done_file: String,
    /// Through whom to ask.
    pub proxy: ProxyVariables,
    /// Of an import in several stages.
    pub checkpoints: Checkpoints,
    /// Every byte of the volume gets its room now.
    pub preallocation: bool,
    /// Keep out of the page cache: the controller asks for it after the pod ran out of memory.
    pub direct_io: bool,
    /// Which image of an index, as Go names architectures. Empty: the process's own.
    pub architecture: String,
    /// What the bytes have to hash to.
    pub checksum: Option<Checksum>,
    /// Of the source, where it has some.
    pub credentials: Option<Credentials>,
    /// The file of Google's credentials, or nothing.
    pub google_credentials: String,
    /// The pod is somebody at Amazon's, by the role of its service account, a profile or keys of its own: the files that
    /// say so, if it takes any. `None`: it is nobody. Whoever runs the cluster gives that to a pod, and no controller does.
    pub aws_files: Option<Vec<String>>,
    /// The folder of certificates to trust, or nothing.
    pub cert_dir: String,
    /// Lines `Name: value` to send with each request, in their order.
    pub extra_headers: Vec<String>,
    /// The bytes of the source are stored unchanged as the disk: nothing is detected, decompressed or converted.
    pub raw: bool,
}

impl ImportJob {
    /// A job with nothing but its source and endpoint.
    pub fn new(source: SourceKind, endpoint: impl Into<String>) -> Self {
        Self {
            source,
            endpoint: endpoint.into(),
            content: ContentType::Kubevirt,
            image_size: None,
            owner_uid: String::new(),
            overhead: Overhead::ZERO,
            insecure_tls: false,
            disk_id: String::new(),
            uuid: String::new(),
            backing_file: String::new(),
            thumbprint: String::new(),
            node_pull: false,
            ready_file: String::new(),
            done_file: String::new(),
            proxy: ProxyVariables::default(),
            checkpoints: Checkpoints::default(),
            preallocation: false,
            direct_io: false,
            architecture: String::new(),
            checksum: None,
            credentials: None,
            google_credentials: String::new(),
            aws_files: None,
            cert_dir: String::new(),
            extra_headers: Vec::new(),
            raw: false,
        }
    }
}
