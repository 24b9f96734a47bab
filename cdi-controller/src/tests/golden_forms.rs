//! DataImportCrons whose images do not come from a registry that the controller polls, or are kept as snapshots.

use api::annotations::cron as key;
use serde_json::{Value, json};

use super::golden::{
    PLACE, annotate, condition_summary, create_cron, cron, data_source_target, digest,
    keep_snapshots, name, ready, run_until_stable, set_desired_digest,
};
use super::world::TestCluster;
use super::{DONE, places, reasons};

const UID: &str = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f";

#[tokio::test(start_paused = true)]
async fn image_is_kept_as_a_snapshot_if_the_storage_profile_prefers_it() {
    let mut world = TestCluster::new("Immediate", true);
    keep_snapshots(&world);
    create_cron(&world, json!({}));
    set_desired_digest(&world, 1);
    run_until_stable(&mut world, DONE).await;
    let place = format!("volumesnapshots/vms/{}", name(1));
    assert_eq!(places(&world, "volumesnapshots"), std::slice::from_ref(&place));
    let taken = world.fake.get("volumesnapshots", "vms", &name(1)).unwrap();
    assert_eq!(taken["spec"]["volumeSnapshotClassName"], "snap");
    assert_eq!(taken["spec"]["source"]["persistentVolumeClaimName"], name(1).as_str());
    world.fake.change(&place, |snapshot| {
        snapshot["status"] = json!({ "readyToUse": true, "restoreSize": "1Gi" });
    });
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("snapshot", 1));
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "True UpToDate");
    assert_eq!(cron(&world)["status"]["sourceFormat"], "snapshot");
    assert_eq!(places(&world, "persistentvolumeclaims"), [""; 0]);
    assert_eq!(places(&world, "datavolumes"), [""; 0]);

    // A user deletes the snapshot: it is imported again.
    world.fake.0.lock().unwrap().objects.remove(&place);
    world.work().await;
    assert_eq!(places(&world, "datavolumes"), [format!("datavolumes/vms/{}", name(1))]);
    let source = world.fake.get("datasources", "vms", "fedora").unwrap();
    assert_eq!(condition_summary(&source, "Ready"), "False NotFound");
}

#[tokio::test(start_paused = true)]
async fn cron_waits_until_the_snapshot_cache_is_synced() {
    let world = TestCluster::new("Immediate", true);
    create_cron(&world, json!({}));
    set_desired_digest(&world, 1);
    // The snapshot cache of this process is not synced yet.
    let mut world = TestCluster::before_snapshot_sync(world.fake);
    world.work().await;
    assert_eq!(places(&world, "datavolumes"), [""; 0]);
    let caches = &world.engine.api.caches;
    caches.snapshots.note_absent();
    caches.snapshot_classes.note_absent();
    world.work().await;
    assert_eq!(places(&world, "datavolumes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pvc_source_of_a_cron_requires_permission_to_clone_it() {
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "pvc": { "namespace": "masters", "name": "fedora" } });
    create_cron(&world, json!({ "source": source, "schedule": "0 0 * * *" }));
    world.work().await;
    // The conditions reveal whether the PVC exists only with permission to clone it.
    let conditions = |world: &TestCluster| cron(world)["status"]["conditions"].clone();
    let without_claim = conditions(&world);
    assert_eq!(condition_summary(&cron(&world), "Progressing"), "False NotAuthorized");
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "fedora", "namespace": "masters", "uid": UID },
            "spec": {}, "status": { "phase": "Bound" },
        }),
    );
    world.fake.change(PLACE, |cron| cron["metadata"]["labels"]["touched"] = "once".into());
    world.work().await;
    assert_eq!(conditions(&world), without_claim);
    assert!(!cron(&world).to_string().contains(UID), "{}", cron(&world));
    assert_eq!(places(&world, "datavolumes"), [""; 0]);

    world.fake.0.lock().unwrap().allows = true;
    world.fake.delete("persistentvolumeclaims/masters/fedora");
    world.fake.change(PLACE, |cron| cron["metadata"]["labels"]["touched"] = "twice".into());
    world.work().await;
    assert_eq!(condition_summary(&cron(&world), "UpToDate"), "False PollFailed");
    let conditions = cron(&world)["status"]["conditions"].to_string();
    assert!(conditions.contains("there is no claim masters/fedora"), "{conditions}");
    world.fake.put(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "fedora", "namespace": "masters", "uid": UID },
            "spec": {}, "status": { "phase": "Bound" },
        }),
    );
    annotate(&world, key::NEXT_TIME, "2026-01-01T00:00:00Z");
    world.work().await;
    let noted = cron(&world)["metadata"]["annotations"][key::DESIRED_DIGEST].clone();
    assert_eq!(noted, format!("uid:{UID}"));
    assert_eq!(places(&world, "datavolumes"), ["datavolumes/vms/fedora-0a1b2c3d-0a1"]);
}

