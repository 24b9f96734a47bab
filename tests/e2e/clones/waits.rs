//! Clones that wait for a source in use or one that does not exist yet, and a clone without a
//! DataVolume for.

use anyhow::ensure;
use api::v1beta1::DataVolume;
use e2e::{PodPlan, condition_is_false_with, is_bound, phase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::{BY_CLONE, WAYS, clone_of, disk, golden, noted, run, running, was_made};

#[test]
fn clone_waits_for_a_source_in_use_and_names_its_user() {
    run("in-use", async |test| {
        golden(&test, &[("golden", "csi", "Block")]).await?;
        PodPlan::new("vm", &["pause"]).for_ever().device("golden", "/disk").start(&test).await?;
        for (way, class) in WAYS {
            test.apply(clone_of(way, class, &test, "golden")).await?;
        }
        for (way, _) in WAYS {
            let message =
                test.event_message_of("PersistentVolumeClaim", way, "CloneSourceInUse").await?;
            let user = format!("pod {}/vm using PersistentVolumeClaim golden", test.namespace());
            ensure!(message == user, "{way}: {message}");
            let is_reported = |volume: &DataVolume| running(volume).contains("it is used by vm");
            let volume = test.wait(way, "reported to wait for its source", is_reported).await?;
            ensure!(phase(&volume) != "Succeeded", "{way} did not wait");
        }
        test.lose_pod("vm").await?;
        for (way, _) in WAYS {
            was_made(&test, way, way).await?;
        }
        test.clones_leave(&["golden", "csi-clone", "snapshot", "copy"], &[]).await
    });
}

#[test]
fn source_created_later_is_cloned_once_populated() {
    run("later", async |test| {
        let far = test.other_namespace().await?;
        for (way, class) in WAYS {
            test.apply(clone_of(way, class, &far, "golden")).await?;
        }
        for (way, _) in WAYS {
            let message = test.event_message(way, "CloneWithoutSource").await?;
            ensure!(message == "The source pvc golden doesn't exist", "{way}: {message}");
            let is_reported = |volume: &DataVolume| {
                condition_is_false_with(volume, "Bound", "CloneWithoutSource")
            };
            test.wait(way, "reported to have no source", is_reported).await?;
        }
        golden(&far, &[("golden", "csi", "Block")]).await?;
        for (way, _) in WAYS {
            was_made(&test, way, way).await?;
        }
        test.clones_leave(&["csi-clone", "snapshot", "copy"], &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

#[test]
fn pvc_with_a_clone_source_needs_no_data_volume() {
    run("populator-clone", async |test| {
        golden(&test, &[("golden", "csi", "Block")]).await?;
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeCloneSource",
            "metadata": { "name": "source" },
            "spec": { "source": { "kind": "PersistentVolumeClaim", "name": "golden" } },
        }))
        .await?;
        test.apply(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "disk" },
            "spec": {
                "storageClassName": BY_CLONE, "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "64Mi" } },
                "dataSourceRef": {
                    "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "source",
                },
            },
        }))
        .await?;
        let claim = test.wait("disk", "bound", is_bound).await?;
        ensure!(noted(&claim, "cdi.kubevirt.io/cloneType") == Some("csi-clone"), "{claim:?}");
        let is_done = |claim: &PersistentVolumeClaim| {
            noted(claim, "cdi.kubevirt.io/clonePhase") == Some("Succeeded")
        };
        test.wait("disk", "done", is_done).await?;
        test.holds("disk", &disk()).await?;
        let sources = test.all::<api::v1beta1::VolumeCloneSource>();
        sources.delete("source", &DeleteParams::default()).await?;
        test.clones_leave(&["golden", "disk"], &[]).await
    });
}
