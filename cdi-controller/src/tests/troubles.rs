//! Imports that are blocked or fail, and where users see the cause.

use api::annotations::{import, request, state};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank, places};
use crate::wake;

const DISK: &str = "persistentvolumeclaims/vms/disk";

/// The events about the object of this name: kind, reason, component and message.
fn recorded_events(world: &TestCluster, name: &str) -> Vec<[String; 4]> {
    let state = world.fake.0.lock().unwrap();
    let of_it = state.events.iter().filter(|event| event["involvedObject"]["name"] == name);
    let text =
        |event: &Value, place| event.pointer(place).and_then(Value::as_str).map(str::to_owned);
    let places = ["/involvedObject/kind", "/reason", "/source/component", "/message"];
    of_it.map(|event| places.map(|place| text(event, place).unwrap_or_default())).collect()
}

fn prime(world: &TestCluster) -> String {
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    format!("prime-{}", claim["metadata"]["uid"].as_str().unwrap())
}

fn bound(world: &TestCluster) -> [String; 2] {
    condition(world, "Bound")
}

/// Reason and message.
fn condition(world: &TestCluster, type_: &str) -> [String; 2] {
    let conditions = world.status("disk")["conditions"].clone();
    let all = conditions.as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["type"] == type_).unwrap_or_default();
    ["reason", "message"].map(|key| found[key].as_str().unwrap_or_default().to_owned())
}

fn refuse(world: &TestCluster, plural: &str, message: &str) {
    let mut state = world.fake.0.lock().unwrap();
    state.refused_kinds.insert(plural.to_owned(), message.to_owned());
}

