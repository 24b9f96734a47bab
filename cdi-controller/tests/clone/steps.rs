//! Clones from their first step to their last, in a cluster of a few lines, interrupted wherever they can be.

use std::collections::BTreeMap;
use std::time::Duration;

use api::annotations::{request, state};
use api::labels;
use api::v1beta1::ClaimVolumeMode;
use contract::ByteCount;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use cdi_controller::bound::Seen;
use cdi_controller::clone::{
    Action, ClonePlan, Error, Facts, Fallback, Leftover, LeftoverKind, Names, Phase, SnapshotState,
    Source, Step, Strategy, Temporary, advance, cleanup, patience,
};
use cdi_controller::event::Event;
use cdi_controller::meta::{self, Installation};
use cdi_controller::volume::PersistentVolume;

const GIB: u64 = 1 << 30;
const START: i64 = 1_000_000;

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A cluster in so far as clones see it.
struct World {
    plan: ClonePlan,
    target: PersistentVolumeClaim,
    source: PersistentVolumeClaim,
    source_snapshot: Option<SnapshotState>,
    writers: Vec<&'static str>,
    populated: bool,
    waits_for_consumer: bool,
    preallocation: bool,
    claims: BTreeMap<String, PersistentVolumeClaim>,
    snapshot: Option<SnapshotState>,
    pod: Option<Pod>,
    volume: Option<PersistentVolume>,
    told: Vec<Seen>,
    now: i64,
    /// What the driver does with claims that are made of something.
    driver_works: bool,
    /// Everything that was done, in words.
    done: Vec<String>,
    waited_for: String,
}

impl World {
    fn new(plan: ClonePlan, gib: u64) -> Self {
        let claim = |name: &str, namespace: &str, phase: &str, gib: u64| {
            parsed(json!({
                "metadata": {
                    "name": name, "namespace": namespace, "uid": format!("{name}-uid"), "resourceVersion": "7",
                    "labels": { "mine": "yes" },
                    "annotations": { request::CLONE_TOKEN: "secret", "my/note": "kept" },
                },
                "spec": {
                    "accessModes": ["ReadWriteMany"], "storageClassName": "fast", "volumeMode": "Block",
                    "resources": { "requests": { "storage": format!("{gib}Gi") } },
                },
                "status": { "phase": phase, "capacity": { "storage": format!("{gib}Gi") } },
            }))
        };
        let of_snapshot = matches!(plan, ClonePlan::Restore | ClonePlan::RestoreAndCopy { .. });
        let source_snapshot = of_snapshot.then(|| SnapshotState {
            name: "golden".into(),
            namespace: "images".into(),
            ready: true,
            taken: true,
            restore_size: Some(ByteCount::new(10 * GIB)),
            mode: Some(ClaimVolumeMode::Block),
            ..SnapshotState::default()
        });
        let mut target: PersistentVolumeClaim = claim("disk", "vms", "Pending", gib);
        target.status = Some(parsed(json!({ "phase": "Pending" })));
        Self {
            plan,
            target,
            source: claim("golden", "images", "Bound", 10),
            source_snapshot,
            writers: Vec::new(),
            populated: true,
            waits_for_consumer: false,
            preallocation: false,
            claims: BTreeMap::new(),
            snapshot: None,
            pod: None,
            volume: None,
            told: Vec::new(),
            now: START,
            driver_works: true,
            done: Vec::new(),
            waited_for: String::new(),
        }
    }

    fn names(&self) -> Names {
        Names::of("disk-uid", &self.plan)
    }

    fn step(&self) -> Result<Step, Error> {
        let mode = if self.waits_for_consumer { "WaitForFirstConsumer" } else { "Immediate" };
        let class: StorageClass = parsed(json!({
            "metadata": { "name": "fast" }, "provisioner": "ceph", "volumeBindingMode": mode,
        }));
        let names = self.names();
        let installation = Installation::default();
        let source = match &self.source_snapshot {
            Some(snapshot) => Source::Snapshot(snapshot),
            None => Source::Claim {
                claim: &self.source,
                populated: self.populated,
                writers: &self.writers,
            },
        };
        advance(&Facts {
            target: &self.target,
            source,
            plan: &self.plan,
            temporary: Temporary {
                claim: self.claims.get(&names.claim),
                volume: self.volume.as_ref(),
                told: &self.told,
                source_claim: self.claims.get(&names.source_claim),
                snapshot: self.snapshot.as_ref(),
                pod: self.pod.as_ref(),
            },
            class: Some(&class),
            restore_class: Some(&class),
            preallocation: self.preallocation,
            priority_class: Some("high"),
            patience: patience(None),
            now: Timestamp::from_second(self.now).unwrap(),
            image: "cloner:1",
            placement: None,
            config: None,
            installation: &installation,
        })
    }

