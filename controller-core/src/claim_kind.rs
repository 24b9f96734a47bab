//! What a PVC is to the controllers: which of them fills it, and for which other PVC.

use api::annotations::{import, request, state};
use api::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::forklift::Kind;
use crate::object::Key;
use crate::{clone, copy, meta};

/// Whether a PVC refers to a source of one of these populators, other than a VolumeCloneSource.
pub fn has_populator_source(claim: &PersistentVolumeClaim) -> bool {
    refers_to(claim, &["VolumeImportSource", "VolumeUploadSource"])
        || Kind::from_claim(claim).is_some()
}

/// Whether a PVC refers to a VolumeCloneSource.
pub fn is_clone_target(claim: &PersistentVolumeClaim) -> bool {
    refers_to(claim, &["VolumeCloneSource"])
}

fn refers_to(claim: &PersistentVolumeClaim, kinds: &[&str]) -> bool {
    let reference = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    reference.is_some_and(|reference| {
        reference.api_group.as_deref() == Some(names::GROUP)
            && kinds.contains(&reference.kind.as_str())
    })
}

/// Whether a PVC requests an import. A temporary PVC of a clone never does, whatever annotations it has of its target.
pub fn is_import_target(metadata: &ObjectMeta) -> bool {
    let is_requested = meta::has_annotation(metadata, import::SOURCE)
        || meta::has_annotation(metadata, import::ENDPOINT);
    is_requested && clone::owner_uid(metadata).is_none()
}

/// Whether a PVC waits for an upload or a copy, or has an upload server. A temporary PVC of a clone waits for a copy
/// only.
pub fn is_upload_target(metadata: &ObjectMeta) -> bool {
    let is_requested = meta::has_annotation(metadata, request::UPLOAD_TARGET)
        || meta::has_annotation(metadata, state::UPLOAD_POD_NAME);
    copy::needs_server(metadata) || is_requested && clone::owner_uid(metadata).is_none()
}

/// The PVC that a prime PVC is filled for.
pub fn prime_target(metadata: &ObjectMeta) -> Option<Key> {
    let owner = meta::controller(metadata)?;
    let is_prime = owner.kind == "PersistentVolumeClaim"
        && meta::name(metadata) == names::prime_pvc(&owner.uid);
    is_prime.then(|| Key::new(meta::namespace(metadata), owner.name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(metadata: Value, source_kind: &str) -> PersistentVolumeClaim {
        let group = if source_kind.starts_with('O') { names::FORKLIFT_GROUP } else { names::GROUP };
        let mut claim = json!({ "metadata": metadata, "spec": {} });
        if !source_kind.is_empty() {
            claim["spec"]["dataSourceRef"] =
                json!({ "apiGroup": group, "kind": source_kind, "name": "source" });
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn claim_kind_decision_table() {
        let annotated = |key: &str| json!({ "name": "a", "annotations": { key: "x" } });
        let mut of_clone = annotated(import::SOURCE);
        of_clone["labels"] = json!({ api::labels::OWNED_BY_UID: "uid" });
        let plain = json!({ "name": "a" });
        for (case, claim, expected) in [
            ("plain", claim(plain.clone(), ""), [false; 4]),
            (
                "import source",
                claim(plain.clone(), "VolumeImportSource"),
                [true, false, false, false],
            ),
            (
                "upload source",
                claim(plain.clone(), "VolumeUploadSource"),
                [true, false, false, false],
            ),
            ("oVirt", claim(plain.clone(), "OvirtVolumePopulator"), [true, false, false, false]),
            ("clone source", claim(plain, "VolumeCloneSource"), [false, true, false, false]),
            ("import", claim(annotated(import::ENDPOINT), ""), [false, false, true, false]),
            ("upload", claim(annotated(request::UPLOAD_TARGET), ""), [false, false, false, true]),
            ("server", claim(annotated(state::UPLOAD_POD_NAME), ""), [false, false, false, true]),
            ("temporary, of a clone", claim(of_clone, ""), [false; 4]),
        ] {
            let found = [
                has_populator_source(&claim),
                is_clone_target(&claim),
                is_import_target(&claim.metadata),
                is_upload_target(&claim.metadata),
            ];
            assert_eq!(found, expected, "{case}");
        }
    }
}
