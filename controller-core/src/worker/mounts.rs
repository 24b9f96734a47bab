//! Which PVC a pod works for.

use api::labels::{self, component};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::meta;

/// Whether a pod was created for this very PVC, and not for an earlier one of its name. An importer for an image stream
/// has no owner; any other pod without an owner belongs to a user, who may have written its name to the PVC's
/// annotations.
pub fn works_for(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    match meta::controller(&pod.metadata) {
        Some(owner) => owner.uid == meta::uid(&claim.metadata),
        None => {
            let is_importer =
                meta::label(&pod.metadata, labels::COMPONENT) == Some(component::IMPORTER);
            is_importer && mounts(pod, meta::name(&claim.metadata))
        }
    }
}

pub fn mounts(pod: &Pod, claim: &str) -> bool {
    claims_in(pod).any(|name| name == claim)
}

/// Names of the PVCs that a pod has mounted.
pub fn claims_in(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|source| source.claim_name.as_str())
}
