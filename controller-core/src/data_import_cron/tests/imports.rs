//! Which image is imported, how, and to which StorageClass.

use super::*;

#[test]
fn the_first_image_is_imported_and_a_data_source_stands_for_it() {
    let mut world = World::new(json!({}));
    world.settle();
    assert_eq!(world.says("UpToDate"), "False NoDigest: No source digest");
    assert_eq!(world.says("Progressing"), "False NoImport: No current import");
    assert_eq!(world.stands_for(), None);
    assert_eq!(world.sources.len(), 1, "it is there, and stands for nothing yet");

    world.publish(1);
    world.look();
    assert_eq!(world.says("UpToDate"), "False Outdated: Source digest updated since last import");
    for (phase, progressing) in [
        ("", "False : Import DataVolume phase "),
        ("Pending", "False Pending: Import DataVolume phase Pending"),
        ("ImportScheduled", "False ImportScheduled: Import is scheduled"),
        ("ImportInProgress", "True ImportProgressing: Import is progressing"),
    ] {
        world.progress(&name(1), phase);
        world.settle();
        assert_eq!(world.says("Progressing"), progressing);
        assert_eq!(world.says("UpToDate"), "False ImportProgressing: Import is progressing");
        assert_eq!((world.stands_for(), world.imported()), (None, None));
    }
    world.progress(&name(1), "Succeeded");
    world.settle();
    assert_eq!(world.says("Progressing"), "False NoImport: No current import");
    assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
    assert_eq!(world.imported(), Some(name(1)));
    let status = world.cron.status.as_ref().unwrap();
    assert_eq!(status.source_format.as_deref(), Some("pvc"));
    assert_eq!(status.current_imports.as_ref().unwrap()[0].digest, digest(1));
    assert!(status.last_import_timestamp.is_some());
}

#[test]
fn the_import_is_of_exactly_this_image_and_takes_what_belongs_to_the_cron() {
    let mut world = World::new(json!({
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
    world.annotate(request::RETAIN_PODS, Some("true"));
    let all = world.cron.metadata.labels.as_mut().unwrap();
    all.insert("app.example/x".into(), "y".into());
    world.publish(1);
    world.look();
    let volume = &world.volumes[0];
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
        pairs(&world.sources[0].metadata),
        text(&[
            (labels::DATA_IMPORT_CRON, "cron"),
            (labels::DATA_IMPORT_CRON_CLEANUP, "true"),
            (labels::DEFAULT_INSTANCETYPE, "u1"),
            (labels::DEFAULT_PREFERENCE, "fedora"),
        ])
    );
}

#[test]
fn a_bad_image_leaves_the_good_one_in_place_until_a_better_one_comes() {
    let mut world = World::new(json!({}));
    world.import(1);
    world.import(2);
    world.publish(3);
    world.settle();
    world.fail(&name(3), "Unable to process data: expected status code 200, got 404");
    world.settle();
    assert_eq!(
        world.says("UpToDate"),
        "False ImportFailed: Unable to process data: expected status code 200, got 404"
    );
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(2))));
    assert_eq!(world.imported(), Some(name(2)));
    // What cannot be imported makes room for what is newer.
    world.publish(4);
    world.settle();
    assert!(!world.names().contains(&format!("dv {}", name(3))));
    assert_eq!(world.current(), Some(name(4)));
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(2))));
    world.progress(&name(4), "Succeeded");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(4))));
}

#[test]
fn a_running_import_is_not_given_up_for_a_newer_image() {
    let mut world = World::new(json!({}));
    world.publish(1);
    world.settle();
    world.progress(&name(1), "ImportInProgress");
    world.publish(2);
    world.settle();
    assert_eq!((world.current(), world.volumes.len()), (Some(name(1)), 1));
    assert_eq!(world.says("UpToDate"), "False Outdated: Source digest updated since last import");
    world.progress(&name(1), "Succeeded");
    world.settle();
    assert_eq!(world.imported(), Some(name(1)));
    assert_eq!(world.current(), Some(name(2)), "and then it is its turn");
}

