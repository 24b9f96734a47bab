//! Removal: refused while there are DataVolumes, complete otherwise, and resumed by the next operator.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::v1beta1::Cdi;
use e2e::{HOST, Program, Test, phase, volume};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::Api;
use serde_json::json;
use testkit::{Fault, FaultServer, MIB, pattern};

use crate::installation::{
    CR, PATIENCE, delete, install, kubectl, only_remains, release_file,
    run_where_nothing_is_installed,
};

/// Objects of others that look like ours.
fn foreign_objects(namespace: &str) -> String {
    let labels = json!({ "app": "containerized-data-importer", "cdi.kubevirt.io": "" });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "foreign", "namespace": namespace, "labels": labels },
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "foreign", "labels": labels },
        "rules": [],
    });
    format!("{map}\n---\n{role}")
}

#[test]
fn removal_is_blocked_by_datavolumes_then_complete_and_leaves_foreign_objects() {
    run_where_nothing_is_installed("removal", async |test| {
        let operator = release_file("cdi-operator.yaml")?;
        install(&test).await?;
        let (succeeded, output) =
            kubectl(&test, &["apply", "--filename=-"], &foreign_objects(test.namespace()))?;
        ensure!(succeeded, "{output}");
        // An import that goes on until its pod is removed.
        let server = FaultServer::in_memory_on(HOST, &pattern(8 * MIB)).always(Fault::StallAt(MIB));
        let source = json!({ "http": { "url": server.url_of("/disk.img") } });
        test.apply(volume("importing", "csi", "Block", source)).await?;
        let runs = |volume: &api::v1beta1::DataVolume| phase(volume) == "ImportInProgress";
        test.wait("importing", "in progress", runs).await?;

        set_strategy(&test, "BlockUninstallIfWorkloadsExist")?;
        let (succeeded, output) = kubectl(&test, &["delete", "cdi", CR, "--timeout=60s"], "")?;
        ensure!(!succeeded, "the CDI object was deleted while there is a DataVolume");
        ensure!(output.contains("there are still DataVolumes present. "), "{output}");
        ensure!(output.contains(&format!("Present: {}/importing", test.namespace())), "{output}");

        set_strategy(&test, "RemoveWorkloads")?;
        let (succeeded, output) = kubectl(&test, &["delete", "cdi", CR, "--wait=false"], "")?;
        ensure!(succeeded, "{output}");
        operator_is_killed_while_it_removes(&test).await?;
        test.wait_until_gone(&Api::<Cdi>::all(test.client()), CR).await?;
        let pods = test.all::<Pod>().list(&Default::default()).await?.items;
        ensure!(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()), "{pods:?}");
        delete(&test, &operator)?;
        only_remains(&test, &["foreign", test.namespace()]).await?;
        let (succeeded, output) =
            kubectl(&test, &["delete", "--filename=-"], &foreign_objects(test.namespace()))?;
        ensure!(succeeded, "{output}");
        let namespaces = Api::<Namespace>::all(test.client());
        test.wait_until_gone(&namespaces, e2e::NAMESPACE).await
    });
}

fn set_strategy(test: &Test, strategy: &str) -> Result<()> {
    let patch = json!({ "spec": { "uninstallStrategy": strategy } }).to_string();
    let (succeeded, output) =
        kubectl(test, &["patch", "cdi", CR, "--type=merge", "--patch", &patch], "")?;
    ensure!(succeeded, "{output}");
    Ok(())
}

async fn operator_is_killed_while_it_removes(test: &Test) -> Result<()> {
    let all = Api::<Cdi>::all(test.client());
    let begin = Instant::now();
    let mut kills = 0;
    while kills < 2 && all.get_opt(CR).await?.is_some() {
        tokio::time::sleep(Duration::from_millis(300)).await;
        match Program::named(test, "cdi-operator").crash().await {
            Ok(_) => kills += 1,
            // The kubelet has not started it again.
            Err(_) if begin.elapsed() < PATIENCE => {}
            Err(error) => return Err(error.context("cannot kill the operator")),
        }
    }
    eprintln!("the operator was killed {kills} times during the removal");
    ensure!(kills > 0, "the removal was over before the operator was killed");
    Ok(())
}
