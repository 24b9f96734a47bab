//! Backups that are restored by Velero: PVCs come before their DataVolumes, from snapshots.

use anyhow::ensure;
use api::v1beta1::DataVolume;
use e2e::{is_bound, run_installed};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::world::{disk, of_web, server};

/// Velero restores snapshots first, then PVCs, then everything else, without UIDs, owners and status.
#[test]
fn backup_restored_in_veleros_order_is_adopted() {
    run_installed("velero", async |test| {
        let server = server(&disk());
        test.apply(of_web("disk", &server)).await?;
        test.succeeded("disk").await?;
        test.apply(json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": { "name": "velero-disk" },
            "spec": {
                "volumeSnapshotClassName": "csi",
                "source": { "persistentVolumeClaimName": "disk" },
            },
        }))
        .await?;
        let snapshots = test.all_of("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
        let is_ready = |snapshot: &DynamicObject| snapshot.data["status"]["readyToUse"] == true;
        test.wait_among(&snapshots, "velero-disk", "ready to use", is_ready).await?;
        let volumes = test.all::<DataVolume>();
        let claims = test.all::<PersistentVolumeClaim>();
        let volume = serde_json::to_value(volumes.get("disk").await?)?;
        let claim = serde_json::to_value(claims.get("disk").await?)?;
        volumes.delete("disk", &Default::default()).await?;
        test.wait_until_gone(&volumes, "disk").await?;
        test.wait_until_gone(&claims, "disk").await?;
        let bytes = server.body_bytes_sent();

        let mut claim = restored("v1", "PersistentVolumeClaim", &claim);
        let reference = json!({
            "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "velero-disk",
        });
        claim["spec"]["dataSource"] = reference.clone();
        claim["spec"]["dataSourceRef"] = reference;
        if let Some(spec) = claim["spec"].as_object_mut() {
            spec.remove("volumeName");
        }
        // As KubeVirt's plugin for Velero marks both of a DataVolume that has succeeded.
        claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.populatedFor"] = "disk".into();
        test.apply(claim).await?;
        test.wait("disk", "bound", is_bound).await?;
        let mut volume = restored("cdi.kubevirt.io/v1beta1", "DataVolume", &volume);
        volume["metadata"]["annotations"]["cdi.kubevirt.io/storage.prePopulated"] = "disk".into();
        test.apply(volume).await?;
        test.succeeded("disk").await?;
        ensure!(server.body_bytes_sent() == bytes, "the image was imported again");
        let owners = claims.get("disk").await?.metadata.owner_references.unwrap_or_default();
        ensure!(owners.iter().any(|owner| owner.kind == "DataVolume"), "{owners:?}");
        let pods = test.all::<Pod>().list(&ListParams::default()).await?.items;
        ensure!(pods.is_empty(), "pods were created for it: {pods:?}");
        let events = test.all::<Event>().list(&ListParams::default()).await?.items;
        let warnings = events.iter().filter(|event| event.type_.as_deref() == Some("Warning"));
        ensure!(
            warnings
                .clone()
                .all(|event| event.involved_object.kind.as_deref() != Some("DataVolume")),
            "{:?}",
            warnings.collect::<Vec<_>>()
        );
        test.holds("disk", &disk()).await
    });
}

/// An object of a backup as Velero creates it again.
fn restored(version: &str, kind: &str, object: &Value) -> Value {
    let mut metadata = json!({ "name": object["metadata"]["name"], "annotations": {} });
    for key in ["labels", "annotations"] {
        if object["metadata"][key].is_object() {
            metadata[key] = object["metadata"][key].clone();
        }
    }
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations
            .retain(|key, _| !key.starts_with("pv.kubernetes.io/") && !key.starts_with("volume."));
    }
    json!({
        "apiVersion": version, "kind": kind, "metadata": metadata, "spec": object["spec"].clone(),
    })
}
