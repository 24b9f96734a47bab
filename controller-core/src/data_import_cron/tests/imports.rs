//! Which image is imported, how, and to which StorageClass.

use super::*;

#[test]
fn first_image_is_imported_and_the_data_source_refers_to_it() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.settle();
    assert_eq!(cluster.condition("UpToDate"), "False NoDigest: No source digest");
    assert_eq!(cluster.condition("Progressing"), "False NoImport: No current import");
    assert_eq!(cluster.data_source_target(), None);
    assert_eq!(cluster.sources.len(), 1, "it exists, without a source yet");

    cluster.publish(1);
    cluster.reconcile();
    assert_eq!(
        cluster.condition("UpToDate"),
        "False Outdated: Source digest updated since last import"
    );
    for (phase, progressing) in [
        ("", "False : Import DataVolume phase "),
        ("Pending", "False Pending: Import DataVolume phase Pending"),
        ("ImportScheduled", "False ImportScheduled: Import is scheduled"),
        ("ImportInProgress", "True ImportProgressing: Import is progressing"),
    ] {
        cluster.progress(&name(1), phase);
        cluster.settle();
        assert_eq!(cluster.condition("Progressing"), progressing);
        assert_eq!(cluster.condition("UpToDate"), "False ImportProgressing: Import is progressing");
        assert_eq!((cluster.data_source_target(), cluster.imported()), (None, None));
    }
    cluster.progress(&name(1), "Succeeded");
    cluster.settle();
    assert_eq!(cluster.condition("Progressing"), "False NoImport: No current import");
    assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
    assert_eq!(cluster.imported(), Some(name(1)));
    let status = cluster.cron.status.as_ref().unwrap();
    assert_eq!(status.source_format.as_deref(), Some("pvc"));
    assert_eq!(status.current_imports.as_ref().unwrap()[0].digest, digest(1));
    assert!(status.last_import_timestamp.is_some());
}

#[test]
fn import_has_the_digest_and_the_labels_and_annotations_of_the_cron() {
    let mut cluster = TestCluster::new(json!({
        "retentionPolicy": "None",
        "template": {
            "metadata": {
                "labels": { "a": "b", "instancetype.kubevirt.io/default-instancetype": "u1" },
                "annotations": { "c": "d", request::SOURCE_FORMAT: "raw" },
            },
            "spec": {
                "source": { "registry": {
                    "url": "docker://host:5000/fedora:latest", "secretRef": "s", "certConfigMap": "ca",
                    "platform": { "architecture": "arm64" },
                } },
                "storage": { "resources": { "requests": { "storage": "10Gi" } } },
            },
        },
    }));
    cluster.annotate(request::RETAIN_PODS, Some("true"));
    let all = cluster.cron.metadata.labels.as_mut().unwrap();
    all.insert("app.example/x".into(), "y".into());
    cluster.publish(1);
    cluster.reconcile();
    let volume = &cluster.volumes[0];
    let registry = volume.spec.source.as_ref().unwrap().registry.as_ref().unwrap();
    assert_eq!(registry.url, Some(format!("docker://host:5000/fedora@{}", digest(1))));
    assert_eq!(
        (registry.secret_ref.as_deref(), registry.cert_config_map.as_deref()),
        (Some("s"), Some("ca"))
    );
    let annotation = |key| meta::annotation(&volume.metadata, key).unwrap_or_default();
    assert_eq!(annotation(request::BIND_IMMEDIATE), "true");
    assert_eq!(annotation(request::RETAIN_PODS), "true");
    assert_eq!(annotation("c"), "d");
    assert_eq!(annotation(request::SOURCE_FORMAT), "raw");
    assert!(annotation(key::LAST_USE_TIME).parse::<Timestamp>().is_ok());
    let pairs = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let all = metadata.labels.clone().unwrap_or_default();
        let is_ours = |key: &String| !key.starts_with("app");
        all.into_iter().filter(|(key, _)| is_ours(key)).collect::<Vec<_>>()
    };
    let text = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        pairs(&volume.metadata),
        text(&[
            ("a", "b"),
            (labels::DATA_IMPORT_CRON, "cron"),
            (labels::DATA_IMPORT_CRON_CLEANUP, "true"),
            (labels::DEFAULT_INSTANCETYPE, "u1"),
            (labels::DEFAULT_PREFERENCE, "fedora"),
        ])
    );
    assert_eq!(
        pairs(&cluster.sources[0].metadata),
        text(&[
            (labels::DATA_IMPORT_CRON, "cron"),
            (labels::DATA_IMPORT_CRON_CLEANUP, "true"),
            (labels::DEFAULT_INSTANCETYPE, "u1"),
            (labels::DEFAULT_PREFERENCE, "fedora"),
        ])
    );
}

#[test]
fn failed_import_leaves_the_last_good_image_in_place() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    cluster.import(2);
    cluster.publish(3);
    cluster.settle();
    cluster.fail(&name(3), "Unable to process data: expected status code 200, got 404");
    cluster.settle();
    assert_eq!(
        cluster.condition("UpToDate"),
        "False ImportFailed: Unable to process data: expected status code 200, got 404"
    );
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(2))));
    assert_eq!(cluster.imported(), Some(name(2)));
    // A failing import is replaced by a newer image.
    cluster.publish(4);
    cluster.settle();
    assert!(!cluster.names().contains(&format!("dv {}", name(3))));
    assert_eq!(cluster.current(), Some(name(4)));
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(2))));
    cluster.progress(&name(4), "Succeeded");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(4))));
}