#[tokio::test(start_paused = true)]
async fn refused_worker_is_named_with_the_reason_of_the_api_server() {
    const QUOTA: &str = "pods \"importer\" is forbidden: exceeded quota: tight, requested: pods=1";
    const POLICY: &str = "pods \"importer\" is forbidden: violates PodSecurity \"restricted\"";
    for (has_driver, words, reason) in [
        (true, QUOTA, "ErrExceededQuota"),
        (false, QUOTA, "ErrExceededQuota"),
        (true, POLICY, "ErrStartingPod"),
        (false, POLICY, "ErrStartingPod"),
    ] {
        let case = format!("{has_driver} {words}");
        let mut world = TestCluster::new("Immediate", has_driver);
        refuse(&world, "pods", words);
        world.volume("disk", blank());
        for _ in 0..4 {
            world.work().await;
            world.simulate_cluster(DONE);
        }
        let pod = if has_driver {
            format!("importer-{}", prime(&world))
        } else {
            "importer-disk".to_owned()
        };
        let [found, message] = condition(&world, "Running");
        assert_eq!(found, reason, "{case}");
        assert!(message.starts_with(&format!("Error starting pod '{pod}': ")), "{message}");
        assert!(message.ends_with(words), "{message}");
        let name = if has_driver { prime(&world) } else { "disk".to_owned() };
        let events = recorded_events(&world, &name);
        assert!(events.iter().any(|[_, found, _, text]| found == reason && *text == message));
        world.fake.0.lock().unwrap().refused_kinds.clear();
        world.until("disk", "Succeeded", DONE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn data_volume_without_a_pvc_names_the_cause_in_ready() {
    const QUOTA: &str = "persistentvolumeclaims \"disk\" is forbidden: exceeded quota: tight";
    let mut world = TestCluster::new("Immediate", true);
    refuse(&world, "persistentvolumeclaims", QUOTA);
    world.volume("disk", blank());
    world.work().await;
    assert_eq!(condition(&world, "Ready"), ["ErrExceededQuota", QUOTA].map(str::to_owned));
    assert_eq!(bound(&world), condition(&world, "Ready"));
    world.fake.0.lock().unwrap().refused_kinds.clear();
    world.until("disk", "Succeeded", DONE).await;
    assert_eq!(condition(&world, "Ready"), [""; 2].map(str::to_owned));

    let mut world = TestCluster::new("Immediate", true);
    let mut spec = blank();
    spec["source"] = Value::Null;
    spec["sourceRef"] = json!({ "kind": "DataSource", "name": "golden" });
    world.volume("disk", spec);
    world.work().await;
    let [reason, message] = condition(&world, "Ready");
    assert_eq!(reason, "CloneWithoutSource", "{message}");
    assert!(message.contains("golden"), "{message}");
}

/// The state of a worker's container.
fn set_pod_status(world: &TestCluster, pod: &str, phase: &str, state: Value) {
    let containers = json!([{
        "name": "importer", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]);
    world.fake.change(pod, |pod| {
        pod["status"] = json!({ "phase": phase, "containerStatuses": containers });
    });
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } })
}

fn of_vmware() -> Value {
    let mut spec = blank();
    spec["source"] = json!({ "vddk": {
        "url": "https://vcenter", "uuid": "u", "backingFile": "[s] a.vmdk", "thumbprint": "AA",
        "secretRef": "creds",
    } });
    spec
}

#[tokio::test(start_paused = true)]
async fn vddk_import_waits_for_the_vddk_image_and_reports_it() {
    const WORDS: &str = "waiting for v2v-vmware configmap or \
                         cdi.kubevirt.io/storage.pod.vddk.initimageurl annotation for VDDK image";
    for has_driver in [true, false] {
        for by_map in [true, false] {
            let case = format!("with a driver: {has_driver}, by a map: {by_map}");
            let mut world = TestCluster::new("Immediate", has_driver);
            world.volume("disk", of_vmware());
            for _ in 0..4 {
                world.work().await;
                world.simulate_cluster(DONE);
            }
            let words = if has_driver {
                format!("target PVC disk Pending and [{}] : {WORDS}", prime(&world))
            } else {
                WORDS.to_owned()
            };
            assert_eq!(bound(&world), ["AwaitingVDDK".to_owned(), words], "{case}");
            assert_eq!(places(&world, "pods"), [""; 0], "{case}");
            let writes = world.fake.0.lock().unwrap().writes.len();
            world.work().await;
            assert_eq!(world.fake.0.lock().unwrap().writes.len(), writes, "{case}: it waits");

            if by_map {
                let data = json!({ "vddk-init-image": "registry.test/vddk:8" });
                let map = json!({ "metadata": { "name": "v2v-vmware", "namespace": "cdi" }, "data": data });
                world.fake.put("configmaps", map);
            } else {
                world.fake.change(DISK, |claim| {
                    claim["metadata"]["annotations"][request::VDDK_INIT_IMAGE] =
                        "registry.test/vddk:8".into();
                });
            }
            let pod = world.until_worker(DONE).await;
            let image =
                world.fake.0.lock().unwrap().objects[&pod]["spec"]["initContainers"][0]["image"]
                    .clone();
            assert_eq!(image, "registry.test/vddk:8", "{case}");
            assert_ne!(bound(&world)[0], "AwaitingVDDK", "{case}");
            let done =
                r#"{"vddkInfo":{"Version":"8.0","Host":"esx-1"},"message":"Import Complete"}"#;
            world.until("disk", "Succeeded", done).await;
            assert_eq!(bound(&world)[0], "Bound", "{case}");

            // The client reads them on the DataVolume, or on the PVC that a populator has filled.
            let plural = if has_driver { "persistentvolumeclaims" } else { "datavolumes" };
            let found = world.fake.get(plural, "vms", "disk").unwrap();
            let annotations = &found["metadata"]["annotations"];
            assert_eq!(annotations[state::VDDK_HOST], "esx-1", "{case}");
            assert_eq!(annotations[state::VDDK_VERSION], "8.0", "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn vddk_image_of_the_data_volume_is_used() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", of_vmware());
    world.fake.change("datavolumes/vms/disk", |volume| {
        volume["metadata"]["annotations"] =
            json!({ request::VDDK_INIT_IMAGE: "registry.test/own:1" });
    });
    let pod = world.until_worker(DONE).await;
    let pod = world.fake.0.lock().unwrap().objects[&pod].clone();
    assert_eq!(pod["spec"]["initContainers"][0]["image"], "registry.test/own:1");
}

/// A PVC that names a source, without a DataVolume.
fn claim_of_a_source(world: &TestCluster) {
    world.fake.put(
        "volumeimportsources",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeImportSource",
            "metadata": { "name": "source", "namespace": "vms" },
            "spec": { "source": { "http": { "url": "http://h/a.img" } } },
        }),
    );
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "disk", "namespace": "vms" },
            "spec": {
                "storageClassName": "fast", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
                "dataSourceRef": { "apiGroup": "cdi.kubevirt.io", "kind": "VolumeImportSource", "name": "source" },
            },
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn failure_on_a_prime_pvc_is_reported_on_the_target_pvc() {
    let mut world = TestCluster::new("Immediate", true);
    claim_of_a_source(&world);
    let pod = world.until_worker(DONE).await;
    world.simulate_cluster(DONE);
    for _ in 0..2 {
        set_pod_status(&world, &pod, "Running", ended(1, "Error", "404 Not Found"));
        world.work().await;
    }
    let prime = prime(&world);
    let failed = |kind: &str, component: &str, message: &str| {
        [kind, "ErrImportFailed", component, message].map(str::to_owned)
    };
    let claim = "PersistentVolumeClaim";
    let expected = failed(claim, "import-controller", "404 Not Found");
    assert_eq!(recorded_events(&world, &prime), [expected]);
    let words = format!("[{prime}] : 404 Not Found");
    let warnings: Vec<_> = recorded_events(&world, "disk")
        .into_iter()
        .filter(|[_, reason, ..]| reason.starts_with("Err"))
        .collect();
    assert_eq!(warnings, [failed(claim, "import-populator", &words)]);
    set_pod_status(&world, &pod, "Pending", json!({}));
    for _ in 0..8 {
        world.work().await;
        world.simulate_cluster(DONE);
    }
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    let all = recorded_events(&world, "disk");
    let copied = all.iter().filter(|[.., message]| message.starts_with('['));
    assert_eq!(copied.count(), 1, "no normal event is copied: {all:?}");
}

#[tokio::test(start_paused = true)]
async fn upload_events_have_the_component_upload_populator() {
    let folder = super::authorities();
    let flag = format!("-certificates={}", folder.path().display());
    let mut world = TestCluster::with_flags(TestCluster::new("Immediate", true).fake, &[&flag]);
    let mut spec = blank();
    spec["source"] = json!({ "upload": {} });
    world.volume("disk", spec);
    world.until("disk", "Succeeded", r#"{"message":"Upload Complete"}"#).await;
    let all = recorded_events(&world, "disk");
    let of_claim: Vec<_> =
        all.iter().filter(|[kind, ..]| kind == "PersistentVolumeClaim").collect();
    assert_eq!(of_claim.len(), 2, "{all:?}");
    for [_, _, component, _] in of_claim {
        assert_eq!(component, "upload-populator", "{all:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn worker_is_replaced_each_time_it_runs_out_of_memory() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    for killed in 0..3 {
        let pod = world.until_worker(DONE).await;
        let cache_mode = {
            let pod = world.fake.0.lock().unwrap().objects[&pod].clone();
            let variables = pod["spec"]["containers"][0]["env"].as_array().unwrap().clone();
            variables.into_iter().find(|one| one["name"] == "CACHE_MODE").unwrap()["value"].clone()
        };
        assert_eq!(cache_mode, if killed == 0 { "" } else { "TRYNONE" }, "{killed}");
        set_pod_status(&world, &pod, "Running", json!({ "running": {} }));
        world.work().await;
        let place = format!("persistentvolumeclaims/vms/{}", prime(&world));
        let claim = world.fake.0.lock().unwrap().objects[&place].clone();
        let noted = claim["metadata"]["annotations"][import::REQUIRES_DIRECT_IO].clone();
        assert_eq!(noted, if killed == 0 { Value::Null } else { "false".into() }, "{killed}");
        set_pod_status(&world, &pod, "Running", ended(137, "OOMKilled", ""));
        world.work().await;
        let writes = world.fake.0.lock().unwrap().writes.clone();
        let deleted = writes.iter().filter(|write| **write == format!("delete {pod}"));
        assert_eq!(deleted.count(), killed + 1);
    }
    world.until("disk", "Succeeded", DONE).await;
}

/// A PVC of an earlier version, with the finalizer of an image stream import.
fn of_an_image_stream(world: &TestCluster, pod_phase: Option<&str>) {
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": {
                "name": "disk", "namespace": "vms",
                "finalizers": ["kubernetes.io/pvc-protection", "cdi.kubevirt.io/importImageStream"],
                "annotations": {
                    import::SOURCE: "registry", import::ENDPOINT: "fedora", import::REGISTRY_METHOD: "node",
                    import::REGISTRY_IMAGE_STREAM: "true", import::POD_NAME: "importer-disk",
                    state::POD_PHASE: pod_phase,
                },
            },
            "spec": {}, "status": { "phase": "Bound" },
        }),
    );
}