#[test]
fn what_is_on_its_way_out_is_waited_for() {
    let mut world = World::new(json!({}));
    world.publish(1);
    world.look();
    world.progress(&name(1), "ImportInProgress");
    let deleted = Some(Time(world.now));
    world.volumes[0].metadata.deletion_timestamp.clone_from(&deleted);
    world.claims[0].metadata.deletion_timestamp = deleted;
    let plan = world.look();
    assert!(plan.changes.is_empty(), "{:?}", plan.changes);
    assert!(plan.look_again.is_some_and(|next| next <= world.now));
    world.delete(Kind::Volume, &name(1));
    world.settle();
    assert_eq!(world.volumes.len(), 1);
}

#[test]
fn imports_go_on_another_class_and_the_image_on_the_first_stays_until_then() {
    let mut world = World::new(json!({}));
    world.import(1);
    world.set_default("b");
    world.settle();
    let other = world.current().unwrap();
    assert!(other != name(1) && other.starts_with(&name(1)), "{other}");
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
    world.progress(&other, "Succeeded");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {other}")));
    assert_eq!(meta::annotation(&world.cron.metadata, key::STORAGE_CLASS), Some("b"));
    assert_eq!(world.says("UpToDate"), "True UpToDate: Latest import is up to date");
    // And back, without another import.
    world.set_default("a");
    world.settle();
    assert_eq!(world.stands_for(), Some(format!("pvc {}", name(1))));
    assert_eq!(world.volumes.len(), 2);
}

#[test]
fn an_unfinished_import_begins_anew_on_another_class() {
    let mut world = World::new(json!({}));
    world.publish(1);
    world.settle();
    world.progress(&name(1), "ImportInProgress");
    world.claims[0].status.get_or_insert_default().phase = Some("Bound".into());
    world.settle();
    world.set_default("b");
    world.look();
    assert!(world.volumes.is_empty());
    world.settle();
    assert_eq!(world.current(), Some(name(1)));
    world.make_claims();
    assert_eq!(world.claims[0].spec.as_ref().unwrap().storage_class_name.as_deref(), Some("b"));
}

#[test]
fn a_claim_that_waits_on_a_class_no_longer_meant_is_made_again() {
    let mut world = World::new(json!({}));
    world.publish(1);
    world.settle();
    world.progress(&name(1), "Pending");
    world.set_default("b");
    let plan = world.look();
    assert_eq!(plan.changes, [Change::Delete(Kind::Claim, name(1))]);
    assert!(plan.look_again.is_some());
    world.make_claims();
    world.settle();
    assert_eq!(world.claims.len(), 1);
}

#[test]
fn without_a_class_the_import_waits_and_goes_on_when_there_is_one() {
    let mut world = World::new(json!({}));
    world.set_default("");
    world.publish(1);
    world.settle();
    assert_eq!(outdated_metric(&world.cron), (true, true));
    assert_eq!(world.volumes.len(), 1);
    assert!(world.claims.is_empty());
    world.set_default("a");
    world.progress(&name(1), "Succeeded");
    world.settle();
    assert_eq!(outdated_metric(&world.cron), (false, false));
    assert_eq!(meta::annotation(&world.cron.metadata, key::STORAGE_CLASS), Some("a"));
}

#[test]
fn read_write_once_is_asked_for_where_the_profile_says_so() {
    let modes = |marked: bool, asked: serde_json::Value| {
        let mut storage = json!({ "resources": { "requests": { "storage": "10Gi" } } });
        storage["accessModes"] = asked;
        let mut world = World::new(json!({ "template": { "spec": {
            "source": { "registry": { "url": "docker://a/b" } }, "storage": storage,
        } } }));
        if marked {
            let marks = world.profiles[0].metadata.annotations.get_or_insert_default();
            marks.insert(request::CRON_READ_WRITE_ONCE.into(), "true".into());
        }
        world.publish(1);
        world.look();
        world.volumes[0].spec.storage.clone().unwrap().access_modes
    };
    assert_eq!(modes(false, json!(null)), None);
    assert_eq!(modes(true, json!(null)), Some(vec!["ReadWriteOnce".into()]));
    assert_eq!(modes(true, json!(["ReadWriteMany"])), Some(vec!["ReadWriteMany".into()]));
}
