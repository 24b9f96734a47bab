//! The form in which an imported image is retained: the PVC it was imported to, or a snapshot of it, which is cloned
//! faster.

use api::annotations::{cron as key, import, request};
use api::labels;
use api::v1beta1::{ClaimVolumeMode, DataImportCron, StorageProfile};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::import::{marks, nanoseconds};
use crate::meta::{self, Changes, Installation};
use crate::snapshot::{VolumeSnapshot, VolumeSnapshotOrigin, VolumeSnapshotSpec};
use crate::storage_profile::SnapshotClass;

/// The form in which an image is retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The PVC.
    Claim,
    Snapshot {
        class: String,
    },
}

impl Form {
    /// As in `status.sourceFormat`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Claim => "pvc",
            Self::Snapshot { .. } => "snapshot",
        }
    }
}

/// The form of images on this storage class, as its profile states. A PVC if no driver can take snapshots.
pub fn form(
    class: Option<&StorageClass>,
    profile: Option<&StorageProfile>,
    snapshot_classes: &[SnapshotClass],
) -> Form {
    let status = profile.and_then(|profile| profile.status.as_ref());
    let format = status.and_then(|status| status.data_import_cron_source_format.as_deref());
    let (Some("snapshot"), Some(class), Some(profile)) = (format, class, profile) else {
        return Form::Claim;
    };
    let fits = |found: &&SnapshotClass| found.driver == class.provisioner;
    let named = |name: &str| snapshot_classes.iter().filter(fits).find(|found| found.name == name);
    let own = meta::annotation(&profile.metadata, request::CRON_SNAPSHOT_CLASS).and_then(named);
    let advised = || status.and_then(|status| status.snapshot_class.as_deref()).and_then(named);
    let first = || {
        let all = snapshot_classes.iter().filter(fits);
        all.min_by_key(|found| (!found.is_default, found.name.as_str()))
    };
    let found = own.or_else(advised).or_else(first);
    found.map_or(Form::Claim, |found| Form::Snapshot { class: found.name.clone() })
}

/// The size of the disk in the template.
fn template_size(cron: &DataImportCron) -> Option<&Quantity> {
    let spec = &cron.spec.template.spec;
    let of_storage = spec.storage.as_ref().and_then(|storage| storage.resources.as_ref());
    let of_pvc = spec.pvc.as_ref().and_then(|pvc| pvc.resources.as_ref());
    of_storage.or(of_pvc)?.requests.as_ref()?.get("storage")
}

fn volume_mode(claim: &PersistentVolumeClaim) -> &'static str {
    let mode =
        if meta::is_block(claim) { ClaimVolumeMode::Block } else { ClaimVolumeMode::Filesystem };
    mode.as_str()
}

/// The snapshot of an image that has been imported.
pub(super) fn snapshot(
    cron: &DataImportCron,
    claim: &PersistentVolumeClaim,
    class: &str,
    installation: &Installation,
    now: Timestamp,
) -> VolumeSnapshot {
    let mut all = claim.metadata.labels.clone().unwrap_or_default();
    all.retain(|key, _| labels::is_copied(key));
    all.extend(installation.labels());
    all.insert(labels::COMPONENT.into(), String::new());
    all.extend(marks(cron));
    let mut annotations = meta::Pairs::from([
        (key::LAST_USE_TIME.into(), nanoseconds(now)),
        (import::SOURCE_VOLUME_MODE.into(), volume_mode(claim).into()),
    ]);
    if let Some(size) = template_size(cron).or_else(|| meta::requested(claim)) {
        annotations.insert(import::ADVISED_RESTORE_SIZE.into(), size.0.clone());
    }
    VolumeSnapshot {
        metadata: ObjectMeta {
            name: claim.metadata.name.clone(),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(all),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotOrigin {
                persistent_volume_claim_name: claim.metadata.name.clone(),
                volume_snapshot_content_name: None,
            },
            volume_snapshot_class_name: Some(class.to_owned()),
        },
        status: None,
    }
}

/// Adds the annotations that a client needs to restore a snapshot, if the snapshot existed before and lacks them.
pub(super) fn completed(
    cron: &DataImportCron,
    snapshot: &VolumeSnapshot,
    profile: Option<&StorageProfile>,
    changes: &mut Changes,
) {
    let present = &snapshot.metadata;
    if !meta::has_annotation(present, import::SOURCE_VOLUME_MODE) {
        let storage = cron.spec.template.spec.storage.as_ref();
        let pvc = cron.spec.template.spec.pvc.as_ref();
        let requested = storage.and_then(|storage| storage.volume_mode.as_deref());
        let requested = requested.or(pvc.and_then(|pvc| pvc.volume_mode.as_deref()));
        let sets =
            profile.and_then(|profile| profile.status.as_ref()?.claim_property_sets.as_ref());
        let first = sets.and_then(|sets| sets.first()).map(|set| set.volume_mode.as_str());
        if let Some(mode) = requested.or(first) {
            changes.set(present, import::SOURCE_VOLUME_MODE, mode);
        }
    }
    if !meta::has_annotation(present, import::ADVISED_RESTORE_SIZE)
        && let Some(size) = template_size(cron).or_else(|| snapshot.restore_size())
    {
        changes.set(present, import::ADVISED_RESTORE_SIZE, size.0.as_str());
    }
}

/// Whether a snapshot is of this class. One without a class may be of any.
pub(super) fn is_of_class(snapshot: &VolumeSnapshot, class: &str) -> bool {
    snapshot.spec.volume_snapshot_class_name.as_deref().is_none_or(|name| name == class)
}
