//! Checks that clones leave no objects behind.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::v1beta1::{DataVolume, VolumeCloneSource};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};

use crate::{NAMESPACE, PATIENCE, Test};

/// The interval between two checks that both have to find no remaining object.
const MOMENT: Duration = Duration::from_secs(1);
/// The prefix of the finalizers that objects have during a clone.
const OUR_FINALIZERS: &str = "cdi.kubevirt.io/";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

impl Test {
    /// Waits until only these PVCs, which no pod mounts, with a volume each, and these snapshots remain.
    ///
    /// # Errors
    /// Names an object that remains.
    pub async fn clones_leave(&self, claims: &[&str], snapshots: &[&str]) -> Result<()> {
        let begin = Instant::now();
        let mut was_clean = false;
        loop {
            let mut left = self.left_of_claims(claims).await?;
            left.extend(self.left_of_snapshots(snapshots).await?);
            left.extend(self.left_of_workers().await?);
            left.extend(in_the_installation(self).await?);
            if left.is_empty() && was_clean {
                return Ok(());
            }
            was_clean = left.is_empty();
            if begin.elapsed() > PATIENCE {
                bail!("{} still has: {}", self.namespace(), left.join(", "));
            }
            tokio::time::sleep(MOMENT).await;
        }
    }

    async fn left_of_claims(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let mut left = Vec::new();
        let all = ListParams::default();
        for claim in self.all::<PersistentVolumeClaim>().list(&all).await?.items {
            let name = claim.name_any();
            if !wanted.contains(&name.as_str()) {
                left.push(format!("the claim {name}"));
            } else if claim.finalizers().iter().any(|name| name.starts_with(OUR_FINALIZERS)) {
                left.push(format!("what holds the claim {name}: {:?}", claim.finalizers()));
            }
        }
        for volume in self.all::<DataVolume>().list(&all).await?.items {
            if !volume.finalizers().is_empty() {
                let name = volume.name_any();
                left.push(format!("what holds the DataVolume {name}: {:?}", volume.finalizers()));
            }
        }
        for volume in Api::<PersistentVolume>::all(self.client()).list(&all).await?.items {
            let name = volume.name_any();
            let Some(claim) = volume.spec.and_then(|spec| spec.claim_ref) else { continue };
            let of = claim.name.unwrap_or_default();
            if claim.namespace.as_deref() == Some(self.namespace())
                && !wanted.contains(&of.as_str())
            {
                left.push(format!("the volume {name} of {of}"));
            }
        }
        Ok(left)
    }

    async fn left_of_snapshots(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let mut left = Vec::new();
        let mut known: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
        let all = ListParams::default();
        for snapshot in self.all_of(SNAPSHOTS, "v1", "VolumeSnapshot").list(&all).await?.items {
            let name = snapshot.name_any();
            // The provisioner of a driver that never responds holds the PVC that it was to restore, for minutes.
            if snapshot.metadata.deletion_timestamp.is_some() {
                known.push(name);
            } else if !known.contains(&name) {
                left.push(format!("the snapshot {name}"));
            }
        }
        let kind = GroupVersionKind::gvk(SNAPSHOTS, "v1", "VolumeSnapshotContent");
        let contents = Api::<DynamicObject>::all_with(self.client(), &ApiResource::from_gvk(&kind));
        for content in contents.list(&all).await?.items {
            let of = &content.data["spec"]["volumeSnapshotRef"];
            let is_known = known.iter().any(|name| of["name"] == *name);
            if of["namespace"] == self.namespace() && !is_known {
                left.push(format!("the snapshot's content {}", content.name_any()));
            }
        }
        Ok(left)
    }

    async fn left_of_workers(&self) -> Result<Vec<String>> {
        let ours = ListParams::default().labels("app=containerized-data-importer");
        let all = ListParams::default();
        let mut left = Vec::new();
        for pod in self.all::<Pod>().list(&ours).await?.items {
            left.push(format!("the pod {}", pod.name_any()));
        }
        for service in self.all::<Service>().list(&ours).await?.items {
            left.push(format!("the service {}", service.name_any()));
        }
        for secret in self.all::<Secret>().list(&all).await?.items {
            if secret.metadata.owner_references.is_some() {
                left.push(format!("the secret {}", secret.name_any()));
            }
        }
        for source in self.all::<VolumeCloneSource>().list(&all).await?.items {
            left.push(format!("the VolumeCloneSource {}", source.name_any()));
        }
        Ok(left)
    }
}

/// No clone has anything where the programs are.
async fn in_the_installation(test: &Test) -> Result<Vec<String>> {
    let all = ListParams::default();
    let mut left = Vec::new();
    let claims = Api::<PersistentVolumeClaim>::namespaced(test.client(), NAMESPACE);
    for claim in claims.list(&all).await?.items {
        left.push(format!("the claim {} in {NAMESPACE}", claim.name_any()));
    }
    let readers = ListParams::default().labels("cdi.kubevirt.io=cdi-clone-source");
    let pods = Api::<Pod>::namespaced(test.client(), NAMESPACE);
    for pod in pods.list(&readers).await?.items {
        left.push(format!("the pod {} in {NAMESPACE}", pod.name_any()));
    }
    Ok(left)
}
