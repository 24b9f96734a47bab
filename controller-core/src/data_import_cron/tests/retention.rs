//! How many images are retained, and what a deleted cron deletes.

use super::*;

#[test]
fn old_images_go_and_as_many_stay_as_are_to_be_kept() {
    for (spec, kept) in [
        (json!({}), vec![4, 5, 6]),
        (json!({ "importsToKeep": 1 }), vec![6]),
        (json!({ "importsToKeep": 0 }), vec![6]),
        (json!({ "importsToKeep": 2, "garbageCollect": "Outdated" }), vec![5, 6]),
        (json!({ "garbageCollect": "Never" }), vec![1, 2, 3, 4, 5, 6]),
    ] {
        let mut world = World::new(spec.clone());
        for number in 1..=6 {
            world.import(number);
        }
        let expected =
            kept.iter().flat_map(|n| [format!("dv {}", name(*n)), format!("pvc {}", name(*n))]);
        assert_eq!(world.names(), expected.collect(), "{spec}");
    }
}

#[test]
fn rolling_back_takes_what_is_kept_and_downloads_nothing() {
    let mut world = World::new(json!({}));
    for number in 1..=3 {
        world.import(number);
    }
    world.annotate(key::PINNED_DIGEST, Some(&digest(2)));
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(2))));
    assert_eq!(world.volumes.len(), 3);
    let pinned = format!("True Pinned: The image is pinned to {}", digest(2));
    assert_eq!(world.says("UpToDate"), pinned);
    // Newer ones are noticed, and not taken.
    world.publish(9);
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(2))));
    world.annotate(key::PINNED_DIGEST, None);
    world.settle();
    assert_eq!(world.current(), Some(name(9)));
    // By hand it is the same for as long as nobody looks.
    world.publish(1);
    world.progress(&name(9), "Succeeded");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
}

#[test]
fn what_somebody_deletes_is_imported_again() {
    let mut world = World::new(json!({}));
    world.import(1);
    world.import(2);
    world.delete(Kind::Volume, &name(2));
    world.settle();
    assert_eq!(world.current(), Some(name(2)));
    assert!(world.names().contains(&format!("dv {}", name(2))));
    world.progress(&name(2), "Succeeded");
    world.settle();
    assert!(world.is_usable());
    // The DataVolume may go and leave its claim.
    let claims = world.claims.clone();
    world.delete(Kind::Volume, &name(2));
    world.claims = claims;
    world.settle();
    assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
    // A DataSource comes back, and stands for the same.
    world.delete(Kind::Source, "fedora");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(2))));
}

#[test]
fn a_deleted_cron_takes_along_what_its_policy_says_and_nothing_else() {
    for (policy, phase) in [
        ("None", "Succeeded"),
        ("None", "ImportInProgress"),
        ("All", "Succeeded"),
        ("All", "ImportInProgress"),
    ] {
        let mut world = World::new(json!({ "retentionPolicy": policy }));
        world.import(1);
        world.publish(2);
        world.settle();
        world.progress(&name(2), phase);
        let mut foreign = world.claims[0].clone();
        foreign.metadata.name = Some("foreign".into());
        foreign.metadata.labels = None;
        world.claims.push(foreign);
        let before = world.names();
        // Marked for deletion, or gone already: the same.
        let gone = cleanup("cron", &world.all());
        world.cron.metadata.deletion_timestamp = Some(Time(world.now));
        let plan = world.plan(None);
        assert_eq!(plan.changes, gone);
        assert!(plan.poll.is_none() && plan.annotations.is_empty());
        for change in &gone {
            let Change::Delete(kind, name) = change else { panic!("{change:?}") };
            world.delete(*kind, name);
        }
        if policy == "None" {
            assert_eq!(world.names(), ["pvc foreign".to_owned()].into(), "{phase}");
            assert!(world.sources.is_empty());
        } else {
            assert_eq!((world.names(), world.sources.len()), (before, 1), "{phase}");
        }
    }
}
