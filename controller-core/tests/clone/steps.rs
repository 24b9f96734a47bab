//! Clones from their first step to their last in a simulated cluster, interrupted after each write.

use std::time::Duration;

use api::annotations::{request, state};
use serde_json::json;

use controller_core::bound::ObservedEvent;
use controller_core::clone::{ClonePlan, Fallback, Phase, Step, Strategy};
use controller_core::event::Event;
use controller_core::object::Object;
use controller_core::plan::Write;

use super::cluster::{START, TestCluster, parsed};

fn plans() -> [(ClonePlan, &'static [&'static str]); 5] {
    let because = Fallback::NotOfThisDriver;
    [
        (ClonePlan::CsiClone, &["CSIClone", "PrepClaim", "Rebind", "Succeeded"]),
        (
            ClonePlan::Snapshot { class: "snap".into() },
            &["Snapshot", "SnapshotClone", "PrepClaim", "Rebind", "Succeeded"],
        ),
        (ClonePlan::Restore, &["SnapshotClone", "PrepClaim", "Rebind", "Succeeded"]),
        (ClonePlan::Copy { because: None }, &["HostClone", "Rebind", "Succeeded"]),
        (
            ClonePlan::RestoreAndCopy { because },
            &["SnapshotClone", "PrepClaim", "HostClone", "Rebind", "Succeeded"],
        ),
    ]
}

#[test]
fn each_plan_passes_its_phases_and_leaves_no_objects() {
    for waits_for_consumer in [false, true] {
        for gib in [10, 20] {
            for (plan, expected) in plans() {
                let mut cluster = TestCluster::new(plan.clone(), gib);
                cluster.waits_for_consumer = waits_for_consumer;
                let phases = cluster.run();
                let without = |phases: &[&'static str]| {
                    let all = phases.iter().copied();
                    all.filter(|phase| *phase != "PrepClaim").collect::<Vec<_>>()
                };
                assert_eq!(without(&phases), without(expected), "{plan:?}");
                // The PVC is prepared if it has to be expanded, or if no other pod causes it to be bound.
                let is_copy = plan.strategy() == Strategy::Copy;
                let prepares = (gib > 10 && !is_copy)
                    || (waits_for_consumer && !matches!(plan, ClonePlan::Copy { .. }));
                assert_eq!(
                    phases.contains(&"PrepClaim"),
                    prepares,
                    "{plan:?} {gib} {:?}",
                    cluster.log
                );
                cluster.delete_orphans();
            }
        }
    }
}

#[test]
fn prep_pod_is_scheduled_to_the_node_selected_for_the_consumer() {
    let because = Fallback::NotOfThisDriver;
    // A temporary PVC that is only read has no consumer.
    for (plan, nodes) in [
        (ClonePlan::CsiClone, json!(["node-1"])),
        (ClonePlan::RestoreAndCopy { because }, json!(null)),
    ] {
        let mut cluster = TestCluster::new(plan.clone(), 20);
        cluster.waits_for_consumer = true;
        let annotations = cluster.target.metadata.annotations.get_or_insert_default();
        annotations.insert(request::SELECTED_NODE.into(), "node-1".into());
        let mut pods = Vec::new();
        for _ in 0..10 {
            let step = cluster.step().unwrap();
            pods.extend(step.writes.iter().filter_map(|write| match write {
                Write::Create(Object::Pod(pod)) => Some(json!(pod)),
                _ => None,
            }));
            cluster.apply(step, usize::MAX);
            cluster.run_other_components();
        }
        let spec = &pods.first().unwrap_or_else(|| panic!("{plan:?}: {:?}", cluster.log))["spec"];
        assert_eq!(spec["nodeName"], json!(null), "{plan:?}");
        let place = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                     /nodeSelectorTerms/0/matchFields/0/values";
        assert_eq!(spec.pointer(place).unwrap_or(&json!(null)), &nodes, "{plan:?}");
    }
}

#[test]
fn restarted_controller_continues_the_clone_from_any_step() {
    for (plan, _) in plans() {
        let steps = 12;
        for killed_at in 0..steps {
            let mut cluster = TestCluster::new(plan.clone(), 20);
            cluster.waits_for_consumer = true;
            for step_number in 0..steps {
                let step = cluster.step().unwrap();
                // None of the writes is applied, or the first one.
                let most = if step_number == killed_at { killed_at % 2 } else { usize::MAX };
                cluster.apply(step, most);
                if step_number != killed_at {
                    cluster.run_other_components();
                }
            }
            assert_eq!(cluster.run().last(), Some(&"Succeeded"), "{plan:?} {killed_at}");
            cluster.delete_orphans();
        }
    }
}

#[test]
fn abandoned_clone_leaves_no_objects_after_any_step() {
    for (plan, _) in plans() {
        for steps in 0..10 {
            let mut cluster = TestCluster::new(plan.clone(), 20);
            for _ in 0..steps {
                let step = cluster.step().unwrap();
                cluster.apply(step, usize::MAX);
                cluster.run_other_components();
            }
            cluster.delete_orphans();
        }
    }
}

