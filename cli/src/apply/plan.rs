//! Plans the disk of a DataVolume from the manifest and the existing disk. Pure.

use api::annotations::request;
use api::validate::validate;
use api::{ClaimSpec, ContentType, DataVolume, DataVolumeSpec, Source, VolumeMode};
use contract::{ByteCount, Checksum, Hasher, Overhead};
use pipeline::SourceFormat;

use super::manifest::References;
use super::source_references::SourceReferences;
use crate::access::Access;

#[derive(Debug)]
pub struct VolumeFacts<'a> {
    pub references: &'a References,
    pub existing: Existing,
}

/// The state of the target path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existing {
    Nothing,
    /// A disk that `cdi apply` did not create.
    Foreign,
    /// A complete disk of the spec with this [`fingerprint`].
    Complete {
        spec: String,
    },
}

#[derive(Debug, PartialEq)]
pub enum VolumePlan {
    Keep,
    Make(Box<DiskJob>),
    /// The manifest cannot be applied here.
    Refuse(ManifestRefusal),
}

/// A disk to create.
#[derive(Debug, PartialEq)]
pub struct DiskJob {
    pub content: Content,
    /// Size of the PVC, the upper limit of the disk.
    pub claim: ByteCount,
    /// Size of the PVC without its filesystem overhead: a smaller disk is expanded to it.
    pub usable: ByteCount,
    pub preallocate: bool,
    pub format: SourceFormat,
}

/// The content of a disk.
#[derive(Debug, PartialEq)]
pub enum Content {
    Blank,
    Image {
        url: String,
        access: Box<Access>,
        checksum: Option<Checksum>,
    },
    /// The files of a tar archive.
    Archive {
        url: String,
        access: Box<Access>,
        checksum: Option<Checksum>,
    },
}

/// Why a manifest cannot be applied here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestRefusal {
    /// A cluster would refuse it, too.
    #[error(transparent)]
    Invalid(#[from] api::Invalid),
    #[error(
        "spec.source.{field} is not supported by cdi apply (supported: http, s3, gcs, registry, blank): {because}"
    )]
    Source { field: &'static str, because: &'static str },
    #[error(
        "{field} refers to objects of a cluster, which cdi apply does not have: set spec.source"
    )]
    NeedsCluster {
        /// `spec.sourceRef` or such.
        field: &'static str,
    },
    #[error("spec.contentType archive is supported by cdi apply for spec.source.http only")]
    Archive,
    #[error(
        "cannot create a block volume in a directory: write the image to a device with \
         `cdi import SOURCE --to /dev/…`, or set volumeMode to Filesystem"
    )]
    Block,
    #[error("missing {kind} {namespace}/{name} in the manifests, which {field} names")]
    Missing {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        /// Where it should be.
        namespace: String,
        name: String,
        /// Where it is named.
        field: &'static str,
    },
    #[error("missing key {key} in Secret {name}, which {field} needs")]
    NoKey {
        name: String,
        /// `accessKeyId` or `secretKey`.
        key: &'static str,
        /// Where the Secret is named.
        field: &'static str,
    },
    #[error("{field}: {because}")]
    Address {
        /// Where it stands.
        field: &'static str,
        /// What is wrong with it.
        because: String,
    },
    #[error(transparent)]
    Base64(#[from] api::secrets::BadBase64),
    #[error("cannot use key {key} of {kind} {name}: its value is not UTF-8 text")]
    NotText {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        name: String,
        /// The value's key.
        key: String,
    },
    /// The message does not quote the header, as it may be secret.
    #[error("cannot parse {place} as a request header: expected 'Name: value'")]
    Header {
        /// Where it stands.
        place: String,
    },
    #[error("the volume would be larger than 2^64 bytes: request less storage")]
    TooLarge,
    #[error("a disk exists that cdi apply did not create: move or delete it")]
    Foreign,
    /// The first words are upstream CDI's.
    #[error(
        "Cannot update DataVolume Spec: the disk was created from another one. To create it again, delete the volume's directory"
    )]
    Changed,
}

/// URL schemes that are supported here: those of a cluster, and local files.
const SCHEMES: &[&str] = &["http", "https", "gs", "file"];

pub fn plan_volume(volume: &DataVolume, overhead: Overhead, facts: &VolumeFacts) -> VolumePlan {
    match plan_disk(volume, overhead, facts.references) {
        Err(refusal) => VolumePlan::Refuse(refusal),
        Ok(job) => match &facts.existing {
            Existing::Nothing => VolumePlan::Make(Box::new(job)),
            Existing::Foreign => VolumePlan::Refuse(ManifestRefusal::Foreign),
            Existing::Complete { spec } if *spec == fingerprint(&volume.spec) => VolumePlan::Keep,
            Existing::Complete { .. } => VolumePlan::Refuse(ManifestRefusal::Changed),
        },
    }
}

