//! The PVC of a DataVolume: its spec, size, labels and annotations.

mod modes;
mod source;

use api::annotations::{request, state};
use api::labels;
use api::v1beta1::{
    CdiConfig, ContentType, DataVolume, DataVolumeSpec, StorageProfile, StorageSpec,
};
use contract::{ByteCount, Quantity};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta::{self, Installation, Pairs};
use crate::operation::{Operation, PopulationMode};
use crate::volume::PersistentVolume;
use crate::{classes, config, import};

pub use source::{annotations, common_annotations, upload_annotations};

/// What the PVC depends on.
pub struct Facts<'a> {
    pub volume: &'a DataVolume,
    /// All storage classes.
    pub classes: &'a [StorageClass],
    /// Their profiles.
    pub profiles: &'a [StorageProfile],
    /// Volumes, for storage classes that do not exist.
    pub volumes: &'a [PersistentVolume],
    /// The effective settings.
    pub config: Option<&'a CdiConfig>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// Why no PVC can be created. Each is reported with the event `ErrClaimNotValid`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither `pvc` nor `storage`.
    #[error("the DataVolume has neither spec.pvc nor spec.storage")]
    NoForm,
    /// Files need a file system.
    #[error("ContentType Archive cannot have block volumeMode")]
    ArchiveOnBlock,
    /// A storage class or a volume may be created later.
    #[error("DataVolume.storage spec is missing accessMode and no storageClass to choose profile")]
    NoClass,
    /// The profile is empty.
    #[error(
        "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile {profile}"
    )]
    NoModes {
        /// Its name.
        profile: String,
    },
    /// The profile has nothing for the volume mode.
    #[error("Spec is missing accessMode and cannot get access mode from StorageProfile {profile}")]
    NoAccessMode {
        /// Its name.
        profile: String,
    },
    /// Only a clone may leave its size to its source.
    #[error("PVC Spec is not valid - missing storage size")]
    NoSize,
    /// Not a quantity.
    #[error("PVC Spec is not valid - {size:?} is not a storage size")]
    BadSize { size: String },
    /// Less than any disk.
    #[error("PVC Spec is not valid - storage size should be at least 1MiB")]
    TooSmall,
    /// More bytes than fit a quantity.
    #[error("PVC Spec is not valid - the storage size and the file system's overhead pass 2^63")]
    TooLarge,
}

impl Error {
    /// Whether only a change of a StorageClass, StorageProfile or volume can resolve it, so that a retry before is
    /// useless.
    pub fn waits_for_storage(&self) -> bool {
        match self {
            Self::NoClass => true,
            Self::NoForm
            | Self::ArchiveOnBlock
            | Self::NoModes { .. }
            | Self::NoAccessMode { .. }
            | Self::NoSize
            | Self::BadSize { .. }
            | Self::TooSmall
            | Self::TooLarge => false,
        }
    }
}

/// The spec of a new PVC. An existing PVC is never changed to match it.
///
/// # Errors
/// [`Error`], whose text is the message of the event.
pub fn spec(facts: &Facts) -> Result<PersistentVolumeClaimSpec, Error> {
    let DataVolumeSpec { pvc, storage, .. } = &facts.volume.spec;
    match (pvc, storage) {
        (Some(spec), _) => Ok(spec.clone()),
        (None, Some(storage)) if webhook_renders(facts) => Ok(unrendered(storage)),
        (None, Some(storage)) => rendered(facts, storage),
        (None, None) => Err(Error::NoForm),
    }
}

/// Whether the PVC webhook completes this PVC, as it does every PVC with this label.
fn webhook_renders(facts: &Facts) -> bool {
    let setting = facts.config.and_then(|config| config.spec.webhook_pvc_rendering.as_deref());
    let label = meta::label(&facts.volume.metadata, labels::APPLY_STORAGE_PROFILE);
    setting != Some("Disabled") && label == Some("true") && !is_sized_by_source(facts.volume)
}

/// Whether the size is that of a source. It may be in another namespace, where the webhook looks at nothing, as it
/// verifies no permission. The controller looks once it has verified the token.
fn is_sized_by_source(volume: &DataVolume) -> bool {
    let storage = volume.spec.storage.as_ref();
    let resources = storage.and_then(|storage| storage.resources.as_ref());
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    Operation::from_spec(&volume.spec) == Operation::Clone
        && requests.is_none_or(|requests| requests.get("storage").is_none_or(meta::is_zero))
}

