//! The objects that were created for a clone so far.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::volume_of;
use crate::engine::Engine;
use controller_core::bound::ObservedEvent;
use controller_core::clone::{IntermediateObjects, Names, SnapshotState, owner_uid, state_of};
use controller_core::volume::PersistentVolume;

/// The intermediate objects of a clone.
pub struct Parts {
    pub(super) claim: Option<Arc<PersistentVolumeClaim>>,
    pub(super) volume: Option<Arc<PersistentVolume>>,
    pub(super) pvc_warnings: Vec<ObservedEvent>,
    pub(super) source_claim: Option<Arc<PersistentVolumeClaim>>,
    pub(super) snapshot: Option<SnapshotState>,
    pub(super) pod: Option<Arc<Pod>>,
}

impl Parts {
    /// By name, and only with the label of the target: another client may have created an object of that name.
    pub fn observe(engine: &Engine, namespace: &str, target_uid: &str, names: &Names) -> Self {
        let caches = &engine.api.caches;
        let is_ours = |metadata: &ObjectMeta| owner_uid(metadata) == Some(target_uid);
        let claim = |name: &str| {
            caches.claims.get(namespace, name).filter(|claim| is_ours(&claim.metadata))
        };
        let created = claim(&names.claim);
        let snapshot = caches.snapshots.get(namespace, &names.snapshot);
        let pod = caches.pods.get(namespace, &names.pod);
        Self {
            volume: created.as_ref().and_then(|claim| volume_of(engine, claim)),
            claim: created,
            pvc_warnings: engine.pvc_warnings.for_pvc(namespace, &names.claim),
            source_claim: claim(&names.source_claim),
            snapshot: snapshot
                .filter(|snapshot| is_ours(&snapshot.metadata))
                .map(|snapshot| state_of(&snapshot, None)),
            pod: pod.filter(|pod| is_ours(&pod.metadata)),
        }
    }

    pub fn intermediate_objects(&self) -> IntermediateObjects<'_> {
        IntermediateObjects {
            claim: self.claim.as_deref(),
            volume: self.volume.as_deref(),
            pvc_warnings: &self.pvc_warnings,
            source_claim: self.source_claim.as_deref(),
            snapshot: self.snapshot.as_ref(),
            pod: self.pod.as_deref(),
        }
    }

    /// The intermediate PVC, which is filled before its volume is bound to the target.
    pub fn claim(&self) -> Option<&PersistentVolumeClaim> {
        self.claim.as_deref()
    }
}