#[tokio::test(start_paused = true)]
async fn known_digest_of_a_pvc_source_requires_permission_to_clone_it() {
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "pvc": { "namespace": "masters", "name": "fedora" } });
    // Without a schedule there are no polls: the test sets the digest.
    create_cron(&world, json!({ "source": source }));
    annotate(&world, key::DESIRED_DIGEST, &format!("uid:{UID}"));
    world.work().await;
    assert_eq!(condition_summary(&cron(&world), "Progressing"), "False NotAuthorized");
    assert_eq!(places(&world, "datavolumes"), [""; 0]);
    world.fake.0.lock().unwrap().allows = true;
    world.fake.change(PLACE, |cron| cron["metadata"]["labels"]["touched"] = "true".into());
    world.work().await;
    assert_eq!(places(&world, "datavolumes"), ["datavolumes/vms/fedora-0a1b2c3d-0a1"]);
}

#[tokio::test(start_paused = true)]
async fn tag_of_an_image_stream_is_resolved_to_a_digest() {
    let mut world = TestCluster::new("Immediate", true);
    let source = json!({ "registry": { "imageStream": "fedora:latest", "pullMethod": "node" } });
    create_cron(&world, json!({ "source": source, "schedule": "55 8/12 * * *" }));
    world.work().await;
    let conditions = cron(&world)["status"]["conditions"].to_string();
    assert!(conditions.contains("there is no ImageStream fedora"), "{conditions}");
    let reference = format!("registry.example/fedora@{}", digest(1));
    world.fake.put(
        "imagestreams",
        json!({
            "metadata": { "name": "fedora", "namespace": "vms" },
            "status": { "tags": [
                { "tag": "latest", "items": [{ "image": digest(1), "dockerImageReference": reference }] },
            ] },
        }),
    );
    annotate(&world, key::NEXT_TIME, "2026-01-01T00:00:00Z");
    world.work().await;
    let volume = world.fake.get("datavolumes", "vms", &name(1)).unwrap();
    let registry = &volume["spec"]["source"]["registry"];
    assert_eq!(registry["url"], format!("docker://{reference}"));
    assert!(registry["imageStream"].is_null(), "{registry}");
}