fn unrendered(storage: &StorageSpec) -> PersistentVolumeClaimSpec {
    let mode = storage.volume_mode.clone().filter(|mode| !mode.is_empty());
    let mode = mode.unwrap_or_else(|| modes::FROM_PROFILE.to_owned());
    PersistentVolumeClaimSpec { volume_mode: Some(mode), ..copied(storage) }
}

fn copied(storage: &StorageSpec) -> PersistentVolumeClaimSpec {
    let StorageSpec {
        access_modes,
        selector,
        resources,
        volume_name,
        storage_class_name,
        volume_mode,
        data_source,
        data_source_ref,
    } = storage.clone();
    PersistentVolumeClaimSpec {
        access_modes,
        selector,
        resources,
        volume_name,
        storage_class_name,
        volume_mode,
        data_source,
        data_source_ref,
        volume_attributes_class_name: None,
    }
}

fn rendered(facts: &Facts, storage: &StorageSpec) -> Result<PersistentVolumeClaimSpec, Error> {
    let modes = modes::complete(facts, storage, content_type(facts.volume))?;
    let size = size(facts, storage, &modes)?;
    let mut resources = storage.resources.clone().unwrap_or_default();
    resources.requests.get_or_insert_default().insert("storage".into(), size);
    Ok(PersistentVolumeClaimSpec {
        access_modes: Some(modes.access_modes),
        resources: Some(resources),
        storage_class_name: modes.class_name,
        volume_mode: modes.volume_mode,
        ..copied(storage)
    })
}

/// The size of the PVC: that of the disk and the overhead of its file system, at least the minimum of the storage.
fn size(facts: &Facts, storage: &StorageSpec, modes: &modes::Modes) -> Result<WireQuantity, Error> {
    let requests = storage.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let is_clone = Operation::from_spec(&facts.volume.spec).is_clone();
    let wanted = requests.and_then(|requests| requests.get("storage"));
    let Some(wanted) = wanted.filter(|size| !is_clone || !meta::is_zero(size)) else {
        // A clone is as large as its source, which the clone controller reads.
        return if is_clone { Ok(WireQuantity("0".into())) } else { Err(Error::NoSize) };
    };
    let disk = wanted.0.parse::<Quantity>().ok().and_then(Quantity::bytes);
    let disk = disk.ok_or_else(|| Error::BadSize { size: wanted.0.chars().take(40).collect() })?;
    if disk < ByteCount::MIB {
        return Err(Error::TooSmall);
    }
    let class_name = modes.class_name.as_deref();
    let claim = if modes.volume_mode.as_deref() == Some(modes::BLOCK) {
        disk
    } else {
        let status = facts.config.and_then(|config| config.status.as_ref());
        let overhead = config::overhead_of(status, facts.classes, class_name);
        overhead
            .pvc_for_disk(disk)
            .filter(|size| size.get() <= i64::MAX as u64)
            .ok_or(Error::TooLarge)?
    };
    let profile = class_name.and_then(|name| modes::profile(facts.profiles, name));
    match config::minimum_size(profile).filter(|least| *least > claim) {
        Some(least) => Ok(quantity(least)),
        None if claim == disk => Ok(wanted.clone()),
        None => Ok(quantity(claim)),
    }
}

/// The shortest exact form: `10Gi`, `11327976244`.
pub fn quantity(size: ByteCount) -> WireQuantity {
    let plain = size.to_string();
    let short = plain.parse::<Quantity>().map(|quantity| quantity.to_string());
    WireQuantity(short.unwrap_or(plain))
}

/// The content type of the DataVolume; a disk by default.
pub fn content_type(volume: &DataVolume) -> ContentType {
    volume.spec.content_type.unwrap_or_default()
}

/// Whether storage is allocated for every byte: as the DataVolume requests, else as the cluster's settings do.
pub fn preallocation(requested: Option<bool>, config: Option<&CdiConfig>) -> bool {
    let cluster = || config.and_then(|config| config.status.as_ref()?.preallocation);
    requested.or_else(cluster).unwrap_or(false)
}

