//! The DataVolume of an import, and the labels of all objects that belong to a DataImportCron.

use api::annotations::{cron as key, request};
use api::labels;
use api::v1beta1::{DataImportCron, DataVolume, StorageProfile};
use contract::Checksum;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::source::url_of;
use crate::meta::{self, Installation, Pairs};
use crate::own_keys::without_own;

/// This project's own annotations that a template may have: how an import is carried out. None of them grants access,
/// names an object or reports a state.
const TEMPLATE_ANNOTATIONS: [&str; 7] = [
    request::BIND_IMMEDIATE,
    request::DELETE_AFTER_COMPLETION,
    request::PERMISSIVE_CLONE,
    request::PRIORITY_CLASS,
    request::RETAIN_PODS,
    request::SOURCE_FORMAT,
    request::USE_POPULATOR,
];
/// The labels of this project that a template may have.
const TEMPLATE_LABELS: [&str; 1] = [labels::APPLY_STORAGE_PROFILE];
/// Value of `retentionPolicy` that deletes all imports with the cron.
const RETAIN_NONE: &str = "None";

/// The import to create.
pub(super) struct DesiredImport<'a> {
    pub(super) cron: &'a DataImportCron,
    pub(super) name: &'a str,
    pub(super) digest: &'a str,
    /// Reference of the image in its ImageStream.
    pub(super) image_stream_ref: Option<&'a str>,
    /// Of the storage class of the import.
    pub(super) profile: Option<&'a StorageProfile>,
    pub(super) installation: &'a Installation,
}

/// The labels by which the objects of a DataImportCron are found.
pub fn marks(cron: &DataImportCron) -> Pairs {
    let mut pairs =
        Pairs::from([(labels::DATA_IMPORT_CRON.into(), meta::name(&cron.metadata).into())]);
    if cron.spec.retention_policy.as_deref() == Some(RETAIN_NONE) {
        pairs.insert(labels::DATA_IMPORT_CRON_CLEANUP.into(), "true".into());
    }
    pairs
}

/// The labels of the cron and of its template that its objects get.
pub(super) fn copied_labels(cron: &DataImportCron) -> Pairs {
    let own = without_own(cron.metadata.labels.clone().unwrap_or_default(), &[]);
    let template = template_pairs(cron, "labels", &[]);
    template.into_iter().chain(own).filter(|(key, _)| labels::is_copied(key)).collect()
}

/// Labels or annotations of the template: those of other projects, and of this project's own those in `allowed`. The
/// controller creates the DataVolume, so every other own key would be an instruction of a user in the controller's
/// name.
fn template_pairs(cron: &DataImportCron, member: &str, allowed: &[&str]) -> Pairs {
    let metadata = cron.spec.template.metadata.as_ref();
    let found = metadata.and_then(|metadata| metadata.get(member)?.as_object());
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    without_own(found.into_iter().flatten().filter_map(text).collect(), allowed)
}

/// Format of annotation times that are compared to the nanosecond.
pub(super) fn nanoseconds(now: Timestamp) -> String {
    now.to_string()
}

/// The DataVolume that imports exactly this image.
pub(super) fn volume(wanted: &DesiredImport, now: Timestamp) -> DataVolume {
    let DesiredImport { cron, name, digest, image_stream_ref, profile, installation } = wanted;
    let mut spec = cron.spec.template.spec.clone();
    if let Some(registry) = spec.source.as_mut().and_then(|source| source.registry.as_mut()) {
        if let Some(url) = registry.url.as_mut().filter(|url| url.starts_with("docker://")) {
            *url = url_of(url, digest);
        } else if let Some(reference) = image_stream_ref {
            registry.url = Some(format!("docker://{reference}"));
            registry.image_stream = None;
        }
    }
    // If the digest is a hash of the bytes, the importer verifies it.
    if let Some(http) = spec.source.as_mut().and_then(|source| source.http.as_mut())
        && http.checksum.is_none()
        && digest.parse::<Checksum>().is_ok()
    {
        http.checksum = Some((*digest).to_owned());
    }
    let is_read_write_once = |profile: &&StorageProfile| {
        meta::annotation(&profile.metadata, request::CRON_READ_WRITE_ONCE) == Some("true")
    };
    if let Some(storage) = &mut spec.storage
        && storage.access_modes.as_ref().is_none_or(Vec::is_empty)
        && profile.as_ref().is_some_and(is_read_write_once)
    {
        storage.access_modes = Some(vec!["ReadWriteOnce".into()]);
    }

    let mut annotations = template_pairs(cron, "annotations", &TEMPLATE_ANNOTATIONS);
    annotations.insert(request::BIND_IMMEDIATE.into(), "true".into());
    annotations.insert(key::LAST_USE_TIME.into(), nanoseconds(now));
    if let Some(retain) = meta::annotation(&cron.metadata, request::RETAIN_PODS) {
        annotations.insert(request::RETAIN_PODS.into(), retain.into());
    }
    let mut labels = template_pairs(cron, "labels", &TEMPLATE_LABELS);
    labels.extend(copied_labels(cron));
    labels.extend(installation.labels());
    labels.extend(marks(cron));
    let mut volume = DataVolume::new(name, spec);
    volume.metadata = ObjectMeta {
        name: Some((*name).to_owned()),
        namespace: cron.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    volume
}
