//! A simulated cluster for clones: its objects, and the actions of all other components.

use std::collections::BTreeMap;

use api::annotations::{request, state};
use api::labels;
use api::v1beta1::ClaimVolumeMode;
use contract::ByteCount;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use controller_core::bound::ObservedEvent;
use controller_core::clone::{
    ClonePlan, Error, Facts, Fallback, IntermediateObjects, Names, OrphanedObject, Phase,
    SnapshotState, Source, Step, advance, delete_orphans, patience,
};
use controller_core::meta::{self, Installation};
use controller_core::object::{Object, ObjectKind, ObjectRef};
use controller_core::plan::Write;
use controller_core::snapshot::VolumeSnapshot;
use controller_core::volume::PersistentVolume;

const GIB: u64 = 1 << 30;
pub const START: i64 = 1_000_000;

pub fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A simulated cluster for one clone.
pub struct TestCluster {
    pub plan: ClonePlan,
    pub target: PersistentVolumeClaim,
    pub source: PersistentVolumeClaim,
    pub source_snapshot: Option<SnapshotState>,
    pub writers: Vec<&'static str>,
    pub populated: bool,
    pub waits_for_consumer: bool,
    pub preallocation: bool,
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    pub snapshot: Option<SnapshotState>,
    pub pod: Option<Pod>,
    pub volume: Option<PersistentVolume>,
    pub pvc_warnings: Vec<ObservedEvent>,
    pub now: i64,
    /// Whether the driver populates PVCs with a data source.
    pub driver_works: bool,
    /// All fallbacks and writes.
    pub log: Vec<String>,
    pub waited_for: String,
}