#[tokio::test(start_paused = true)]
async fn node_pull_poll_deletes_its_pod_after_the_result() {
    let mut world = TestCluster::new("Immediate", true);
    let source =
        json!({ "registry": { "url": "docker://registry.example/fedora", "pullMethod": "node" } });
    create_cron(&world, json!({ "source": source, "schedule": "1 */12 * * *" }));
    world.work().await;
    let pods = places(&world, "pods");
    let [pod] = pods.as_slice() else { panic!("{pods:?}") };
    assert!(pod.starts_with("pods/vms/poller-cron-"), "{pod}");
    let container = |state: Value, image_id: String| {
        json!({ "phase": "Pending", "containerStatuses": [{
            "name": "image-container", "image": "registry.example/fedora", "imageID": image_id,
            "ready": false, "restartCount": 0, "state": state,
        }] })
    };
    let waits = json!({ "waiting": { "reason": "ImagePullBackOff" } });
    world.fake.change(pod, |pod| pod["status"] = container(waits, String::new()));
    world.work().await;
    let conditions = cron(&world)["status"]["conditions"].to_string();
    assert!(conditions.contains("the node cannot pull the image"), "{conditions}");
    assert_eq!(places(&world, "pods"), [""; 0]);

    annotate(&world, key::NEXT_TIME, "2026-01-01T00:00:00Z");
    world.work().await;
    let image = format!("registry.example/fedora@{}", digest(1));
    world.fake.change(pod, |pod| pod["status"] = container(json!({ "running": {} }), image));
    world.work().await;
    assert!(!places(&world, "pods").contains(pod), "{:?}", places(&world, "pods"));
    assert_eq!(places(&world, "datavolumes"), [format!("datavolumes/vms/{}", name(1))]);
}

#[tokio::test(start_paused = true)]
async fn cron_jobs_poll_the_registry_until_the_cron_is_deleted() {
    let world = TestCluster::new("Immediate", true);
    let mut world = TestCluster::with_flags(world.fake, &["-poll-from=jobs"]);
    create_cron(&world, json!({ "schedule": "0 */12 * * *" }));
    world.work().await;
    let jobs = places(&world, "cronjobs");
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert!(job.starts_with("cronjobs/cdi/cron-"), "{job}");
    assert_eq!(places(&world, "jobs").len(), 1, "the first job starts at once");
    // The poller records the digest that it has found.
    set_desired_digest(&world, 1);
    run_until_stable(&mut world, DONE).await;
    assert_eq!(data_source_target(&world), ready("pvc", 1));

    let variables = |world: &TestCluster| {
        let job = world.fake.0.lock().unwrap().objects[job].clone();
        job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["env"].to_string()
    };
    assert!(!variables(&world).contains("INSECURE_TLS"));
    world.fake.change("cdiconfigs//config", |config| {
        config["spec"]["insecureRegistries"] = json!(["registry.example"]);
    });
    world.work().await;
    assert!(variables(&world).contains("INSECURE_TLS"), "{}", variables(&world));
    let mut again = TestCluster::with_flags(world.fake.clone(), &["-poll-from=jobs"]);
    let before = world.fake.0.lock().unwrap().writes.len();
    again.work().await;
    assert_eq!(world.fake.0.lock().unwrap().writes.len(), before, "it is as it should be");

    world.fake.0.lock().unwrap().objects.remove(PLACE);
    world.work().await;
    assert_eq!(places(&world, "cronjobs"), [""; 0]);
    assert_eq!(places(&world, "jobs"), [""; 0]);
    assert_eq!(data_source_target(&world).0, format!("pvc {}", name(1)));
}

#[tokio::test(start_paused = true)]
async fn poll_job_gets_only_secrets_that_allow_its_namespace() {
    for (poll_from, setting, is_asked) in [
        (None, "", false),
        (None, "-poll-secrets=registries", true),
        (Some("vms"), "", true),
        (Some("other"), "", false),
        (Some("other"), "-poll-secrets=registries", false),
    ] {
        let world = TestCluster::new("Immediate", true);
        let annotations = poll_from.map(|namespaces| json!({ key::POLL_FROM: namespaces }));
        let metadata = json!({ "name": "keys", "namespace": "cdi", "annotations": annotations });
        world.fake.put("secrets", json!({ "metadata": metadata }));
        let mut world = TestCluster::with_flags(world.fake, &["-poll-from=jobs", setting]);
        let source =
            json!({ "registry": { "url": "docker://registry.example/a", "secretRef": "keys" } });
        create_cron(&world, json!({ "schedule": "0 */12 * * *", "source": source }));
        world.work().await;
        assert_eq!(places(&world, "cronjobs").len(), usize::from(is_asked), "{poll_from:?}");
        assert_eq!(reasons(&world).contains(&"PollFailed".into()), !is_asked, "{poll_from:?}");
    }
}
