use serde_json::json;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn class(provisioner: &str) -> StorageClass {
    serde_json::from_value(json!({ "metadata": { "name": "fast" }, "provisioner": provisioner }))
        .unwrap()
}

fn snapshots(name: &str, driver: &str, is_default: bool) -> SnapshotClass {
    SnapshotClass { name: name.into(), driver: driver.into(), is_default, ..Default::default() }
}

fn profile(spec: serde_json::Value) -> StorageProfile {
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile",
        "metadata": { "name": "fast" }, "spec": spec,
    }))
    .unwrap()
}

fn planned(
    class: &StorageClass,
    profile: Option<&StorageProfile>,
    classes: Option<&[SnapshotClass]>,
) -> Plan {
    let facts = Facts { class, profile, snapshot_classes: classes, volumes: &[] };
    plan(&facts, now()).unwrap()
}

#[test]
fn every_row_is_unique_and_valid() {
    let mut keys = BTreeSet::new();
    for (key, sets, strategy, _, size, _) in table::TABLE {
        assert!(keys.insert(key), "{key} is there twice");
        assert_eq!(table::capabilities(key).unwrap().sets, *sets);
        assert!(strategy.is_none_or(|strategy| CLONE_STRATEGIES.contains(&strategy)), "{key}");
        assert!(size.is_none_or(|size| size.parse::<contract::Quantity>().is_ok()), "{key}");
        assert!(!sets.is_empty() || size.is_some(), "{key} is empty");
    }
    assert_eq!(keys.len(), 80);
    for unsupported in UNSUPPORTED {
        assert_eq!(table::capabilities(unsupported), None);
    }
}

#[test]
fn clone_strategy_decision_table() {
    let ceph = "rbd.csi.ceph.com"; // csi-clone
    let gke = "pd.csi.storage.gke.io"; // snapshot
    let other = "other.example";
    let taken = "has snapshots";
    // Provisioner, snapshots, the spec, the class, the result.
    for (provisioner, snapshot, spec, annotation, expected) in [
        (ceph, "", None, None, "csi-clone"),
        (ceph, "", Some("copy"), Some("snapshot"), "copy"),
        (ceph, "", None, Some("snapshot"), "snapshot"),
        (ceph, "", None, Some("nonsense"), "csi-clone"),
        (ceph, "", Some("snapshot"), None, "snapshot"),
        (gke, "", None, None, "copy"),
        (gke, taken, None, None, "snapshot"),
        (other, "", None, None, "copy"),
        (other, taken, None, None, "snapshot"),
        ("topolvm.io", taken, None, None, "copy"),
    ] {
        let mut class = class(provisioner);
        if let Some(strategy) = annotation {
            let pairs = Pairs::from([(request::CLONE_STRATEGY.into(), strategy.into())]);
            class.metadata.annotations = Some(pairs);
        }
        let spec = spec.map_or(json!({}), |strategy| json!({ "cloneStrategy": strategy }));
        let snapshots = [snapshots("snap", provisioner, false)];
        let classes = (snapshot == taken).then_some(snapshots.as_slice());
        let plan = planned(&class, Some(&profile(spec)), classes);
        assert_eq!(
            plan.status.clone_strategy.as_deref(),
            Some(expected),
            "{provisioner} {snapshot} {annotation:?}"
        );
    }
}

#[test]
fn the_snapshot_class_is_the_named_one_or_the_default_or_the_first() {
    let ceph = "rook-ceph.rbd.csi.ceph.com";
    let of = |classes: Option<&[SnapshotClass]>, named: Option<&str>| {
        let profile = profile(named.map_or(json!({}), |name| json!({ "snapshotClass": name })));
        let class = class(ceph);
        let facts = Facts {
            class: &class,
            profile: Some(&profile),
            snapshot_classes: classes,
            volumes: &[],
        };
        plan(&facts, now()).map(|plan| plan.status.snapshot_class)
    };
    let all = [
        snapshots("b", ceph, false),
        snapshots("a", ceph, false),
        snapshots("z", ceph, true),
        snapshots("other", "other.example", true),
    ];
    assert_eq!(of(Some(&all), None), Ok(Some("z".into())));
    assert_eq!(of(Some(&all[..2]), None), Ok(Some("a".into())));
    assert_eq!(of(Some(&all[3..]), None), Ok(None));
    assert_eq!(of(Some(&all), Some("b")), Ok(Some("b".into())));
    assert_eq!(of(Some(&all), Some("other")), Ok(None));
    assert_eq!(
        of(Some(&all), Some("gone")),
        Err(Error::NoSuchSnapshotClass { name: "gone".into() })
    );
    assert_eq!(of(None, Some("gone")), Ok(None));
}

#[test]
fn source_format_is_the_configured_or_the_advised_one() {
    let format = |provisioner, classes: Option<&[SnapshotClass]>, spec| {
        let plan = planned(&class(provisioner), Some(&profile(spec)), classes);
        plan.status.data_import_cron_source_format.unwrap()
    };
    let ceph = "openshift-storage.rbd.csi.ceph.com";
    let snapshots = [snapshots("snap", ceph, false)];
    assert_eq!(format(ceph, Some(&snapshots), json!({})), "snapshot");
    assert_eq!(format(ceph, Some(&[]), json!({})), "pvc");
    assert_eq!(format(ceph, None, json!({})), "pvc");
    assert_eq!(format("rbd.csi.ceph.com", Some(&snapshots), json!({})), "pvc");
    let spec = json!({ "dataImportCronSourceFormat": "snapshot" });
    assert_eq!(format("other.example", None, spec), "snapshot");
}

