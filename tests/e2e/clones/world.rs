//! What the tests have in common: storage classes with one clone method each, and source disks.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use api::v1beta1::{DataVolume, StorageProfile};
use e2e::{Test, condition, imported, run_installed, run_installed_alone, server, volume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::{MIB, pattern};
use tokio::sync::OnceCell;

/// The driver with snapshots and clones, and the one without.
const FULL: &str = "loop.csi.cdi.test";
const PLAIN: &str = "plain.csi.cdi.test";

/// A class for each method: its name, its driver, the strategy of its StorageProfile, what the driver does on a request
/// for a clone (see its parameter `copies`), and the time after which pods copy instead. PVCs of a snapshot that pods
/// are to read get the first class of the driver, which is `csi`.
const CLASSES: [(&str, &str, &str, &str, &str); 8] = [
    (BY_CLONE, FULL, "csi-clone", "", ""),
    (BY_SNAPSHOT, FULL, "snapshot", "", ""),
    (BY_COPY, FULL, "copy", "", ""),
    (REFUSES, FULL, "csi-clone", "refused", ""),
    (IS_SLOW, FULL, "snapshot", "never", "5s"),
    (HANGS_IN_CLONE, FULL, "csi-clone", "never", "never"),
    (HANGS_IN_SNAPSHOT, FULL, "snapshot", "never", "never"),
    (CANNOT, PLAIN, "csi-clone", "", ""),
];
pub const BY_CLONE: &str = "csi-by-clone";
pub const BY_SNAPSHOT: &str = "csi-by-snapshot";
pub const BY_COPY: &str = "csi-by-copy";
/// Reports that it cannot clone a volume.
pub const REFUSES: &str = "csi-refuses";
/// Never responds, and is abandoned after a while.
pub const IS_SLOW: &str = "csi-slow";
/// Never responds, and is never abandoned.
pub const HANGS_IN_CLONE: &str = "csi-hangs-clone";
/// The same, once the snapshot is taken.
pub const HANGS_IN_SNAPSHOT: &str = "csi-hangs-snapshot";
/// The driver never reports that it can.
pub const CANNOT: &str = "plain-by-clone";

/// Each way, by a class that is cloned so.
pub const WAYS: [(&str, &str); 3] =
    [("csi-clone", BY_CLONE), ("snapshot", BY_SNAPSHOT), ("copy", BY_COPY)];

static CLASSES_ARE_MADE: OnceCell<()> = OnceCell::const_new();

/// Runs a test once there are the classes above.
pub fn run<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_installed(name, async |running| {
        CLASSES_ARE_MADE.get_or_try_init(|| make_classes(&running)).await?;
        test(running).await
    });
}

/// As [`run`], while no other test runs: for tests that stop a program on which all tests depend.
pub fn run_alone<F>(name: &str, test: impl FnOnce(Arc<Test>) -> F)
where
    F: Future<Output = Result<()>>,
{
    run_installed_alone(name, async |running| {
        CLASSES_ARE_MADE.get_or_try_init(|| make_classes(&running)).await?;
        test(running).await
    });
}

async fn make_classes(test: &Test) -> Result<()> {
    let profiles = Api::<StorageProfile>::all(test.client());
    for (name, driver, strategy, copies, patience) in CLASSES {
        let parameters = if copies.is_empty() { json!({}) } else { json!({ "copies": copies }) };
        let class = json!({
            "metadata": { "name": name },
            "provisioner": driver, "parameters": parameters, "allowVolumeExpansion": driver == FULL,
        });
        match test.create_global::<StorageClass>(class).await {
            // Of an earlier run on the same cluster.
            Err(error) if format!("{error:#}").contains("already exists") => {}
            outcome => outcome.map(drop)?,
        }
        test.wait_among(&profiles, name, "there", |_| true).await?;
        let mut patch = json!({ "spec": { "cloneStrategy": strategy } });
        if !patience.is_empty() {
            let key = "cdi.kubevirt.io/cloneFallbackAfter";
            patch["metadata"] = json!({ "annotations": { key: patience } });
        }
        profiles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        let is_taken = |profile: &StorageProfile| {
            let status = profile.status.as_ref();
            status.and_then(|status| status.clone_strategy.as_deref()) == Some(strategy)
        };
        test.wait_among(&profiles, name, "taken over", is_taken).await?;
    }
    Ok(())
}

