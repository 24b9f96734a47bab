//! What a user sees of a DataVolume from creation to completion, compared with reviewed files.
//!
//! `CDI_BLESS=1 cargo test -p cdi-controller --lib stories` rewrites them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::world::TestCluster;
use super::{DONE, blank, places};

/// Records a DataVolume: its status, the annotations of its PVC, its workers, and the events.
struct Story {
    world: TestCluster,
    text: String,
    status: Vec<String>,
    annotations: BTreeMap<String, String>,
    pods: Vec<String>,
    events: usize,
    /// Objects that are recorded in full, by a part of their path.
    in_full: Vec<&'static str>,
    seen: BTreeSet<String>,
}

impl Story {
    fn start(binding: &str, has_driver: bool, spec: Value) -> Self {
        Self::start_in(TestCluster::new(binding, has_driver), spec)
    }

    fn start_in(world: TestCluster, spec: Value) -> Self {
        world.volume("disk", spec);
        Self {
            world,
            text: String::new(),
            status: Vec::new(),
            annotations: BTreeMap::new(),
            pods: Vec::new(),
            events: 0,
            in_full: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Runs the controllers, and records what has changed.
    async fn work(&mut self) {
        self.world.work().await;
        let status = lines_of(&self.world.status("disk"));
        let claim = self.world.fake.get("persistentvolumeclaims", "vms", "disk");
        let annotations = annotations_of(&claim.unwrap_or_default());
        let pods = places(&self.world, "pods");
        for (what, before, after) in
            [("status", &self.status, &status), ("pods", &self.pods, &pods)]
        {
            if before != after {
                let _ = writeln!(self.text, "{what}");
                for line in after {
                    let _ = writeln!(self.text, "  {}", nameless(line));
                }
            }
        }
        if self.annotations != annotations {
            let _ = writeln!(self.text, "claim");
            for key in self.annotations.keys().filter(|key| !annotations.contains_key(*key)) {
                let _ = writeln!(self.text, "  - {key}");
            }
            for (key, value) in &annotations {
                if self.annotations.get(key) != Some(value) {
                    let _ = writeln!(self.text, "  {key}: {}", nameless(value));
                }
            }
        }
        (self.status, self.annotations, self.pods) = (status, annotations, pods);
        self.write_in_full();
        let events = self.world.fake.0.lock().unwrap().events.clone();
        for event in &events[self.events..] {
            let text = |key: &str| event[key].as_str().unwrap_or_default();
            let about = event["involvedObject"]["kind"].as_str().unwrap_or_default();
            let name = event["involvedObject"]["name"].as_str().unwrap_or_default();
            let described = format!("{about} {name}: {}: {}", text("reason"), text("message"));
            let _ = writeln!(self.text, "event {} {}", text("type"), nameless(&described));
        }
        self.events = events.len();
    }

    fn write_in_full(&mut self) {
        let objects = self.world.fake.0.lock().unwrap().objects.clone();
        let is_wanted = |place: &str| self.in_full.iter().any(|part| place.contains(part));
        for (place, mut object) in objects.into_iter().filter(|(place, _)| is_wanted(place)) {
            if !self.seen.insert(place.clone()) {
                continue;
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
                metadata.remove("uid");
            }
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            let variables = object.pointer_mut("/spec/containers/0/env");
            for variable in variables.and_then(Value::as_array_mut).into_iter().flatten() {
                if variable["name"] == "DEADLINE" {
                    variable["value"] = "LATER".into();
                }
            }
            for volume in object
                .pointer_mut("/spec/volumes")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                if let Some(name) = volume.pointer_mut("/secret/secretName")
                    && let Some((stem, _)) = name.as_str().and_then(|name| name.rsplit_once('-'))
                {
                    *name = format!("{stem}-RANDOM").into();
                }
            }
            let text = nameless(&yaml_serde::to_string(&object).unwrap());
            let _ = write!(self.text, "made {}\n{}", nameless(&place), indented(&text));
        }
    }

    /// A heading.
    fn then(&mut self, what: &str) {
        let _ = writeln!(self.text, "\n# {what}");
    }

    /// Until the worker is there.
    async fn until_worker(&mut self) {
        for _ in 0..20 {
            self.work().await;
            if !self.pods.is_empty() {
                return;
            }
            self.world.simulate_cluster(DONE);
        }
        panic!("there is no worker: {}", self.text);
    }

    /// Sets the worker's status under a heading.
    async fn set_worker_status(&mut self, what: &str, status: Value) {
        self.then(what);
        let place = self.pods.first().cloned().unwrap_or_else(|| panic!("no pod: {}", self.text));
        self.world.fake.change(&place, |pod| {
            pod["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
            pod["status"] = status;
        });
        self.work().await;
    }

    /// Until this phase, and nothing more happens.
    async fn until(&mut self, phase: &str, termination_message: &str) {
        for _ in 0..40 {
            self.work().await;
            let before = self.text.len();
            self.world.simulate_cluster(termination_message);
            self.work().await;
            if self.world.status("disk")["phase"] == phase && self.text.len() == before {
                return;
            }
        }
        panic!("it never reached {phase}: {}", self.text);
    }

    /// Compares the record with the reviewed file.
    #[track_caller]
    fn assert_reviewed(self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/stories");
        let path = folder.join(format!("{name}.txt"));
        let recorded = self.text.trim_start().to_owned();
        if std::env::var_os("CDI_BLESS").is_some_and(|value| value == "1") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &recorded).unwrap();
        }
        let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
        let hint =
            "run `CDI_BLESS=1 cargo test -p cdi-controller --lib stories` and look at the diff";
        assert_eq!(recorded, reviewed, "{hint}");
    }
}

