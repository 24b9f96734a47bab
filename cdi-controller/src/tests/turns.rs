//! What somebody tries who may do anything in a namespace of their own, to keep all others from their work.

use api::annotations::{import, request, state};
use api::labels::{self, component, finalizer};
use serde_json::{Value, json};

use super::clones::{cluster, of_claim};
use super::fake::Fake;
use super::world::World;
use super::{DONE, blank, places};

/// More than may ever be at work.
const MANY: usize = 50;
const EVIL: &str = "evil";

/// Pods that look like importers, and nothing that they would import into.
fn pods_with_our_labels(fake: &Fake, number: usize) {
    let owner = json!([{
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "disk", "uid": "nobody", "controller": true,
    }]);
    fake.put("pods", importer(&format!("importer-{number}"), Value::Null));
    fake.put("pods", importer(&format!("importer-of-{number}"), owner));
}

/// The whole of an import as our controllers make it, with a pod that they did not make.
fn imports(fake: &Fake, number: usize) {
    let (claim, pod) = (format!("disk-{number}"), format!("importer-disk-{number}"));
    let owner = json!([{
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim, "uid": claim, "controller": true,
    }]);
    fake.put("pods", importer(&pod, owner));
    fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": claim, "uid": claim, "namespace": EVIL,
                "annotations": { import::SOURCE: "none", import::POD_NAME: pod, request::BIND_IMMEDIATE: "" },
            },
            "spec": { "storageClassName": "fast" }, "status": { "phase": "Bound" },
        }),
    );
}

fn importer(name: &str, owners: Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": EVIL, "ownerReferences": owners,
            "labels": { labels::COMPONENT: component::IMPORTER, labels::APP: labels::APP_VALUE },
            "annotations": { state::CREATED_BY_CONTROLLER: "yes" },
        },
        "spec": { "containers": [{ "name": "importer" }], "volumes": [] },
        "status": { "phase": "Running" },
    })
}

/// Claims and snapshots that look like the helpers of clones, and no clone.
fn helpers_of_nothing(fake: &Fake, number: usize) {
    helper(
        fake,
        "persistentvolumeclaims",
        &format!("tmp-pvc-{number}"),
        &format!("uid-of-{number}"),
    );
    helper(fake, "volumesnapshots", &format!("tmp-snapshot-{number}"), &format!("of-{number}"));
}

/// The same, in the name of the one claim that somebody else clones to.
fn helpers_of_another(fake: &Fake, number: usize) {
    helper(fake, "persistentvolumeclaims", &format!("tmp-pvc-{number}"), "uid-of-vms-other");
    helper(fake, "volumesnapshots", "tmp-snapshot-uid-of-vms-other", "uid-of-vms-other");
    if number == 0 {
        target(fake, "vms", "other", "uid-of-vms-other");
    }
}

/// The whole of a clone as our controllers make it, up to a copy that never ends.
fn clones(fake: &Fake, number: usize) {
    let uid = format!("uid-of-{number}");
    target(fake, EVIL, &format!("disk-{number}"), &uid);
    helper(fake, "persistentvolumeclaims", &format!("tmp-pvc-{uid}"), &uid);
}

fn helper(fake: &Fake, plural: &str, name: &str, owner: &str) {
    fake.put(
        plural,
        json!({
            "metadata": {
                "name": name, "namespace": EVIL,
                "labels": { labels::OWNED_BY_UID: owner, labels::APP: labels::APP_VALUE },
                "annotations": {
                    state::EVENTS_SOURCE: format!("{EVIL}/{owner}"), state::POD_PHASE: "Running",
                    request::CLONE_REQUEST: format!("{EVIL}/golden"), state::CLONE_ON_ONE_NODE: "true",
                },
            },
            "spec": { "storageClassName": "fast", "source": {}, "dataSourceRef": { "kind": "Nothing", "name": "x" } },
        }),
    );
}

/// A claim that is cloned to, and whose source is never there.
fn target(fake: &Fake, namespace: &str, name: &str, uid: &str) {
    fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid, "finalizers": [finalizer::CLONE_POPULATOR],
                "annotations": { state::CLONE_TYPE: "copy", state::CLONE_PHASE: "CloneFromPvc" },
            },
            "spec": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
                "dataSourceRef": { "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "none" },
            },
            "status": { "phase": "Pending" },
        }),
    );
}

/// Everybody takes turns; but what was made by hand stays as it is, whatever the kubelet thinks of it.
async fn round(world: &mut World) {
    world.work().await;
    let of_hand = places(world, "pods").into_iter().filter(|place| place.starts_with("pods/evil/"));
    let pods: Vec<_> = of_hand
        .map(|place| (world.fake.0.lock().unwrap().objects[&place].clone(), place))
        .collect();
    world.others(DONE);
    for (pod, place) in pods {
        world.fake.change(&place, |now| now["status"] = pod["status"].clone());
    }
}

/// Whether both DataVolumes of others are done in the end, where one may be at work at once.
async fn both_are_done(mut world: World, case: &str) {
    let is_done = |world: &World, name| world.status(name)["phase"] == "Succeeded";
    for _ in 0..30 {
        if is_done(&world, "a") && is_done(&world, "b") {
            return;
        }
        round(&mut world).await;
    }
    panic!("{case}: {} {}", world.status("a"), world.status("b"));
}

#[tokio::test(start_paused = true)]
async fn nobody_keeps_others_from_importing() {
    let tries: [(&str, fn(&Fake, usize)); 2] =
        [("our labels", pods_with_our_labels), ("whole imports", imports)];
    for (case, try_it) in tries {
        let fake = World::new("Immediate", true).fake;
        for number in 0..MANY {
            try_it(&fake, number);
        }
        let world = World::told(fake, &["-imports-max=1"]);
        for name in ["a", "b"] {
            world.volume(name, blank());
        }
        both_are_done(world, case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_keeps_others_from_cloning() {
    let tries: [(&str, fn(&Fake, usize)); 3] = [
        ("helpers of nothing", helpers_of_nothing),
        ("helpers of another", helpers_of_another),
        ("whole clones", clones),
    ];
    for (case, try_it) in tries {
        let fake = cluster("csi-clone", "vms", true);
        for number in 0..MANY {
            try_it(&fake, number);
        }
        let world = World::told(fake, &["-clones-max=1"]);
        for name in ["a", "b"] {
            world.volume(name, of_claim("vms"));
        }
        both_are_done(world, case).await;
    }
}

/// What was made by hand and belongs to no import takes no turn of those who are in the same namespace either.
#[tokio::test(start_paused = true)]
async fn what_only_looks_like_ours_counts_for_nothing() {
    let fake = World::new("Immediate", true).fake;
    for number in 0..MANY {
        pods_with_our_labels(&fake, number);
    }
    let mut world = World::told(fake, &["-imports-max=1"]);
    world.fake.put(
        "datavolumes",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "disk", "namespace": EVIL }, "spec": blank(),
        }),
    );
    for _ in 0..3 {
        round(&mut world).await;
    }
    let pods = places(&world, "pods");
    assert!(pods.iter().any(|place| place.contains("prime-")), "{pods:?}");
}
