//! PVCs that an external populator or a CSI driver has to fill, and whether one exists.

use api::ClaimPhase;
use api::events;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

use super::PvcBlocker;
use super::facts::DataVolumeFacts;
use crate::event::Event;
use crate::{classes, meta};

/// Kinds of data sources that Kubernetes itself supports.
const OWN: [&str; 2] = ["PersistentVolumeClaim", "VolumeSnapshot"];

/// Why nothing in the cluster populates the PVC of this DataVolume. It is only reported: a populator may yet be installed.
pub(super) fn blocker_of(
    facts: &DataVolumeFacts,
    claim: &PersistentVolumeClaim,
) -> Option<PvcBlocker> {
    let class_name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class = classes::of_claim(&facts.classes, class_name);
    let spec = &facts.volume.spec;
    let pvc = spec.pvc.as_ref().and_then(|pvc| pvc.data_source_ref.as_ref());
    let storage = spec.storage.as_ref();
    let storage = storage.and_then(|storage| storage.data_source_ref.as_ref());
    let requested_kind = pvc.or(storage).map(|reference| reference.kind.as_str());
    blocker(claim, requested_kind, class, &facts.drivers)
}

fn blocker(
    claim: &PersistentVolumeClaim,
    requested_kind: Option<&str>,
    class: Option<&StorageClass>,
    drivers: &[String],
) -> Option<PvcBlocker> {
    if meta::claim_phase(claim) == ClaimPhase::Bound {
        return None;
    }
    let name = meta::name(&claim.metadata);
    let spec = claim.spec.as_ref()?;
    let reference = spec.data_source_ref.as_ref().map(|reference| reference.kind.as_str());
    let local = spec.data_source.as_ref().map(|source| source.kind.as_str());
    let event = match reference.or(local) {
        None if requested_kind.is_some_and(|kind| !OWN.contains(&kind)) => Event::warning(
            events::NO_ANY_VOLUME_DATA_SOURCE,
            format!(
                "the cluster has dropped the data source of PVC {name}: it fills claims only from claims and snapshots"
            ),
        ),
        Some("VolumeSnapshot") | None => return None,
        Some(_) => {
            let provisioner = class.map(|class| &class.provisioner);
            if provisioner.is_none_or(|provisioner| drivers.contains(provisioner)) {
                return None;
            }
            let class = class.map(|class| meta::name(&class.metadata)).unwrap_or_default();
            Event::warning(
                events::NO_CSI_DRIVER_FOR_EXTERNAL_POPULATION,
                format!(
                    "the storage class {class} has no CSI driver, so PVC {name} may never be filled"
                ),
            )
        }
    };
    Some(PvcBlocker { phase: None, event })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn missing_populator_is_reported_until_the_pvc_is_bound() {
        let class: StorageClass = serde_json::from_value(
            json!({ "metadata": { "name": "fast" }, "provisioner": "csi.example" }),
        )
        .unwrap();
        let reason = |spec: Value, phase: &str, kind: &str, drivers: &[&str]| {
            let claim: PersistentVolumeClaim = serde_json::from_value(json!({
                "metadata": { "name": "disk" }, "spec": spec, "status": { "phase": phase },
            }))
            .unwrap();
            let drivers: Vec<_> = drivers.iter().map(|&name| name.to_owned()).collect();
            let found = blocker(&claim, Some(kind), Some(&class), &drivers);
            found.map(|blocker| blocker.event.reason)
        };
        let source = |kind: &str| json!({ "dataSourceRef": { "kind": kind, "name": "n" } });
        let driver = events::NO_CSI_DRIVER_FOR_EXTERNAL_POPULATION;
        assert_eq!(reason(source("Other"), "Pending", "Other", &[]).as_deref(), Some(driver));
        assert_eq!(reason(source("Other"), "Pending", "Other", &["csi.example"]), None);
        assert_eq!(reason(source("Other"), "Bound", "Other", &[]), None);
        assert_eq!(reason(source("VolumeSnapshot"), "Pending", "VolumeSnapshot", &[]), None);
        let dropped = events::NO_ANY_VOLUME_DATA_SOURCE;
        assert_eq!(reason(json!({}), "Pending", "Other", &[]).as_deref(), Some(dropped));
        assert_eq!(reason(json!({}), "Pending", "PersistentVolumeClaim", &[]), None);
    }
}