impl TestCluster {
    pub fn new(plan: ClonePlan, gib: u64) -> Self {
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
            pvc_warnings: Vec::new(),
            now: START,
            driver_works: true,
            log: Vec::new(),
            waited_for: String::new(),
        }
    }

    fn names(&self) -> Names {
        Names::for_plan("disk-uid", &self.plan)
    }

    pub fn step(&self) -> Result<Step, Error> {
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
            temporary: IntermediateObjects {
                claim: self.claims.get(&names.claim),
                volume: self.volume.as_ref(),
                pvc_warnings: &self.pvc_warnings,
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

    /// Applies the writes of a step, at most `most` of them: a controller may be killed in between.
    pub fn apply(&mut self, step: Step, most: usize) {
        self.waited_for = step.waits_for;
        if let Some(because) = step.fallback {
            self.log.push(format!("fallback: {because}"));
            // As the next step reads it from the target's annotations.
            self.plan =
                ClonePlan::Copy { because: Some(Fallback::Noted { text: because.to_string() }) };
        }
        for write in step.writes.into_iter().take(most) {
            self.carry_out(write);
        }
    }

    fn carry_out(&mut self, write: Write) {
        let at: Value = json!(Timestamp::from_second(self.now).unwrap().to_string());
        match write {
            Write::Create(Object::PersistentVolumeClaim(mut claim)) => {
                let name = meta::name(&claim.metadata).to_owned();
                self.log.push(format!("claim {name}"));
                assert_eq!(meta::namespace(&claim.metadata), "images");
                assert_eq!(meta::label(&claim.metadata, labels::OWNED_BY_UID), Some("disk-uid"));
                assert_eq!(meta::label(&claim.metadata, "mine"), Some("yes"));
                assert_eq!(meta::annotation(&claim.metadata, "my/note"), Some("kept"));
                assert!(!meta::has_annotation(&claim.metadata, request::CLONE_TOKEN));
                claim.metadata.uid = Some(format!("{name}-uid"));
                claim.metadata.creation_timestamp = parsed(at);
                claim.status = Some(parsed(json!({ "phase": "Pending" })));
                assert!(self.claims.insert(name, *claim).is_none(), "created twice");
            }
            Write::Create(Object::VolumeSnapshot(created)) => {
                let name = meta::name(&created.metadata).to_owned();
                self.log.push(format!("snapshot {name}"));
                assert_eq!(json!(created)["spec"]["source"]["persistentVolumeClaimName"], "golden");
                assert!(self.snapshot.is_none(), "created twice");
                self.snapshot = Some(SnapshotState {
                    name,
                    namespace: meta::namespace(&created.metadata).to_owned(),
                    created_at: Some(Timestamp::from_second(self.now).unwrap()),
                    ..SnapshotState::default()
                });
            }
            Write::Create(Object::Pod(mut pod)) => {
                self.log.push(format!("pod {}", meta::name(&pod.metadata)));
                assert!(self.pod.is_none(), "created twice");
                pod.metadata.creation_timestamp = parsed(at);
                pod.spec.as_mut().unwrap().node_name = Some("node".into());
                self.pod = Some(*pod);
            }
            Write::Patch { target, merge, guarded: false }
                if target.kind == ObjectKind::PersistentVolumeClaim =>
            {
                self.log.push(format!("raise {}", target.key.name));
                let claim = self.claims.get_mut(&target.key.name).unwrap();
                let spec = claim.spec.as_mut().unwrap();
                spec.resources = Some(parsed(merge["spec"]["resources"].clone()));
            }
            Write::Patch { target, merge, guarded: true }
                if target.kind == ObjectKind::PersistentVolume =>
            {
                self.log.push(format!("rebind {}", target.key.name));
                let spec = self.volume.as_mut().unwrap().spec.as_mut().unwrap();
                spec.claim_ref = Some(parsed(merge["spec"]["claimRef"].clone()));
            }
            Write::Delete(target) => {
                let name = target.key.name;
                self.log.push(format!("delete {name}"));
                match target.kind {
                    ObjectKind::PersistentVolumeClaim => drop(self.claims.remove(&name)),
                    ObjectKind::VolumeSnapshot => self.snapshot = None,
                    ObjectKind::Pod => self.pod = None,
                    other => panic!("no clone creates a {other:?}"),
                }
            }
            other => panic!("no step of a clone has this write: {other:?}"),
        }
    }

    /// Simulates the storage, the scheduler and the pods.
    pub fn run_other_components(&mut self) {
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
            let has_data_source = claim.spec.as_ref().unwrap().data_source_ref.is_some();
            let works = self.driver_works || !has_data_source;
            let requested = meta::requested(claim).unwrap().clone();
            let status = claim.status.as_mut().unwrap();
            let is_bound = status.phase.as_deref() == Some("Bound");
            let may_bind = !self.waits_for_consumer || is_used || is_copy;
            if works && (is_used || !is_bound && may_bind) {
                status.phase = Some("Bound".into());
                status.capacity = Some(BTreeMap::from([("storage".to_owned(), requested)]));
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

    fn orphans(&self) -> Vec<OrphanedObject> {
        let found = |reference| OrphanedObject { reference, is_terminating: false };
        let claims = self.claims.values().map(ObjectRef::for_object);
        let snapshot =
            self.snapshot.iter().map(|it| ObjectRef::named::<VolumeSnapshot>("images", &it.name));
        let pod = self.pod.iter().map(ObjectRef::for_object);
        claims.chain(snapshot).chain(pod).map(found).collect()
    }

    pub fn delete_orphans(&mut self) {
        for write in delete_orphans(&self.orphans()) {
            self.carry_out(write);
        }
        assert!(self.claims.is_empty() && self.snapshot.is_none() && self.pod.is_none());
        assert!(delete_orphans(&self.orphans()).is_empty());
    }

    /// Runs until the target has its volume, and returns all phases.
    pub fn run(&mut self) -> Vec<&'static str> {
        let mut phases = Vec::new();
        for _ in 0..60 {
            let step = self.step().unwrap();
            let phase = step.phase.as_str();
            if phases.last() != Some(&phase) {
                phases.push(phase);
            }
            if step.phase == Phase::Succeeded {
                assert!(step.writes.is_empty());
                return phases;
            }
            self.now += 60;
            self.apply(step, usize::MAX);
            self.run_other_components();
        }
        panic!("the clone does not complete: {:?} {:?}", phases, self.log);
    }
}