/// Identifies a spec: `sha256:…` of all fields that are set, in a fixed order.
pub fn fingerprint(spec: &DataVolumeSpec) -> String {
    let mut hasher = Hasher::sha256();
    let json = serde_json::to_vec(spec).expect("a spec is a tree of strings, numbers and lists");
    hasher.update(&json);
    hasher.finish().to_string()
}

fn plan_disk(
    volume: &DataVolume,
    overhead: Overhead,
    references: &References,
) -> Result<DiskJob, ManifestRefusal> {
    validate(volume, SCHEMES)?;
    let spec = &volume.spec;
    let content = content(volume, references)?;
    let (claim, inflate) = match (&spec.pvc, &spec.storage) {
        (Some(claim), _) => (claim, false),
        (None, Some(claim)) => (claim, true),
        (None, None) => return Err(ManifestRefusal::NeedsCluster { field: "spec" }), // validated
    };
    match claim.volume_mode {
        None | Some(VolumeMode::Filesystem | VolumeMode::FromStorageProfile) => {}
        Some(VolumeMode::Block) => return Err(ManifestRefusal::Block),
    }
    let claim = claim_size(claim, inflate, overhead).ok_or(ManifestRefusal::TooLarge)?;
    Ok(DiskJob {
        content,
        claim,
        usable: overhead.usable(claim),
        preallocate: spec.preallocation.unwrap_or(false),
        format: source_format(volume),
    })
}

/// Reads the annotation that the controller reads in a cluster.
fn source_format(volume: &DataVolume) -> SourceFormat {
    match volume.metadata.annotations.get(request::SOURCE_FORMAT).map(String::as_str) {
        Some("raw") => SourceFormat::Raw,
        _ => SourceFormat::Detect,
    }
}

/// `spec.storage` is enlarged by the overhead, `spec.pvc` is used unchanged.
fn claim_size(claim: &ClaimSpec, inflate: bool, overhead: Overhead) -> Option<ByteCount> {
    let requested = claim.requested()?.bytes()?;
    if inflate { overhead.required(requested) } else { Some(requested) }
}

fn content(volume: &DataVolume, references: &References) -> Result<Content, ManifestRefusal> {
    let spec = &volume.spec;
    let sources = match (&spec.source, &spec.source_ref) {
        (Some(sources), _) => sources,
        (None, Some(_)) => return Err(ManifestRefusal::NeedsCluster { field: "spec.sourceRef" }),
        (None, None) => return Err(ManifestRefusal::NeedsCluster { field: "dataSource" }),
    };
    let refuse = |field, because| Err(ManifestRefusal::Source { field, because });
    for source in sources.members() {
        match source {
            Source::Http(_) | Source::S3(_) | Source::Gcs(_) | Source::Blank => {}
            Source::Registry(registry) if registry.pull_method.as_deref() == Some("node") => {
                return refuse("registry", "the node pull needs a cluster");
            }
            Source::Registry(_) => {}
            Source::Pvc(_) | Source::Snapshot(_) => {
                return refuse(source.field(), "clones need a cluster");
            }
            Source::Upload => {
                return refuse("upload", "there is no upload server; use cdi import with a file");
            }
            Source::Imageio(_) | Source::Vddk(_) => {
                return refuse(
                    source.field(),
                    "it needs services of another virtualization platform",
                );
            }
        }
    }
    let given = SourceReferences { namespace: volume.metadata.namespace(), references };
    let image = |url, access, checksum| Content::Image { url, access: Box::new(access), checksum };
    match (spec.content_type(), &sources.http) {
        (Some(ContentType::DiskImage), None) => {}
        (Some(content), Some(http)) => {
            let (url, access) = (http.url.clone(), given.access(http)?);
            let checksum = http.checksum.as_deref().and_then(|checksum| checksum.parse().ok()); // validated
            return Ok(match content {
                ContentType::DiskImage => image(url, access, checksum),
                ContentType::Archive => {
                    Content::Archive { url, access: Box::new(access), checksum }
                }
            });
        }
        (Some(ContentType::Archive), None) | (None, _) => return Err(ManifestRefusal::Archive),
    }
    if let Some(registry) = &sources.registry
        && let Some(url) = &registry.url
    {
        return Ok(image(url.clone(), given.registry(registry)?, None));
    }
    if let Some(s3) = &sources.s3 {
        let (url, access) = given.s3(s3)?;
        return Ok(image(url, access, None));
    }
    if let Some(gcs) = &sources.gcs {
        let (url, access) = given.gcs(gcs)?;
        return Ok(image(url, access, None));
    }
    Ok(Content::Blank)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
