//! How many images are retained, and what a deleted cron deletes.

use super::*;

#[test]
fn old_images_beyond_imports_to_keep_are_deleted() {
    for (spec, kept) in [
        (json!({}), vec![4, 5, 6]),
        (json!({ "importsToKeep": 1 }), vec![6]),
        (json!({ "importsToKeep": 0 }), vec![6]),
        (json!({ "importsToKeep": 2, "garbageCollect": "Outdated" }), vec![5, 6]),
        (json!({ "garbageCollect": "Never" }), vec![1, 2, 3, 4, 5, 6]),
    ] {
        let mut cluster = TestCluster::new(spec.clone());
        for number in 1..=6 {
            cluster.import(number);
        }
        let expected =
            kept.iter().flat_map(|n| [format!("dv {}", name(*n)), format!("pvc {}", name(*n))]);
        assert_eq!(cluster.names(), expected.collect(), "{spec}");
    }
}

#[test]
fn rollback_uses_a_retained_image_without_a_download() {
    let mut cluster = TestCluster::new(json!({}));
    for number in 1..=3 {
        cluster.import(number);
    }
    cluster.annotate(key::PINNED_DIGEST, Some(&digest(2)));
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(2))));
    assert_eq!(cluster.volumes.len(), 3);
    let pinned = format!("True Pinned: The image is pinned to {}", digest(2));
    assert_eq!(cluster.condition("UpToDate"), pinned);
    // A newer image is noticed, but not imported.
    cluster.publish(9);
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(2))));
    cluster.annotate(key::PINNED_DIGEST, None);
    cluster.settle();
    assert_eq!(cluster.current(), Some(name(9)));
    // A desired digest set by hand has the same effect until the next poll.
    cluster.publish(1);
    cluster.progress(&name(9), "Succeeded");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(1))));
}

#[test]
fn deleted_import_or_data_source_is_created_again() {
    let mut cluster = TestCluster::new(json!({}));
    cluster.import(1);
    cluster.import(2);
    cluster.delete(Kind::Volume, &name(2));
    cluster.settle();
    assert_eq!(cluster.current(), Some(name(2)));
    assert!(cluster.names().contains(&format!("dv {}", name(2))));
    cluster.progress(&name(2), "Succeeded");
    cluster.settle();
    assert!(cluster.is_usable());
    // The DataVolume may be deleted without its PVC.
    let claims = cluster.claims.clone();
    cluster.delete(Kind::Volume, &name(2));
    cluster.claims = claims;
    cluster.settle();
    assert_eq!(cluster.condition("UpToDate"), "True UpToDate: Latest import is up to date");
    // A deleted DataSource is created again with the same source.
    cluster.delete(Kind::Source, "fedora");
    cluster.settle();
    assert_eq!(cluster.data_source_target(), Some(format!("pvc {}", name(2))));
}

#[test]
fn deleted_cron_deletes_its_objects_only_with_retention_policy_none() {
    for (policy, phase) in [
        ("None", "Succeeded"),
        ("None", "ImportInProgress"),
        ("All", "Succeeded"),
        ("All", "ImportInProgress"),
    ] {
        let mut cluster = TestCluster::new(json!({ "retentionPolicy": policy }));
        cluster.import(1);
        cluster.publish(2);
        cluster.settle();
        cluster.progress(&name(2), phase);
        let mut foreign = cluster.claims[0].clone();
        foreign.metadata.name = Some("foreign".into());
        foreign.metadata.labels = None;
        cluster.claims.push(foreign);
        let before = cluster.names();
        // The same for a terminating and for a deleted cron.
        let gone = cleanup("cron", &cluster.all());
        cluster.cron.metadata.deletion_timestamp = Some(Time(cluster.now));
        let plan = cluster.plan(None);
        assert_eq!(plan.changes, gone);
        assert!(plan.poll.is_none() && plan.annotations.is_empty());
        for change in &gone {
            let Change::Delete(kind, name) = change else { panic!("{change:?}") };
            cluster.delete(*kind, name);
        }
        if policy == "None" {
            assert_eq!(cluster.names(), ["pvc foreign".to_owned()].into(), "{phase}");
            assert!(cluster.sources.is_empty());
        } else {
            assert_eq!((cluster.names(), cluster.sources.len()), (before, 1), "{phase}");
        }
    }
}