/// The status without timestamps.
fn lines_of(status: &Value) -> Vec<String> {
    if status.is_null() {
        return Vec::new();
    }
    let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
    let restarts = &status["restartCount"];
    let mut lines = vec![format!(
        "{:?} of claim {:?}, progress {}, restarts {restarts}",
        text("phase"),
        text("claimName"),
        text("progress")
    )];
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = |key: &str| condition[key].as_str().unwrap_or_default();
        let cause = [text("reason"), text("message")].join(": ");
        let cause = cause.trim_matches([':', ' ']);
        lines.push(format!("{} {} {cause}", text("type"), text("status")).trim_end().to_owned());
    }
    lines
}

/// The annotations with CDI's prefix.
fn annotations_of(claim: &Value) -> BTreeMap<String, String> {
    let all = claim["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    all.into_iter()
        .filter_map(|(key, value)| {
            let key = key.strip_prefix("cdi.kubevirt.io/")?.to_owned();
            Some((key, value.as_str().unwrap_or_default().to_owned()))
        })
        .collect()
}

/// Replaces UIDs. In the fake they are numbers that change with the number of writes.
fn nameless(text: &str) -> String {
    let mut pieces = text.split("uid-");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain += "UID";
        plain += piece.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    plain
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn from_the_web() -> Value {
    let mut spec = blank();
    spec["source"] = json!({ "http": { "url": "http://h/a.img" } });
    spec
}

fn container(state: Value, last: Value, restarts: u32) -> Value {
    json!([{
        "name": "importer", "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
        "state": state, "lastState": last,
    }])
}

fn ended(code: i32, reason: &str, message: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": message } })
}

#[tokio::test(start_paused = true)]
async fn reviewed_blank_disk() {
    let mut story = Story::start("Immediate", true, blank());
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("blank");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_without_a_populator() {
    let mut story = Story::start("Immediate", false, from_the_web());
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("legacy");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_that_waits_for_its_first_consumer() {
    let mut story = Story::start("WaitForFirstConsumer", true, from_the_web());
    story.until("PendingPopulation", DONE).await;
    story.then("a pod uses the claim, and the scheduler has found a node for it");
    story.world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "node-1".into();
    });
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("waits");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_that_is_retried_after_404() {
    let mut story = Story::start("Immediate", true, from_the_web());
    story.until_worker().await;
    story.world.simulate_cluster(DONE);
    story.work().await;
    let words = "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found";
    let failed = ended(1, "Error", words);
    let back_off =
        json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } });
    let once =
        json!({ "phase": "Running", "containerStatuses": container(failed.clone(), json!({}), 0) });
    story.set_worker_status("the server responds with 404", once).await;
    let again = container(back_off, failed, 1);
    let again = json!({ "phase": "Running", "containerStatuses": again });
    story.set_worker_status("and once more", again).await;
    story.then("the image is there");
    let pod = story.pods[0].clone();
    story.world.fake.change(&pod, |pod| pod["status"] = json!({ "phase": "Pending" }));
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("not-found");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_whose_worker_is_replaced_when_out_of_memory() {
    let mut story = Story::start("Immediate", true, from_the_web());
    story.until_worker().await;
    let killed = container(ended(137, "OOMKilled", ""), json!({}), 0);
    let killed = json!({ "phase": "Running", "containerStatuses": killed });
    story.set_worker_status("the kernel ends it", killed).await;
    story.then("everything else is as it should be");
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("out-of-memory");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_whose_worker_is_unschedulable() {
    let mut story = Story::start("Immediate", true, from_the_web());
    story.until_worker().await;
    let words = "0/1 nodes are available: 1 Insufficient memory.";
    let stuck = json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words,
    }] });
    story.set_worker_status("no node has capacity for it", stuck).await;
    story.then("a node has come");
    let pod = story.pods[0].clone();
    story.world.fake.change(&pod, |pod| pod["status"] = json!({ "phase": "Pending" }));
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("unschedulable");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_with_a_wrong_checksum() {
    let mut spec = from_the_web();
    spec["source"]["http"]["checksum"] = "md5:d41d8cd98f00b204e9800998ecf8427e".into();
    let mut story = Story::start("Immediate", true, spec);
    let words =
        r#"{"message":"Unable to process data: checksum mismatch: expected a, calculated b"}"#;
    story.until("Failed", words).await;
    story.assert_reviewed("checksum");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_that_waits_for_claim_properties() {
    let mut spec = from_the_web();
    let mut storage = spec.as_object_mut().unwrap().remove("pvc").unwrap();
    for key in ["accessModes", "volumeMode"] {
        storage.as_object_mut().unwrap().remove(key);
    }
    spec["storage"] = storage;
    let mut story = Story::start("Immediate", true, spec);
    story.work().await;
    story.then("an administrator sets the claim properties");
    story.world.fake.change("storageprofiles//fast", |profile| {
        profile["spec"]["claimPropertySets"] =
            json!([{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }]);
    });
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("no-profile");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_with_scratch_space() {
    let mut story = Story::start("Immediate", true, from_the_web());
    story.in_full = vec!["-scratch"];
    story.until_worker().await;
    let words = r#"{"scratchSpaceRequired":true,"message":"Import Complete"}"#;
    let asks = container(ended(0, "Completed", words), json!({}), 0);
    let asks = json!({ "phase": "Succeeded", "containerStatuses": asks });
    story.set_worker_status("the worker asks for it", asks).await;
    story.then("its successor has it");
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("scratch");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_with_scratch_space_without_a_class() {
    let mut spec = from_the_web();
    spec["pvc"].as_object_mut().unwrap().remove("storageClassName");
    let mut story = Story::start("Immediate", false, spec);
    story.world.fake.delete("storageclasses//fast");
    story.until_worker().await;
    let words = r#"{"scratchSpaceRequired":true,"message":"Import Complete"}"#;
    let asks = container(ended(0, "Completed", words), json!({}), 0);
    let asks = json!({ "phase": "Succeeded", "containerStatuses": asks });
    story.set_worker_status("the worker asks for it", asks).await;
    let words = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    let stuck = json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words,
    }] });
    story.set_worker_status("there is no volume for it", stuck).await;
    story.then("a volume is available");
    let pod = story.pods[0].clone();
    story.world.fake.change(&pod, |pod| pod["status"] = json!({ "phase": "Pending" }));
    story.until("Succeeded", DONE).await;
    story.assert_reviewed("no-class-for-scratch");
}

#[tokio::test(start_paused = true)]
async fn reviewed_import_with_too_small_scratch_space() {
    let mut story = Story::start("Immediate", true, from_the_web());
    story.until_worker().await;
    story.world.simulate_cluster(DONE);
    story.work().await;
    let words = "Unable to process data: Unable to transfer source data to scratch space: there is not enough free \
                 space in scratch space at /scratch.";
    let full = container(ended(1, "Error", words), json!({}), 0);
    let full = json!({ "phase": "Running", "containerStatuses": full });
    story.set_worker_status("the image does not fit", full).await;
    story.assert_reviewed("scratch-too-small");
}

#[tokio::test(start_paused = true)]
async fn reviewed_upload() {
    let folder = super::authorities();
    let flag = format!("-certificates={}", folder.path().display());
    let world = TestCluster::with_flags(TestCluster::new("Immediate", true).fake, &[&flag]);
    let mut spec = blank();
    spec["source"] = json!({ "upload": {} });
    let mut story = Story::start_in(world, spec);
    story.in_full = vec!["pods/", "services/"];
    story.until("Succeeded", r#"{"message":"Upload Complete"}"#).await;
    story.assert_reviewed("upload");
}
