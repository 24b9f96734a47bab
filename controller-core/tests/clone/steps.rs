//! Clones from their first step to their last, in a cluster of a few lines, interrupted wherever they can be.

use std::time::Duration;

use api::annotations::{request, state};
use serde_json::json;

use controller_core::bound::Seen;
use controller_core::clone::{ClonePlan, Fallback, Phase, Step, Strategy};
use controller_core::event::Event;
use controller_core::object::Object;
use controller_core::plan::Write;

use super::world::{START, World, parsed};

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
fn each_plan_goes_through_its_phases_and_leaves_nothing() {
    for waits_for_consumer in [false, true] {
        for gib in [10, 20] {
            for (plan, expected) in plans() {
                let mut world = World::new(plan.clone(), gib);
                world.waits_for_consumer = waits_for_consumer;
                let phases = world.run();
                let without = |phases: &[&'static str]| {
                    let all = phases.iter().copied();
                    all.filter(|phase| *phase != "PrepClaim").collect::<Vec<_>>()
                };
                assert_eq!(without(&phases), without(expected), "{plan:?}");
                // It is prepared where it has to grow, or where nobody else binds it.
                let is_copy = plan.strategy() == Strategy::Copy;
                let prepares = (gib > 10 && !is_copy)
                    || (waits_for_consumer && !matches!(plan, ClonePlan::Copy { .. }));
                assert_eq!(
                    phases.contains(&"PrepClaim"),
                    prepares,
                    "{plan:?} {gib} {:?}",
                    world.done
                );
                world.tidy_up();
            }
        }
    }
}

#[test]
fn a_claim_is_prepared_where_its_consumer_is_going_to_be_and_by_the_scheduler() {
    let because = Fallback::NotOfThisDriver;
    // A claim that is read and thrown away has no consumer.
    for (plan, nodes) in [
        (ClonePlan::CsiClone, json!(["node-1"])),
        (ClonePlan::RestoreAndCopy { because }, json!(null)),
    ] {
        let mut world = World::new(plan.clone(), 20);
        world.waits_for_consumer = true;
        let annotations = world.target.metadata.annotations.get_or_insert_default();
        annotations.insert(request::SELECTED_NODE.into(), "node-1".into());
        let mut pods = Vec::new();
        for _ in 0..10 {
            let step = world.step().unwrap();
            pods.extend(step.writes.iter().filter_map(|write| match write {
                Write::Create(Object::Pod(pod)) => Some(json!(pod)),
                _ => None,
            }));
            world.apply(step, usize::MAX);
            world.others();
        }
        let spec = &pods.first().unwrap_or_else(|| panic!("{plan:?}: {:?}", world.done))["spec"];
        assert_eq!(spec["nodeName"], json!(null), "{plan:?}");
        let place = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                     /nodeSelectorTerms/0/matchFields/0/values";
        assert_eq!(spec.pointer(place).unwrap_or(&json!(null)), &nodes, "{plan:?}");
    }
}

#[test]
fn a_controller_that_is_killed_anywhere_goes_on() {
    for (plan, _) in plans() {
        let steps = 12;
        for killed_at in 0..steps {
            let mut world = World::new(plan.clone(), 20);
            world.waits_for_consumer = true;
            for step_number in 0..steps {
                let step = world.step().unwrap();
                // Nothing is done, or the first of what there was to do.
                let most = if step_number == killed_at { killed_at % 2 } else { usize::MAX };
                world.apply(step, most);
                if step_number != killed_at {
                    world.others();
                }
            }
            assert_eq!(world.run().last(), Some(&"Succeeded"), "{plan:?} {killed_at}");
            world.tidy_up();
        }
    }
}

#[test]
fn a_clone_that_is_given_up_anywhere_leaves_nothing() {
    for (plan, _) in plans() {
        for steps in 0..10 {
            let mut world = World::new(plan.clone(), 20);
            for _ in 0..steps {
                let step = world.step().unwrap();
                world.apply(step, usize::MAX);
                world.others();
            }
            world.tidy_up();
        }
    }
}

#[test]
fn nothing_is_asked_for_twice() {
    for (plan, _) in plans() {
        let mut world = World::new(plan.clone(), 20);
        for _ in 0..40 {
            let step = world.step().unwrap();
            let made = |step: &Step| {
                let is_made = |write: &&Write| matches!(write, Write::Create(_));
                step.writes.iter().filter(is_made).cloned().collect::<Vec<_>>()
            };
            let first = made(&step);
            world.apply(step, usize::MAX);
            let second = made(&world.step().unwrap());
            assert!(first.iter().all(|write| !second.contains(write)), "{plan:?}");
            world.others();
        }
    }
}

