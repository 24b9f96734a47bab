//! Volumes of every class and mode, and what can be done with them.

use anyhow::{Context, Result, ensure};
use e2e::{Claim, PodPlan, Test, is_bound, run};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use serde_json::json;

const MIB: u64 = 1 << 20;
/// How much the tests write: more than the journal of a file system, but little enough to be fast.
const BYTES: &str = "8388608";

/// Fills a volume with bytes generated from the seed, and returns the digest.
async fn fill(test: &Test, pod: &str, claim: &str, device: bool, seed: &str) -> Result<String> {
    let words = ["fill", if device { "/disk" } else { "/data/file" }, BYTES, seed];
    let plan = PodPlan::new(pod, &words);
    let plan = if device { plan.device(claim, "/disk") } else { plan.mount(claim, "/data") };
    plan.output(test).await
}

/// The digest of the content, and the size of the file or device.
async fn read(test: &Test, pod: &str, claim: &str, device: bool) -> Result<(String, u64)> {
    let plan = PodPlan::new(pod, &["digest", if device { "/disk" } else { "/data/file" }, BYTES]);
    let plan = if device { plan.device(claim, "/disk") } else { plan.mount(claim, "/data") };
    let output = plan.output(test).await?;
    let (digest, size) = output.split_once(" of ").context("digest and size")?;
    Ok((digest.to_owned(), size.parse()?))
}

#[test]
fn file_outlives_its_pod() {
    run("filesystem", async |test| {
        Claim::filesystem("disk", "csi", "64Mi").bound(&test).await?;
        let written = fill(&test, "writer", "disk", false, "file").await?;
        let (digest, _) = read(&test, "reader", "disk", false).await?;
        ensure!(digest == written, "{digest} is not {written}");
        Ok(())
    });
}

#[test]
fn user_107_writes_to_a_device_of_the_claimed_size() {
    run("block", async |test| {
        Claim::block("disk", "csi", "32Mi").bound(&test).await?;
        let written = fill(&test, "writer", "disk", true, "device").await?;
        let (digest, size) = read(&test, "reader", "disk", true).await?;
        ensure!(digest == written, "{digest} is not {written}");
        ensure!(size == 32 * MIB, "{size}");
        Ok(())
    });
}

#[test]
fn waiting_pvc_is_bound_for_its_first_consumer() {
    run("waits", async |test| {
        for (class, pod) in [("csi-wait", "first"), ("plain-wait", "second")] {
            let claim = Claim::block(class, class, "16Mi").make(&test).await?;
            ensure!(!is_bound(&claim), "bound at once");
            test.wait_for_event("waiting for first consumer").await?;
            fill(&test, pod, class, true, class).await?;
            test.wait(class, "bound", is_bound).await?;
        }
        Ok(())
    });
}

#[test]
fn local_volumes_serve_as_file_system_and_as_device() {
    run("local", async |test| {
        Claim::block("device", "local", "16Mi").make(&test).await?;
        Claim::filesystem("folder", "local", "16Mi").make(&test).await?;
        fill(&test, "to-device", "device", true, "local").await?;
        fill(&test, "to-folder", "folder", false, "local").await?;
        Ok(())
    });
}

#[test]
fn snapshot_restores_the_content() {
    run("snapshot", async |test| {
        for device in [true, false] {
            let kind = if device { "device" } else { "folder" };
            let make = if device { Claim::block } else { Claim::filesystem };
            let name = |what: &str| format!("{what}-{kind}");
            make(&name("disk"), "csi", "64Mi").bound(&test).await?;
            let before = fill(&test, &name("before"), &name("disk"), device, "before").await?;
            test.take_snapshot(&name("disk"), &name("then")).await?;
            fill(&test, &name("after"), &name("disk"), device, "after").await?;
            let restored = make(&name("copy"), "csi", "64Mi").from_snapshot(&name("then"));
            restored.bound(&test).await?;
            let (digest, _) = read(&test, &name("reader"), &name("copy"), device).await?;
            ensure!(digest == before, "{kind}: {digest} is not {before}");
        }
        Ok(())
    });
}

