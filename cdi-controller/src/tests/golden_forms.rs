//! DataImportCrons whose images come from elsewhere than a registry that the controller asks, or are kept as snapshots.

use api::annotations::cron as key;
use serde_json::{Value, json};

use super::golden::{
    PLACE, annotate, cron, digest, keep_snapshots, make, name, ready, says, settle, stands_for,
    want,
};
use super::world::World;
use super::{DONE, places, reasons};

const UID: &str = "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f";

#[tokio::test(start_paused = true)]
async fn an_image_is_kept_as_a_snapshot_where_its_storage_is_better_at_those() {
    let mut world = World::new("Immediate", true);
    keep_snapshots(&world);
    make(&world, json!({}));
    want(&world, 1);
    settle(&mut world, DONE).await;
    let place = format!("volumesnapshots/vms/{}", name(1));
    assert_eq!(places(&world, "volumesnapshots"), std::slice::from_ref(&place));
    let taken = world.fake.get("volumesnapshots", "vms", &name(1)).unwrap();
    assert_eq!(taken["spec"]["volumeSnapshotClassName"], "snap");
    assert_eq!(taken["spec"]["source"]["persistentVolumeClaimName"], name(1).as_str());
    world.fake.change(&place, |snapshot| {
        snapshot["status"] = json!({ "readyToUse": true, "restoreSize": "1Gi" });
    });
    settle(&mut world, DONE).await;
    assert_eq!(stands_for(&world), ready("snapshot", 1));
    assert_eq!(says(&cron(&world), "UpToDate"), "True UpToDate");
    assert_eq!(cron(&world)["status"]["sourceFormat"], "snapshot");
    assert_eq!(places(&world, "persistentvolumeclaims"), [""; 0]);
    assert_eq!(places(&world, "datavolumes"), [""; 0]);

    // Somebody deletes the snapshot: it is imported again.
    world.fake.0.lock().unwrap().objects.remove(&place);
    world.work().await;
    assert_eq!(places(&world, "datavolumes"), [format!("datavolumes/vms/{}", name(1))]);
    let source = world.fake.get("datasources", "vms", "fedora").unwrap();
    assert_eq!(says(&source, "Ready"), "False NotFound");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_it_is_known_which_snapshots_there_are() {
    let world = World::new("Immediate", true);
    make(&world, json!({}));
    want(&world, 1);
    // A process that has heard of no snapshots yet, nor that there are none.
    let mut world = World::ignorant(world.fake);
    world.work().await;
    assert_eq!(places(&world, "datavolumes"), [""; 0]);
    let caches = &world.engine.api.caches;
    caches.snapshots.note_absent();
    caches.snapshot_classes.note_absent();
    world.work().await;
    assert_eq!(places(&world, "datavolumes").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_cloned_by_whoever_may_read_it() {
    let mut world = World::new("Immediate", true);
    let source = json!({ "pvc": { "namespace": "masters", "name": "fedora" } });
    make(&world, json!({ "source": source, "schedule": "0 0 * * *" }));
    world.work().await;
    // Whether there is such a claim is told to those alone who may clone it.
    let conditions = |world: &World| cron(world)["status"]["conditions"].clone();
    let without_claim = conditions(&world);
    assert_eq!(says(&cron(&world), "Progressing"), "False NotAuthorized");
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
    assert_eq!(says(&cron(&world), "UpToDate"), "False PollFailed");
    let told = cron(&world)["status"]["conditions"].to_string();
    assert!(told.contains("there is no claim masters/fedora"), "{told}");
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
async fn a_clone_of_a_known_claim_needs_the_right_again() {
    let mut world = World::new("Immediate", true);
    let source = json!({ "pvc": { "namespace": "masters", "name": "fedora" } });
    // Nobody polls without a schedule: the digest is set by hand.
    make(&world, json!({ "source": source }));
    annotate(&world, key::DESIRED_DIGEST, &format!("uid:{UID}"));
    world.work().await;
    assert_eq!(says(&cron(&world), "Progressing"), "False NotAuthorized");
    assert_eq!(places(&world, "datavolumes"), [""; 0]);
    world.fake.0.lock().unwrap().allows = true;
    world.fake.change(PLACE, |cron| cron["metadata"]["labels"]["touched"] = "true".into());
    world.work().await;
    assert_eq!(places(&world, "datavolumes"), ["datavolumes/vms/fedora-0a1b2c3d-0a1"]);
}

#[tokio::test(start_paused = true)]
async fn an_image_stream_says_what_its_tag_means() {
    let mut world = World::new("Immediate", true);
    let source = json!({ "registry": { "imageStream": "fedora:latest", "pullMethod": "node" } });
    make(&world, json!({ "source": source, "schedule": "55 8/12 * * *" }));
    world.work().await;
    let told = cron(&world)["status"]["conditions"].to_string();
    assert!(told.contains("there is no ImageStream fedora"), "{told}");
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
async fn a_node_is_asked_by_a_pod_that_is_gone_when_it_has_answered() {
    let mut world = World::new("Immediate", true);
    let source =
        json!({ "registry": { "url": "docker://registry.example/fedora", "pullMethod": "node" } });
    make(&world, json!({ "source": source, "schedule": "1 */12 * * *" }));
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
    let told = cron(&world)["status"]["conditions"].to_string();
    assert!(told.contains("the node cannot pull the image"), "{told}");
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
async fn where_the_controller_reaches_no_registry_jobs_look_as_long_as_there_is_a_cron() {
    let world = World::new("Immediate", true);
    let mut world = World::told(world.fake, &["-poll-from=jobs"]);
    make(&world, json!({ "schedule": "0 */12 * * *" }));
    world.work().await;
    let jobs = places(&world, "cronjobs");
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    assert!(job.starts_with("cronjobs/cdi/cron-"), "{job}");
    assert_eq!(places(&world, "jobs").len(), 1, "nobody waits for the first time");
    // The poller notes what it has found.
    want(&world, 1);
    settle(&mut world, DONE).await;
    assert_eq!(stands_for(&world), ready("pvc", 1));

    let variables = |world: &World| {
        let job = world.fake.0.lock().unwrap().objects[job].clone();
        job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["env"].to_string()
    };
    assert!(!variables(&world).contains("INSECURE_TLS"));
    world.fake.change("cdiconfigs//config", |config| {
        config["spec"]["insecureRegistries"] = json!(["registry.example"]);
    });
    world.work().await;
    assert!(variables(&world).contains("INSECURE_TLS"), "{}", variables(&world));
    let mut again = World::told(world.fake.clone(), &["-poll-from=jobs"]);
    let before = world.fake.0.lock().unwrap().writes.len();
    again.work().await;
    assert_eq!(world.fake.0.lock().unwrap().writes.len(), before, "it is as it should be");

    world.fake.0.lock().unwrap().objects.remove(PLACE);
    world.work().await;
    assert_eq!(places(&world, "cronjobs"), [""; 0]);
    assert_eq!(places(&world, "jobs"), [""; 0]);
    assert_eq!(stands_for(&world).0, format!("pvc {}", name(1)));
}

#[tokio::test(start_paused = true)]
async fn a_job_has_no_secret_that_names_the_crons_it_is_for_and_not_this_one() {
    for (poll_from, setting, is_asked) in [
        (None, "", false),
        (None, "-poll-secrets=registries", true),
        (Some("vms"), "", true),
        (Some("other"), "", false),
        (Some("other"), "-poll-secrets=registries", false),
    ] {
        let world = World::new("Immediate", true);
        let annotations = poll_from.map(|said| json!({ key::POLL_FROM: said }));
        let metadata = json!({ "name": "keys", "namespace": "cdi", "annotations": annotations });
        world.fake.put("secrets", json!({ "metadata": metadata }));
        let mut world = World::told(world.fake, &["-poll-from=jobs", setting]);
        let source =
            json!({ "registry": { "url": "docker://registry.example/a", "secretRef": "keys" } });
        make(&world, json!({ "schedule": "0 */12 * * *", "source": source }));
        world.work().await;
        assert_eq!(places(&world, "cronjobs").len(), usize::from(is_asked), "{poll_from:?}");
        assert_eq!(reasons(&world).contains(&"PollFailed".into()), !is_asked, "{poll_from:?}");
    }
}
