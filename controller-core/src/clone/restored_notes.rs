//! The annotations of the target of a copy while a snapshot is restored to the PVC that pods copy.

use api::annotations::state;
use api::conditions::reason;
use api::v1beta1::DataVolume;
use api::{PodPhase, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{Origin, OriginKind, Phase, RestoreStep};
use crate::copy;
use crate::meta::{self, Changes};

/// The snapshot that a PVC is a copy of, if the copied PVC has the name that the DataVolume gives to a restored one.
pub fn restored_origin(volume: &DataVolume, claim: &PersistentVolumeClaim) -> Option<Origin> {
    let origin = Origin::copied(&claim.metadata)?;
    let requested = Origin::requested(&claim.metadata)?;
    let is_its = requested.name == names::restored_pvc(meta::uid(&volume.metadata));
    (origin.kind == OriginKind::Snapshot && is_its).then_some(origin)
}

/// Whether the copy is complete.
pub fn is_copied(claim: &PersistentVolumeClaim) -> bool {
    meta::is_true(&claim.metadata, state::CLONE_OF)
        || meta::worker_phase(&claim.metadata) == PodPhase::Succeeded
}

/// Whether pods copy the restored PVC already.
pub fn has_copy_source(target: &PersistentVolumeClaim) -> bool {
    meta::annotation(&target.metadata, state::CLONE_PHASE) == Some(Phase::HostClone.as_str())
}

/// The changes to the target once the copy is complete.
pub fn restore_finished(target: &PersistentVolumeClaim) -> Changes {
    let mut changes = Changes::default();
    if meta::is_true(&target.metadata, state::CLONE_OF) {
        changes.set(&target.metadata, state::CLONE_PHASE, Phase::Succeeded.as_str());
    }
    changes
}

/// The changes to the target before, in the annotations that the source pod sets later.
pub fn restore_progress(target: &PersistentVolumeClaim, step: &RestoreStep) -> Changes {
    let mut changes = match &step.warning {
        Some(warning) => copy::not_running(&target.metadata, &warning.reason, &warning.message),
        None => {
            let message = format!("Waits for {}", step.waits_for);
            copy::not_running(&target.metadata, reason::PENDING, &message)
        }
    };
    changes.set(&target.metadata, state::CLONE_PHASE, step.phase.as_str());
    changes
}