#[test]
fn a_driver_that_does_nothing_ends_in_a_copy() {
    for plan in [ClonePlan::CsiClone, ClonePlan::Snapshot { class: "snap".into() }] {
        let mut world = World::new(plan, 10);
        world.driver_works = false;
        let phases = world.run();
        assert_eq!(phases[phases.len() - 3..], ["HostClone", "Rebind", "Succeeded"]);
        let told = "fallback: The storage driver did not clone within 600 s";
        assert!(world.done.iter().any(|line| line == told), "{:?}", world.done);
        assert!(world.done.contains(&"claim tmp-copy-pvc-disk-uid".to_owned()));
        assert!(world.now - START < 1200, "{}", world.now - START);
        world.tidy_up();
    }
}

#[test]
fn a_driver_that_refuses_ends_in_a_copy_at_once() {
    for said in [
        "failed to provision: rpc error: code = InvalidArgument desc = no clones of snapshots",
        "CSI driver does not support clone operations: controller CLONE_VOLUME capability is not reported",
    ] {
        let mut world = World::new(ClonePlan::CsiClone, 10);
        world.driver_works = false;
        world.told = vec![Seen { event: Event::warning("ProvisioningFailed", said), at: None }];
        world.run();
        let told = format!("fallback: The storage driver refused to clone: {said}");
        assert!(world.done.contains(&told), "{:?}", world.done);
        assert!(world.now - START < 600);
    }
}

#[test]
fn a_driver_has_all_the_time_where_no_copy_is_wanted_or_none_would_help() {
    let mut world = World::new(ClonePlan::Restore, 10);
    world.driver_works = false;
    for _ in 0..100 {
        let step = world.step().unwrap();
        assert_eq!(step.fallback, None);
        world.now += 60;
        world.apply(step, usize::MAX);
        world.others();
    }
    assert_eq!(world.waited_for, "the storage to clone the volume");
}

#[test]
fn a_source_that_is_in_use_is_waited_for_and_said_to_be() {
    for plan in [ClonePlan::CsiClone, ClonePlan::Snapshot { class: "snap".into() }] {
        let mut world = World::new(plan, 10);
        world.writers = vec!["vm-1"];
        let step = world.step().unwrap();
        assert_eq!(step.waits_for, "golden to be free: it is used by vm-1");
        assert_eq!(step.look_again, Some(Duration::from_secs(2)));
        let told = Event::warning(
            "CloneSourceInUse",
            "pod images/vm-1 using PersistentVolumeClaim golden",
        );
        assert_eq!((step.events, step.writes), (vec![told], vec![]));
        world.writers.clear();
        world.populated = false;
        assert_eq!(world.step().unwrap().waits_for, "golden to be filled");
        world.populated = true;
        world.run();
    }
}

#[test]
fn a_copy_is_done_when_it_has_its_room() {
    let mut world = World::new(ClonePlan::Copy { because: None }, 10);
    world.preallocation = true;
    let step = world.step().unwrap();
    world.apply(step, usize::MAX);
    let claim = world.claims.values_mut().next().unwrap();
    let notes = claim.metadata.annotations.as_mut().unwrap();
    assert_eq!(notes[request::CLONE_REQUEST], "images/golden");
    assert_eq!(notes[state::OWNER_UID], "disk-uid");
    assert_eq!(notes[state::PREALLOCATION_REQUESTED], "true");
    assert_eq!(notes[request::PRIORITY_CLASS], "high");
    notes.insert(state::POD_PHASE.into(), "Succeeded".into());
    assert_eq!(world.step().unwrap().phase, Phase::HostClone);
    world.run();
}

#[test]
fn a_volume_that_somebody_else_has_taken_is_left_to_them() {
    let mut world = World::new(ClonePlan::CsiClone, 10);
    let step = world.step().unwrap();
    world.apply(step, usize::MAX);
    world.others();
    world.volume = Some(parsed(json!({
        "metadata": { "name": "pv" }, "spec": { "claimRef": { "uid": "somebody" } },
    })));
    let refused = world.step().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "volume \"pv\" belongs neither to \"tmp-pvc-disk-uid\" nor to the target"
    );
}
