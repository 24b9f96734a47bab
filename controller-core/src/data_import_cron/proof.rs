//! Which image a PVC or VolumeSnapshot holds, stated by the controller in a token that no user can sign.
//!
//! The status of a DataImportCron, labels, annotations and names are writable by users of its namespace, so none of
//! them proves that an object holds an image. The controller signs a statement when a DataVolume with exactly the
//! source that the DataImportCron imports has succeeded. It names the object by UID, the DataImportCron by UID and the
//! digest: an object of the same name, or the annotation on another object, proves nothing.

use std::time::SystemTime;

use api::Phase;
use api::annotations::{import, state};
use api::v1beta1::{DataImportCron, DataVolume, DataVolumeSource};
use auth::token::{Claims, ISSUER_CONTROLLER, Resource, VerifyingKey};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::source::{template_source, url_of};
use super::state::phase_of;
use crate::meta;

/// An image as a DataImportCron imported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenImage {
    /// UID of the DataImportCron, whose spec cannot change.
    pub cron_uid: String,
    /// Its digest, which the importer verified.
    pub digest: String,
}

impl ProvenImage {
    /// The image with this digest of a DataImportCron.
    pub fn for_digest(cron: &DataImportCron, digest: &str) -> Self {
        Self { cron_uid: meta::uid(&cron.metadata).to_owned(), digest: digest.to_owned() }
    }

    /// The claims that the token on the object has to have. `None` for an object or a DataImportCron without a UID.
    pub fn statement(&self, resource: Resource, object: &ObjectMeta) -> Option<Claims> {
        let uid = meta::uid(object);
        let place = (meta::namespace(object), meta::name(object), uid);
        let is_bound = !uid.is_empty() && !self.cron_uid.is_empty();
        is_bound.then(|| Claims::golden_image(resource, place, &self.cron_uid, &self.digest))
    }

    /// Whether an object has a proof, signed by the controller, that it holds this image.
    pub fn is_proven_by(
        &self,
        key: &VerifyingKey,
        resource: Resource,
        object: &ObjectMeta,
        now: SystemTime,
    ) -> bool {
        let Some(expected) = self.statement(resource, object) else { return false };
        noted_proof(object)
            .and_then(|proof| key.verify(proof, ISSUER_CONTROLLER, now).ok())
            .is_some_and(|claims| claims == expected)
    }
}

/// The token on an object.
pub(super) fn noted_proof(object: &ObjectMeta) -> Option<&str> {
    meta::annotation(object, import::GOLDEN_IMAGE_PROOF)
}

/// The source that a DataImportCron imports for a digest. `None` where the importer does not verify the content by it.
fn verified_source(cron: &DataImportCron, digest: &str) -> Option<DataVolumeSource> {
    let mut wanted = template_source(cron)?.clone();
    match (&mut wanted.registry, &mut wanted.http) {
        (Some(registry), None) => {
            let url = registry.url.as_mut().filter(|url| url.starts_with("docker://"))?;
            *url = url_of(url, digest);
        }
        (None, Some(http)) => {
            digest.parse::<contract::Checksum>().ok()?;
            let checksum = http.checksum.get_or_insert_with(|| digest.to_owned());
            (checksum == digest).then_some(())?;
        }
        _ => return None,
    }
    digest.starts_with("sha256:").then_some(wanted)
}

