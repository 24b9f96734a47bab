//! Copies by two pods, with TLS in between: where no node can mount both volumes, and for PVCs that request such a
//! copy. The cluster of the tests has one node, so here the PVCs request it.

use anyhow::{Context, Result, ensure};
use e2e::Test;
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::world::{disk, golden, noted, run};

const MODES: [&str; 2] = ["Block", "Filesystem"];
/// Larger by the overhead of a file system, so that the disk still fits.
const LARGER: &str = "64Mi";

#[test]
fn pvc_that_requests_a_copy_is_copied_between_two_pods() {
    run("apart", async |test| {
        golden(&test, &[("block", "csi", "Block"), ("filesystem", "csi", "Filesystem")]).await?;
        let pairs = MODES.iter().flat_map(|from| MODES.iter().map(move |to| (*from, *to)));
        let pairs: Vec<_> = pairs
            .map(|(from, to)| {
                let (source, to_name) = (from.to_lowercase(), to.to_lowercase());
                (format!("{source}-to-{to_name}"), source, to)
            })
            .collect();
        for (name, source, mode) in &pairs {
            let request = format!("{}/{source}", test.namespace());
            test.create::<PersistentVolumeClaim>(json!({
                "metadata": { "name": name, "annotations": { "k8s.io/CloneRequest": request } },
                "spec": {
                    "storageClassName": "csi", "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": LARGER } },
                },
            }))
            .await?;
        }
        let test_here = &*test;
        let all = pairs.iter().map(|(name, ..)| async move {
            check(test_here, name).await.with_context(|| name.clone())
        });
        try_join_all(all).await?;
        let names = pairs.iter().map(|(name, ..)| name.as_str()).chain(["block", "filesystem"]);
        test.clones_leave(&names.collect::<Vec<_>>(), &[]).await
    });
}

async fn check(test: &Test, name: &str) -> Result<()> {
    let is_copied = |claim: &PersistentVolumeClaim| {
        noted(claim, "k8s.io/CloneOf") == Some("true")
            && noted(claim, "cdi.kubevirt.io/storage.pod.phase") == Some("Succeeded")
    };
    let claim = test.wait(name, "copied", is_copied).await?;
    for pod in ["uploadPodName", "sourceClonePodName"] {
        let key = format!("cdi.kubevirt.io/storage.{pod}");
        ensure!(noted(&claim, &key).is_some(), "{key} is not set");
    }
    test.holds(name, &disk()).await
}
