//! What is to be done about a DataVolume, decided from the manifest and what is there.

use api::annotations::request;
use api::validate::validate;
use api::{ClaimSpec, ContentType, DataVolume, DataVolumeSpec, Source, VolumeMode};
use contract::{ByteCount, Checksum, Hasher, Overhead};
use pipeline::SourceFormat;

use super::given::Given;
use super::manifest::References;
use crate::access::Access;

/// What is there, found out before anyone decides.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Secrets and ConfigMaps of the manifests.
    pub references: &'a References,
    /// What lies where the disk belongs.
    pub existing: Existing,
}

/// What lies where the disk belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existing {
    /// No disk.
    Nothing,
    /// A disk that `cdi apply` did not make.
    Foreign,
    /// A complete disk, made from the spec with this [`fingerprint`].
    Complete {
        /// As it was noted then.
        spec: String,
    },
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum VolumePlan {
    /// The disk is complete already.
    Keep,
    /// The disk has to be made.
    Make(Box<Work>),
    /// Nothing: the manifest cannot be carried out here.
    Refuse(Refusal),
}

/// A disk to be made.
#[derive(Debug, PartialEq)]
pub struct Work {
    /// What is in it.
    pub content: Content,
    /// The size of the volume's claim: no disk may be larger.
    pub claim: ByteCount,
    /// What is left of the claim for a disk: a smaller one grows to this.
    pub usable: ByteCount,
    /// Every byte is allocated.
    pub preallocate: bool,
    /// How the format of an image is determined.
    pub format: SourceFormat,
}

/// What is in a disk.
#[derive(Debug, PartialEq)]
pub enum Content {
    /// Nothing.
    Blank,
    /// An image.
    Image {
        /// Where it is.
        url: String,
        /// How to get at it.
        access: Box<Access>,
        /// What it hashes to.
        checksum: Option<Checksum>,
    },
    /// Files out of an archive.
    Archive {
        /// Where it is.
        url: String,
        /// How to get at it.
        access: Box<Access>,
        /// What it hashes to.
        checksum: Option<Checksum>,
    },
}

/// Why a manifest cannot be carried out here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A cluster would not take it either.
    #[error(transparent)]
    Invalid(#[from] api::Invalid),
    /// Not one of the sources that work here.
    #[error(
        "spec.source.{field} is not supported by cdi apply, which takes http, s3, gcs, registry and blank: {because}"
    )]
    Source {
        /// The member of `spec.source`.
        field: &'static str,
        /// What it would need.
        because: &'static str,
    },
    /// It follows another object.
    #[error(
        "{field} refers to objects of a cluster, which cdi apply does without: give spec.source"
    )]
    NeedsCluster {
        /// `spec.sourceRef` or such.
        field: &'static str,
    },
    /// A tar of files from somewhere else than a web server.
    #[error("spec.contentType archive is supported by cdi apply for spec.source.http only")]
    Archive,
    /// A device instead of a folder.
    #[error(
        "volumeMode Block asks for a device, and a folder holds files: write the image to a device with \
         `cdi import SOURCE --to /dev/…`, or ask for volumeMode Filesystem"
    )]
    Block,
    /// Named by the source, and not in the manifests.
    #[error("{kind} {namespace}/{name}, which {field} names, is not in the manifests")]
    Missing {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        /// Where it should be.
        namespace: String,
        /// Its name.
        name: String,
        /// Where it is named.
        field: &'static str,
    },
    /// A Secret lacks a value.
    #[error("Secret {name} has no {key}, which {field} needs")]
    NoKey {
        /// Its name.
        name: String,
        /// `accessKeyId` or `secretKey`.
        key: &'static str,
        /// Where the Secret is named.
        field: &'static str,
    },
    /// An address without bucket and key.
    #[error("{field}: {because}")]
    Address {
        /// Where it stands.
        field: &'static str,
        /// What is wrong with it.
        because: String,
    },
    /// A value cannot be decoded.
    #[error(transparent)]
    Base64(#[from] api::secrets::BadBase64),
    /// A value is not text.
    #[error("the value of {key} in {kind} {name} is not text")]
    NotText {
        /// `Secret` or `ConfigMap`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The value's key.
        key: String,
    },
    /// A header is none. It is not repeated, since it may be secret.
    #[error("{place} is no request header of the form 'Name: value'")]
    Header {
        /// Where it stands.
        place: String,
    },
    /// Nobody has so much.
    #[error("the volume would be larger than 2^64 bytes")]
    TooLarge,
    /// There is a disk already, from somewhere else.
    #[error("there is a disk already, which cdi apply did not make: move it out of the way")]
    Foreign,
    /// There is a disk already, as another manifest described it.
    #[error(
        "Cannot update DataVolume Spec: the disk was made from another one. To make it anew, delete the volume's folder"
    )]
    Changed,
}

