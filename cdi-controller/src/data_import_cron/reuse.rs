//! An image that is there already need not be fetched again: a DataVolume that asks for it may be cloned from it. The
//! webhook asks, when the DataVolume is made.

use api::annotations::request;
use api::v1beta1::{
    ContentType, DataImportCron, DataSource, DataSourceSource, DataVolume, DataVolumeSource,
    DataVolumeSpec,
};
use contract::ByteCount;

use super::source::{source, url_of};
use crate::meta;

/// The golden image of its namespace that a DataVolume would fetch: the same address and digest, complete, and what a
/// DataSource stands for now. `None`, where the DataVolume does not ask for that, or there is none.
pub fn golden_image<'a>(
    volume: &DataVolume,
    crons: &[DataImportCron],
    sources: &'a [DataSource],
) -> Option<&'a DataSourceSource> {
    if !meta::is_true(&volume.metadata, request::REUSE_GOLDEN_IMAGE) {
        return None;
    }
    let wanted = volume.spec.source.as_ref()?;
    let namespace = meta::namespace(&volume.metadata);
    let is_here = |cron: &&DataImportCron| meta::namespace(&cron.metadata) == namespace;
    crons.iter().filter(is_here).find_map(|cron| {
        let status = cron.status.as_ref()?;
        let current = status.current_imports.as_ref()?.first()?;
        let last = status.last_imported_pvc.as_ref()?;
        let is_same = has_room(&volume.spec, &cron.spec.template.spec)
            && last.name == current.data_volume_name
            && source(cron).is_some_and(|golden| is_same_image(wanted, golden, &current.digest));
        let stands_for = sources.iter().find(|source| {
            meta::name(&source.metadata) == cron.spec.managed_data_source
                && meta::namespace(&source.metadata) == namespace
        })?;
        let source = &stands_for.spec.source;
        let place = source.pvc.as_ref().or(source.snapshot.as_ref())?;
        (is_same && place.name == last.name && place.namespace == last.namespace).then_some(source)
    })
}

/// A clone is as large as its source, which was made as the template says.
fn has_room(wanted: &DataVolumeSpec, golden: &DataVolumeSpec) -> bool {
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

/// A digest names an image only together with the architecture that is chosen of it.
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
            wanted.url == golden.url && wanted.checksum.as_deref() == Some(digest)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef";

    fn volume(asks: &str, source: Value) -> DataVolume {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataVolume",
            "metadata": {
                "name": "vm", "namespace": "images", "annotations": { request::REUSE_GOLDEN_IMAGE: asks },
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

    fn stands_for(name: &str) -> DataSource {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataSource", "metadata": { "name": "fedora", "namespace": "images" },
            "spec": { "source": { "pvc": { "namespace": "images", "name": name } } },
        }))
        .unwrap()
    }

    #[test]
    fn the_same_image_is_cloned_where_that_is_asked_for() {
        let name = "fedora-0123456789ab";
        let golden = json!({ "registry": { "url": "docker://quay.io/fedora:latest" } });
        let same = json!({ "registry": { "url": format!("docker://quay.io/fedora@{DIGEST}") } });
        let of = |url: &str| json!({ "registry": { "url": url } });
        let other_machine = json!({ "registry": {
            "url": format!("docker://quay.io/fedora@{DIGEST}"), "platform": { "architecture": "arm64" },
        } });
        let web = json!({ "http": { "url": "https://host/a.img" } });
        let checked = json!({ "http": { "url": "https://host/a.img", "checksum": DIGEST } });
        for (asks, wanted, golden, imported, stands, expected) in [
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
            let sources = [stands_for(stands)];
            let found = golden_image(&volume(asks, wanted.clone()), &crons, &sources);
            assert_eq!(found.is_some(), expected, "{asks} {wanted} {imported} {stands}");
        }
    }
    #[test]
    fn only_what_has_room_for_the_image_is_cloned_from_it() {
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
            let sources = [stands_for(name)];
            let found = golden_image(&wanted, &crons, &sources);
            assert_eq!(found.is_some(), expected, "{spec}");
        }
    }
}
