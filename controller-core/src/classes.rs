//! Which storage class applies to a PVC.

use std::cmp::Reverse;

use api::annotations::request;
use api::v1beta1::ContentType;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::meta;

/// The class of this name.
pub fn named<'a>(classes: &'a [StorageClass], name: &str) -> Option<&'a StorageClass> {
    classes.iter().find(|class| meta::name(&class.metadata) == name)
}

/// The class for a PVC that names none: a disk prefers the default for virtual machines.
pub fn default_for(classes: &[StorageClass], content: ContentType) -> Option<&StorageClass> {
    let for_disks = match content {
        ContentType::Kubevirt => newest(classes, request::DEFAULT_VIRT_CLASS),
        ContentType::Archive => None,
    };
    for_disks.or_else(|| default(classes))
}

/// The default class for all content.
pub fn default(classes: &[StorageClass]) -> Option<&StorageClass> {
    newest(classes, request::DEFAULT_CLASS)
}

/// The class that a `storageClassName` refers to, for lookups: `None` is the default class.
pub fn of_claim<'a>(classes: &'a [StorageClass], name: Option<&str>) -> Option<&'a StorageClass> {
    match name {
        Some(name) => named(classes, name),
        None => default(classes),
    }
}

/// Volumes of this class are provisioned once the scheduler has chosen a node for the consumer.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Of several with the annotation, the newest; of those created in the same second, the first by name.
fn newest<'a>(classes: &'a [StorageClass], mark: &str) -> Option<&'a StorageClass> {
    let marked =
        classes.iter().filter(|class| meta::annotation(&class.metadata, mark) == Some("true"));
    marked.min_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(created), meta::name(&class.metadata))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, created: &str, marks: &[&str]) -> StorageClass {
        let annotations: meta::Pairs =
            marks.iter().map(|mark| ((*mark).into(), "true".into())).collect();
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": created, "annotations": annotations },
            "provisioner": "p",
        }))
        .unwrap()
    }

    #[test]
    fn newest_default_class_is_used_and_disks_have_their_own_default() {
        const OLD: &str = "2026-01-01T00:00:00Z";
        const NEW: &str = "2026-02-01T00:00:00Z";
        let (virt, plain) = (request::DEFAULT_VIRT_CLASS, request::DEFAULT_CLASS);
        let table: [(&str, Vec<StorageClass>, Option<&str>, Option<&str>); 7] = [
            ("nothing", vec![], None, None),
            ("no mark", vec![class("a", OLD, &[])], None, None),
            ("one", vec![class("a", OLD, &[plain])], Some("a"), Some("a")),
            (
                "disks first",
                vec![class("a", NEW, &[plain]), class("b", OLD, &[virt])],
                Some("b"),
                Some("a"),
            ),
            (
                "newest",
                vec![class("a", OLD, &[virt, plain]), class("b", NEW, &[virt, plain])],
                Some("b"),
                Some("b"),
            ),
            ("tie", vec![class("b", OLD, &[virt]), class("a", OLD, &[virt])], Some("a"), None),
            ("both marks", vec![class("a", OLD, &[virt, plain])], Some("a"), Some("a")),
        ];
        for (case, classes, disk, archive) in table {
            let name =
                |class: Option<&StorageClass>| class.map(|c| meta::name(&c.metadata).to_owned());
            let found = default_for(&classes, ContentType::Kubevirt);
            assert_eq!(name(found).as_deref(), disk, "{case}");
            let found = default_for(&classes, ContentType::Archive);
            assert_eq!(name(found).as_deref(), archive, "{case}");
        }
    }

    #[test]
    fn default_annotation_counts_only_if_it_is_true() {
        let mut marked = class("a", "2026-01-01T00:00:00Z", &[request::DEFAULT_CLASS]);
        marked
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert(request::DEFAULT_CLASS.into(), "false".into());
        assert_eq!(default(&[marked]), None);
    }
}