    /// Does what a step says, up to `most` of it: a controller may be killed in between.
    fn apply(&mut self, step: Step, most: usize) {
        self.waited_for = step.waits_for;
        if let Some(because) = step.fallback {
            self.done.push(format!("fallback: {because}"));
            // As it is found again in the target's annotations.
            self.plan =
                ClonePlan::Copy { because: Some(Fallback::Noted { text: because.to_string() }) };
        }
        for action in step.actions.into_iter().take(most) {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        let at: Value = json!(Timestamp::from_second(self.now).unwrap().to_string());
        match action {
            Action::CreateClaim(mut claim) => {
                let name = meta::name(&claim.metadata).to_owned();
                self.done.push(format!("claim {name}"));
                assert_eq!(meta::namespace(&claim.metadata), "images");
                assert_eq!(meta::label(&claim.metadata, labels::OWNED_BY_UID), Some("disk-uid"));
                assert_eq!(meta::label(&claim.metadata, "mine"), Some("yes"));
                assert_eq!(meta::annotation(&claim.metadata, "my/note"), Some("kept"));
                assert!(!meta::has_annotation(&claim.metadata, request::CLONE_TOKEN));
                claim.metadata.uid = Some(format!("{name}-uid"));
                claim.metadata.creation_timestamp = parsed(at);
                claim.status = Some(parsed(json!({ "phase": "Pending" })));
                assert!(self.claims.insert(name, *claim).is_none(), "made twice");
            }
            Action::CreateSnapshot(made) => {
                self.done.push(format!("snapshot {}", made.name));
                assert_eq!(made.to_json()["spec"]["source"]["persistentVolumeClaimName"], "golden");
                assert!(self.snapshot.is_none(), "made twice");
                self.snapshot = Some(SnapshotState {
                    name: made.name,
                    namespace: made.namespace,
                    made_at: Some(Timestamp::from_second(self.now).unwrap()),
                    ..SnapshotState::default()
                });
            }
            Action::CreatePod(mut pod) => {
                self.done.push(format!("pod {}", meta::name(&pod.metadata)));
                assert!(self.pod.is_none(), "made twice");
                pod.metadata.creation_timestamp = parsed(at);
                pod.spec.as_mut().unwrap().node_name = Some("node".into());
                self.pod = Some(*pod);
            }
            Action::RaiseRequest { claim, to } => {
                self.done.push(format!("raise {claim}"));
                let spec = self.claims.get_mut(&claim).unwrap().spec.as_mut().unwrap();
                spec.resources = Some(parsed(json!({ "requests": { "storage": to.to_string() } })));
            }
            Action::Rebind { volume, to } => {
                self.done.push(format!("rebind {volume}"));
                let spec = self.volume.as_mut().unwrap().spec.as_mut().unwrap();
                spec.claim_ref = Some(*to);
            }
            Action::DeleteClaim(name) => {
                self.done.push(format!("delete {name}"));
                self.claims.remove(&name);
            }
            Action::DeleteSnapshot(name) => {
                self.done.push(format!("delete {name}"));
                self.snapshot = None;
            }
            Action::DeletePod(name) => {
                self.done.push(format!("delete {name}"));
                self.pod = None;
            }
        }
    }

    /// What everybody else does meanwhile.
    fn others(&mut self) {
        if let Some(snapshot) = &mut self.snapshot
            && self.driver_works
        {
            snapshot.ready = snapshot.taken;
            snapshot.taken = true;
            snapshot.restore_size = Some(ByteCount::new(10 * GIB));
        }
        let used = self.pod.as_ref().map(|pod| {
            let volumes = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap();
            volumes[0].persistent_volume_claim.as_ref().unwrap().claim_name.clone()
        });
        let bound_name = self.names().claim;
        for (name, claim) in &mut self.claims {
            let is_used = used.as_ref() == Some(name);
            let is_copy = meta::has_annotation(&claim.metadata, request::CLONE_REQUEST);
            let is_made = claim.spec.as_ref().unwrap().data_source_ref.is_some();
            let works = self.driver_works || !is_made;
            let asked = meta::requested(claim).unwrap().clone();
            let status = claim.status.as_mut().unwrap();
            let is_bound = status.phase.as_deref() == Some("Bound");
            let may_bind = !self.waits_for_consumer || is_used || is_copy;
            if works && (is_used || !is_bound && may_bind) {
                status.phase = Some("Bound".into());
                status.capacity = Some(BTreeMap::from([("storage".to_owned(), asked)]));
            }
            if is_copy && status.phase.as_deref() == Some("Bound") {
                let notes = claim.metadata.annotations.as_mut().unwrap();
                notes.insert(state::POD_PHASE.into(), "Succeeded".into());
                notes.insert(state::PREALLOCATION.into(), "true".into());
            }
            let is_bound = claim.status.as_ref().unwrap().phase.as_deref() == Some("Bound");
            if *name == bound_name && is_bound && self.volume.is_none() {
                self.volume = Some(parsed(json!({
                    "metadata": { "name": "pv" }, "spec": { "claimRef": { "uid": claim.metadata.uid } },
                })));
            }
        }
        if let Some(pod) = &mut self.pod
            && self.driver_works
        {
            pod.status = Some(parsed(json!({ "phase": "Succeeded" })));
        }
        let owner = self.volume.as_ref().and_then(|volume| volume.spec.as_ref()?.claim_ref.clone());
        if owner.is_some_and(|owner| owner.uid == self.target.metadata.uid) {
            self.target.status.as_mut().unwrap().phase = Some("Bound".into());
        }
    }

    fn leftovers(&self) -> Vec<Leftover> {
        let found = |kind, name: &str| Leftover { kind, name: name.to_owned(), leaving: false };
        let claims = self.claims.keys().map(|name| found(LeftoverKind::Claim, name));
        let snapshot = self.snapshot.iter().map(|it| found(LeftoverKind::Snapshot, &it.name));
        let pod = self.pod.iter().map(|it| found(LeftoverKind::Pod, meta::name(&it.metadata)));
        claims.chain(snapshot).chain(pod).collect()
    }

    fn tidy_up(&mut self) {
        for action in cleanup(&self.leftovers()) {
            self.carry_out(action);
        }
        assert!(self.claims.is_empty() && self.snapshot.is_none() && self.pod.is_none());
        assert!(cleanup(&self.leftovers()).is_empty());
    }

    /// Runs until the target has its volume; all phases that it went through.
    fn run(&mut self) -> Vec<&'static str> {
        let mut phases = Vec::new();
        for _ in 0..60 {
            let step = self.step().unwrap();
            let phase = step.phase.as_str();
            if phases.last() != Some(&phase) {
                phases.push(phase);
            }
            if step.phase == Phase::Succeeded {
                assert!(step.actions.is_empty());
                return phases;
            }
            self.now += 60;
            self.apply(step, usize::MAX);
            self.others();
        }
        panic!("no end: {:?} {:?}", phases, self.done);
    }
}

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
                let is_made = |action: &&Action| {
                    matches!(
                        action,
                        Action::CreateClaim(_) | Action::CreateSnapshot(_) | Action::CreatePod(_)
                    )
                };
                step.actions.iter().filter(is_made).cloned().collect::<Vec<_>>()
            };
            let first = made(&step);
            world.apply(step, usize::MAX);
            let second = made(&world.step().unwrap());
            assert!(first.iter().all(|action| !second.contains(action)), "{plan:?}");
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
    let mut world = World::new(ClonePlan::CsiClone, 10);
    world.driver_works = false;
    let said =
        "failed to provision: rpc error: code = InvalidArgument desc = no clones of snapshots";
    world.told = vec![Seen { event: Event::warning("ProvisioningFailed", said), at: None }];
    world.run();
    let told = format!("fallback: The storage driver refused to clone: {said}");
    assert!(world.done.contains(&told), "{:?}", world.done);
    assert!(world.now - START < 600);
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
        assert_eq!((step.events, step.actions), (vec![told], vec![]));
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