fn finalizers(world: &TestCluster) -> Value {
    world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap_or_default()["metadata"]["finalizers"].clone()
}

#[tokio::test(start_paused = true)]
async fn image_stream_finalizer_is_removed_once_the_worker_is_gone() {
    // The import has succeeded before.
    let mut world = TestCluster::new("Immediate", true);
    of_an_image_stream(&world, Some("Succeeded"));
    world.work().await;
    assert_eq!(finalizers(&world), json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(places(&world, "pods"), [""; 0]);

    // A user deletes the PVC while the worker runs.
    let mut world = TestCluster::new("Immediate", true);
    of_an_image_stream(&world, Some("Running"));
    world.fake.put(
        "pods",
        json!({
            "metadata": {
                "name": "importer-disk", "namespace": "vms",
                "labels": { "cdi.kubevirt.io": "importer" }, "finalizers": ["test/slow"],
            },
            "status": { "phase": "Running" },
        }),
    );
    world.work().await;
    world.fake.delete(DISK);
    world.work().await;
    assert_eq!(finalizers(&world).as_array().map(Vec::len), Some(2), "the worker is terminating");
    world.fake.0.lock().unwrap().objects.remove("pods/vms/importer-disk");
    world.work().await;
    assert_eq!(finalizers(&world), json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(places(&world, "pods"), [""; 0], "and no other is created");
}

#[tokio::test(start_paused = true)]
async fn missing_populator_is_reported_on_the_data_volume_and_the_pvc() {
    for (kept, reason) in
        [(true, "NoCSIDriverForExternalPopulation"), (false, "NoAnyVolumeDataSource")]
    {
        let mut world = TestCluster::new("Immediate", false);
        let mut spec = blank();
        spec.as_object_mut().unwrap().remove("source");
        spec["pvc"]["dataSourceRef"] =
            json!({ "apiGroup": "other.example", "kind": "Filler", "name": "x" });
        world.volume("disk", spec);
        for _ in 0..4 {
            world.work().await;
            world.simulate_cluster(DONE);
            if !kept {
                // As an API server without AnyVolumeDataSource does.
                world.fake.change(DISK, |claim| {
                    claim["spec"].as_object_mut().unwrap().remove("dataSourceRef");
                    claim["status"]["phase"] = "Pending".into();
                });
            }
        }
        let all = recorded_events(&world, "disk");
        for kind in ["DataVolume", "PersistentVolumeClaim"] {
            let of_kind = all.iter().filter(|[about, why, ..]| about == kind && why == reason);
            let of_kind: Vec<_> = of_kind.collect();
            assert_eq!(of_kind.len(), 1, "{kind}: {all:?}");
            assert_eq!(of_kind[0][2], "datavolume-external-population-controller");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn warning_that_arrives_before_its_pvc_is_kept() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    while world.engine.api.caches.claims.get("vms", "disk").is_none() {
        world.work().await;
    }
    let event: Event = serde_json::from_value(json!({
        "metadata": { "name": "e", "namespace": "vms" }, "type": "Warning",
        "reason": "ProvisioningFailed", "message": "code = InvalidArgument",
        "involvedObject": {
            "kind": "PersistentVolumeClaim", "namespace": "vms", "name": "disk", "uid": "next",
        },
    }))
    .unwrap();
    wake::warning(&world.engine, &event);
    assert!(
        world.engine.pvc_warnings.for_pvc("vms", "disk").is_empty(),
        "it is about the next one"
    );
    // Only now the watch of claims delivers the claim that the warning is about.
    world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
        claim["metadata"]["uid"] = "next".into();
    });
    world.deliver_watch_events();
    let pvc_warnings = world.engine.pvc_warnings.for_pvc("vms", "disk");
    assert_eq!(pvc_warnings.len(), 1);
    assert_eq!(pvc_warnings[0].event.message, "code = InvalidArgument");
}
