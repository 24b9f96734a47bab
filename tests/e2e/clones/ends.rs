//! Interrupted clones: the DataVolume is deleted, or the controllers are killed.

use std::time::Duration;

use anyhow::{Result, bail};
use api::v1beta1::DataVolume;
use e2e::{Program, Test, phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams};

use crate::world::{
    BY_COPY, HANGS_IN_CLONE, HANGS_IN_SNAPSHOT, WAYS, clone_of, golden, run, run_alone, was_made,
};

const CONTROLLER: &str = "cdi-deployment";
/// Short, to observe objects that exist briefly.
const GLANCE: Duration = Duration::from_millis(20);
const GLANCES: u32 = 15_000;
/// Clones of each way in each round.
const EACH: usize = 2;

#[test]
fn data_volume_deleted_during_a_clone_leaves_nothing() {
    run("deleted", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        // A driver that never responds keeps the clone in this phase.
        let all = [
            ("clone", HANGS_IN_CLONE, "CSICloneInProgress"),
            ("snapshot", HANGS_IN_SNAPSHOT, "CloneFromSnapshotSourceInProgress"),
            ("copy", BY_COPY, ""),
        ];
        for (name, class, _) in all {
            test.apply(clone_of(name, class, &far, "golden")).await?;
        }
        copies_begin(&far).await?;
        let volumes = test.all::<DataVolume>();
        volumes.delete("copy", &DeleteParams::default()).await?;
        for (name, _, wanted) in &all[..2] {
            test.wait(name, wanted, |volume: &DataVolume| phase(volume) == *wanted).await?;
            volumes.delete(name, &DeleteParams::default()).await?;
        }
        for (name, ..) in all {
            test.wait_until_gone(&volumes, name).await?;
        }
        test.clones_leave(&[], &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

#[test]
fn clones_survive_killed_controllers() {
    // An event that was not sent when the program died is lost.
    run_alone("killed", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        let controller = Program::named(&test, CONTROLLER);
        let mut made = Vec::new();
        for round in 0..2 {
            for (way, class) in WAYS {
                for at in 0..EACH {
                    let name = format!("{way}-{round}-{at}");
                    test.apply(clone_of(&name, class, &far, "golden")).await?;
                    made.push((name, way));
                }
            }
            if round == 0 {
                copies_begin(&far).await?;
                controller.crash().await?;
            } else {
                clones_take_snapshots(&far).await?;
                controller.lose().await?;
            }
        }
        for (name, way) in &made {
            was_made(&test, name, way).await?;
        }
        let names: Vec<_> = made.iter().map(|(name, _)| name.as_str()).collect();
        test.clones_leave(&names, &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

/// Until there is a pod that reads for a clone.
async fn copies_begin(far: &Test) -> Result<()> {
    let readers = ListParams::default().labels("cdi.kubevirt.io=cdi-clone-source");
    for _ in 0..GLANCES {
        if !far.all::<Pod>().list(&readers).await?.items.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(GLANCE).await;
    }
    bail!("no pod copies")
}

/// Until there is a snapshot that was taken for a clone.
async fn clones_take_snapshots(far: &Test) -> Result<()> {
    let snapshots = far.all_of("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
    for _ in 0..GLANCES {
        let found: Vec<DynamicObject> = snapshots.list(&ListParams::default()).await?.items;
        if !found.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(GLANCE).await;
    }
    let claims = far.all::<PersistentVolumeClaim>().list(&ListParams::default()).await?;
    bail!("no snapshot is taken; there are {} claims", claims.items.len())
}
