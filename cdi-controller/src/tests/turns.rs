//! Attacks by the administrator of one namespace that try to block the controllers for all others.

use api::annotations::{import, request, state};
use api::labels::{self, component, finalizer};
use serde_json::{Value, json};

use super::clones::{cluster, of_claim};
use super::fake::Fake;
use super::world::TestCluster;
use super::{DONE, blank, places};

/// More than the limit of concurrent workers.
const MANY: usize = 50;
const EVIL: &str = "evil";

/// Pods that look like importers, and nothing that they would import into.
fn pods_with_our_labels(fake: &Fake, number: usize) {
    let owner = json!([{
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "disk", "uid": "missing", "controller": true,
    }]);
    fake.put("pods", importer(&format!("importer-{number}"), Value::Null));
    fake.put("pods", importer(&format!("importer-of-{number}"), owner));
}

/// All objects of an import as the controllers create them, with a forged pod.
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

/// PVCs and snapshots that look like the temporary objects of clones, without a clone.
fn helpers_of_nothing(fake: &Fake, number: usize) {
    helper(
        fake,
        "persistentvolumeclaims",
        &format!("tmp-pvc-{number}"),
        &format!("uid-of-{number}"),
    );
    helper(fake, "volumesnapshots", &format!("tmp-snapshot-{number}"), &format!("of-{number}"));
}

/// The same, as temporary objects of the target PVC of another namespace.
fn helpers_of_another(fake: &Fake, number: usize) {
    helper(fake, "persistentvolumeclaims", &format!("tmp-pvc-{number}"), "uid-of-vms-other");
    helper(fake, "volumesnapshots", "tmp-snapshot-uid-of-vms-other", "uid-of-vms-other");
    if number == 0 {
        target(fake, "vms", "other", "uid-of-vms-other");
    }
}

/// All objects of a clone as the controllers create them, with a copy that never ends.
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

/// A target PVC whose clone source does not exist.
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

/// One round of controllers and cluster. The status of the forged pods does not change.
async fn round(world: &mut TestCluster) {
    world.work().await;
    let of_hand = places(world, "pods").into_iter().filter(|place| place.starts_with("pods/evil/"));
    let pods: Vec<_> = of_hand
        .map(|place| (world.fake.0.lock().unwrap().objects[&place].clone(), place))
        .collect();
    world.simulate_cluster(DONE);
    for (pod, place) in pods {
        world.fake.change(&place, |now| now["status"] = pod["status"].clone());
    }
}

/// Checks that both DataVolumes of the other namespace succeed, with a limit of one at a time.
async fn both_are_done(mut world: TestCluster, case: &str) {
    let is_done = |world: &TestCluster, name| world.status(name)["phase"] == "Succeeded";
    for _ in 0..30 {
        if is_done(&world, "a") && is_done(&world, "b") {
            return;
        }
        round(&mut world).await;
    }
    panic!("{case}: {} {}", world.status("a"), world.status("b"));
}

#[tokio::test(start_paused = true)]
async fn forged_importers_do_not_block_imports_of_other_namespaces() {
    let tries: [(&str, fn(&Fake, usize)); 2] =
        [("our labels", pods_with_our_labels), ("whole imports", imports)];
    for (case, try_it) in tries {
        let fake = TestCluster::new("Immediate", true).fake;
        for number in 0..MANY {
            try_it(&fake, number);
        }
        let world = TestCluster::with_flags(fake, &["-imports-max=1"]);
        for name in ["a", "b"] {
            world.volume(name, blank());
        }
        both_are_done(world, case).await;
    }
}

#[tokio::test(start_paused = true)]
async fn forged_clone_objects_do_not_block_clones_of_other_namespaces() {
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
        let world = TestCluster::with_flags(fake, &["-clones-max=1"]);
        for name in ["a", "b"] {
            world.volume(name, of_claim("vms"));
        }
        both_are_done(world, case).await;
    }
}

/// Forged pods without an import do not count against the limit of their own namespace either.
#[tokio::test(start_paused = true)]
async fn forged_importer_pods_take_no_import_slot_of_their_namespace() {
    let fake = TestCluster::new("Immediate", true).fake;
    for number in 0..MANY {
        pods_with_our_labels(&fake, number);
    }
    let mut world = TestCluster::with_flags(fake, &["-imports-max=1"]);
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
