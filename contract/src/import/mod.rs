//! The job of an importer's pod: what the controller writes into its environment, and how the importer reads it.
//!
//! Programs that exist already depend on the names and texts: upstream's controllers, clients, monitoring.

mod environment;
pub mod texts;

use std::fmt;

pub use environment::{BadImportJob, name};

use crate::byte_count::ByteCount;
use crate::checksum::Checksum;
use crate::overhead::Overhead;

/// The source of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// HTTP or HTTPS.
    Http,
    /// S3 or a compatible store.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// An empty disk; spelled `none`.
    Blank,
    /// A container image of a registry.
    Registry,
    /// oVirt's image transfer service.
    Imageio,
    /// VMware's disk library.
    Vddk,
    /// Any other text. No importer has a source for it.
    Unknown(String),
}

impl SourceKind {
    const KNOWN: [Self; 7] =
        [Self::Http, Self::S3, Self::Gcs, Self::Blank, Self::Registry, Self::Imageio, Self::Vddk];

    /// As the environment spells it.
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

    fn from_name(name: &str) -> Self {
        let known = Self::KNOWN.into_iter().find(|kind| kind.name() == name);
        known.unwrap_or_else(|| Self::Unknown(name.to_owned()))
    }
}

/// What the volume will contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    /// A disk.
    #[default]
    Kubevirt,
    /// The files of a tar archive.
    Archive,
    /// Any other text. Some sources reject it; the others import a disk.
    Other,
}

/// User and password, or access key and secret key. `Debug` shows neither.
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

/// The stage of a multi-stage import (warm migration).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoints {
    /// The snapshot to import; empty for an import without stages.
    pub current: String,
    /// The snapshot that the volume holds already; empty in the first stage.
    pub previous: String,
    /// The final stage.
    pub last: bool,
}

/// Proxy settings. A URL may contain a password, so `Debug` hides URLs.
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

/// One import. A text that does not apply is empty.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportJob {
    /// The kind of source.
    pub source: SourceKind,
    /// URL or image reference; empty for an empty disk.
    pub endpoint: String,
    /// What the volume will contain.
    pub content: ContentType,
    /// What the PVC requests. `None`: the disk has the size of the image.
    pub image_size: Option<ByteCount>,
    /// Label of the metrics: UID of the object that shows the progress.
    pub owner_uid: String,
    /// Share of the volume that its file system needs.
    pub overhead: Overhead,
    /// Accept any certificate of any server.
    pub insecure_tls: bool,
    /// imageio: ID of the disk.
    pub disk_id: String,
    /// VDDK: UUID of the virtual machine.
    pub uuid: String,
    /// VDDK: backing file of the disk.
    pub backing_file: String,
    /// VDDK: thumbprint of the server's certificate.
    pub thumbprint: String,
    /// Node pull: the kubelet pulls the image, and a second container serves the disk.
    pub node_pull: bool,
    /// Node pull: the second container creates this file when it is ready.
    pub ready_file: String,
    /// Node pull: the importer creates this file at the end, so that the second container exits.
    pub done_file: String,
    /// Proxies of the source.
    pub proxy: ProxyVariables,
    /// Of a multi-stage import.
    pub checkpoints: Checkpoints,
    /// Allocate all blocks of the disk.
    pub preallocation: bool,
    /// Use direct I/O: the controller requests it after the pod ran out of memory.
    pub direct_io: bool,
    /// Architecture of the image in an index, by Go's name. Empty: that of the process.
    pub architecture: String,
    /// Expected checksum of the wire bytes.
    pub checksum: Option<Checksum>,
    /// Of the source. Never written to an environment.
    pub credentials: Option<Credentials>,
    /// File of Google's credentials; empty for anonymous access.
    pub google_credentials: String,
    /// The pod has an AWS identity, by the role of its service account, a profile or keys: the files that the identity
    /// is read from, if any. `None`: no identity. The administrator of the cluster provides it, no controller does.
    pub aws_files: Option<Vec<String>>,
    /// Directory of CA certificates to trust; empty: those of the system.
    pub cert_dir: String,
    /// Lines `Name: value` to send with each request, in this order.
    pub extra_headers: Vec<String>,
    /// Store the bytes unchanged: nothing is detected, decompressed or converted.
    pub raw: bool,
}

impl ImportJob {
    /// A job with defaults for everything else.
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