/// Whether `volume` imported exactly this image into `claim`, and has succeeded.
pub(super) fn is_imported(
    cron: &DataImportCron,
    digest: &str,
    volume: &DataVolume,
    claim: &PersistentVolumeClaim,
) -> bool {
    let owner = meta::controller(&claim.metadata);
    let is_its = owner.is_some_and(|owner| {
        owner.kind == "DataVolume"
            && !owner.uid.is_empty()
            && owner.uid == meta::uid(&volume.metadata)
    });
    // A PVC that the DataVolume adopted was filled by another client.
    let is_made_for_it = meta::annotation(&claim.metadata, state::CREATED_FOR_DATA_VOLUME)
        == volume.metadata.uid.as_deref();
    let is_younger = claim.metadata.creation_timestamp >= volume.metadata.creation_timestamp;
    let imports = verified_source(cron, digest);
    is_its
        && is_made_for_it
        && is_younger
        && phase_of(volume) == Phase::Succeeded.as_str()
        && volume.spec.source_ref.is_none()
        && imports.is_some()
        && volume.spec.source == imports
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn cron(source: Value) -> DataImportCron {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataImportCron",
            "metadata": { "name": "cron", "namespace": "images", "uid": "cron-uid" },
            "spec": {
                "schedule": "", "managedDataSource": "fedora",
                "template": { "spec": { "source": source } },
            },
        }))
        .unwrap()
    }

    fn volume(source: Value, phase: &str) -> DataVolume {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataVolume",
            "metadata": {
                "name": "a", "uid": "volume-uid", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "source": source }, "status": { "phase": phase },
        }))
        .unwrap()
    }

    fn claim(owner: Value) -> PersistentVolumeClaim {
        let mut claim = json!({ "metadata": {
            "name": "a", "namespace": "images", "uid": "1",
            "annotations": { state::CREATED_FOR_DATA_VOLUME: "volume-uid" },
            "creationTimestamp": "2026-01-01T00:00:00Z",
        } });
        if !owner.is_null() {
            claim["metadata"]["ownerReferences"] = json!([owner]);
        }
        serde_json::from_value(claim).unwrap()
    }

    fn owner(kind: &str, uid: &str, controls: bool) -> Value {
        json!({ "apiVersion": "v", "kind": kind, "name": "a", "uid": uid, "controller": controls })
    }

    #[test]
    fn an_image_is_proven_only_by_an_import_that_was_verified_by_its_digest() {
        let registry = |url: &str| json!({ "registry": { "url": url } });
        let golden = registry("docker://r/a:latest");
        let pinned = registry(&format!("docker://r/a@{DIGEST}"));
        let web =
            |checksum: Value| json!({ "http": { "url": "https://h/a", "checksum": checksum } });
        let its = owner("DataVolume", "volume-uid", true);
        for (case, template, source, phase, owner, digest, expected) in [
            ("registry", &golden, &pinned, "Succeeded", &its, DIGEST, true),
            ("not complete", &golden, &pinned, "ImportInProgress", &its, DIGEST, false),
            ("a tag", &golden, &golden, "Succeeded", &its, DIGEST, false),
            ("another digest", &golden, &pinned, "Succeeded", &its, "sha256:ff", false),
            ("another image", &registry("docker://r/b"), &pinned, "Succeeded", &its, DIGEST, false),
            ("claim without an owner", &golden, &pinned, "Succeeded", &json!(null), DIGEST, false),
            (
                "claim of another DataVolume",
                &golden,
                &pinned,
                "Succeeded",
                &self::owner("DataVolume", "other", true),
                DIGEST,
                false,
            ),
            (
                "owner that is not the controller",
                &golden,
                &pinned,
                "Succeeded",
                &self::owner("DataVolume", "volume-uid", false),
                DIGEST,
                false,
            ),
            ("web", &web(json!(null)), &web(json!(DIGEST)), "Succeeded", &its, DIGEST, true),
            (
                "web, not checked",
                &web(json!(null)),
                &web(json!(null)),
                "Succeeded",
                &its,
                DIGEST,
                false,
            ),
            (
                "web, checked by another checksum",
                &web(json!("sha256:00")),
                &web(json!("sha256:00")),
                "Succeeded",
                &its,
                DIGEST,
                false,
            ),
            (
                "web, by its tag",
                &web(json!(null)),
                &web(json!(null)),
                "Succeeded",
                &its,
                "etag:0123456789ab",
                false,
            ),
            (
                "a claim",
                &json!({ "pvc": { "namespace": "images", "name": "b" } }),
                &json!({ "pvc": { "namespace": "images", "name": "b" } }),
                "Succeeded",
                &its,
                DIGEST,
                false,
            ),
        ] {
            let (cron, volume) = (cron(template.clone()), volume(source.clone(), phase));
            let found = is_imported(&cron, digest, &volume, &claim(owner.clone()));
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn a_claim_that_was_adopted_proves_nothing() {
        let cron = cron(json!({ "registry": { "url": "docker://r/a:latest" } }));
        let source = json!({ "registry": { "url": format!("docker://r/a@{DIGEST}") } });
        let volume = volume(source, "Succeeded");
        let claim = claim(owner("DataVolume", "volume-uid", true));
        let is_imported =
            |claim: &PersistentVolumeClaim| is_imported(&cron, DIGEST, &volume, claim);
        assert!(is_imported(&claim));
        let mut unmarked = claim.clone();
        unmarked.metadata.annotations = None;
        assert!(!is_imported(&unmarked));
        let mut older: PersistentVolumeClaim = claim.clone();
        older.metadata.creation_timestamp =
            serde_json::from_value(json!("2025-12-31T23:59:59Z")).unwrap();
        assert!(!is_imported(&older));
    }

    #[test]
    fn nothing_is_stated_of_an_object_without_a_uid() {
        let image = ProvenImage { cron_uid: "cron-uid".into(), digest: DIGEST.into() };
        let without_cron = ProvenImage { cron_uid: String::new(), ..image.clone() };
        let object = claim(json!(null)).metadata;
        let nameless = ObjectMeta { uid: None, ..object.clone() };
        assert!(image.statement(Resource::pvcs(), &object).is_some());
        assert_eq!(image.statement(Resource::pvcs(), &nameless), None);
        assert_eq!(without_cron.statement(Resource::pvcs(), &object), None);
    }
}
