//! Reuse of imported images: a DataVolume that requests an image which a DataImportCron has imported may be cloned from
//! it instead of a download. The webhook decides this when the DataVolume is created.
//!
//! The results here are candidates: users of the namespace may write the status of a DataImportCron and a DataSource.
//! The webhook reuses it only if the object carries the proof of [`ProvenImage`], and only in the DataVolume's own
//! namespace.

use api::annotations::request;
use api::v1beta1::{
    ContentType, DataImportCron, DataSource, DataSourceSource, DataVolume, DataVolumeSource,
    DataVolumeSpec, ImportStatus, ImportedClaim,
};
use contract::ByteCount;

use super::ProvenImage;
use super::source::{template_source, url_of};
use crate::meta;

/// A PVC or VolumeSnapshot that may hold the image.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenImage {
    /// Always in the namespace of the DataVolume.
    pub source: DataSourceSource,
    /// The image that the object must have a proof for.
    pub image: ProvenImage,
}

/// Whether a DataImportCron of its namespace has imported what a DataVolume would fetch: the same URL and digest. False
/// if the DataVolume does not request reuse.
pub fn has_same_image(volume: &DataVolume, cron: &DataImportCron) -> bool {
    let Some((current, last)) = imported(cron) else { return false };
    let namespace = meta::namespace(&volume.metadata);
    meta::is_true(&volume.metadata, request::REUSE_GOLDEN_IMAGE)
        && meta::namespace(&cron.metadata) == namespace
        && is_large_enough(&volume.spec, &cron.spec.template.spec)
        && last.name == current.data_volume_name
        && is_in(namespace, &last.namespace)
        && volume.spec.source.as_ref().is_some_and(|wanted| {
            template_source(cron)
                .is_some_and(|golden| is_same_image(wanted, golden, &current.digest))
        })
}

/// The golden image of a DataImportCron, if `data_source`, which it manages, refers to that in its own namespace.
pub fn golden_image(cron: &DataImportCron, data_source: &DataSource) -> Option<GoldenImage> {
    let (current, last) = imported(cron)?;
    let namespace = meta::namespace(&cron.metadata);
    if meta::name(&data_source.metadata) != cron.spec.managed_data_source
        || meta::namespace(&data_source.metadata) != namespace
    {
        return None;
    }
    let mut source = data_source.spec.source.clone();
    let place = match (&mut source.pvc, &mut source.snapshot) {
        (Some(place), None) | (None, Some(place)) => place,
        _ => return None,
    };
    if place.name != last.name || !is_in(namespace, &place.namespace) {
        return None;
    }
    place.namespace = namespace.to_owned();
    Some(GoldenImage { source, image: ProvenImage::for_digest(cron, &current.digest) })
}

/// The import and the PVC in the status of a cron.
fn imported(cron: &DataImportCron) -> Option<(&ImportStatus, &ImportedClaim)> {
    let status = cron.status.as_ref()?;
    Some((status.current_imports.as_ref()?.first()?, status.last_imported_pvc.as_ref()?))
}

/// Whether a reference of an object in `namespace` is to the same namespace.
fn is_in(namespace: &str, place: &str) -> bool {
    place.is_empty() || place == namespace
}

/// Whether a clone fits: it needs the size of its source, which has the size of the template.
fn is_large_enough(wanted: &DataVolumeSpec, golden: &DataVolumeSpec) -> bool {
    let is_disk = wanted.content_type != Some(ContentType::Archive);
    let is_alike = wanted.storage.is_some() == golden.storage.is_some();
    let (Some(wanted), Some(golden)) = (size(wanted), size(golden)) else { return false };
    is_disk && is_alike && wanted >= golden
}

fn size(spec: &DataVolumeSpec) -> Option<ByteCount> {
    let of_storage = spec.storage.as_ref().and_then(|storage| storage.resources.as_ref());
    let of_pvc = spec.pvc.as_ref().and_then(|pvc| pvc.resources.as_ref());
    meta::bytes(of_storage.or(of_pvc)?.requests.as_ref()?.get("storage")?)
}

