//! Pods of both nodes reach each other, Services and this machine, and are reached by the API server; until the network is cut.

use anyhow::{Context, Result, ensure};
use cluster::{CutFrom, NodeId};
use e2e::{PodPlan, Test, is_ready as pod_is_ready};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::LogParams;
use serde_json::json;

use crate::world::{FIRST, MOMENT, SECOND, is_lost, is_ready, run, run_alone};

fn address(pod: &Pod) -> Result<String> {
    let status = pod.status.as_ref().context("a running pod has a status")?;
    status.pod_ip.clone().context("and an address")
}

async fn service(test: &Test, name: &str) -> Result<Service> {
    test.create(json!({
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    }))
    .await
}

/// A server of this name on a node; returns its address.
async fn serve(test: &Test, name: &str, node: NodeId) -> Result<String> {
    let pod = PodPlan::new(name, &["serve", "from", node.name()]).on(node).start(test).await?;
    let placed = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    ensure!(placed == Some(node.name()), "{name} is on {placed:?}");
    address(&pod)
}

#[test]
fn pods_of_both_nodes_reach_each_other_and_services() {
    run("two-nodes", async |test| {
        for (server, client) in [(FIRST, SECOND), (SECOND, FIRST), (SECOND, SECOND)] {
            let name = format!("from-{}-to-{}", client.name(), server.name());
            service(&test, &name).await?;
            let address = serve(&test, &name, server).await?;
            for (how, url) in [
                ("direct", format!("http://{address}:8080")),
                ("service", format!("http://{name}")),
            ] {
                let plan = PodPlan::new(&format!("{name}-{how}"), &["get", &url]).on(client);
                let output = plan.output(&test).await?;
                ensure!(output == format!("from {}", server.name()), "{name}, {how}: {output}");
            }
        }
        Ok(())
    });
}

#[test]
fn this_machine_and_the_second_node_reach_each_other() {
    run("machine", async |test| {
        let bytes = b"from this machine".to_vec();
        let server = e2e::server(&bytes);
        let plan = PodPlan::new("client", &["get", &server.url_of("/disk.img")]).on(SECOND);
        let output = plan.output(&test).await?;
        ensure!(output.as_bytes() == bytes, "{output}");
        let address = serve(&test, "server", SECOND).await?;
        let url = format!("http://{address}:8080");
        let output = std::process::Command::new("curl").args(["--silent", &url]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.trim() == "from cdi-node-2", "{text}");
        Ok(())
    });
}

#[test]
fn logs_and_commands_work_on_both_nodes() {
    run("logs", async |test| {
        for node in NodeId::ALL {
            let plan = PodPlan::new(&format!("who-{}", node.name()), &["identity"]).on(node);
            let output = plan.output(&test).await?;
            ensure!(output.starts_with("uid=107"), "{output}");
            let name = format!("runs-{}", node.name());
            serve(&test, &name, node).await?;
            let words = ["exec", &name, "--", "/testpod", "identity"];
            let output = test.kubectl_ok(&words, "")?.stdout;
            ensure!(output.starts_with("uid=107"), "{output}");
            test.all::<Pod>().logs(&name, &LogParams::default()).await?;
        }
        Ok(())
    });
}

#[test]
fn network_of_a_node_can_be_cut_and_restored() {
    run_alone("node-cut", async |test| {
        let address = serve(&test, "server", SECOND).await?;
        {
            let _cut = test.chaos().cut_node(CutFrom::All)?;
            let url = format!("http://{address}:8080/");
            PodPlan::new("client", &["get", &url]).on(FIRST).start(&test).await?;
            tokio::time::sleep(MOMENT).await;
            let pod = test.all::<Pod>().get("client").await?;
            ensure!(pod_is_ready(&pod), "it got through: {:?}", pod.status);
        }
        let ended =
            |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Succeeded");
        test.wait("client", "through", ended).await?;
        Ok(())
    });
}

#[test]
fn pods_of_a_node_without_the_api_server_go_on() {
    run_alone("api-cut", async |test| {
        let address = serve(&test, "server", SECOND).await?;
        let cut = test.chaos().cut_node(CutFrom::ApiServer)?;
        is_lost(&test).await?;
        let url = format!("http://{address}:8080/");
        let output = PodPlan::new("client", &["get", &url]).on(FIRST).output(&test).await?;
        ensure!(output == "from cdi-node-2", "{output}");
        drop(cut);
        is_ready(&test, SECOND).await
    });
}

#[test]
fn killed_node_is_lost_until_it_is_started_again() {
    run_alone("node-killed", async |test| {
        serve(&test, "server", SECOND).await?;
        let dead = test.chaos().kill_node()?;
        is_lost(&test).await?;
        ensure!(test.kubectl(&["logs", "server"], "")?.code != 0, "the kubelet responds");
        dead.start()?;
        is_ready(&test, SECOND).await?;
        PodPlan::new("new", &["identity"]).on(SECOND).output(&test).await?;
        Ok(())
    });
}
