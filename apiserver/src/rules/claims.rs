//! Completes PVCs from the StorageProfile of their class.

use std::sync::Arc;

use api::annotations::{request, state};
use api::v1beta1::{
    BlankSource, CdiConfig, ContentType, DataVolume, DataVolumeSource, DataVolumeSpec,
    StorageProfile, StorageSpec,
};
use controller_core::claim as render;
use controller_core::meta::{self, Installation};
use controller_core::volume::PersistentVolume;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use crate::admission_result::{AdmissionResult, Patch};

/// The facts for completing a PVC.
#[derive(Clone, Debug, Default)]
pub struct PvcFacts {
    pub classes: Arc<Vec<StorageClass>>,
    pub profiles: Arc<Vec<StorageProfile>>,
    /// Volumes of classes that do not exist.
    pub volumes: Arc<Vec<PersistentVolume>>,
    pub config: Option<Arc<CdiConfig>>,
    /// What is cloned, if the PVC's source is a VolumeCloneSource.
    pub original: Option<Original>,
}

/// What a VolumeCloneSource refers to.
#[derive(Clone, Debug)]
pub enum Original {
    Claim(Box<PersistentVolumeClaim>),
    /// A snapshot, and the size to restore it to, if known.
    Snapshot(Option<Quantity>),
}

/// The same text for a missing object and one in another namespace, so that it reveals nothing about other namespaces.
const NO_ORIGINAL: &str =
    "cannot find the clone source in the namespace of the PVC: set spec.resources.requests.storage";

/// How the size of a PVC is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// It is the size of the disk, and is enlarged by the filesystem overhead.
    Disk,
    /// It is used unchanged.
    Exact,
    /// It is the size of the clone source, which has to be looked up.
    OfOriginal,
}

pub fn sizing(claim: &PersistentVolumeClaim) -> Sizing {
    let Some(spec) = &claim.spec else { return Sizing::Disk };
    let reference = spec.data_source_ref.as_ref();
    let kinds = reference.map(|one| (one.api_group.as_deref(), one.kind.as_str()));
    let old = spec.data_source.as_ref().map(|one| (one.api_group.as_deref(), one.kind.as_str()));
    let is_one_of = |group: &str, kind: &str| [kinds, old].contains(&Some((Some(group), kind)));
    if is_one_of(super::GROUP, "VolumeCloneSource") {
        if requested(spec).is_some() { Sizing::Exact } else { Sizing::OfOriginal }
    } else if is_one_of("snapshot.storage.k8s.io", "VolumeSnapshot") {
        Sizing::Exact
    } else {
        Sizing::Disk
    }
}

/// The size. Go clients write an absent quantity as zero.
fn requested(spec: &PersistentVolumeClaimSpec) -> Option<&Quantity> {
    let size = spec.resources.as_ref()?.requests.as_ref()?.get("storage");
    size.filter(|size| !meta::is_zero(size))
}

pub fn complete(claim: &PersistentVolumeClaim, facts: &PvcFacts) -> AdmissionResult {
    match completed(claim, facts) {
        Ok(spec) => AdmissionResult::Allowed { patch: difference(claim, &spec), warning: None },
        Err(reason) => AdmissionResult::Refused(reason),
    }
}

fn completed(
    claim: &PersistentVolumeClaim,
    facts: &PvcFacts,
) -> Result<PersistentVolumeClaimSpec, String> {
    let spec = claim.spec.clone().unwrap_or_default();
    let sizing = sizing(claim);
    let mut resources = spec.resources.clone().unwrap_or_default();
    if sizing != Sizing::Disk {
        // Only access and volume modes are needed then.
        resources.requests.get_or_insert_default().insert("storage".into(), Quantity("1Gi".into()));
    }
    let storage = StorageSpec {
        access_modes: spec.access_modes.clone(),
        selector: spec.selector.clone(),
        resources: Some(resources),
        volume_name: spec.volume_name.clone(),
        storage_class_name: spec.storage_class_name.clone(),
        volume_mode: spec.volume_mode.clone(),
        data_source: None,
        data_source_ref: None,
    };
    let content = content_type(claim);
    let source = DataVolumeSource { blank: Some(BlankSource {}), ..DataVolumeSource::default() };
    let volume = DataVolume::new(
        "claim",
        DataVolumeSpec {
            source: Some(source),
            storage: Some(storage),
            content_type: Some(content),
            ..DataVolumeSpec::default()
        },
    );
    let mut rendered = render::spec(&render::Facts {
        volume: &volume,
        classes: &facts.classes,
        profiles: &facts.profiles,
        volumes: &facts.volumes,
        config: facts.config.as_deref(),
        installation: &Installation::default(),
    })
    .map_err(|error| error.to_string())?;
    match sizing {
        Sizing::Disk => {}
        Sizing::Exact => rendered.resources = spec.resources,
        Sizing::OfOriginal => {
            let size = match &facts.original {
                Some(Original::Snapshot(size)) => size.clone(),
                Some(Original::Claim(original)) => {
                    Some(size_of(claim, content, original, &rendered)?)
                }
                None => return Err(NO_ORIGINAL.into()),
            };
            rendered.resources = size.map(|size| VolumeResourceRequirements {
                requests: Some([("storage".to_owned(), size)].into()),
                ..spec.resources.unwrap_or_default()
            });
        }
    }
    Ok(rendered)
}

