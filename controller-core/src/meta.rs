//! Metadata and common fields of objects.

use std::collections::BTreeMap;

use api::annotations::state;
use api::{ClaimPhase, PodPhase, labels};
pub use contract::go_bool;
use contract::{ByteCount, Quantity};
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// Annotations or labels.
pub type Pairs = BTreeMap<String, String>;

/// Value of `app.kubernetes.io/managed-by`.
pub const MANAGED_BY: &str = "cdi-controller";

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether there is such an annotation, whatever its value.
pub fn has_annotation(meta: &ObjectMeta, key: &str) -> bool {
    annotation(meta, key).is_some()
}

/// Whether an annotation is true, in any spelling that Go parses as true.
pub fn is_true(meta: &ObjectMeta, key: &str) -> bool {
    annotation(meta, key).and_then(go_bool).unwrap_or(false)
}

/// The value of a label.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// The object that controls this one.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// The namespace, empty for cluster-wide objects.
pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// A quantity in bytes; `None` for one that cannot be read or is less than zero.
pub fn bytes(quantity: &WireQuantity) -> Option<ByteCount> {
    quantity.0.parse::<Quantity>().ok()?.bytes()
}

/// `requests.storage` of a PVC as it is written.
pub fn requested(claim: &PersistentVolumeClaim) -> Option<&WireQuantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// Whether a PVC requests a size. Clients in Go write an unset quantity as zero.
pub fn is_sized(claim: &PersistentVolumeClaim) -> bool {
    requested(claim).is_some_and(|size| !is_zero(size))
}

/// Whether a quantity is zero, however it is written.
pub fn is_zero(quantity: &WireQuantity) -> bool {
    bytes(quantity).is_some_and(|size| size.get() == 0)
}

/// The storage class of a PVC; `Some("")` requests a PVC without one.
pub fn storage_class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

pub fn claim_phase(claim: &PersistentVolumeClaim) -> ClaimPhase {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default().into()
}

pub fn pod_phase(pod: &Pod) -> PodPhase {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()).unwrap_or_default().into()
}

/// The phase of a pod that works for a PVC, ahead of the kubelet: that reports `Succeeded` only once it has stopped the pod's sandbox
/// too, up to a second after the containers. After exit code 0 workers are not started again: their restart policy is `OnFailure`.
pub fn worker_pod_phase(pod: &Pod) -> PodPhase {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let has_succeeded = |container: &ContainerStatus| {
        let end = container.state.as_ref().and_then(|state| state.terminated.as_ref());
        end.is_some_and(|end| end.exit_code == 0)
    };
    match (pod_phase(pod), containers) {
        (PodPhase::Running, Some(containers @ [_, ..])) if containers.iter().all(has_succeeded) => {
            PodPhase::Succeeded
        }
        (phase, _) => phase,
    }
}

/// The phase of the worker of a PVC, from its annotation. `Unset`: there is none.
pub fn worker_phase(claim: &ObjectMeta) -> PodPhase {
    annotation(claim, state::POD_PHASE).unwrap_or_default().into()
}

/// Whether a PVC names its volume, which decides from which nodes it can be reached.
pub fn has_volume(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())
}

/// Whether the volume mode of a PVC is `Block`. The default is `Filesystem`.
pub fn is_block(claim: &PersistentVolumeClaim) -> bool {
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    mode == Some("Block")
}

/// The installation, for the labels of created objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// Namespace of the controllers.
    pub namespace: String,
    /// Value of `app.kubernetes.io/part-of`.
    pub part_of: Option<String>,
    /// Value of `app.kubernetes.io/version`.
    pub version: Option<String>,
}

impl Installation {
    /// Labels of all objects that the controllers create.
    pub fn labels(&self) -> Pairs {
        let mut pairs = Pairs::from([
            (labels::APP.into(), labels::APP_VALUE.into()),
            (labels::MANAGED_BY.into(), MANAGED_BY.into()),
            (labels::APP_COMPONENT.into(), "storage".into()),
        ]);
        for (key, value) in [(labels::PART_OF, &self.part_of), (labels::VERSION, &self.version)] {
            if let Some(value) = value {
                pairs.insert(key.into(), value.clone());
            }
        }
        pairs
    }
}

/// A controlling owner whose foreground deletion waits for the owned object.
pub fn owned_by(api_version: &str, kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name(owner).into(),
        uid: uid(owner).into(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Changes of annotations: `None` removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub BTreeMap<String, Option<String>>);

impl Changes {
    /// Sets `key` to `value`, if it differs.
    pub fn set(&mut self, present: &ObjectMeta, key: &str, value: impl Into<String>) {
        let value = value.into();
        if annotation(present, key) != Some(value.as_str()) {
            self.0.insert(key.into(), Some(value));
        }
    }

    /// Removes `key`, if it is there.
    pub fn remove(&mut self, present: &ObjectMeta, key: &str) {
        if has_annotation(present, key) {
            self.0.insert(key.into(), None);
        }
    }

    /// Sets `key` to `value`, or removes it.
    pub fn put(&mut self, present: &ObjectMeta, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.set(present, key, value),
            None => self.remove(present, key),
        }
    }

    /// Records the condition `Running`.
    pub fn set_running(
        &mut self,
        present: &ObjectMeta,
        running: bool,
        reason: &str,
        message: &str,
    ) {
        self.set(present, state::RUNNING, running.to_string());
        self.set(present, state::RUNNING_REASON, reason);
        self.set(present, state::RUNNING_MESSAGE, message);
    }

    /// Applies them as the API server does.
    pub fn apply_to(&self, metadata: &mut ObjectMeta) {
        let annotations = metadata.annotations.get_or_insert_default();
        for (key, value) in &self.0 {
            match value {
                Some(value) => annotations.insert(key.clone(), value.clone()),
                None => annotations.remove(key),
            };
        }
    }

    /// Nothing to write.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object's annotations after the changes.
    pub fn applied_to(&self, present: &ObjectMeta) -> Pairs {
        let mut pairs = present.annotations.clone().unwrap_or_default();
        for (key, value) in &self.0 {
            match value {
                Some(value) => pairs.insert(key.clone(), value.clone()),
                None => pairs.remove(key),
            };
        }
        pairs
    }
}