/// Schemes of addresses that work here: those of a cluster, and local files.
const SCHEMES: &[&str] = &["http", "https", "gs", "file"];

/// What is to be done about `volume`.
pub fn plan_volume(volume: &DataVolume, overhead: Overhead, facts: &Facts) -> VolumePlan {
    match work(volume, overhead, facts.references) {
        Err(refusal) => VolumePlan::Refuse(refusal),
        Ok(work) => match &facts.existing {
            Existing::Nothing => VolumePlan::Make(Box::new(work)),
            Existing::Foreign => VolumePlan::Refuse(Refusal::Foreign),
            Existing::Complete { spec } if *spec == fingerprint(&volume.spec) => VolumePlan::Keep,
            Existing::Complete { .. } => VolumePlan::Refuse(Refusal::Changed),
        },
    }
}

/// Tells one spec from another: `sha256:…` of all fields that are set, in a fixed order.
pub fn fingerprint(spec: &DataVolumeSpec) -> String {
    let mut hasher = Hasher::sha256();
    let json = serde_json::to_vec(spec).expect("a spec is a tree of strings, numbers and lists");
    hasher.update(&json);
    hasher.finish().to_string()
}

fn work(volume: &DataVolume, overhead: Overhead, references: &References) -> Result<Work, Refusal> {
    validate(volume, SCHEMES)?;
    let spec = &volume.spec;
    let content = content(volume, references)?;
    let (claim, inflate) = match (&spec.pvc, &spec.storage) {
        (Some(claim), _) => (claim, false),
        (None, Some(claim)) => (claim, true),
        (None, None) => return Err(Refusal::NeedsCluster { field: "spec" }), // validated
    };
    match claim.volume_mode {
        None | Some(VolumeMode::Filesystem | VolumeMode::FromStorageProfile) => {}
        Some(VolumeMode::Block) => return Err(Refusal::Block),
    }
    let claim = claim_size(claim, inflate, overhead).ok_or(Refusal::TooLarge)?;
    Ok(Work {
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

/// `spec.storage` is made larger by the overhead, `spec.pvc` is taken to the letter.
fn claim_size(claim: &ClaimSpec, inflate: bool, overhead: Overhead) -> Option<ByteCount> {
    let requested = claim.requested()?.bytes()?;
    if inflate { overhead.required(requested) } else { Some(requested) }
}

fn content(volume: &DataVolume, references: &References) -> Result<Content, Refusal> {
    let spec = &volume.spec;
    let sources = match (&spec.source, &spec.source_ref) {
        (Some(sources), _) => sources,
        (None, Some(_)) => return Err(Refusal::NeedsCluster { field: "spec.sourceRef" }),
        (None, None) => return Err(Refusal::NeedsCluster { field: "dataSource" }),
    };
    let refuse = |field, because| Err(Refusal::Source { field, because });
    for source in sources.members() {
        match source {
            Source::Http(_) | Source::S3(_) | Source::Gcs(_) | Source::Blank => {}
            Source::Registry(registry) if registry.pull_method.as_deref() == Some("node") => {
                return refuse("registry", "a node pulls it, and there is none here");
            }
            Source::Registry(_) => {}
            Source::Pvc(_) | Source::Snapshot(_) => {
                return refuse(source.field(), "it clones a volume of a cluster");
            }
            Source::Upload => return refuse("upload", "nobody sends anything here; import a file"),
            Source::Imageio(_) | Source::Vddk(_) => {
                return refuse(source.field(), "it needs another virtualization's services");
            }
        }
    }
    let given = Given { namespace: volume.metadata.namespace(), references };
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
        (Some(ContentType::Archive), None) | (None, _) => return Err(Refusal::Archive),
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
