use api::annotations::import;

use super::*;

#[test]
fn imported_image_is_kept_as_a_snapshot_and_its_pvc_is_deleted() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.set_form("snapshot");
    cluster.publish(1);
    cluster.settle();
    cluster.progress(&name(1), "Succeeded");
    cluster.settle();
    assert_eq!(
        cluster.condition("UpToDate"),
        "False ImportProgressing: Snapshot of imported data is progressing"
    );
    assert_eq!(cluster.imported(), Some(name(1)));
    // The PVC will be deleted, so the DataSource does not refer to it.
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(1))));
    let snapshot = &cluster.snapshots[0];
    let annotation = |key| meta::annotation(&snapshot.metadata, key);
    assert_eq!(annotation(import::ADVISED_RESTORE_SIZE), Some("10Gi"));
    assert_eq!(annotation(import::SOURCE_VOLUME_MODE), Some("Block"));
    assert_eq!(snapshot.spec.volume_snapshot_class_name.as_deref(), Some("snap-a"));
    assert_eq!(meta::label(&snapshot.metadata, labels::DEFAULT_PREFERENCE), Some("fedora"));
    assert_eq!(meta::label(&snapshot.metadata, labels::COMPONENT), Some(""));
    cluster.snapshots_are_ready();
    cluster.settle();
    assert_eq!(cluster.names(), [format!("snapshot {}", name(1))].into());
    assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
    assert_eq!(cluster.cron.status.as_ref().unwrap().source_format.as_deref(), Some("snapshot"));
    // The next one: the DataSource refers to the first until the snapshot of the second is ready.
    cluster.publish(2);
    cluster.settle();
    cluster.progress(&name(2), "Succeeded");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(1))));
    cluster.snapshots_are_ready();
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(2))));
}

#[test]
fn old_snapshots_are_deleted_like_old_pvcs() {
    let mut cluster = TestCluster::new(json!({ "importsToKeep": 2 }));
    cluster.set_form("snapshot");
    for number in 1..=5 {
        cluster.import(number);
    }
    let expected = [4, 5].map(|number| format!("snapshot {}", name(number)));
    assert_eq!(cluster.names(), expected.into());
}

#[test]
fn source_format_changes_in_both_directions_keep_the_image() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    cluster.set_form("snapshot");
    cluster.settle();
    assert_eq!(
        cluster.data_source_target(),
        Some(format!("pvc {}", name(1))),
        "until there is a snapshot"
    );
    cluster.snapshots_are_ready();
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(1))));
    assert_eq!(cluster.names(), [format!("snapshot {}", name(1))].into());

    cluster.set_form("pvc");
    cluster.settle();
    assert_eq!(
        cluster.data_source_target(),
        Some(format!("snapshot {}", name(1))),
        "until there is a PVC"
    );
    assert_eq!(cluster.current(), Some(name(1)));
    cluster.fail(&name(1), "it fails");
    cluster.settle();
    assert!(cluster.is_usable());
    cluster.volumes[0].status.as_mut().unwrap().conditions = None;
    cluster.progress(&name(1), "Succeeded");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
    assert!(cluster.snapshots.is_empty());
}

#[test]
fn changed_snapshot_class_creates_another_snapshot() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.set_form("snapshot");
    cluster.import(1);
    let class =
        SnapshotClass { name: "images".into(), driver: "csi.a".into(), ..SnapshotClass::default() };
    cluster.snapshot_classes.push(class);
    let marks = cluster.profiles[0].metadata.annotations.get_or_insert_default();
    marks.insert(request::CRON_SNAPSHOT_CLASS.into(), "images".into());
    cluster.settle();
    assert!(cluster.is_usable(), "the first snapshot stays while the image is imported again");
    cluster.progress(&name(1), "Succeeded");
    cluster.settle();
    assert!(cluster.is_usable());
    cluster.snapshots_are_ready();
    cluster.settle();
    assert_eq!(cluster.snapshots[0].spec.volume_snapshot_class_name.as_deref(), Some("images"));
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(1))));
    assert!(cluster.claims.is_empty());
}

#[test]
fn retained_snapshot_is_used_instead_of_a_download() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.set_form("snapshot");
    for number in 1..=3 {
        cluster.import(number);
    }
    cluster.publish(2);
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(2))));
    assert!(cluster.volumes.is_empty());
}

#[test]
fn missing_annotations_of_an_existing_snapshot_are_added() {
    let mut cluster = TestCluster::new(json!({ "template": { "spec": {
        "source": { "registry": { "url": "docker://a/b" } },
        "storage": {},
    } } }));
    cluster.set_form("snapshot");
    let found = json!({
        "metadata": { "name": name(1), "namespace": "images" },
        "spec": { "source": { "persistentVolumeClaimName": name(1) }, "volumeSnapshotClassName": "snap-a" },
        "status": { "readyToUse": true, "restoreSize": "12Gi" },
    });
    cluster.snapshots.push(serde_json::from_value(found).unwrap());
    cluster.publish(1);
    cluster.settle();
    let metadata = &cluster.snapshots[0].metadata;
    assert_eq!(meta::annotation(metadata, import::ADVISED_RESTORE_SIZE), Some("12Gi"));
    assert_eq!(meta::annotation(metadata, import::SOURCE_VOLUME_MODE), Some("Block"));
    assert_eq!(meta::label(metadata, labels::DATA_IMPORT_CRON), Some("cron"));
    assert!(meta::annotation(metadata, key::LAST_USE_TIME).is_some());
    assert_eq!(cluster.data_source_target(), Some(format!("snapshot {}", name(1))));
}

#[test]
fn source_format_and_snapshot_class_decision_table() {
    let cluster = TestCluster::new(json!({}));
    let class = classes::named(&cluster.classes, "a");
    let snapshot = |name: &str| Form::Snapshot { class: name.into() };
    let class_of = |driver: &str, name: &str, is_default: bool| SnapshotClass {
        name: name.into(),
        driver: driver.into(),
        is_default,
        ..SnapshotClass::default()
    };
    let all = [
        class_of("csi.a", "x", false),
        class_of("csi.a", "y", true),
        class_of("csi.b", "a", true),
        class_of("csi.a", "z", false),
    ];
    let profile = |format: Option<&str>,
                   advised: Option<&str>,
                   own: Option<&str>|
     -> StorageProfile {
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "k", "spec": {},
            "metadata": { "name": "a", "annotations": own.map(|own| json!({ request::CRON_SNAPSHOT_CLASS: own })) },
            "status": { "dataImportCronSourceFormat": format, "snapshotClass": advised },
        }))
        .unwrap()
    };
    let snap = Some("snapshot");
    for (format, advised, own, known, expected) in [
        (None, None, None, &all[..], Form::Claim),
        (Some("pvc"), None, None, &all[..], Form::Claim),
        (snap, None, None, &all[..], snapshot("y")),
        (snap, Some("z"), None, &all[..], snapshot("z")),
        (snap, Some("z"), Some("x"), &all[..], snapshot("x")),
        (snap, None, Some("gone"), &all[..], snapshot("y")),
        (snap, None, Some("a"), &all[..], snapshot("y")),
        (snap, None, None, &all[..1], snapshot("x")),
        (snap, None, None, &all[2..3], Form::Claim),
        (snap, None, None, &[], Form::Claim),
    ] {
        let profile = profile(format, advised, own);
        assert_eq!(form(class, Some(&profile), known), expected, "{format:?} {advised:?} {own:?}");
    }
    assert_eq!(form(class, None, &all), Form::Claim);
    assert_eq!(form(None, Some(&profile(snap, None, None)), &all), Form::Claim);
}
