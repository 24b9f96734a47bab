//! Namespaces of runs: created before, and removed with all that is in them after each.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::{GLANCE, PAUSE};

/// A namespace that takes longer to go has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// Under the restricted pod security profile, once pods can be created in it.
pub async fn create(client: &Client, name: &str) -> Result<()> {
    let object = json!({ "metadata": {
        "name": name, "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
    } });
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
    while accounts.get_opt("default").await?.is_none() {
        tokio::time::sleep(GLANCE).await;
    }
    Ok(())
}

/// Waits until no object of the namespace is left, volumes included: each run begins with the same cluster.
pub async fn remove(client: &Client, name: &str) -> Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.delete(name, &DeleteParams::default()).await?;
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let begin = Instant::now();
    loop {
        let is_of_it = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.namespace.as_deref() == Some(name))
        };
        let left = volumes.list(&ListParams::default()).await?.items;
        let left: Vec<_> = left.iter().filter(|volume| is_of_it(volume)).collect();
        if left.is_empty() && namespaces.get_opt(name).await?.is_none() {
            return Ok(());
        }
        let names: Vec<_> = left.iter().map(|volume| volume.name_any()).collect();
        ensure!(begin.elapsed() < PATIENCE, "{name} is still there, and of it {names:?}");
        tokio::time::sleep(PAUSE).await;
    }
}
