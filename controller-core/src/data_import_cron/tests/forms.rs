use api::annotations::import;

use super::*;

#[test]
fn an_image_is_kept_as_a_snapshot_and_its_claim_goes() {
    let mut world = World::new(json!({}));
    world.set_form("snapshot");
    world.publish(1);
    world.settle();
    world.progress(&name(1), "Succeeded");
    world.settle();
    assert_eq!(
        world.says("UpToDate"),
        "False ImportProgressing: Snapshot of imported data is progressing"
    );
    assert_eq!(world.imported(), Some(name(1)));
    // Its claim is about to go, so nobody begins to clone it.
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(1))));
    let snapshot = &world.snapshots[0];
    let annotation = |key| meta::annotation(&snapshot.metadata, key);
    assert_eq!(annotation(import::ADVISED_RESTORE_SIZE), Some("10Gi"));
    assert_eq!(annotation(import::SOURCE_VOLUME_MODE), Some("Block"));
    assert_eq!(snapshot.spec.volume_snapshot_class_name.as_deref(), Some("snap-a"));
    assert_eq!(meta::label(&snapshot.metadata, labels::DEFAULT_PREFERENCE), Some("fedora"));
    assert_eq!(meta::label(&snapshot.metadata, labels::COMPONENT), Some(""));
    world.snapshots_are_ready();
    world.settle();
    assert_eq!(world.names(), [format!("snapshot {}", name(1))].into());
    assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
    assert_eq!(world.cron.status.as_ref().unwrap().source_format.as_deref(), Some("snapshot"));
    // The next one: the DataSource stands for the first until the snapshot of the second can be used.
    world.publish(2);
    world.settle();
    world.progress(&name(2), "Succeeded");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(1))));
    world.snapshots_are_ready();
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(2))));
}

#[test]
fn snapshots_are_collected_as_claims_are() {
    let mut world = World::new(json!({ "importsToKeep": 2 }));
    world.set_form("snapshot");
    for number in 1..=5 {
        world.import(number);
    }
    let expected = [4, 5].map(|number| format!("snapshot {}", name(number)));
    assert_eq!(world.names(), expected.into());
}

#[test]
fn the_kept_form_is_switched_there_and_back_without_losing_the_image() {
    let mut world = World::new(json!({}));
    world.import(1);
    world.set_form("snapshot");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))), "until there is a snapshot");
    world.snapshots_are_ready();
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(1))));
    assert_eq!(world.names(), [format!("snapshot {}", name(1))].into());

    world.set_form("pvc");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(1))), "until there is a claim");
    assert_eq!(world.current(), Some(name(1)));
    world.fail(&name(1), "no way");
    world.settle();
    assert!(world.is_usable());
    world.volumes[0].status.as_mut().unwrap().conditions = None;
    world.progress(&name(1), "Succeeded");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
    assert!(world.snapshots.is_empty());
}

#[test]
fn another_class_of_snapshots_makes_another_snapshot() {
    let mut world = World::new(json!({}));
    world.set_form("snapshot");
    world.import(1);
    let class =
        SnapshotClass { name: "images".into(), driver: "csi.a".into(), ..SnapshotClass::default() };
    world.snapshot_classes.push(class);
    let marks = world.profiles[0].metadata.annotations.get_or_insert_default();
    marks.insert(request::CRON_SNAPSHOT_CLASS.into(), "images".into());
    world.settle();
    assert!(world.is_usable(), "the first snapshot stays while the image is imported again");
    world.progress(&name(1), "Succeeded");
    world.settle();
    assert!(world.is_usable());
    world.snapshots_are_ready();
    world.settle();
    assert_eq!(world.snapshots[0].spec.volume_snapshot_class_name.as_deref(), Some("images"));
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(1))));
    assert!(world.claims.is_empty());
}

#[test]
fn a_kept_snapshot_is_taken_instead_of_a_download() {
    let mut world = World::new(json!({}));
    world.set_form("snapshot");
    for number in 1..=3 {
        world.import(number);
    }
    world.publish(2);
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(2))));
    assert!(world.volumes.is_empty());
}

#[test]
fn what_a_found_snapshot_lacks_is_filled_in() {
    let mut world = World::new(json!({ "template": { "spec": {
        "source": { "registry": { "url": "docker://a/b" } },
        "storage": {},
    } } }));
    world.set_form("snapshot");
    let found = json!({
        "metadata": { "name": name(1), "namespace": "images" },
        "spec": { "source": { "persistentVolumeClaimName": name(1) }, "volumeSnapshotClassName": "snap-a" },
        "status": { "readyToUse": true, "restoreSize": "12Gi" },
    });
    world.snapshots.push(serde_json::from_value(found).unwrap());
    world.publish(1);
    world.settle();
    let metadata = &world.snapshots[0].metadata;
    assert_eq!(meta::annotation(metadata, import::ADVISED_RESTORE_SIZE), Some("12Gi"));
    assert_eq!(meta::annotation(metadata, import::SOURCE_VOLUME_MODE), Some("Block"));
    assert_eq!(meta::label(metadata, labels::DATA_IMPORT_CRON), Some("cron"));
    assert!(meta::annotation(metadata, key::LAST_USE_TIME).is_some());
    assert_eq!(world.stands_for(), Some(format!("snapshot {}", name(1))));
}

#[test]
fn the_form_and_its_class_are_what_the_profile_says_as_far_as_the_storage_can() {
    let world = World::new(json!({}));
    let class = classes::named(&world.classes, "a");
    let snapshot = |name: &str| Form::Snapshot { class: name.into() };
    let of = |driver: &str, name: &str, is_default: bool| SnapshotClass {
        name: name.into(),
        driver: driver.into(),
        is_default,
        ..SnapshotClass::default()
    };
    let all = [
        of("csi.a", "x", false),
        of("csi.a", "y", true),
        of("csi.b", "a", true),
        of("csi.a", "z", false),
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