#[test]
fn no_object_is_created_twice() {
    for (plan, _) in plans() {
        let mut cluster = TestCluster::new(plan.clone(), 20);
        for _ in 0..40 {
            let step = cluster.step().unwrap();
            let created = |step: &Step| {
                let is_create = |write: &&Write| matches!(write, Write::Create(_));
                step.writes.iter().filter(is_create).cloned().collect::<Vec<_>>()
            };
            let first = created(&step);
            cluster.apply(step, usize::MAX);
            let second = created(&cluster.step().unwrap());
            assert!(first.iter().all(|write| !second.contains(write)), "{plan:?}");
            cluster.run_other_components();
        }
    }
}

#[test]
fn clone_falls_back_to_a_copy_after_the_driver_timeout() {
    for plan in [ClonePlan::CsiClone, ClonePlan::Snapshot { class: "snap".into() }] {
        let mut cluster = TestCluster::new(plan, 10);
        cluster.driver_works = false;
        let phases = cluster.run();
        assert_eq!(phases[phases.len() - 3..], ["HostClone", "Rebind", "Succeeded"]);
        let expected = "fallback: The storage driver did not clone within 600 s";
        assert!(cluster.log.iter().any(|line| line == expected), "{:?}", cluster.log);
        assert!(cluster.log.contains(&"claim tmp-copy-pvc-disk-uid".to_owned()));
        assert!(cluster.now - START < 1200, "{}", cluster.now - START);
        cluster.delete_orphans();
    }
}

#[test]
fn clone_falls_back_to_a_copy_at_once_if_the_driver_refuses() {
    for message in [
        "failed to provision: rpc error: code = InvalidArgument desc = no clones of snapshots",
        "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported",
    ] {
        let mut cluster = TestCluster::new(ClonePlan::CsiClone, 10);
        cluster.driver_works = false;
        cluster.pvc_warnings =
            vec![ObservedEvent { event: Event::warning("ProvisioningFailed", message), at: None }];
        cluster.run();
        let expected = format!("fallback: The storage driver refused to clone: {message}");
        assert!(cluster.log.contains(&expected), "{:?}", cluster.log);
        assert!(cluster.now - START < 600);
    }
}

#[test]
fn restore_of_a_snapshot_has_no_driver_timeout() {
    let mut cluster = TestCluster::new(ClonePlan::Restore, 10);
    cluster.driver_works = false;
    for _ in 0..100 {
        let step = cluster.step().unwrap();
        assert_eq!(step.fallback, None);
        cluster.now += 60;
        cluster.apply(step, usize::MAX);
        cluster.run_other_components();
    }
    assert_eq!(cluster.waited_for, "the storage to clone the volume");
}

#[test]
fn clone_of_a_source_in_use_waits_and_records_an_event() {
    for plan in [ClonePlan::CsiClone, ClonePlan::Snapshot { class: "snap".into() }] {
        let mut cluster = TestCluster::new(plan, 10);
        cluster.writers = vec!["vm-1"];
        let step = cluster.step().unwrap();
        assert_eq!(step.waits_for, "golden to be free: it is used by vm-1");
        assert_eq!(step.look_again, Some(Duration::from_secs(2)));
        let expected = Event::warning(
            "CloneSourceInUse",
            "pod images/vm-1 using PersistentVolumeClaim golden",
        );
        assert_eq!((step.events, step.writes), (vec![expected], vec![]));
        cluster.writers.clear();
        cluster.populated = false;
        assert_eq!(cluster.step().unwrap().waits_for, "golden to be filled");
        cluster.populated = true;
        cluster.run();
    }
}

#[test]
fn copy_with_preallocation_is_complete_once_space_is_allocated() {
    let mut cluster = TestCluster::new(ClonePlan::Copy { because: None }, 10);
    cluster.preallocation = true;
    let step = cluster.step().unwrap();
    cluster.apply(step, usize::MAX);
    let claim = cluster.claims.values_mut().next().unwrap();
    let notes = claim.metadata.annotations.as_mut().unwrap();
    assert_eq!(notes[request::CLONE_REQUEST], "images/golden");
    assert_eq!(notes[state::OWNER_UID], "disk-uid");
    assert_eq!(notes[state::PREALLOCATION_REQUESTED], "true");
    assert_eq!(notes[request::PRIORITY_CLASS], "high");
    notes.insert(state::POD_PHASE.into(), "Succeeded".into());
    assert_eq!(cluster.step().unwrap().phase, Phase::HostClone);
    cluster.run();
}

#[test]
fn volume_bound_to_another_pvc_is_not_rebound() {
    let mut cluster = TestCluster::new(ClonePlan::CsiClone, 10);
    let step = cluster.step().unwrap();
    cluster.apply(step, usize::MAX);
    cluster.run_other_components();
    cluster.volume = Some(parsed(json!({
        "metadata": { "name": "pv" }, "spec": { "claimRef": { "uid": "other" } },
    })));
    let refused = cluster.step().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "volume \"pv\" belongs neither to \"tmp-pvc-disk-uid\" nor to the target"
    );
}