/// A digest identifies an image only together with the selected architecture.
fn is_same_image(wanted: &DataVolumeSource, golden: &DataVolumeSource, digest: &str) -> bool {
    match (&wanted.registry, &golden.registry, &wanted.http, &golden.http) {
        (Some(wanted), Some(golden), ..) => match (&wanted.url, &golden.url) {
            (Some(url), Some(of)) => {
                url.ends_with(&format!("@{digest}"))
                    && *url == url_of(of, digest)
                    && wanted.platform == golden.platform
            }
            _ => false,
        },
        (_, _, Some(wanted), Some(golden)) => {
            let is_of_digest = |checksum: &Option<String>| checksum.as_deref() == Some(digest);
            wanted.url == golden.url
                && is_of_digest(&wanted.checksum)
                && (golden.checksum.is_none() || is_of_digest(&golden.checksum))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef";

    fn volume(reuse: &str, source: Value) -> DataVolume {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataVolume",
            "metadata": {
                "name": "vm", "namespace": "images", "annotations": { request::REUSE_GOLDEN_IMAGE: reuse },
            },
            "spec": { "source": source, "storage": storage("10Gi") },
        }))
        .unwrap()
    }

    fn storage(size: &str) -> Value {
        json!({ "resources": { "requests": { "storage": size } } })
    }

    fn cron(source: Value, imported: &str) -> DataImportCron {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataImportCron", "metadata": { "name": "cron", "namespace": "images" },
            "spec": {
                "schedule": "", "managedDataSource": "fedora",
                "template": { "spec": { "source": source, "storage": storage("10240Mi") } },
            },
            "status": {
                "currentImports": [{ "DataVolumeName": "fedora-0123456789ab", "Digest": DIGEST }],
                "lastImportedPVC": { "namespace": "images", "name": imported },
            },
        }))
        .unwrap()
    }

    fn data_source(name: &str) -> DataSource {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataSource", "metadata": { "name": "fedora", "namespace": "images" },
            "spec": { "source": { "pvc": { "namespace": "images", "name": name } } },
        }))
        .unwrap()
    }

    /// The golden images that a DataVolume may be cloned from, before their proofs are verified.
    fn golden_images(
        volume: &DataVolume,
        crons: &[DataImportCron],
        sources: &[DataSource],
    ) -> Vec<GoldenImage> {
        let same = crons.iter().filter(|cron| has_same_image(volume, cron));
        same.flat_map(|cron| sources.iter().filter_map(|source| golden_image(cron, source)))
            .collect()
    }

    #[test]
    fn same_image_is_cloned_if_the_data_volume_requests_reuse() {
        let name = "fedora-0123456789ab";
        let golden = json!({ "registry": { "url": "docker://quay.io/fedora:latest" } });
        let same = json!({ "registry": { "url": format!("docker://quay.io/fedora@{DIGEST}") } });
        let of = |url: &str| json!({ "registry": { "url": url } });
        let other_machine = json!({ "registry": {
            "url": format!("docker://quay.io/fedora@{DIGEST}"), "platform": { "architecture": "arm64" },
        } });
        let web = json!({ "http": { "url": "https://host/a.img" } });
        let checked = json!({ "http": { "url": "https://host/a.img", "checksum": DIGEST } });
        for (reuse, wanted, golden, imported, referenced, expected) in [
            ("true", &same, &golden, name, name, true),
            ("false", &same, &golden, name, name, false),
            ("true", &of("docker://quay.io/fedora:latest"), &golden, name, name, false),
            ("true", &of(&format!("docker://quay.io/other@{DIGEST}")), &golden, name, name, false),
            ("true", &of("docker://quay.io/fedora@sha256:12"), &golden, name, name, false),
            ("true", &other_machine, &golden, name, name, false),
            ("true", &same, &golden, "fedora-older", name, false),
            ("true", &same, &golden, name, "fedora-older", false),
            ("true", &checked, &web, name, name, true),
            ("true", &web, &web, name, name, false),
            ("true", &json!(null), &golden, name, name, false),
        ] {
            let crons = [cron(golden.clone(), imported)];
            let sources = [data_source(referenced)];
            let found = golden_images(&volume(reuse, wanted.clone()), &crons, &sources);
            assert_eq!(!found.is_empty(), expected, "{reuse} {wanted} {imported} {referenced}");
        }
    }

    #[test]
    fn data_volume_smaller_than_the_golden_image_is_not_cloned() {
        let name = "fedora-0123456789ab";
        let source = json!({ "registry": { "url": format!("docker://quay.io/fedora@{DIGEST}") } });
        let crons = [cron(json!({ "registry": { "url": "docker://quay.io/fedora" } }), name)];
        for (spec, expected) in [
            (json!({ "storage": storage("10Gi") }), true),
            (json!({ "storage": storage("11Gi") }), true),
            (json!({ "storage": storage("10239Mi") }), false),
            (json!({ "storage": {} }), false),
            (json!({ "pvc": { "resources": { "requests": { "storage": "11Gi" } } } }), false),
            (json!({ "storage": storage("10Gi"), "contentType": "archive" }), false),
        ] {
            let mut wanted = volume("true", source.clone());
            let mut whole = spec.clone();
            whole["source"] = source.clone();
            wanted.spec = serde_json::from_value(whole).unwrap();
            let sources = [data_source(name)];
            let found = golden_images(&wanted, &crons, &sources);
            assert_eq!(!found.is_empty(), expected, "{spec}");
        }
    }

    #[test]
    fn an_image_of_another_namespace_is_never_a_candidate() {
        let name = "fedora-0123456789ab";
        let wanted =
            volume("true", json!({ "registry": { "url": format!("docker://r/fedora@{DIGEST}") } }));
        let golden = json!({ "registry": { "url": "docker://r/fedora:latest" } });
        for (in_status, in_source, kind, is_candidate) in [
            ("images", "images", "pvc", true),
            ("images", "", "pvc", true),
            ("", "images", "snapshot", true),
            ("victim", "victim", "pvc", false),
            ("victim", "victim", "snapshot", false),
            ("images", "victim", "pvc", false),
            ("images", "victim", "snapshot", false),
            ("victim", "images", "pvc", false),
            ("victim", "", "pvc", false),
        ] {
            let case = format!("{in_status:?} {in_source:?} {kind}");
            let mut cron = cron(golden.clone(), name);
            let last = cron.status.as_mut().unwrap().last_imported_pvc.as_mut().unwrap();
            last.namespace = in_status.into();
            let mut source = data_source(name);
            source.spec.source =
                serde_json::from_value(json!({ kind: { "namespace": in_source, "name": name } }))
                    .unwrap();
            let found = golden_images(&wanted, &[cron], &[source]);
            assert_eq!(!found.is_empty(), is_candidate, "{case}");
            for GoldenImage { source, .. } in found {
                let place = source.pvc.or(source.snapshot).unwrap();
                assert_eq!(place.namespace, "images", "{case}");
            }
        }
    }

    #[test]
    fn an_image_that_was_checked_by_another_checksum_is_no_candidate() {
        let name = "fedora-0123456789ab";
        let web = |checksum: &str| json!({ "http": { "url": "https://host/a.img", "checksum": checksum } });
        let wanted = volume("true", web(DIGEST));
        for (checksum, is_candidate) in [(DIGEST, true), ("sha256:ff", false)] {
            let crons = [cron(web(checksum), name)];
            let found = golden_images(&wanted, &crons, &[data_source(name)]);
            assert_eq!(!found.is_empty(), is_candidate, "{checksum}");
        }
    }
}
