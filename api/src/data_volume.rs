//! DataVolume: a disk, and where its content comes from.

use serde::{Deserialize, Serialize};

use crate::claim::ClaimSpec;
use crate::metadata::ObjectMeta;

/// Group and version of the objects of this project.
pub const API_VERSION: &str = "cdi.kubevirt.io/v1beta1";

/// A disk, and where its content comes from. A `status` in a manifest is ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolume {
    /// [`API_VERSION`].
    pub api_version: String,
    /// `DataVolume`.
    pub kind: String,
    /// Its name, which is also that of its PVC.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The requested disk.
    pub spec: DataVolumeSpec,
}

/// The requested disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataVolumeSpec {
    /// Where the content comes from. Not together with `source_ref`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Sources>,
    /// A DataSource that knows where the content comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<SourceRef>,
    /// The PVC, used unchanged. Not together with `storage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<ClaimSpec>,
    /// Requirements of the PVC, completed from StorageProfile and overhead. Not together with `pvc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ClaimSpec>,
    /// Of the worker pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Of the worker pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// `kubevirt` (a disk image; also when empty) or `archive`. Read it with [`content_type`](Self::content_type).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Stages of a warm import.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// The last checkpoint ends the import.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_checkpoint: Option<bool>,
    /// All blocks are allocated before the disk is used. `None`: the CDIConfig's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
}

impl DataVolumeSpec {
    /// What the source holds; `None` for an unknown value.
    pub fn content_type(&self) -> Option<ContentType> {
        match self.content_type.as_deref() {
            None | Some("" | "kubevirt") => Some(ContentType::DiskImage),
            Some("archive") => Some(ContentType::Archive),
            Some(_) => None,
        }
    }
}

/// What a source holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `kubevirt`: the image of a disk.
    DiskImage,
    /// `archive`: a tar of files for the volume's root.
    Archive,
}

/// One stage of a warm import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checkpoint {
    /// The state that this stage begins at.
    pub previous: String,
    /// The state that it ends at.
    pub current: String,
}

/// Names a DataSource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceRef {
    /// `DataSource`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `None`: that of the DataVolume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// `spec.source`: a struct of which exactly one member has to be present. [`Sources::members`] returns those
/// that are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sources {
    /// A web server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// An object in S3 or a compatible store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Source>,
    /// An object in Google's store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsSource>,
    /// A container disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistrySource>,
    /// Another PVC, to be cloned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc: Option<NamedSource>,
    /// A snapshot, to be cloned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<NamedSource>,
    /// Waits for an upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<Empty>,
    /// An empty disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blank: Option<Empty>,
    /// A disk of oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imageio: Option<ImageioSource>,
    /// A disk of VMware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vddk: Option<VddkSource>,
}

/// One of the members of [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'a> {
    /// `http`
    Http(&'a HttpSource),
    /// `s3`
    S3(&'a S3Source),
    /// `gcs`
    Gcs(&'a GcsSource),
    /// `registry`
    Registry(&'a RegistrySource),
    /// `pvc`
    Pvc(&'a NamedSource),
    /// `snapshot`
    Snapshot(&'a NamedSource),
    /// `upload`
    Upload,
    /// `blank`
    Blank,
    /// `imageio`
    Imageio(&'a ImageioSource),
    /// `vddk`
    Vddk(&'a VddkSource),
}

impl Source<'_> {
    /// The name of the field.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::S3(_) => "s3",
            Self::Gcs(_) => "gcs",
            Self::Registry(_) => "registry",
            Self::Pvc(_) => "pvc",
            Self::Snapshot(_) => "snapshot",
            Self::Upload => "upload",
            Self::Blank => "blank",
            Self::Imageio(_) => "imageio",
            Self::Vddk(_) => "vddk",
        }
    }
}

impl Sources {
    /// The members that are present. Validation requires exactly one.
    pub fn members(&self) -> Vec<Source<'_>> {
        let Self { http, s3, gcs, registry, pvc, snapshot, upload, blank, imageio, vddk } = self;
        [
            http.as_ref().map(Source::Http),
            s3.as_ref().map(Source::S3),
            gcs.as_ref().map(Source::Gcs),
            registry.as_ref().map(Source::Registry),
            pvc.as_ref().map(Source::Pvc),
            snapshot.as_ref().map(Source::Snapshot),
            upload.as_ref().map(|Empty {}| Source::Upload),
            blank.as_ref().map(|Empty {}| Source::Blank),
            imageio.as_ref().map(Source::Imageio),
            vddk.as_ref().map(Source::Vddk),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// `{}`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// A web server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpSource {
    /// `http://…` or `https://…`.
    pub url: String,
    /// A Secret with `accessKeyId` and `secretKey`: user and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap whose every value is PEM to trust, in addition to the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Request headers, each `Name: value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_headers: Vec<String>,
    /// Secrets whose every value is a request header.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret_extra_headers: Vec<String>,
    /// `algorithm:hex` of the bytes on the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The server's certificate is not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// An object in S3.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct S3Source {
    /// `https://host/bucket/key`.
    pub url: String,
    /// A Secret with `accessKeyId` and `secretKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap whose every value is PEM to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
}

/// An object in Google's store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GcsSource {
    /// `gs://bucket/object`.
    pub url: String,
    /// A Secret with `credentials.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
}

/// A container disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistrySource {
    /// `docker://…` or `oci-archive:…`. Not together with `image_stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// An image stream of OpenShift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_stream: Option<String>,
    /// `pod`: the worker pulls the image; `node`: the kubelet does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_method: Option<String>,
    /// A Secret with `accessKeyId` and `secretKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap whose every value is PEM to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Which image of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// Which image of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Platform {
    /// `amd64`, `arm64`, `s390x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// A PVC or snapshot in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedSource {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A disk of oVirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageioSource {
    /// Of the engine's API.
    pub url: String,
    /// The disk.
    pub disk_id: String,
    /// A Secret with `accessKeyId` and `secretKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap whose every value is PEM to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// The server's certificate is not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// A disk of VMware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VddkSource {
    /// Of vCenter or the ESXi host.
    pub url: String,
    /// The virtual machine.
    pub uuid: String,
    /// The disk.
    pub backing_file: String,
    /// Of the server's certificate.
    pub thumbprint: String,
    /// A Secret with `accessKeyId` and `secretKey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap whose every value is PEM to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// The image that holds the VDDK library.
    #[serde(rename = "initImageURL", skip_serializing_if = "Option::is_none")]
    pub init_image_url: Option<String>,
    /// A ConfigMap with more options for the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<String>,
}