#[test]
fn running_import_is_not_replaced_by_a_newer_image() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.publish(1);
    cluster.settle();
    cluster.progress(&name(1), "ImportInProgress");
    cluster.publish(2);
    cluster.settle();
    assert_eq!((cluster.current(), cluster.volumes.len()), (Some(name(1)), 1));
    assert_eq!(
        cluster.condition("UpToDate"),
        "False Outdated: Source digest updated since last import"
    );
    cluster.progress(&name(1), "Succeeded");
    cluster.settle();
    assert_eq!(cluster.imported(), Some(name(1)));
    assert_eq!(cluster.current(), Some(name(2)), "the newer image is next");
}

#[test]
fn terminating_import_is_recreated_once_it_is_deleted() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.publish(1);
    cluster.reconcile();
    cluster.progress(&name(1), "ImportInProgress");
    let deleted = Some(Time(cluster.now));
    cluster.volumes[0].metadata.deletion_timestamp.clone_from(&deleted);
    cluster.claims[0].metadata.deletion_timestamp = deleted;
    let plan = cluster.reconcile();
    assert!(plan.changes.is_empty(), "{:?}", plan.changes);
    assert!(plan.look_again.is_some_and(|next| next <= cluster.now));
    cluster.delete(Kind::Volume, &name(1));
    cluster.settle();
    assert_eq!(cluster.volumes.len(), 1);
}

#[test]
fn import_to_another_storage_class_keeps_the_first_image_until_it_is_complete() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    cluster.set_default("b");
    cluster.settle();
    let other = cluster.current().unwrap();
    assert!(other != name(1) && other.starts_with(&name(1)), "{other}");
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
    cluster.progress(&other, "Succeeded");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {other}")));
    assert_eq!(meta::annotation(&cluster.cron.metadata, key::STORAGE_CLASS), Some("b"));
    assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
    // Back to the first class, without another import.
    cluster.set_default("a");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
    assert_eq!(cluster.volumes.len(), 2);
}

#[test]
fn unfinished_import_is_restarted_on_another_storage_class() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.publish(1);
    cluster.settle();
    cluster.progress(&name(1), "ImportInProgress");
    cluster.claims[0].status.get_or_insert_default().phase = Some("Bound".into());
    cluster.settle();
    cluster.set_default("b");
    cluster.reconcile();
    assert!(cluster.volumes.is_empty());
    cluster.settle();
    assert_eq!(cluster.current(), Some(name(1)));
    cluster.create_claims();
    assert_eq!(cluster.claims[0].spec.as_ref().unwrap().storage_class_name.as_deref(), Some("b"));
}

#[test]
fn pending_pvc_of_a_former_storage_class_is_recreated() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.publish(1);
    cluster.settle();
    cluster.progress(&name(1), "Pending");
    cluster.set_default("b");
    let plan = cluster.reconcile();
    assert_eq!(plan.changes, [Change::Delete(Kind::Claim, name(1))]);
    assert!(plan.look_again.is_some());
    cluster.create_claims();
    cluster.settle();
    assert_eq!(cluster.claims.len(), 1);
}

#[test]
fn import_without_a_storage_class_waits_until_there_is_a_default() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.set_default("");
    cluster.publish(1);
    cluster.settle();
    assert_eq!(outdated_metric(&cluster.cron), (true, true));
    assert_eq!(cluster.volumes.len(), 1);
    assert!(cluster.claims.is_empty());
    cluster.set_default("a");
    cluster.progress(&name(1), "Succeeded");
    cluster.settle();
    assert_eq!(outdated_metric(&cluster.cron), (false, false));
    assert_eq!(meta::annotation(&cluster.cron.metadata, key::STORAGE_CLASS), Some("a"));
}

#[test]
fn read_write_once_is_requested_if_the_profile_has_the_annotation() {
    let modes = |marked: bool, requested: serde_json::Value| {
        let mut storage = json!({ "resources": { "requests": { "storage": "10Gi" } } });
        storage["accessModes"] = requested;
        let mut cluster = TestCluster::new(json!({ "template": { "spec": {
            "source": { "registry": { "url": "docker://a/b" } }, "storage": storage,
        } } }));
        if marked {
            let marks = cluster.profiles[0].metadata.annotations.get_or_insert_default();
            marks.insert(request::CRON_READ_WRITE_ONCE.into(), "true".into());
        }
        cluster.publish(1);
        cluster.reconcile();
        cluster.volumes[0].spec.storage.clone().unwrap().access_modes
    };
    assert_eq!(modes(false, json!(null)), None);
    assert_eq!(modes(true, json!(null)), Some(vec!["ReadWriteOnce".into()]));
    assert_eq!(modes(true, json!(["ReadWriteMany"])), Some(vec!["ReadWriteMany".into()]));
}
