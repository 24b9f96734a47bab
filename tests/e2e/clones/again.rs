//! The target of a completed clone is deleted: it is cloned again. And the choice of the clone strategy.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Test, is_bound, phase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::world::{BY_SNAPSHOT, WAYS, clone_of, disk, golden, noted, run, was_made};

/// Deletes a PVC, and waits for one of another UID that has its volume.
async fn delete_claim(test: &Test, name: &str) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = test.all();
    let uid = claims.get(name).await?.metadata.uid.context("it has a UID")?;
    claims.delete(name, &DeleteParams::default()).await?;
    let is_another = |claim: &PersistentVolumeClaim| {
        claim.metadata.uid.as_ref() != Some(&uid) && is_bound(claim)
    };
    test.wait::<PersistentVolumeClaim>(name, "created again", is_another).await?;
    let is_done = |volume: &DataVolume| phase(volume) == "Succeeded";
    test.wait::<DataVolume>(name, "filled again", is_done).await?;
    Ok(())
}

#[test]
fn clone_is_repeated_if_its_pvc_is_deleted() {
    run("again", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        for (way, class) in WAYS {
            test.apply(clone_of(way, class, &far, "golden")).await?;
        }
        for (way, _) in WAYS {
            was_made(&test, way, way).await?;
            delete_claim(&test, way).await?;
            was_made(&test, way, way).await.context("the second time")?;
        }
        test.clones_leave(&["csi-clone", "snapshot", "copy"], &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

#[test]
fn user_selects_the_clone_strategy_of_a_pvc() {
    run("chosen", async |test| {
        golden(&test, &[("golden", "csi", "Block")]).await?;
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeCloneSource",
            "metadata": { "name": "source" },
            "spec": { "source": { "kind": "PersistentVolumeClaim", "name": "golden" } },
        }))
        .await?;
        let size = test.all::<PersistentVolumeClaim>().get("golden").await?;
        let size = size.spec.and_then(|spec| spec.resources).context("it has a size")?;
        for (way, _) in WAYS {
            test.apply(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": way, "annotations": { "cdi.kubevirt.io/cloneType": way } },
                "spec": {
                    "storageClassName": BY_SNAPSHOT, "volumeMode": "Block",
                    "accessModes": ["ReadWriteOnce"], "resources": size,
                    "dataSourceRef": {
                        "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "source",
                    },
                },
            }))
            .await?;
        }
        for (way, _) in WAYS {
            let is_done = |claim: &PersistentVolumeClaim| {
                is_bound(claim) && noted(claim, "cdi.kubevirt.io/clonePhase") == Some("Succeeded")
            };
            let claim = test.wait::<PersistentVolumeClaim>(way, "cloned", is_done).await?;
            let found = noted(&claim, "cdi.kubevirt.io/cloneType");
            ensure!(found == Some(way), "{way} was requested, and it was {found:?}");
            test.holds(way, &disk()).await?;
        }
        let sources = test.all::<api::v1beta1::VolumeCloneSource>();
        sources.delete("source", &DeleteParams::default()).await?;
        test.clones_leave(&["golden", "csi-clone", "snapshot", "copy"], &[]).await
    });
}
