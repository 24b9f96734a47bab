//! The failures that later tests cause in the cluster, and its recovery.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{PodPlan, is_ready, run, run_alone};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;

use crate::pods::service;

const MOMENT: Duration = Duration::from_secs(3);

fn address(pod: &Pod) -> Result<String> {
    let status = pod.status.as_ref().context("a running pod has a status")?;
    status.pod_ip.clone().context("and an address")
}

/// How often its container was started again.
fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|all| all.first()).map_or(0, |container| container.restart_count)
}

#[test]
fn killed_container_is_restarted() {
    run("killed", async |test| {
        let pod = PodPlan::new("worker", &["serve", "on"]).for_ever().start(&test).await?;
        test.chaos().kill_in_pod(pod.metadata.uid.as_deref().context("a pod has a uid")?)?;
        test.wait::<Pod>("worker", "running again", |pod| restarts(pod) > 0 && is_ready(pod))
            .await?;
        Ok(())
    });
}

#[test]
fn pod_network_can_be_cut_and_restored() {
    run("cut", async |test| {
        service(&test, "server", 80, 8080).await?;
        let pod = PodPlan::new("server", &["serve", "here"]).start(&test).await?;
        let url = format!("http://{}:8080/", address(&pod)?);
        {
            let _cut = test.chaos().cut(&address(&pod)?)?;
            PodPlan::new("asker", &["get", &url]).start(&test).await?;
            // It tries for half a minute; were there a way, it would be through by now.
            tokio::time::sleep(MOMENT).await;
            let pod = test.all::<Pod>().get("asker").await?;
            ensure!(is_ready(&pod), "it got through: {:?}", pod.status);
        }
        let ended =
            |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded");
        test.wait("asker", "through", ended).await?;
        Ok(())
    });
}

#[test]
fn paused_api_server_does_not_respond_until_resumed() {
    run_alone("paused", async |test| {
        let maps = test.all::<ConfigMap>();
        let everything = ListParams::default();
        {
            let _paused = test.chaos().pause("kube-apiserver")?;
            let asked = tokio::time::timeout(MOMENT, maps.list(&everything)).await;
            ensure!(asked.is_err(), "it responded: {asked:?}");
        }
        maps.list(&everything).await?;
        Ok(())
    });
}

#[test]
fn pods_survive_a_kubelet_restart() {
    run_alone("kubelet", async |test| {
        let before = PodPlan::new("old", &["pause"]).start(&test).await?;
        test.chaos().restart("kubelet")?;
        PodPlan::new("new", &["identity"]).output(&test).await?;
        let after = test.wait::<Pod>("old", "ready", is_ready).await?;
        ensure!(restarts(&after) == restarts(&before), "it was started again");
        Ok(())
    });
}