/// The PVC to create.
///
/// # Errors
/// [`Error`], whose text is the message of the event.
pub fn object(
    facts: &Facts,
    operation: &Operation,
    population: PopulationMode,
) -> Result<PersistentVolumeClaim, Error> {
    let mut spec = spec(facts)?;
    let volume = facts.volume;
    let mut annotations = volume.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(request::POPULATED_FOR);
    annotations.extend(common_annotations(
        content_type(volume),
        preallocation(volume.spec.preallocation, facts.config),
    ));
    let mut annotate =
        |key: &str, value: &str| annotations.insert(key.to_owned(), value.to_owned());
    annotate(state::POD_RESTARTS, "0");
    annotate(state::CREATED_FOR_DATA_VOLUME, meta::uid(&volume.metadata));
    annotate(request::USE_POPULATOR, population.annotation());
    if let Some(class) = volume.spec.priority_class_name.as_ref().filter(|name| !name.is_empty()) {
        annotate(request::PRIORITY_CLASS, class);
    }
    let account = volume.spec.service_account_name.as_ref().filter(|name| !name.is_empty());
    if let Some(account) = account {
        annotate(request::SERVICE_ACCOUNT, account);
    }
    match population {
        PopulationMode::Populator => {
            if let Some(source) = operation.populator(meta::uid(&volume.metadata)) {
                spec.data_source_ref = Some(source);
                let honors =
                    facts.config.is_some_and(|config| config::honors_waiting(&config.spec));
                if !honors {
                    annotate(request::BIND_IMMEDIATE, "");
                }
            }
        }
        PopulationMode::Legacy => annotations.extend(match operation {
            Operation::Import(source) => {
                let mut pairs = source::annotations(source);
                if source.imageio.is_some() || source.vddk.is_some() {
                    let stages = volume.spec.checkpoints.as_deref().unwrap_or_default();
                    let last_is_final = volume.spec.final_checkpoint.unwrap_or(false);
                    pairs.extend(import::stages::first(stages, last_is_final));
                }
                pairs
            }
            Operation::Upload => upload_annotations(),
            Operation::External | Operation::Clone | Operation::Undecided => Pairs::new(),
        }),
    }
    if *operation == Operation::External {
        annotations.insert(request::EXTERNAL_POPULATION.into(), "true".into());
    }
    Ok(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: volume.metadata.name.clone(),
            namespace: volume.metadata.namespace.clone(),
            labels: Some(claim_labels(facts, &spec)),
            annotations: Some(annotations),
            owner_references: Some(vec![meta::owned_by(
                api::data_volume::API_VERSION,
                "DataVolume",
                &volume.metadata,
            )]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

fn claim_labels(facts: &Facts, spec: &PersistentVolumeClaimSpec) -> Pairs {
    let mut pairs = Pairs::new();
    if spec.volume_mode.as_deref() != Some(modes::BLOCK) {
        // A file system that contains one disk is full from the start.
        pairs.insert(labels::FILLING_UP_ALERT.into(), "disabled".into());
    }
    pairs.extend(facts.volume.metadata.labels.clone().unwrap_or_default());
    pairs.extend(facts.installation.labels());
    pairs
}

/// The spec of a PVC with the same storage class, modes and size as another.
pub fn same_storage(claim: &PersistentVolumeClaim) -> PersistentVolumeClaimSpec {
    let spec = claim.spec.clone().unwrap_or_default();
    PersistentVolumeClaimSpec {
        access_modes: spec.access_modes,
        resources: spec.resources,
        storage_class_name: spec.storage_class_name,
        volume_mode: spec.volume_mode,
        ..PersistentVolumeClaimSpec::default()
    }
}

/// A request for so much storage.
pub fn request_of(size: ByteCount) -> VolumeResourceRequirements {
    VolumeResourceRequirements {
        requests: Some([("storage".to_owned(), quantity(size))].into()),
        limits: None,
    }
}

/// Whether a PVC waits for its first consumer, and the scheduler has not chosen a node yet.
pub fn waits_for_consumer(claim: &PersistentVolumeClaim, class: Option<&StorageClass>) -> bool {
    class.is_some_and(classes::waits_for_consumer)
        && !meta::has_annotation(&claim.metadata, request::SELECTED_NODE)
        && !meta::has_annotation(&claim.metadata, request::BIND_IMMEDIATE)
}

#[cfg(test)]
mod tests;
