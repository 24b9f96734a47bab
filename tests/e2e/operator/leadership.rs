//! Two replicas of the controllers and of the operator: one leads, and the other one takes over when it is gone.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::names::{CONTROLLER_LEASE, OPERATOR_LEASE};
use e2e::{NAMESPACE, PAUSE, Test, volume};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::installation::{PATIENCE, available};
use crate::settings::patch;

pub async fn second_replicas_take_over(test: &Test) -> Result<()> {
    patch(test, json!({ "infra": { "deploymentReplicas": 2 } })).await?;
    scale(test, "cdi-operator", 2).await?;
    available(test, None).await?;
    let controller = lose_leader(test, CONTROLLER_LEASE).await?;
    let operator = lose_leader(test, OPERATOR_LEASE).await?;
    test.apply(volume("led", "csi", "Block", json!({ "blank": {} }))).await?;
    test.succeeded("led").await?;
    let services = Api::<Service>::namespaced(test.client(), NAMESPACE);
    services.delete("cdi-prometheus-metrics", &DeleteParams::default()).await?;
    test.wait_among(&services, "cdi-prometheus-metrics", "there again", |_| true).await?;
    for (lease, before) in [(CONTROLLER_LEASE, controller), (OPERATOR_LEASE, operator)] {
        let now = leader(test, lease).await?;
        ensure!(now != before, "{before}, which is gone, still leads by the Lease {lease}");
    }
    scale(test, "cdi-operator", 1).await?;
    patch(test, json!({ "infra": { "deploymentReplicas": 1 } })).await?;
    available(test, None).await.map(drop)
}

async fn scale(test: &Test, name: &str, replicas: i32) -> Result<()> {
    let all = Api::<Deployment>::namespaced(test.client(), NAMESPACE);
    let merge = json!({ "spec": { "replicas": replicas } });
    all.patch(name, &PatchParams::default(), &Patch::Merge(merge)).await?;
    let is_scaled = |found: &Deployment| {
        let status = found.status.as_ref();
        status.is_some_and(|status| {
            status.ready_replicas == Some(replicas) && status.replicas == Some(replicas)
        })
    };
    test.wait_among(&all, name, "scaled", is_scaled).await.map(drop)
}

/// The name of the pod that leads.
async fn leader(test: &Test, lease: &str) -> Result<String> {
    let leases = Api::<Lease>::namespaced(test.client(), NAMESPACE);
    let pods = Api::<Pod>::namespaced(test.client(), NAMESPACE);
    let begin = Instant::now();
    loop {
        let spec = leases.get(lease).await?.spec.context("a Lease without a spec")?;
        // `POD_` and what differs between processes of a pod.
        let holder = spec.holder_identity.unwrap_or_default();
        let pod = holder.split('_').next().unwrap_or_default();
        if !pod.is_empty() && pods.get_opt(pod).await?.is_some() {
            return Ok(pod.to_owned());
        }
        ensure!(begin.elapsed() < PATIENCE, "no pod leads by the Lease {lease}: {holder:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Deletes the pod that leads at once, so that it cannot release its Lease.
async fn lose_leader(test: &Test, lease: &str) -> Result<String> {
    let pod = leader(test, lease).await?;
    let pods = Api::<Pod>::namespaced(test.client(), NAMESPACE);
    pods.delete(&pod, &DeleteParams::default().grace_period(0)).await?;
    test.wait_until_gone(&pods, &pod).await?;
    Ok(pod)
}
