//! Scratch space, for images that cannot be written to the target while they are downloaded.
//!
//! Upstream CDI creates it for nearly every import. Here a worker gets it only after it has requested it, and the PVC's
//! annotations state why.

use api::ClaimPhase;
use api::annotations::{import, request};
use api::v1beta1::CdiConfigStatus;
use api::{labels, names};
use contract::{ByteCount, Overhead};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta::{self, Installation};
use crate::{claim, classes, config};

/// What scratch space depends on.
pub struct Facts<'a> {
    /// The PVC that is filled.
    pub claim: &'a PersistentVolumeClaim,
    /// The worker, which owns its scratch space.
    pub pod: &'a Pod,
    /// All storage classes.
    pub classes: &'a [StorageClass],
    /// The effective settings.
    pub config: Option<&'a CdiConfigStatus>,
    /// For the labels.
    pub installation: &'a Installation,
}

/// Whether the worker of a PVC has requested scratch space.
pub fn is_needed(claim: &PersistentVolumeClaim) -> bool {
    meta::is_true(&claim.metadata, import::REQUIRES_SCRATCH)
}

/// The class of scratch space: the configured one if it exists, else the cluster's default, else that of the target
/// PVC, else none.
pub fn class_name(
    config: Option<&CdiConfigStatus>,
    classes: &[StorageClass],
    of_claim: Option<&str>,
) -> Option<String> {
    let configured = config.and_then(|status| status.scratch_space_storage_class.as_deref());
    let configured = configured.and_then(|name| classes::named(classes, name));
    let class = configured.or_else(|| classes::default(classes));
    class.map(|class| meta::name(&class.metadata)).or(of_claim).map(str::to_owned)
}

/// A message about what scratch space waits for. `None`: it has its volume. Only a volume or the deletion of the
/// DataVolume ends the wait: a volume may still be provisioned, so an error would be premature.
pub fn lack(scratch: &PersistentVolumeClaim) -> Option<String> {
    if meta::claim_phase(scratch) == ClaimPhase::Bound {
        return None;
    }
    let name = meta::name(&scratch.metadata);
    let class = scratch.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    Some(match class.filter(|class| !class.is_empty()) {
        Some(class) => {
            format!(
                "The claim {name} for scratch space waits for a volume of storage class {class}."
            )
        }
        None => format!(
            "The claim {name} for scratch space waits for a volume that fits: there is no storage class for it. Mark \
             one as the default, or set scratchSpaceStorageClass."
        ),
    })
}

/// The size for the largest disk that fits the PVC. `None`: the request of the PVC cannot be parsed.
fn size(facts: &Facts, class_name: Option<&str>) -> Option<ByteCount> {
    let overhead = |class_name| config::overhead_of(facts.config, facts.classes, class_name);
    let own_class = facts.claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let own = if meta::is_block(facts.claim) { Overhead::ZERO } else { overhead(own_class) };
    let disk = own.usable(meta::bytes(meta::requested(facts.claim)?)?);
    overhead(class_name).pvc_for_disk(disk)?.round_up(ByteCount::MIB)
}

