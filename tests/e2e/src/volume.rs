//! DataVolumes, their conditions and events.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::{Condition, DataVolume};
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::test::{PATIENCE, pause_since};
use crate::{PodPlan, Test};

pub fn phase(volume: &DataVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn condition<'a>(volume: &'a DataVolume, kind: &str) -> Option<&'a Condition> {
    let conditions = volume.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a condition is False and its reason or message contains this text.
pub fn condition_is_false_with(volume: &DataVolume, kind: &str, words: &str) -> bool {
    condition(volume, kind).is_some_and(|condition| {
        let texts = [&condition.reason, &condition.message];
        condition.status == "False" && texts.into_iter().flatten().any(|text| text.contains(words))
    })
}

/// As `testpod` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Test {
    /// Creates an object of any kind in the test's namespace, whichever namespace its manifest names.
    ///
    /// # Errors
    /// When the API server refuses the request.
    pub async fn apply(&self, mut manifest: Value) -> Result<DynamicObject> {
        manifest["metadata"]["namespace"] = self.namespace().into();
        let text = |key: &str| manifest[key].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
        let all = Api::<DynamicObject>::namespaced_with(self.client(), self.namespace(), &kind);
        let object = serde_json::from_value(manifest).context("not an object")?;
        Ok(all.create(&PostParams::default(), &object).await?)
    }

    /// Waits until a DataVolume has succeeded, and checks the status that each has then.
    ///
    /// # Errors
    /// When it does not succeed, or its status is another.
    pub async fn succeeded(&self, name: &str) -> Result<DataVolume> {
        let done = |volume: &DataVolume| phase(volume) == "Succeeded";
        let volume = self.wait(name, "Succeeded", done).await?;
        let status = volume.status.as_ref().context("it has a status")?;
        ensure!(status.claim_name.as_deref() == Some(name), "{name}: {status:?}");
        let progress = status.progress.as_deref();
        ensure!(matches!(progress, Some("100.0%" | "N/A")), "{name}: {status:?}");
        for (kind, wanted) in [("Bound", "True"), ("Running", "False"), ("Ready", "True")] {
            let found = condition(&volume, kind);
            ensure!(found.is_some_and(|c| c.status == wanted), "{name}: {kind}: {status:?}");
        }
        Ok(volume)
    }

    /// Takes a snapshot of a PVC of the class `csi`, and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready in time.
    pub async fn take_snapshot(&self, claim: &str, name: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": name },
            "spec": {
                "volumeSnapshotClassName": "csi", "source": { "persistentVolumeClaimName": claim },
            },
        }))
        .await?;
        let snapshots = self.all_of("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
        let is_ready = |snapshot: &DynamicObject| snapshot.data["status"]["readyToUse"] == true;
        self.wait_among(&snapshots, name, "ready to use", is_ready).await.map(|_| ())
    }

    /// The first bytes of a PVC's disk, as a pod prints them: `digest of size`. The pod is named after the PVC. It is
    /// the first consumer of a PVC that waits for one. It is deleted when its output has been read.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub async fn read(&self, claim: &str, bytes: u64) -> Result<String> {
        let found = self.all::<PersistentVolumeClaim>().get(claim).await?;
        let mode = found.spec.and_then(|spec| spec.volume_mode).unwrap_or_default();
        let (pod, bytes) = (format!("{claim}-reader"), bytes.to_string());
        let path = if mode == "Block" { "/disk" } else { "/disk/disk.img" };
        let plan = PodPlan::new(&pod, &["digest", path, &bytes]);
        let plan =
            if mode == "Block" { plan.device(claim, "/disk") } else { plan.mount(claim, "/disk") };
        let found = plan.output(self).await?;
        // A PVC is not deleted while a pod refers to it, even one that has ended.
        self.all::<Pod>().delete(&pod, &DeleteParams::default()).await?;
        Ok(found)
    }

    /// Checks that a PVC's disk begins with these bytes.
    ///
    /// # Errors
    /// When it begins otherwise.
    pub async fn holds(&self, claim: &str, bytes: &[u8]) -> Result<()> {
        let found = self.read(claim, bytes.len() as u64).await?;
        if found.starts_with(&sha256(bytes)) {
            return Ok(());
        }
        let is_empty = found.starts_with(&sha256(&vec![0; bytes.len()]));
        let other = if is_empty { "only zeroes" } else { "something else" };
        bail!("{claim} holds {other}: {found}")
    }

    /// Waits until nothing is left but these PVCs, and pods that the test created.
    ///
    /// # Errors
    /// Names an object that remains.
    pub async fn only_these_are_left(&self, claims: &[&str]) -> Result<()> {
        let all = self.all::<PersistentVolumeClaim>();
        for claim in all.list(&ListParams::default()).await?.items {
            if !claims.contains(&claim.name_any().as_str()) {
                self.wait_until_gone(&all, &claim.name_any()).await?;
            }
        }
        let ours = ListParams::default().labels("app=containerized-data-importer");
        let pods = self.all::<Pod>();
        for pod in pods.list(&ours).await?.items {
            self.wait_until_gone(&pods, &pod.name_any()).await?;
        }
        let services = self.all::<Service>();
        for service in services.list(&ours).await?.items {
            self.wait_until_gone(&services, &service.name_any()).await?;
        }
        let secrets = self.all::<Secret>();
        for secret in secrets.list(&ListParams::default()).await?.items {
            if secret.metadata.owner_references.is_some() {
                self.wait_until_gone(&secrets, &secret.name_any()).await?;
            }
        }
        let maps = self.all::<ConfigMap>();
        for map in maps.list(&ListParams::default()).await?.items {
            if map.metadata.owner_references.is_some() {
                self.wait_until_gone(&maps, &map.name_any()).await?;
            }
        }
        self.no_volume_is_left_but_of(claims).await
    }

    /// Waits until each volume of the namespace belongs to one of these PVCs.
    async fn no_volume_is_left_but_of(&self, claims: &[&str]) -> Result<()> {
        let volumes = Api::<PersistentVolume>::all(self.client());
        for volume in volumes.list(&ListParams::default()).await?.items {
            let spec = volume.spec.as_ref();
            let Some(owner) = spec.and_then(|spec| spec.claim_ref.as_ref()) else { continue };
            let is_here = owner.namespace.as_deref() == Some(self.namespace());
            let is_kept = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
                == Some("Retain");
            let is_wanted = owner.name.as_deref().is_some_and(|name| claims.contains(&name));
            if is_here && !is_kept && !is_wanted {
                self.wait_until_gone(&volumes, &volume.name_any()).await?;
            }
        }
        Ok(())
    }

    /// Waits for an event about a DataVolume.
    ///
    /// # Errors
    /// When there is none; lists the reasons of the others.
    pub async fn event_message(&self, volume: &str, reason: &str) -> Result<String> {
        self.event_message_of("DataVolume", volume, reason).await
    }

    /// Waits for an event about an object of a kind.
    ///
    /// # Errors
    /// When there is none; lists the reasons of the others.
    pub async fn event_message_of(&self, kind: &str, name: &str, reason: &str) -> Result<String> {
        let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let about = ListParams::default().fields(&about);
        let begin = Instant::now();
        loop {
            let events = self.all::<Event>().list(&about).await?.items;
            for event in &events {
                if event.reason.as_deref() == Some(reason) {
                    return Ok(event.message.clone().unwrap_or_default());
                }
            }
            if begin.elapsed() > PATIENCE {
                let seen: Vec<_> = events.into_iter().filter_map(|event| event.reason).collect();
                anyhow::bail!("no event {reason} about {name}, only {seen:?}");
            }
            tokio::time::sleep(pause_since(begin)).await;
        }
    }
}