fn content_type(claim: &PersistentVolumeClaim) -> ContentType {
    let annotations = claim.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get(request::CONTENT_TYPE)).map(String::as_str) {
        Some("archive") => ContentType::Archive,
        _ => ContentType::Kubevirt,
    }
}

fn size_of(
    claim: &PersistentVolumeClaim,
    content: ContentType,
    original: &PersistentVolumeClaim,
    rendered: &PersistentVolumeClaimSpec,
) -> Result<Quantity, String> {
    let mode = |spec: &PersistentVolumeClaimSpec| {
        spec.volume_mode.clone().unwrap_or_else(|| "Filesystem".into())
    };
    let spec = original.spec.clone().unwrap_or_default();
    let (from, to) = (mode(&spec), mode(rendered));
    let annotations = claim.metadata.annotations.as_ref();
    let clone_type = annotations.and_then(|all| all.get(state::CLONE_TYPE)).map(String::as_str);
    let unknown = || "cannot detect the required pvc size".to_owned();
    if from == "Filesystem"
        && to == "Block"
        && content == ContentType::Kubevirt
        && clone_type == Some("copy")
    {
        return Err(unknown());
    }
    let class =
        |spec: &PersistentVolumeClaimSpec| spec.storage_class_name.clone().unwrap_or_default();
    if from == to && class(&spec) == class(rendered) {
        return requested(&spec).cloned().ok_or_else(unknown);
    }
    let status = original.status.as_ref();
    status.and_then(|s| s.capacity.as_ref()?.get("storage")).cloned().ok_or_else(unknown)
}