/// The PVC for scratch space. `None`: its size cannot be determined.
pub fn object(facts: &Facts) -> Option<PersistentVolumeClaim> {
    let of_claim = facts.claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class_name = class_name(facts.config, facts.classes, of_claim);
    let size = size(facts, class_name.as_deref())?;
    let metadata = &facts.claim.metadata;
    let is_foreign = |key: &str| key.contains("kubevirt.io/") && !key.contains("cdi.kubevirt.io/");
    let annotations = metadata.annotations.iter().flatten();
    // The volume of a PVC decides from where it can be reached. The selected node may be lost by now: scratch space must not be
    // bound to it, then, as the worker is not (`worker::affinity`).
    let has_volume = meta::has_volume(facts.claim);
    let is_of_node = |key: &str| key == request::SELECTED_NODE && !has_volume;
    let annotations = annotations
        .filter(|(key, _)| is_foreign(key) || is_of_node(key))
        .map(|(key, value)| (key.clone(), value.clone()));
    let mut all_labels = facts.installation.labels();
    all_labels.insert(labels::EXCLUDE_FROM_BACKUP.into(), "true".into());
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::scratch_pvc(meta::name(metadata))),
            namespace: metadata.namespace.clone(),
            labels: Some(all_labels),
            annotations: Some(annotations.collect()),
            owner_references: Some(vec![meta::owned_by("v1", "Pod", &facts.pod.metadata)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            resources: Some(claim::request_of(size)),
            storage_class_name: class_name,
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, is_default: bool) -> StorageClass {
        let annotations = is_default.then(|| json!({ request::DEFAULT_CLASS: "true" }));
        serde_json::from_value(
            json!({ "metadata": { "name": name, "annotations": annotations }, "provisioner": "p" }),
        )
        .unwrap()
    }

    fn configured(name: &str) -> CdiConfigStatus {
        CdiConfigStatus {
            scratch_space_storage_class: Some(name.into()),
            ..CdiConfigStatus::default()
        }
    }

    #[test]
    fn scratch_class_decision_table() {
        let plain = [class("a", false), class("s", false)];
        let with_default = [class("a", false), class("d", true), class("s", false)];
        for (config, classes, of_claim, expected) in [
            ("s", with_default.as_slice(), Some("a"), Some("s")),
            ("gone", &with_default, Some("a"), Some("d")),
            ("", &with_default, Some("a"), Some("d")),
            ("", &plain, Some("a"), Some("a")),
            ("gone", &plain, Some("a"), Some("a")),
            ("", &plain, None, None),
            ("", &[], None, None),
        ] {
            let status = configured(config);
            let found = class_name(Some(&status), classes, of_claim);
            assert_eq!(found.as_deref(), expected, "{config} {of_claim:?}");
        }
    }

    fn claim(size: &str, mode: &str, annotations: serde_json::Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "disk", "namespace": "vms", "annotations": annotations },
            "spec": {
                "storageClassName": "a", "volumeMode": mode, "accessModes": ["ReadWriteMany"],
                "resources": { "requests": { "storage": size } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn scratch_space_fits_the_largest_disk_of_the_pvc() {
        let mut config = configured("s");
        config.filesystem_overhead = serde_json::from_value(
            json!({ "global": "0", "storageClass": { "a": "0.055", "s": "0.1" } }),
        )
        .unwrap();
        let classes = [class("a", false), class("s", false)];
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "importer-disk", "uid": "u" } }))
                .unwrap();
        let installation = Installation::default();
        let request = |claim: &PersistentVolumeClaim| {
            let facts = Facts {
                claim,
                pod: &pod,
                classes: &classes,
                config: Some(&config),
                installation: &installation,
            };
            object(&facts).map(|scratch| meta::requested(&scratch).unwrap().0.clone())
        };
        // 10 GiB of disk: the PVC is that times 1.055, scratch space is that times 1.1.
        assert_eq!(
            request(&claim("11327976244", "Filesystem", json!({}))).as_deref(),
            Some("11Gi")
        );
        assert_eq!(request(&claim("10Gi", "Block", json!({}))).as_deref(), Some("11Gi"));
        assert_eq!(request(&claim("1Mi", "Block", json!({}))).as_deref(), Some("10Mi"));
        assert_eq!(request(&claim("much", "Block", json!({}))), None);
    }

    #[test]
    fn scratch_space_is_owned_by_the_worker_and_on_its_node() {
        let mut claim = claim(
            "1Gi",
            "Block",
            json!({
                request::SELECTED_NODE: "node-1", "other.kubevirt.io/x": "y",
                import::ENDPOINT: "http://h", "plain": "z",
            }),
        );
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "importer-disk", "uid": "u" } }))
                .unwrap();
        let installation = Installation::default();
        let scratch = |claim: &PersistentVolumeClaim| {
            let facts =
                Facts { claim, pod: &pod, classes: &[], config: None, installation: &installation };
            object(&facts).unwrap()
        };
        let keys = |scratch: &PersistentVolumeClaim| -> Vec<String> {
            scratch.metadata.annotations.iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let before_its_volume = scratch(&claim);
        assert_eq!(keys(&before_its_volume), ["other.kubevirt.io/x", request::SELECTED_NODE]);
        claim.spec.as_mut().unwrap().volume_name = Some("pv-1".into());
        let scratch = scratch(&claim);
        assert_eq!(keys(&scratch), ["other.kubevirt.io/x"]);
        assert_eq!(meta::controller(&scratch.metadata).unwrap().name, "importer-disk");
        assert_eq!(meta::label(&scratch.metadata, labels::EXCLUDE_FROM_BACKUP), Some("true"));
        assert!(!meta::is_block(&scratch));
    }

    #[test]
    fn waiting_is_reported_until_scratch_space_is_bound() {
        let scratch = |class: serde_json::Value, phase: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({
                "metadata": { "name": "disk-scratch" }, "spec": { "storageClassName": class },
                "status": { "phase": phase },
            }))
            .unwrap()
        };
        for (class, phase, expected) in [
            (json!("fast"), "Bound", None),
            (json!(null), "Bound", None),
            (json!("fast"), "Pending", Some("of storage class fast")),
            (json!("fast"), "", Some("of storage class fast")),
            (json!(null), "Pending", Some("no storage class")),
            (json!(""), "Pending", Some("no storage class")),
        ] {
            let message = lack(&scratch(class, phase));
            assert_eq!(message.is_some(), expected.is_some(), "{message:?}");
            if let (Some(message), Some(part)) = (message, expected) {
                assert!(message.contains(part) && message.contains("disk-scratch"), "{message}");
            }
        }
    }

    #[test]
    fn scratch_space_is_created_only_on_request() {
        for (annotations, expected) in [
            (json!({}), false),
            (json!({ import::SOURCE: "registry" }), false),
            (json!({ import::REQUIRES_SCRATCH: "false" }), false),
            (json!({ import::REQUIRES_SCRATCH: "true" }), true),
        ] {
            assert_eq!(is_needed(&claim("1Gi", "Block", annotations)), expected);
        }
    }
}
