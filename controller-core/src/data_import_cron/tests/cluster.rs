//! A simulated namespace: applies plans, and asserts that no plan loses the usable image.

use api::ClaimPhase;
use std::collections::BTreeSet;

use api::annotations::{cron as key, import};
use api::labels;
use api::v1beta1::{
    Condition, DataImportCron, DataSource, DataSourceSource, DataVolume, StorageProfile,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::super::*;
use crate::conditions::find;

pub fn digest(number: u32) -> String {
    format!("sha256:{number:012x}{:052x}", 0)
}

/// The name of the import of that digest.
pub fn name(number: u32) -> String {
    import_name(&cron(json!({})), &digest(number), None).unwrap()
}

pub fn cron(spec: Value) -> DataImportCron {
    let mut whole = json!({
        "schedule": "0 */12 * * *", "managedDataSource": "fedora",
        "template": { "spec": {
            "source": { "registry": { "url": "docker://quay.io/fedora:latest" } },
            "storage": { "resources": { "requests": { "storage": "10Gi" } } },
        } },
    });
    for (name, value) in spec.as_object().unwrap() {
        whole[name] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": {
            "name": "cron", "namespace": "images", "uid": "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
            "labels": { labels::DEFAULT_PREFERENCE: "fedora" },
        },
        "spec": whole,
    }))
    .unwrap()
}

/// Two storage classes, `a` and `b`, each with a snapshot class.
pub struct TestCluster {
    pub cron: DataImportCron,
    pub manager: Option<DataImportCron>,
    pub volumes: Vec<DataVolume>,
    pub claims: Vec<PersistentVolumeClaim>,
    pub snapshots: Vec<VolumeSnapshot>,
    pub sources: Vec<DataSource>,
    pub classes: Vec<StorageClass>,
    pub profiles: Vec<StorageProfile>,
    pub snapshot_classes: Vec<SnapshotClass>,
    pub may_clone: bool,
    pub now: Timestamp,
}

impl TestCluster {
    pub fn new(spec: Value) -> Self {
        let mut cluster = Self {
            cron: cron(spec),
            manager: None,
            volumes: vec![],
            claims: vec![],
            snapshots: vec![],
            sources: vec![],
            classes: vec![],
            profiles: vec![],
            snapshot_classes: vec![],
            may_clone: true,
            now: "2026-11-21T20:00:00Z".parse().unwrap(),
        };
        cluster.set_default("a");
        cluster.set_form("pvc");
        for class in ["a", "b"] {
            let driver = format!("csi.{class}");
            let name = format!("snap-{class}");
            cluster.snapshot_classes.push(SnapshotClass {
                name,
                driver,
                ..SnapshotClass::default()
            });
        }
        cluster
    }

    /// Sets the default storage class; empty for none.
    pub fn set_default(&mut self, default: &str) {
        let class = |name: &&str| {
            let mark = (*name == default)
                .then(|| json!({ "storageclass.kubernetes.io/is-default-class": "true" }));
            serde_json::from_value(json!({
                "metadata": { "name": name, "annotations": mark }, "provisioner": format!("csi.{name}"),
            }))
            .unwrap()
        };
        self.classes = ["a", "b"].iter().map(class).collect();
    }