/// The objects of `docs/examples/NAME.yaml`, in order, as they are.
pub fn example(name: &str) -> Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let path = folder.join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let documents = text.split("\n---\n").map(yaml_serde::from_str::<Value>);
    documents.map(|document| document.context("an example is YAML")).collect()
}

/// The content of every golden disk: data, a hole, data, and zeroes up to the end of a disk in the smallest PVC.
pub fn disk() -> Vec<u8> {
    let mut bytes = pattern(32 * MIB);
    bytes[(4 * MIB) as usize..(12 * MIB) as usize].fill(0);
    bytes[(16 * MIB) as usize..].fill(0);
    bytes
}

/// Imports golden disks: name, class, mode. Waits for all of them.
pub async fn golden(test: &Test, disks: &[(&str, &str, &str)]) -> Result<()> {
    let server = server(&disk());
    for (name, class, mode) in disks {
        test.apply(imported(name, class, mode, &server)).await?;
    }
    for (name, ..) in disks {
        test.succeeded(name).await.context("the golden disk")?;
    }
    Ok(())
}

/// A DataVolume that is cloned from a PVC of a namespace, onto a device of a class.
pub fn clone_of(name: &str, class: &str, from: &Test, claim: &str) -> Value {
    let source = json!({ "pvc": { "namespace": from.namespace(), "name": claim } });
    volume(name, class, "Block", source)
}

/// An annotation of a PVC.
pub fn noted<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.annotations().get(key).map(String::as_str)
}

/// Checks by which method a clone was made, and its content.
pub async fn was_made(test: &Test, name: &str, way: &str) -> Result<PersistentVolumeClaim> {
    const TYPE: &str = "cdi.kubevirt.io/cloneType";
    const POPULATOR: &str = "cdi.kubevirt.io/storage.usePopulator";
    let volume = test.succeeded(name).await?;
    if way == "copy" {
        // Where pods copy to the PVC itself, the one that writes ends before the one that reads.
        let is_over = |claim: &PersistentVolumeClaim| {
            noted(claim, "k8s.io/CloneOf") == Some("true")
                && noted(claim, "cdi.kubevirt.io/clonePhase") == Some("Succeeded")
        };
        test.wait::<PersistentVolumeClaim>(name, "copied", is_over).await?;
    }
    let on_volume = volume.annotations().get(TYPE).map(String::as_str);
    let claim = test.all::<PersistentVolumeClaim>().get(name).await?;
    let ways = (on_volume, noted(&claim, TYPE));
    ensure!(ways == (Some(way), Some(way)), "{name} was cloned by {ways:?}, not by {way}");
    let phase = noted(&claim, "cdi.kubevirt.io/clonePhase");
    ensure!(phase == Some("Succeeded"), "{name}: {phase:?}");
    let is_copy = noted(&claim, "k8s.io/CloneOf") == Some("true");
    ensure!(is_copy == (way == "copy"), "{name}: {:?}", claim.annotations());
    let one = (Some("Completed"), Some("Clone Complete"));
    // Where two pods copy to the PVC itself, both report it, the one that reads perhaps after the DataVolume has succeeded.
    let both = (Some("Completed and Completed"), Some("Clone Complete and Clone Complete"));
    let reports_the_end = |volume: &DataVolume| {
        let is_copied_to =
            volume.annotations().get(POPULATOR).is_some_and(|value| value == "false");
        condition(volume, "Running").is_some_and(|running| {
            let reported = (running.reason.as_deref(), running.message.as_deref());
            reported == one || is_copied_to && reported == both
        })
    };
    test.wait(name, "reported as complete", reports_the_end).await?;
    test.holds(name, &disk()).await?;
    Ok(claim)
}

/// The message of the condition `Running` of a DataVolume.
pub fn running(volume: &DataVolume) -> &str {
    condition(volume, "Running").and_then(|running| running.message.as_deref()).unwrap_or_default()
}