#[test]
fn property_sets_are_those_of_the_spec_or_of_the_table() {
    let sets = |plan: &Plan| {
        let sets = plan.status.claim_property_sets.clone().unwrap();
        let text = |set: &ClaimPropertySet| {
            format!("{} {}", set.access_modes.join("+"), set.volume_mode.as_str())
        };
        sets.iter().map(text).collect::<Vec<_>>()
    };
    let ceph = class("rbd.csi.ceph.com");
    assert_eq!(
        sets(&planned(&ceph, None, None)),
        ["ReadWriteMany Block", "ReadWriteOnce Block", "ReadWriteOnce Filesystem"]
    );
    let own = json!({ "claimPropertySets": [
        { "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "volumeMode": "Filesystem" },
    ] });
    let plan_of_own = planned(&ceph, Some(&profile(own)), None);
    assert_eq!(sets(&plan_of_own), ["ReadWriteOnce+ReadOnlyMany Filesystem"]);
    assert_eq!(sets(&planned(&class("other.example"), None, None)), [""; 0]);

    let half = json!({ "claimPropertySets": [{ "accessModes": [], "volumeMode": "Block" }] });
    let profile = profile(half);
    let facts =
        Facts { class: &ceph, profile: Some(&profile), snapshot_classes: None, volumes: &[] };
    let error = plan(&facts, now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "each ClaimPropertySet must provide both volume mode and access modes"
    );
}

#[test]
fn property_sets_without_a_provisioner_are_those_of_the_volumes() {
    let volume = |modes: &[&str], mode: Option<&str>| -> PersistentVolume {
        serde_json::from_value(json!({ "spec": { "accessModes": modes, "volumeMode": mode } }))
            .unwrap()
    };
    let volumes = [
        volume(&["ReadWriteOnce"], Some("Filesystem")),
        volume(&["ReadWriteOnce", "ReadOnlyMany"], None),
        volume(&["ReadWriteOnce"], Some("Block")),
    ];
    let class = class(NO_PROVISIONER);
    let facts = Facts { class: &class, profile: None, snapshot_classes: None, volumes: &volumes };
    let status = plan(&facts, now()).unwrap().status;
    let sets = status.claim_property_sets.unwrap();
    let text = |set: &ClaimPropertySet| (set.access_modes[0].clone(), set.volume_mode);
    assert_eq!(
        sets.iter().map(text).collect::<Vec<_>>(),
        [
            ("ReadOnlyMany".into(), ClaimVolumeMode::Filesystem),
            ("ReadWriteOnce".into(), ClaimVolumeMode::Block),
            ("ReadWriteOnce".into(), ClaimVolumeMode::Filesystem),
        ]
    );
    assert_eq!(status.conditions.unwrap()[0].reason.as_deref(), Some("UnrecognizedProvisioner"));
}

#[test]
fn recognized_condition_decision_table() {
    let reason = |class: &StorageClass| {
        let condition = planned(class, None, None).status.conditions.unwrap().remove(0);
        (condition.status, condition.reason.unwrap())
    };
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(reason(&class("topolvm.io")), is("True", "RecognizedProvisioner"));
    assert_eq!(reason(&class("other.example")), is("False", "UnrecognizedProvisioner"));
    assert_eq!(
        reason(&class("csi.trident.netapp.io")),
        is("False", "UnrecognizedStorageClassParameters")
    );
    // A minimum size alone does not make the storage recognized.
    assert_eq!(reason(&class("xspc.csi.hpe.com")), is("False", "UnrecognizedProvisioner"));
}

#[test]
fn advice_in_annotations_does_not_overrule_the_administrator() {
    let mut class = class("pd.csi.storage.gke.io");
    class.parameters = Some(Pairs::from([("type".into(), "hyperdisk-balanced".into())]));
    let images = Pairs::from([("snapshot-type".to_owned(), "images".to_owned())]);
    let classes = [
        snapshots("a-standard", "pd.csi.storage.gke.io", true),
        SnapshotClass { parameters: images, ..snapshots("images", "pd.csi.storage.gke.io", false) },
    ];
    let plan = planned(&class, None, Some(&classes));
    let expected = [
        (request::MINIMUM_CLAIM_SIZE, "4Gi"),
        (request::CRON_READ_WRITE_ONCE, "true"),
        (request::CRON_SNAPSHOT_CLASS, "images"),
    ];
    for (key, value) in expected {
        assert_eq!(plan.annotations.0[key].as_deref(), Some(value));
    }
    assert_eq!(plan.status.snapshot_class.as_deref(), Some("a-standard"));

    let mut own = profile(json!({}));
    own.metadata.annotations = Some(Pairs::from([
        (request::MINIMUM_CLAIM_SIZE.into(), "1Gi".into()),
        (request::CRON_READ_WRITE_ONCE.into(), "false".into()),
        (request::CRON_SNAPSHOT_CLASS.into(), "gone".into()),
    ]));
    let plan = planned(&class, Some(&own), Some(&classes[..1]));
    let removed = Changes([(request::CRON_SNAPSHOT_CLASS.to_owned(), None)].into());
    assert_eq!(plan.annotations, removed);
}

#[test]
fn current_profile_is_not_written() {
    for (key, ..) in table::TABLE {
        let class = class(key.split_once("/nfs").map_or(*key, |(provisioner, _)| provisioner));
        let first = planned(&class, None, Some(&[]));
        let mut profile = profile(json!({}));
        profile.metadata.annotations = Some(first.annotations.applied_to(&ObjectMeta::default()));
        profile.status = Some(first.status.clone());
        let facts = Facts {
            class: &class,
            profile: Some(&profile),
            snapshot_classes: Some(&[]),
            volumes: &[],
        };
        let later = now().checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
        let second = plan(&facts, later).unwrap();
        assert!(second.annotations.is_empty(), "{key}");
        assert_eq!(second.status, first.status, "{key}");
    }
}