fn difference(claim: &PersistentVolumeClaim, new: &PersistentVolumeClaimSpec) -> Vec<Patch> {
    let old = claim.spec.clone().unwrap_or_default();
    // An unknown volume mode counts as the API server's default.
    let mode = new.volume_mode.clone().unwrap_or_else(|| "Filesystem".into());
    let mut patch = Vec::new();
    let mut set = |is_same: bool, field: &str, value| {
        if !is_same {
            patch.push(Patch::add(format!("/spec/{field}"), value));
        }
    };
    set(old.volume_mode.as_ref() == Some(&mode), "volumeMode", json!(mode));
    set(old.access_modes == new.access_modes, "accessModes", json!(new.access_modes));
    let class = &new.storage_class_name;
    set(&old.storage_class_name == class, "storageClassName", json!(class));
    set(old.resources == new.resources, "resources", json!(new.resources));
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn facts() -> PvcFacts {
        let class = |name: &str, default: bool| {
            let mark = if default {
                json!({ "storageclass.kubernetes.io/is-default-class": "true" })
            } else {
                json!({})
            };
            serde_json::from_value(
                json!({ "metadata": { "name": name, "annotations": mark }, "provisioner": "p" }),
            )
            .unwrap()
        };
        let profile = |name: &str, mode: &str| {
            serde_json::from_value(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1",
                "kind": "StorageProfile",
                "metadata": { "name": name },
                "spec": {},
                "status": { "claimPropertySets": [{ "accessModes": ["ReadWriteMany"], "volumeMode": mode }] },
            }))
            .unwrap()
        };
        PvcFacts {
            classes: Arc::new(vec![class("files", true), class("blocks", false)]),
            profiles: Arc::new(vec![profile("files", "Filesystem"), profile("blocks", "Block")]),
            ..PvcFacts::default()
        }
    }

    fn claim(annotations: Value, spec: Value) -> PersistentVolumeClaim {
        serde_json::from_value(
            json!({ "metadata": { "name": "c", "annotations": annotations }, "spec": spec }),
        )
        .unwrap()
    }

    /// The spec as it is after the patch.
    fn check(claim: &PersistentVolumeClaim, facts: &PvcFacts) -> Result<Value, String> {
        match complete(claim, facts) {
            AdmissionResult::Allowed { patch, .. } => {
                let mut spec = json!(claim)["spec"].clone();
                for one in serde_json::to_value(&patch).unwrap().as_array().unwrap() {
                    let field = one["path"].as_str().unwrap().strip_prefix("/spec/").unwrap();
                    spec[field] = one["value"].clone();
                }
                Ok(spec)
            }
            AdmissionResult::Refused(reason) => Err(reason),
            AdmissionResult::Invalid(causes) => Err(causes[0].message.clone()),
        }
    }

    fn size(size: &str) -> Value {
        json!({ "requests": { "storage": size } })
    }

    #[test]
    fn absent_values_come_from_the_profile() {
        let uploaded = claim(
            json!({}),
            json!({ "volumeMode": "FromStorageProfile", "resources": size("1Gi") }),
        );
        let expected = json!({
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "files",
            "resources": size("1Gi"), // no overhead without a CDIConfig
        });
        assert_eq!(check(&uploaded, &facts()), Ok(expected));
        let blocks = claim(
            json!({}),
            json!({ "storageClassName": "blocks", "volumeMode": "FromStorageProfile", "resources": size("1Gi") }),
        );
        assert_eq!(check(&blocks, &facts()).unwrap()["volumeMode"], "Block");
        let archive = claim(
            json!({ request::CONTENT_TYPE: "archive" }),
            json!({ "volumeMode": "Block", "resources": size("1Gi") }),
        );
        assert_eq!(
            check(&archive, &facts()),
            Err("ContentType Archive cannot have block volumeMode".into())
        );
        let nothing = claim(json!({}), json!({}));
        assert_eq!(
            check(&nothing, &facts()),
            Err("PVC Spec is not valid - missing storage size".into())
        );
    }

    #[test]
    fn pvc_without_a_class_is_completed_from_a_volume_without_one() {
        let wanted = claim(
            json!({}),
            json!({ "storageClassName": "", "volumeMode": "FromStorageProfile", "resources": size("1Gi") }),
        );
        for class in [json!(null), json!("")] {
            let volume = serde_json::from_value(json!({
                "metadata": { "name": "v" },
                "spec": {
                    "storageClassName": class, "volumeMode": "Block",
                    "accessModes": ["ReadWriteMany"], "capacity": { "storage": "1Gi" },
                },
                "status": { "phase": "Available" },
            }))
            .unwrap();
            let facts = PvcFacts { volumes: Arc::new(vec![volume]), ..facts() };
            let expected = json!({
                "storageClassName": "", "volumeMode": "Block", "accessModes": ["ReadWriteMany"],
                "resources": size("1Gi"),
            });
            assert_eq!(check(&wanted, &facts), Ok(expected), "{class}");
        }
    }

    #[test]
    fn only_the_size_of_a_disk_is_enlarged() {
        let mut facts = facts();
        let config = serde_json::from_value(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1",
                "kind": "CDIConfig",
                "metadata": { "name": "config" },
                "spec": {},
                "status": { "filesystemOverhead": { "global": "0.5", "storageClass": { "files": "0.5" } } },
            }))
        .unwrap();
        facts.config = Some(Arc::new(config));
        let of = |reference: Value| {
            let mut spec = json!({ "volumeMode": "FromStorageProfile", "resources": size("1Gi") });
            if !reference.is_null() {
                spec["dataSourceRef"] = reference;
            }
            check(&claim(json!({}), spec), &facts).unwrap()["resources"].clone()
        };
        assert_eq!(of(json!(null)), size("1536Mi"));
        let import =
            json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "a" });
        assert_eq!(of(import), size("1536Mi"));
        let clone =
            json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "a" });
        assert_eq!(of(clone), size("1Gi"));
        let snapshot =
            json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "a" });
        assert_eq!(of(snapshot), size("1Gi"));
    }

    #[test]
    fn clone_without_a_size_gets_that_of_its_source() {
        let clone = |class: &str, annotations: Value| {
            let reference =
                json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "a" });
            let spec = json!({ "volumeMode": "FromStorageProfile", "storageClassName": class, "dataSourceRef": reference });
            claim(annotations, spec)
        };
        let without_size = clone("files", json!({}));
        assert_eq!(sizing(&without_size), Sizing::OfOriginal);
        for zero in ["0", "0Gi"] {
            let mut claim = without_size.clone();
            claim.spec.as_mut().unwrap().resources = serde_json::from_value(size(zero)).unwrap();
            assert_eq!(sizing(&claim), Sizing::OfOriginal, "{zero}");
        }
        let original = serde_json::from_value(json!({
            "metadata": { "name": "o" },
            "spec": { "storageClassName": "files", "volumeMode": "Filesystem", "resources": size("2Gi") },
            "status": { "capacity": { "storage": "3Gi" } },
        }))
        .unwrap();
        let found = |class: &str, annotations: Value, original: &Option<Original>| {
            let facts = PvcFacts { original: original.clone(), ..facts() };
            check(&clone(class, annotations), &facts).map(|spec| spec["resources"].clone())
        };
        let of_claim = Some(Original::Claim(Box::new(original)));
        assert_eq!(found("files", json!({}), &of_claim), Ok(size("2Gi")));
        assert_eq!(found("blocks", json!({}), &of_claim), Ok(size("3Gi")));
        let copied = json!({ state::CLONE_TYPE: "copy" });
        assert_eq!(
            found("blocks", copied, &of_claim),
            Err("cannot detect the required pvc size".into())
        );
        let of_snapshot = Some(Original::Snapshot(Some(Quantity("5Gi".into()))));
        assert_eq!(found("files", json!({}), &of_snapshot), Ok(size("5Gi")));
        assert_eq!(found("files", json!({}), &Some(Original::Snapshot(None))), Ok(json!(null)));
        assert_eq!(found("files", json!({}), &None), Err(NO_ORIGINAL.into()));
    }
}
