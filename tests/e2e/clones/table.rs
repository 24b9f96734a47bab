//! Sources, namespaces, methods, modes and sizes: every pair of values, in as few clones as possible.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use e2e::{Test, annotated, volume};
use futures_util::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::world::{BY_CLONE, BY_COPY, BY_SNAPSHOT, CANNOT, golden, noted, run, was_made};

/// The source of a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Claim,
    Snapshot,
    ByReference,
    SnapshotByReference,
}
use Source::{ByReference, Claim, Snapshot, SnapshotByReference};

/// The namespace of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceNamespace {
    Same,
    Other,
}
use SourceNamespace::{Other, Same};

/// Its size, compared to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Equal,
    Larger,
}
use Size::{Equal, Larger};

const B: &str = "Block";
const F: &str = "Filesystem";
const LARGER: &str = "96Mi";

/// One clone: its name, kind of source, namespace of the source, storage class, mode of source and of target, size; and
/// the expected method, with the reason of the event that explains why it is no better one.
type Cell = (
    &'static str,
    (Source, SourceNamespace),
    &'static str,
    (&'static str, &'static str),
    Size,
    (&'static str, &'static str),
);

const CELLS: [Cell; 15] = [
    ("c1", (Claim, Same), BY_CLONE, (B, B), Equal, ("csi-clone", "")),
    ("c2", (Claim, Other), BY_SNAPSHOT, (F, F), Larger, ("snapshot", "")),
    ("c3", (Claim, Same), BY_COPY, (F, B), Equal, ("copy", "")),
    ("c4", (Snapshot, Other), BY_CLONE, (F, F), Equal, ("snapshot", "")),
    ("c5", (Snapshot, Same), BY_SNAPSHOT, (B, F), Larger, ("copy", "IncompatibleVolumeModes")),
    ("c6", (Snapshot, Other), "plain", (B, B), Larger, ("copy", "NoProvisionerMatch")),
    ("c7", (ByReference, Other), BY_CLONE, (B, F), Larger, ("copy", "IncompatibleVolumeModes")),
    ("c8", (ByReference, Other), BY_SNAPSHOT, (B, B), Equal, ("snapshot", "")),
    ("c9", (ByReference, Same), BY_COPY, (F, F), Equal, ("copy", "")),
    ("c10", (ByReference, Other), BY_CLONE, (F, F), Larger, ("csi-clone", "")),
    ("c11", (Claim, Same), BY_SNAPSHOT, (B, B), Larger, ("snapshot", "")),
    ("c12", (SnapshotByReference, Same), BY_SNAPSHOT, (F, F), Larger, ("snapshot", "")),
    ("c13", (Claim, Other), CANNOT, (F, F), Larger, ("copy", "IncompatibleProvisioners")),
    ("c14", (Snapshot, Other), BY_SNAPSHOT, (F, F), Equal, ("copy", NO_POPULATOR)),
    ("c15", (SnapshotByReference, Same), BY_CLONE, (B, B), Larger, ("copy", NO_POPULATOR)),
];

/// Why pods copy to the PVC itself: the DataVolume requests it.
const NO_POPULATOR: &str = "NoPopulator";

/// The message of each reason, in the annotation of the PVC.
const REASONS: [(&str, &str); 4] = [
    ("IncompatibleVolumeModes", "The volume modes of source and target are incompatible"),
    (
        "NoProvisionerMatch",
        "The storageclass provisioner does not match the volumesnapshotcontent driver",
    ),
    ("IncompatibleProvisioners", "Provisioners are incompatible"),
    (NO_POPULATOR, "In tree storage class does not support snapshot/clone"),
];

/// The values of a cell of which all pairs occur: source, its namespace, method, modes, size.
fn values(cell: &Cell) -> [&'static str; 5] {
    let (_, (source, place), _, (from, to), size, (way, _)) = cell;
    let source = match source {
        Claim => "claim",
        Snapshot => "snapshot",
        ByReference | SnapshotByReference => "data source",
    };
    let mode = if from == to { from } else { "change" };
    let place = if *place == Same { "same" } else { "other" };
    [source, place, way, mode, if *size == Equal { "equal" } else { "larger" }]
}

#[test]
fn table_covers_all_pairs() {
    let all: [&[&str]; 5] = [
        &["claim", "snapshot", "data source"],
        &["same", "other"],
        &["csi-clone", "snapshot", "copy"],
        &["Block", "Filesystem", "change"],
        &["equal", "larger"],
    ];
    // The storage changes no mode, and a PVC restored from a snapshot is no CSI clone.
    let never = [("csi-clone", "change"), ("snapshot", "csi-clone"), ("snapshot", "change")];
    let met: BTreeSet<_> = CELLS
        .iter()
        .flat_map(|cell| {
            let values = values(cell);
            let pairs = (0..5).flat_map(move |a| (a + 1..5).map(move |b| (a, b)));
            pairs.map(move |(a, b)| (a, values[a], b, values[b]))
        })
        .collect();
    for a in 0..5 {
        for b in a + 1..5 {
            for (first, second) in all[a].iter().flat_map(|x| all[b].iter().map(move |y| (*x, *y)))
            {
                // The source `snapshot` does change modes; the way does not.
                let is_of_source = a == 0 && second == "change";
                if is_of_source || !never.contains(&(first, second)) {
                    assert!(met.contains(&(a, first, b, second)), "{first} never meets {second}");
                }
            }
        }
    }
}