    /// Sets the source format of both storage classes.
    pub fn set_form(&mut self, form: &str) {
        let profile = |name: &&str| {
            serde_json::from_value(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile",
                "metadata": { "name": name }, "spec": {},
                "status": {
                    "dataImportCronSourceFormat": form,
                    "claimPropertySets": [{ "accessModes": ["ReadWriteMany"], "volumeMode": "Block" }],
                },
            }))
            .unwrap()
        };
        self.profiles = ["a", "b"].iter().map(profile).collect();
    }

    pub fn annotate(&mut self, key: &str, value: Option<&str>) {
        let all = self.cron.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => all.insert(key.to_owned(), value.to_owned()),
            None => all.remove(key),
        };
    }

    /// Sets the newest image, as a poll does.
    pub fn publish(&mut self, number: u32) {
        self.annotate(key::DESIRED_DIGEST, Some(&digest(number)));
    }

    pub fn plan(&self, polled: Option<&Polled>) -> CronPlan {
        let installation = Installation { namespace: "cdi".into(), ..Installation::default() };
        let facts = Facts {
            cron: &self.cron,
            manager: self.manager.as_ref(),
            classes: &self.classes,
            profiles: &self.profiles,
            snapshot_classes: &self.snapshot_classes,
            all: self.all(),
            poll_from: PollFrom::Controller,
            polled,
            may_clone: self.may_clone,
            installation: &installation,
        };
        plan(&facts, self.now)
    }

    pub fn all(&self) -> NamespaceObjects<'_> {
        NamespaceObjects {
            volumes: &self.volumes,
            claims: &self.claims,
            snapshots: &self.snapshots,
            sources: &self.sources,
        }
    }

    /// Reconciles once, and advances the clock by a second.
    pub fn reconcile(&mut self) -> CronPlan {
        self.reconcile_with(None)
    }

    pub fn reconcile_with(&mut self, polled: Option<&Polled>) -> CronPlan {
        let plan = self.plan(polled);
        for change in &plan.changes {
            let before = self.used();
            self.carry_out(change);
            // The invariant: if the DataSource refers to a usable image before a change, it does so after the change.
            if let Some(before) = before {
                let after = self.used();
                assert!(
                    after.is_some(),
                    "{before:?} was lost by {change:?} of {:#?}",
                    plan.changes
                );
            }
        }
        self.cron.metadata.annotations = Some(plan.annotations.applied_to(&self.cron.metadata));
        self.cron.status = Some(plan.status.clone());
        self.now += SignedDuration::from_secs(1);
        plan
    }

    /// Reconciles until the plan is empty.
    pub fn settle(&mut self) {
        for _ in 0..20 {
            let plan = self.reconcile();
            let is_idle = plan.changes.is_empty()
                && plan.annotations.is_empty()
                && self.plan(None).status == plan.status;
            if is_idle {
                return;
            }
        }
        panic!("the plan does not become empty: {:#?}", self.plan(None));
    }

    fn carry_out(&mut self, change: &Change) {
        match change.clone() {
            Change::CreateVolume(volume) => {
                let taken = self.volumes.iter().any(|v| v.metadata.name == volume.metadata.name);
                assert!(!taken, "{:?} exists already", volume.metadata.name);
                self.volumes.push(*volume);
            }
            Change::CreateSnapshot { snapshot, .. } => {
                let name = snapshot.metadata.name.clone();
                assert!(!self.snapshots.iter().any(|s| s.metadata.name == name), "{name:?}");
                self.snapshots.push(*snapshot);
            }
            Change::CreateSource(source) => self.sources.push(*source),
            Change::ChangeSource { name, source, labels } => {
                let present = self.sources.iter_mut().find(|s| meta::name(&s.metadata) == name);
                let present = present.expect("it exists");
                if let Some(source) = source {
                    present.spec.source = source;
                }
                present.metadata.labels.get_or_insert_default().extend(labels);
            }
            Change::Mark { kind, name, labels, annotations } => {
                let claims = self.claims.iter_mut().map(|claim| &mut claim.metadata);
                let snapshots = self.snapshots.iter_mut().map(|snapshot| &mut snapshot.metadata);
                let mut all: Vec<_> = match kind {
                    Kind::Claim => claims.collect(),
                    Kind::Snapshot => snapshots.collect(),
                    other => panic!("{other:?}"),
                };
                all.retain(|metadata| metadata.name.as_ref() == Some(&name));
                let metadata = all.pop().expect("it exists");
                metadata.annotations = Some(annotations.applied_to(metadata));
                metadata.labels.get_or_insert_default().extend(labels);
            }
            Change::Prove { claim, image } => {
                let mut claims = self.claims.iter_mut().map(|claim| &mut claim.metadata);
                let metadata = claims.find(|metadata| metadata.name.as_ref() == Some(&claim));
                let annotations = metadata.expect("it exists").annotations.get_or_insert_default();
                annotations.insert(import::GOLDEN_IMAGE_PROOF.into(), image.digest);
            }
            Change::Delete(kind, name) => self.delete(kind, &name),
        }
    }

    pub fn delete(&mut self, kind: Kind, name: &str) {
        let is = |metadata: &ObjectMeta| metadata.name.as_deref() == Some(name);
        match kind {
            Kind::Volume => {
                self.volumes.retain(|volume| !is(&volume.metadata));
                self.claims.retain(|claim| !is(&claim.metadata)); // which it owns
            }
            Kind::Claim => self.claims.retain(|claim| !is(&claim.metadata)),
            Kind::Snapshot => self.snapshots.retain(|snapshot| !is(&snapshot.metadata)),
            Kind::Source => self.sources.retain(|source| !is(&source.metadata)),
        }
    }

    /// Creates the PVCs of DataVolumes, as their controllers do.
    pub fn create_claims(&mut self) {
        for volume in &self.volumes {
            let name = volume.metadata.name.clone();
            if self.claims.iter().any(|claim| claim.metadata.name == name) {
                continue;
            }
            let default = classes::default(&self.classes).map(|c| meta::name(&c.metadata));
            let Some(class) = default else { continue };
            let claim = json!({
                "metadata": {
                    "name": name, "namespace": "images",
                    "labels": volume.metadata.labels, "annotations": volume.metadata.annotations,
                },
                "spec": {
                    "storageClassName": class, "volumeMode": "Block",
                    "resources": { "requests": { "storage": "10Gi" } },
                },
                "status": { "phase": "Pending" },
            });
            self.claims.push(serde_json::from_value(claim).unwrap());
        }
    }

    /// Sets the phase of an import.
    pub fn progress(&mut self, name: &str, phase: &str) {
        self.create_claims();
        if !self.claims.iter().any(|claim| meta::name(&claim.metadata) == name)
            && phase == "Succeeded"
        {
            return; // an import without a PVC cannot succeed
        }
        for volume in self.volumes.iter_mut().filter(|v| meta::name(&v.metadata) == name) {
            volume.status.get_or_insert_default().phase = Some(phase.to_owned());
        }
        if phase == "Succeeded" {
            for claim in self.claims.iter_mut().filter(|c| meta::name(&c.metadata) == name) {
                claim.status.get_or_insert_default().phase = Some("Bound".into());
            }
        }
    }

    /// Sets the condition of an import whose worker fails and retries.
    pub fn fail(&mut self, name: &str, because: &str) {
        self.progress(name, "ImportInProgress");
        for volume in self.volumes.iter_mut().filter(|v| meta::name(&v.metadata) == name) {
            volume.status.get_or_insert_default().conditions = Some(vec![Condition {
                type_: "Running".into(),
                status: "False".into(),
                reason: Some("Error".into()),
                message: Some(because.to_owned()),
                ..Condition::default()
            }]);
        }
    }

    pub fn snapshots_are_ready(&mut self) {
        for snapshot in &mut self.snapshots {
            snapshot.status.get_or_insert_default().ready_to_use = Some(true);
        }
    }

    /// Imports this image completely.
    pub fn import(&mut self, number: u32) {
        self.publish(number);
        self.settle();
        let name = self.current().expect("something is imported");
        self.progress(&name, "Succeeded");
        self.settle();
        self.snapshots_are_ready();
        self.settle();
    }

    /// The running or last import.
    pub fn current(&self) -> Option<String> {
        let all = self.cron.status.as_ref()?.current_imports.as_ref()?;
        all.first().map(|import| import.data_volume_name.clone())
    }

    pub fn imported(&self) -> Option<String> {
        let last = self.cron.status.as_ref()?.last_imported_pvc.as_ref()?;
        Some(last.name.clone())
    }

    /// The source in the DataSource: `pvc NAME` or `snapshot NAME`.
    pub fn data_source_target(&self) -> Option<String> {
        let DataSourceSource { pvc, snapshot, .. } = &self.sources.first()?.spec.source;
        let claim = pvc.as_ref().map(|place| format!("pvc {}", place.name));
        claim.or(snapshot.as_ref().map(|place| format!("snapshot {}", place.name)))
    }

    /// The same, if it exists and can be cloned.
    fn used(&self) -> Option<String> {
        let target = self.data_source_target()?;
        let (kind, name) = target.split_once(' ')?;
        let found = match kind {
            "pvc" => self.claims.iter().any(|claim| {
                meta::name(&claim.metadata) == name && meta::claim_phase(claim) == ClaimPhase::Bound
            }),
            _ => self.snapshots.iter().any(|s| meta::name(&s.metadata) == name && s.is_ready()),
        };
        found.then_some(target)
    }

    pub fn is_usable(&self) -> bool {
        self.used().is_some()
    }

    /// `status reason: message` of a condition.
    pub fn condition(&self, type_: &str) -> String {
        let conditions = self.cron.status.as_ref().and_then(|status| status.conditions.as_deref());
        let Some(found) = find(conditions.unwrap_or_default(), type_) else { return String::new() };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{} {}: {}", found.status, text(&found.reason), text(&found.message))
    }

    /// Kinds and names of all imports.
    pub fn names(&self) -> BTreeSet<String> {
        let volumes = self.volumes.iter().map(|o| format!("dv {}", meta::name(&o.metadata)));
        let claims = self.claims.iter().map(|o| format!("pvc {}", meta::name(&o.metadata)));
        let all = self.snapshots.iter().map(|o| format!("snapshot {}", meta::name(&o.metadata)));
        volumes.chain(claims).chain(all).collect()
    }
}
