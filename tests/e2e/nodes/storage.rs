//! The classes of a cluster with two nodes: reached from both, local to one, and attached to one at a time.

use anyhow::{Context, Result, ensure};
use cluster::NodeId;
use e2e::{Claim, PodPlan, Test};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams};

use crate::world::{FIRST, SECOND, is_lost, run, run_alone, take_out_of_service};

const BYTES: &str = "8388608";

/// Fills a device on a node with bytes generated from the seed, and returns their digest.
async fn fill(test: &Test, pod: &str, claim: &str, node: NodeId, seed: &str) -> Result<String> {
    let plan = PodPlan::new(pod, &["fill", "/disk", BYTES, seed]).device(claim, "/disk").on(node);
    plan.output(test).await
}

/// The digest of the same bytes, read on a node.
async fn read(test: &Test, pod: &str, claim: &str, node: NodeId) -> Result<String> {
    let plan = PodPlan::new(pod, &["digest", "/disk", BYTES]).device(claim, "/disk").on(node);
    let output = plan.output(test).await?;
    Ok(output.split_once(" of ").context("digest and size")?.0.to_owned())
}

async fn volume_of(test: &Test, claim: &str) -> Result<PersistentVolume> {
    let claim = test.all::<PersistentVolumeClaim>().get(claim).await?;
    let name = claim.spec.and_then(|spec| spec.volume_name).context("a bound PVC has a volume")?;
    Ok(Api::<PersistentVolume>::all(test.client()).get(&name).await?)
}

async fn delete(test: &Test, pod: &str) -> Result<()> {
    let pods = test.all::<Pod>();
    pods.delete(pod, &DeleteParams::default()).await?;
    test.wait_until_gone(&pods, pod).await
}

#[test]
fn shared_device_is_used_by_pods_of_both_nodes() {
    run("shared", async |test| {
        Claim::block("disk", "csi", "32Mi").many().bound(&test).await?;
        let holder = PodPlan::new("holder", &["pause"]).device("disk", "/disk").on(FIRST);
        holder.start(&test).await?;
        let written = fill(&test, "writer", "disk", SECOND, "shared").await?;
        // While the holder has it on the first node.
        for node in NodeId::ALL {
            let found = read(&test, &format!("reader-{}", node.name()), "disk", node).await?;
            ensure!(found == written, "{}: {found} is not {written}", node.name());
        }
        Ok(())
    });
}

#[test]
fn file_system_is_mounted_by_one_node_at_a_time() {
    run("one-mount", async |test| {
        Claim::filesystem("disk", "csi", "64Mi").bound(&test).await?;
        let plan =
            |name: &str, node| PodPlan::new(name, &["pause"]).mount("disk", "/data").on(node);
        plan("first", FIRST).start(&test).await?;
        plan("second", SECOND).make(&test).await?;
        test.wait_for_event("is mounted by another node").await?;
        delete(&test, "first").await?;
        test.wait("second", "running", e2e::is_ready).await?;
        Ok(())
    });
}

#[test]
fn local_volume_is_made_on_the_node_of_its_first_consumer() {
    run("node-local", async |test| {
        for node in NodeId::ALL {
            let name = format!("disk-{}", node.name());
            Claim::block(&name, "node-wait", "32Mi").make(&test).await?;
            let written = fill(&test, &format!("w-{name}"), &name, node, &name).await?;
            // The second pod may run anywhere, and so does where the volume is.
            let words = ["digest", "/disk", BYTES];
            let reader = PodPlan::new(&format!("r-{name}"), &words).device(&name, "/disk");
            let output = reader.output(&test).await?;
            ensure!(output.starts_with(&written), "{output} is not {written}");
            let pod = test.all::<Pod>().get(&format!("r-{name}")).await?;
            let placed = pod.spec.and_then(|spec| spec.node_name);
            ensure!(placed.as_deref() == Some(node.name()), "{name}: {placed:?}");
            let affinity = volume_of(&test, &name).await?.spec.and_then(|spec| spec.node_affinity);
            let text = serde_json::to_string(&affinity)?;
            ensure!(text.contains(&format!("\"{}\"", node.name())), "{name}: {text}");
        }
        Ok(())
    });
}

#[test]
fn fenced_volume_is_attached_to_one_node_at_a_time() {
    run("fenced", async |test| {
        Claim::block("disk", "fenced", "32Mi").bound(&test).await?;
        let plan =
            |name: &str, node| PodPlan::new(name, &["pause"]).device("disk", "/disk").on(node);
        plan("first", FIRST).start(&test).await?;
        let written = fill(&test, "writer", "disk", FIRST, "fenced").await?;
        plan("second", SECOND).make(&test).await?;
        // Kubernetes does not even try to attach a volume with this access mode to another node.
        test.wait_for_event("Multi-Attach error").await?;
        for pod in ["first", "writer"] {
            delete(&test, pod).await?;
        }
        test.wait("second", "running", e2e::is_ready).await?;
        let found = read(&test, "reader", "disk", SECOND).await?;
        ensure!(found == written, "{found} is not {written}");
        Ok(())
    });
}

/// The nodes that a PVC's volume is attached to.
async fn attachments(test: &Test, claim: &str) -> Result<Vec<String>> {
    let volume = volume_of(test, claim).await?.metadata.name;
    let all = Api::<VolumeAttachment>::all(test.client()).list(&ListParams::default()).await?;
    let of_claim = all.items.into_iter().map(|attachment| attachment.spec);
    let of_claim = of_claim.filter(|spec| spec.source.persistent_volume_name == volume);
    Ok(of_claim.map(|spec| spec.node_name).collect())
}

#[test]
fn volumes_of_a_killed_node_follow_its_pods_out_of_service() {
    run_alone("fenced-killed", async |test| {
        for (claim, make) in
            [("device", Claim::block as fn(&_, &_, &_) -> _), ("files", Claim::filesystem)]
        {
            make(claim, "fenced", "32Mi").bound(&test).await?;
        }
        let plan = |name: &str, node| {
            let plan = PodPlan::new(name, &["pause"]).on(node);
            plan.device("device", "/disk").mount("files", "/data")
        };
        plan("first", SECOND).start(&test).await?;
        let dead = test.chaos().kill_node()?;
        is_lost(&test).await?;
        plan("second", FIRST).make(&test).await?;
        test.wait_for_event("Multi-Attach error").await?;
        ensure!(attachments(&test, "device").await? == [SECOND.name()], "it was detached");
        take_out_of_service(&test)?;
        test.wait("second", "running", e2e::is_ready).await?;
        ensure!(attachments(&test, "files").await? == [FIRST.name()], "it is not attached");
        dead.start()
    });
}