#[test]
fn every_clone_strategy_from_every_source_copies_all_bytes() {
    run("ways", async |test| {
        let far = test.other_namespace().await?;
        let disks = [("block", "csi", B), ("files", "csi", F)];
        try_join(golden(&test, &disks), golden(&far, &disks)).await?;
        for place in [&*test, &far] {
            for (disk, snapshot) in [("block", "block-then"), ("files", "files-then")] {
                keep(place, disk, snapshot).await?;
            }
        }
        for cell in &CELLS {
            test.apply(manifest(&test, &far, cell)).await.with_context(|| format!("{cell:?}"))?;
        }
        let test_here = &*test;
        let all = CELLS.iter().map(|cell| async move {
            check(test_here, cell).await.with_context(|| format!("{cell:?}"))
        });
        try_join_all(all).await?;
        some_copy_was_in_progress(&test).await?;
        let of_disks = ["block", "files"];
        let of_cells: Vec<_> = CELLS.iter().map(|cell| cell.0).collect();
        let snapshots = ["block-then", "files-then"];
        test.clones_leave(&[&of_disks[..], &of_cells].concat(), &snapshots).await?;
        far.clones_leave(&of_disks, &snapshots).await
    });
}

/// Takes a snapshot, and creates a DataSource for the disk and for the snapshot.
async fn keep(test: &Test, disk: &str, snapshot: &str) -> Result<()> {
    test.take_snapshot(disk, snapshot).await?;
    for (kind, name) in [("pvc", disk), ("snapshot", snapshot)] {
        let source = json!({ kind: { "namespace": test.namespace(), "name": name } });
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": name }, "spec": { "source": source },
        }))
        .await?;
    }
    Ok(())
}

fn manifest(test: &Test, far: &Test, cell: &Cell) -> Value {
    let (name, (source, place), class, (from, to), size, (_, why)) = *cell;
    let (disk, snapshot) =
        if from == B { ("block", "block-then") } else { ("files", "files-then") };
    let namespace = if place == Same { test.namespace() } else { far.namespace() };
    let of = |name: &str| json!({ "namespace": namespace, "name": name });
    let by_reference = |name: &str| {
        let mut object = volume(name, class, to, Value::Null);
        let spec = &mut object["spec"];
        spec["sourceRef"] = json!({ "kind": "DataSource", "namespace": namespace, "name": name });
        spec.as_object_mut().map(|spec| spec.remove("source"));
        object
    };
    let mut object = match source {
        Claim => volume(name, class, to, json!({ "pvc": of(disk) })),
        Snapshot => volume(name, class, to, json!({ "snapshot": of(snapshot) })),
        ByReference => by_reference(disk),
        SnapshotByReference => by_reference(snapshot),
    };
    object["metadata"]["name"] = name.into();
    if size == Larger {
        object["spec"]["pvc"]["resources"]["requests"]["storage"] = LARGER.into();
    }
    match why {
        NO_POPULATOR => annotated(object, "cdi.kubevirt.io/storage.usePopulator", "false"),
        _ => object,
    }
}

async fn check(test: &Test, cell: &Cell) -> Result<()> {
    let (name, _, _, _, size, (way, why)) = *cell;
    let claim = was_made(test, name, way).await?;
    if why == NO_POPULATOR {
        // The copy is never from the snapshot: the storage creates a PVC of the snapshot, and that is copied.
        test.event_message(name, "CloneFromSnapshotSourceInProgress").await?;
    }
    let message = test.event_message(name, "CloneSucceeded").await?;
    ensure!(message.starts_with("Successfully cloned from "), "the event is {message}");
    let because = REASONS.iter().find(|(reason, _)| *reason == why).map(|(_, words)| *words);
    let noted_reason = noted(&claim, "cdi.kubevirt.io/cloneFallbackReason");
    ensure!(noted_reason == because, "the annotation is {noted_reason:?}");
    if let Some(words) = because {
        let message = test.event_message_of("PersistentVolumeClaim", name, why).await?;
        ensure!(message == words, "the event is {message}");
    }
    let has = capacity(&claim);
    let wanted = if size == Larger { LARGER } else { e2e::SIZE };
    ensure!(has == wanted, "it has {has}, not {wanted}");
    Ok(())
}

/// A controller that is late sees the phase after it, so not every DataVolume has the event.
async fn some_copy_was_in_progress(test: &Test) -> Result<()> {
    let events = test.all::<Event>().list(&ListParams::default()).await?.items;
    let is_copy = |name: &str| CELLS.iter().any(|cell| cell.0 == name && cell.5.0 == "copy");
    let found = events.iter().any(|event| {
        let name = event.involved_object.name.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("CloneInProgress") && is_copy(name)
    });
    ensure!(found, "no DataVolume that is copied has the event CloneInProgress");
    Ok(())
}

fn capacity(claim: &PersistentVolumeClaim) -> &str {
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    capacity.and_then(|all| all.get("storage")).map_or("", |size| size.0.as_str())
}
