//! DataVolumes from creation to deletion, against a fake API server.

mod classless;
mod clones;
mod events;
mod fake;
mod finished;
mod forklift;
mod golden;
mod golden_attacks;
mod golden_forms;
mod golden_many;
mod golden_offline;
mod golden_polls;
mod golden_tenants;
mod hyperconverged;
mod log_lines;
mod memory;
mod metrics;
mod others;
mod proxies;
mod settings;
mod stories;
mod transfers;
mod troubles;
mod turns;
mod undecodable;
mod world;

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use world::TestCluster;

const DONE: &str = r#"{"preallocationApplied":false,"message":"Import Complete"}"#;

fn blank() -> Value {
    json!({
        "source": { "blank": {} },
        "pvc": {
            "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    })
}

fn reasons(world: &TestCluster) -> Vec<String> {
    let state = world.fake.0.lock().unwrap();
    state.events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}

fn places(world: &TestCluster, plural: &str) -> Vec<String> {
    let state = world.fake.0.lock().unwrap();
    let prefix = format!("{plural}/");
    state.objects.keys().filter(|place| place.starts_with(&prefix)).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn blank_disk_is_populated_with_few_writes() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    world.fake.0.lock().unwrap().writes.clear();
    world.fake.0.lock().unwrap().events.clear();
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;

    let status = world.status("disk");
    assert_eq!(status["progress"], "100.0%");
    assert_eq!(status["claimName"], "disk");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
    assert_eq!(places(&world, "persistentvolumeclaims"), ["persistentvolumeclaims/vms/disk"]);
    assert_eq!(places(&world, "pods"), [""; 0]);
    assert_eq!(places(&world, "volumeimportsources"), [""; 0]);
    let state = world.fake.0.lock().unwrap();
    // The controllers see this worker run. A real one has often ended before they see it.
    assert!(state.writes.len() <= 18, "{} writes: {:#?}", state.writes.len(), state.writes);
    drop(state);
    assert!(reasons(&world).len() <= 7, "{:?}", reasons(&world));
    assert!(reasons(&world).contains(&"ImportSucceeded".to_owned()), "{:?}", reasons(&world));
}

/// Each additional write costs a thousand requests for a thousand DataVolumes.
#[tokio::test(start_paused = true)]
async fn blank_disk_with_a_quick_worker_costs_exactly_these_writes() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    world.fake.0.lock().unwrap().writes.clear();
    world.fake.0.lock().unwrap().events.clear();
    world.is_quick = true;
    // The volume is rebound before a pod uses it.
    world.patience = Duration::from_millis(10);
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    let uid = |place: &str, state: &fake::State| {
        state.objects[place]["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let (mut writes, of_volume, of_claim) = {
        let state = world.fake.0.lock().unwrap();
        let claim = uid("persistentvolumeclaims/vms/disk", &state);
        (state.writes.clone(), uid("datavolumes/vms/disk", &state), claim)
    };
    for write in &mut writes {
        // The PVC's UID first: the DataVolume's may be a prefix of it.
        *write = write.replace(&of_claim, "CLAIM").replace(&of_volume, "VOLUME");
        // Volumes and workers are named after the prime PVC.
        if let Some((start, _)) = write.split_once("pv-") {
            *write = format!("{start}PV");
        }
    }
    let mut expected = [
        "create volumeimportsources/vms/volume-import-source-VOLUME",
        "create persistentvolumeclaims/vms/disk",
        "change datavolumes/vms/disk", // population mode
        "change datavolumes/vms/disk", // Pending
        "create persistentvolumeclaims/vms/prime-CLAIM",
        "create pods/vms/importer-prime-CLAIM",
        "change datavolumes/vms/disk", // ImportScheduled
        "change persistentvolumeclaims/vms/prime-CLAIM",
        "delete pods/vms/importer-prime-CLAIM",
        "change persistentvolumeclaims/vms/disk",
        "change persistentvolumes//PV",
        "delete persistentvolumeclaims/vms/prime-CLAIM",
        "change datavolumes/vms/disk", // Succeeded
        "delete volumeimportsources/vms/volume-import-source-VOLUME",
    ];
    // The controllers run in any order.
    expected.sort_unstable();
    writes.sort_unstable();
    assert_eq!(writes, expected);
    let mut event_reasons = reasons(&world);
    event_reasons.sort_unstable();
    assert_eq!(
        event_reasons,
        [
            "Bound",
            "CreatedPVCPrimeSuccessfully",
            "ImportScheduled",
            "ImportSucceeded",
            "Pending",
            "importSucceeded",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pvc_deleted_after_success_is_filled_again() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    world.fake.delete("persistentvolumeclaims/vms/disk");
    for _ in 0..8 {
        world.work().await;
        world.simulate_cluster(DONE);
    }
    world.until("disk", "Succeeded", DONE).await;
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    assert_eq!(places(&world, "volumeimportsources"), [""; 0]);
    assert_eq!(places(&world, "pods"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn restarted_controller_writes_nothing_to_a_finished_cluster() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    // Another process takes over and reconciles everything.
    let mut world = TestCluster::started_on(world.fake);
    let state = |world: &TestCluster| {
        let state = world.fake.0.lock().unwrap();
        (state.writes.len(), state.events.len())
    };
    let before = state(&world);
    world.work().await;
    assert_eq!(state(&world), before, "{:?}", world.fake.0.lock().unwrap().writes.last());
}

#[tokio::test(start_paused = true)]
async fn pvc_that_a_user_enlarges_is_not_changed() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    let before = world.fake.0.lock().unwrap().writes.len();
    let size = "/spec/resources/requests/storage";
    world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
        *claim.pointer_mut(size).unwrap() = "2Gi".into();
    });
    for _ in 0..3 {
        world.work().await;
        world.simulate_cluster(DONE);
    }
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert_eq!(claim.pointer(size).unwrap(), "2Gi");
    assert_eq!(world.status("disk")["phase"], "Succeeded");
    let state = world.fake.0.lock().unwrap();
    assert_eq!(state.writes.len(), before, "{:?}", &state.writes[before..]);
}

#[tokio::test(start_paused = true)]
async fn worker_fills_the_target_pvc_without_a_csi_driver() {
    let mut world = TestCluster::new("Immediate", false);
    world.volume("disk", blank());
    world.until("disk", "Succeeded", DONE).await;
    let volume = world.fake.get("datavolumes", "vms", "disk").unwrap();
    let flow = &volume["metadata"]["annotations"]["cdi.kubevirt.io/storage.usePopulator"];
    assert_eq!(flow, "false");
    assert_eq!(places(&world, "volumeimportsources"), [""; 0]);
    assert_eq!(places(&world, "pods"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn data_volume_waits_for_the_first_consumer() {
    let mut world = TestCluster::new("WaitForFirstConsumer", true);
    world.volume("disk", blank());
    world.until("disk", "PendingPopulation", DONE).await;
    assert_eq!(places(&world, "pods"), [""; 0]);
    world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "node-1".into();
    });
    world.until("disk", "Succeeded", DONE).await;
}

#[tokio::test(start_paused = true)]
async fn import_succeeds_whichever_request_fails() {
    let requests = {
        let mut world = TestCluster::new("Immediate", true);
        world.volume("disk", blank());
        world.until("disk", "Succeeded", DONE).await;
        world.fake.0.lock().unwrap().requests
    };
    assert!(requests > 15, "{requests}");
    for number in 1..=requests {
        for is_lost in [false, true] {
            let world = TestCluster::new("Immediate", true);
            {
                let mut state = world.fake.0.lock().unwrap();
                if is_lost {
                    state.loses_response = Some(number);
                } else {
                    state.refuses = Some(number);
                }
            }
            world.volume("disk", blank());
            let mut world = TestCluster::started_on(world.fake);
            world.until("disk", "Succeeded", DONE).await;
            let claims = places(&world, "persistentvolumeclaims");
            assert_eq!(claims, ["persistentvolumeclaims/vms/disk"], "{number} {is_lost}");
            assert_eq!(places(&world, "pods"), [""; 0], "{number} {is_lost}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn import_succeeds_after_the_controller_is_killed_at_any_request() {
    for killed_after in 1..40 {
        let mut world = TestCluster::new("Immediate", true);
        world.volume("disk", blank());
        world.fake.0.lock().unwrap().refuses = Some(killed_after);
        for _ in 0..killed_after {
            world.work().await;
            world.simulate_cluster(DONE);
        }
        let mut world = TestCluster::started_on(world.fake);
        world.until("disk", "Succeeded", DONE).await;
        assert_eq!(places(&world, "pods"), [""; 0], "{killed_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_checksum_fails_the_data_volume() {
    let mut world = TestCluster::new("Immediate", true);
    let mut spec = blank();
    spec["source"] = json!({ "http": { "url": "http://h/a.img", "checksum": "md5:d41d8cd98f00b204e9800998ecf8427e" } });
    world.volume("disk", spec);
    let message = r#"{"message":"checksum mismatch: md5:00 expected"}"#;
    world.until("disk", "Failed", message).await;
    let conditions = world.status("disk")["conditions"].clone();
    let running = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Running").unwrap();
    assert_eq!(running["reason"], "ChecksumError");
    assert_eq!(places(&world, "pods"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn worker_that_requests_scratch_space_gets_it() {
    let mut world = TestCluster::new("Immediate", true);
    let mut spec = blank();
    spec["source"] = json!({ "http": { "url": "http://h/a.img" } });
    world.volume("disk", spec);
    for _ in 0..12 {
        world.work().await;
        world.simulate_cluster(
            r#"{"scratchSpaceRequired":true,"message":"scratch space required"}"#,
        );
        if places(&world, "persistentvolumeclaims").iter().any(|p| p.ends_with("-scratch")) {
            break;
        }
    }
    world.until("disk", "Succeeded", DONE).await;
    assert_eq!(places(&world, "persistentvolumeclaims"), ["persistentvolumeclaims/vms/disk"]);
}

#[tokio::test(start_paused = true)]
async fn worker_without_an_owner_is_watched() {
    let mut world = TestCluster::new("Immediate", true);
    let mut spec = blank();
    spec["source"] = json!({ "registry": { "imageStream": "fedora", "pullMethod": "node" } });
    world.volume("disk", spec);
    while places(&world, "pods").is_empty() {
        world.work().await;
        world.simulate_cluster(DONE);
    }
    let place = places(&world, "pods").remove(0);
    let pod = world.fake.0.lock().unwrap().objects[&place].clone();
    assert!(pod["metadata"]["ownerReferences"].is_null(), "{pod}");
    world.until("disk", "Succeeded", DONE).await;
    assert_eq!(places(&world, "pods"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn warning_of_a_waiting_worker_pod_is_reported_after_a_delay() {
    let mut world = TestCluster::new("Immediate", true);
    world.volume("disk", blank());
    let running = |world: &TestCluster| {
        let conditions = world.status("disk")["conditions"].clone();
        let all = conditions.as_array().cloned().unwrap_or_default();
        all.into_iter().find(|condition| condition["type"] == "Running").unwrap_or_default()
    };
    while places(&world, "pods").is_empty() {
        world.work().await;
        world.simulate_cluster(DONE);
    }
    let pod = places(&world, "pods").remove(0);
    let uid = world.fake.0.lock().unwrap().objects[&pod]["metadata"]["uid"].clone();
    let warning = |moment: &str, message: &str, uid: &serde_json::Value| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": moment, "namespace": "vms" },
            "involvedObject": { "kind": "Pod", "uid": uid }, "type": "Warning", "reason": "FailedMount", "message": message,
            "lastTimestamp": format!("2026-01-01T00:00:0{moment}Z"),
        })
    };
    world.fake.0.lock().unwrap().warnings = vec![
        warning("2", "no such ConfigMap", &uid),
        warning("1", "not yet", &uid),
        warning("3", "of another pod", &"another".into()),
    ];
    let set_created = |world: &TestCluster, seconds_ago: i64| {
        let then = jiff::Timestamp::now().as_second() - seconds_ago;
        let then = jiff::Timestamp::from_second(then).unwrap().to_string();
        world.fake.change(&pod, |pod| {
            pod["metadata"]["creationTimestamp"] = then.into();
            pod["status"] = json!({ "phase": "Pending" });
        });
    };
    set_created(&world, 1);
    world.work().await;
    assert!(running(&world)["message"].is_null(), "{}", running(&world));
    set_created(&world, 60);
    world.work().await;
    let found = running(&world);
    assert_eq!(
        (&found["reason"], &found["message"]),
        (&json!("FailedMount"), &json!("no such ConfigMap"))
    );
    assert!(reasons(&world).contains(&"FailedMount".to_owned()), "{:?}", reasons(&world));
    // A second lookup is served from the cache.
    let pod = world.engine.api.caches.pods.filter(|_| true).remove(0);
    let cluster = &world.engine.api;
    world.engine.pod_warnings.last(cluster, &pod).await.unwrap();
    let reads = cluster.reads();
    let known = world.engine.pod_warnings.last(cluster, &pod).await.unwrap();
    assert_eq!(known.unwrap().message, "no such ConfigMap");
    assert_eq!(cluster.reads(), reads);
}

#[tokio::test(start_paused = true)]
async fn pvc_without_the_data_volume_as_owner_is_not_changed() {
    let mut world = TestCluster::new("Immediate", true);
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "disk", "namespace": "vms" },
            "spec": { "storageClassName": "fast" }, "status": { "phase": "Bound" },
        }),
    );
    world.volume("disk", blank());
    world.work().await;
    assert!(reasons(&world).contains(&"ErrResourceExists".to_owned()), "{:?}", reasons(&world));
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    assert!(claim["metadata"]["annotations"].is_null());
}

#[tokio::test(start_paused = true)]
async fn storage_profile_is_created_and_deleted_with_its_class() {
    let mut world = TestCluster::new("Immediate", true);
    world.work().await;
    let profile = world.fake.get("storageprofiles", "", "fast").unwrap();
    assert_eq!(profile["status"]["provisioner"], "csi.example");
    assert_eq!(profile["status"]["cloneStrategy"], "copy");
    let config = world.fake.get("cdiconfigs", "", "config").unwrap();
    assert_eq!(config["status"]["filesystemOverhead"]["storageClass"]["fast"], "0.055");
    world.fake.0.lock().unwrap().objects.remove("storageclasses//fast");
    world.work().await;
    assert_eq!(world.fake.get("storageprofiles", "", "fast"), None);
}

/// Files with the CA that signs upload server certificates, in the layout that the controllers expect.
fn authorities() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let signer = folder.path().join("certs/cdi-uploadserver-signer");
    let clients = folder.path().join("ca-bundle/cdi-uploadserver-client-signer-bundle");
    let day = Duration::from_secs(86_400);
    let made = auth::CertificateAuthority::create("signer@1", day, SystemTime::now()).unwrap();
    for folder in [&signer, &clients] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(signer.join("tls.crt"), &made.certificate).unwrap();
    std::fs::write(signer.join("tls.key"), &made.key).unwrap();
    std::fs::write(clients.join("ca-bundle.crt"), &made.certificate).unwrap();
    folder
}

#[tokio::test(start_paused = true)]
async fn upload_gets_a_server_with_a_signed_certificate() {
    let folder = authorities();
    let world = TestCluster::new("Immediate", true);
    let flag = format!("-certificates={}", folder.path().display());
    let mut world = TestCluster::with_flags(world.fake, &[&flag]);
    let mut spec = blank();
    spec["source"] = json!({ "upload": {} });
    world.volume("disk", spec);
    let mut phases = Vec::new();
    for _ in 0..20 {
        world.work().await;
        let phase = world.status("disk")["phase"].as_str().unwrap_or_default().to_owned();
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
        let secrets = places(&world, "secrets");
        if let [secret] = secrets.as_slice() {
            let secret = world.fake.0.lock().unwrap().objects[secret].clone();
            assert!(secret["data"]["tls.key"].is_string(), "{secret}");
            assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "Pod");
        }
        world.simulate_cluster(r#"{"message":"Upload Complete"}"#);
    }
    assert_eq!(phases.last().map(String::as_str), Some("Succeeded"), "{phases:?}");
    assert!(phases.contains(&"UploadReady".to_owned()), "{phases:?}");
    for plural in ["pods", "secrets", "services"] {
        assert_eq!(places(&world, plural), [""; 0], "{plural}");
    }
    // The garbage collector deletes Secrets with their pods: the controllers may not.
    let writes = world.fake.0.lock().unwrap().writes.clone();
    assert!(!writes.iter().any(|write| write.starts_with("delete secrets/")), "{writes:?}");
    let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
    let annotations = &claim["metadata"]["annotations"];
    assert!(annotations["cdi.kubevirt.io/storage.populator.pvcPrime"].is_null(), "{annotations}");
}

#[tokio::test(start_paused = true)]
async fn imports_over_the_limit_are_reported_as_queued() {
    let world = TestCluster::new("Immediate", true);
    let mut world = TestCluster::with_flags(world.fake, &["-imports-max=1"]);
    for name in ["a", "b"] {
        world.volume(name, blank());
    }
    for _ in 0..3 {
        world.work().await;
        world.simulate_cluster(DONE);
        assert!(places(&world, "pods").len() <= 1, "{:?}", places(&world, "pods"));
    }
    let reasons: Vec<_> = ["a", "b"]
        .iter()
        .filter_map(|name| {
            let conditions = world.status(name)["conditions"].clone();
            let all = conditions.as_array()?.clone();
            let running = all.into_iter().find(|condition| condition["type"] == "Running")?;
            Some(running["reason"].as_str()?.to_owned())
        })
        .collect();
    assert!(reasons.contains(&"Queued".to_owned()), "{reasons:?}");
    world.until("a", "Succeeded", DONE).await;
    world.until("b", "Succeeded", DONE).await;
}