#[test]
fn clone_may_be_larger_than_its_source() {
    run("clone", async |test| {
        Claim::block("disk", "csi", "32Mi").bound(&test).await?;
        let written = fill(&test, "writer", "disk", true, "source").await?;
        Claim::block("copy", "csi", "48Mi").from_claim("disk").bound(&test).await?;
        let (digest, size) = read(&test, "reader", "copy", true).await?;
        ensure!(digest == written, "{digest} is not {written}");
        ensure!(size == 48 * MIB, "{size}");
        Ok(())
    });
}

/// Requests a larger size, and waits until `grown` holds for the PVC.
async fn grow(
    test: &Test,
    name: &str,
    grown: impl Fn(&PersistentVolumeClaim) -> bool,
) -> Result<()> {
    let larger = json!({"spec": {"resources": {"requests": {"storage": "96Mi"}}}});
    let claims = test.all::<PersistentVolumeClaim>();
    claims.patch(name, &PatchParams::default(), &Patch::Merge(&larger)).await?;
    test.wait(name, "grown", grown).await.map(|_| ())
}

/// Whether the kubelet has finished the expansion to the size that [`grow`] requests.
fn is_grown(claim: &PersistentVolumeClaim) -> bool {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|capacity| capacity.get("storage")).is_some_and(|size| size.0 == "96Mi")
}

#[test]
fn block_volume_grows_under_a_running_pod() {
    run("device-grows", async |test| {
        Claim::block("disk", "csi", "32Mi").bound(&test).await?;
        PodPlan::new("holder", &["pause"]).device("disk", "/disk").start(&test).await?;
        grow(&test, "disk", is_grown).await?;
        let (_, size) = read(&test, "reader", "disk", true).await?;
        ensure!(size == 96 * MIB, "{size}");
        Ok(())
    });
}

#[test]
fn file_system_grows_for_its_next_pod() {
    run("files-grow", async |test| {
        Claim::filesystem("disk", "csi", "32Mi").bound(&test).await?;
        let first = PodPlan::new("first", &["identity"]).mount("disk", "/data");
        first.output(&test).await?;
        // The driver has enlarged the volume; the file system grows when it is next mounted.
        let pending = |claim: &PersistentVolumeClaim| {
            let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|c| c.type_ == "FileSystemResizePending")
        };
        grow(&test, "disk", pending).await?;
        // If the kubelet has not unmounted the volume of the first pod yet, it enlarges the file system after the next pod has
        // started.
        PodPlan::new("next", &["pause"]).mount("disk", "/data").start(&test).await?;
        test.wait("disk", "grown", is_grown).await?;
        // More than fitted before.
        let words = ["fill", "/data/file", "50331648", "more"];
        PodPlan::new("writer", &words).mount("disk", "/data").output(&test).await?;
        Ok(())
    });
}

#[test]
fn full_volume_does_not_affect_its_neighbour() {
    run("full", async |test| {
        Claim::filesystem("small", "csi", "24Mi").bound(&test).await?;
        Claim::filesystem("other", "csi", "24Mi").bound(&test).await?;
        let words = ["fill", "/data/file", "all", "seed"];
        let output = PodPlan::new("filler", &words).mount("small", "/data").output(&test).await?;
        ensure!(output.starts_with("full after "), "{output}");
        fill(&test, "neighbour", "other", false, "seed").await?;
        Ok(())
    });
}

#[test]
fn plain_class_does_not_clone() {
    run("plain", async |test| {
        Claim::block("disk", "plain", "16Mi").bound(&test).await?;
        Claim::block("copy", "plain", "16Mi").from_claim("disk").make(&test).await?;
        test.wait_for_event("does not support clone operations").await
    });
}
