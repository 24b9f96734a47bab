//! The simulated rest of the cluster: storage, scheduler and kubelet.

use serde_json::{Value, json};

use super::world::TestCluster;

/// When containers start and end.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

impl TestCluster {
    /// Advances the rest of the cluster by one step: binds PVCs, takes snapshots, and moves pods to their next phase.
    pub fn simulate_cluster(&self, termination_message: &str) {
        let objects = self.fake.0.lock().unwrap().objects.clone();
        for (place, object) in &objects {
            match place.split('/').next().unwrap() {
                "persistentvolumeclaims" => self.bind(place, object),
                "pods" => self.run(place, object, termination_message),
                "volumesnapshots" => self.take(place, object),
                _ => {}
            }
        }
        self.fake.collect_garbage();
    }

    fn bind(&self, place: &str, claim: &Value) {
        let (uid, name) = (&claim["metadata"]["uid"], claim["metadata"]["name"].as_str().unwrap());
        let volumes = self.fake.0.lock().unwrap().objects.clone();
        let of_claim = |volume: &&Value| &volume["spec"]["claimRef"]["uid"] == uid;
        let mut all = volumes.iter().filter(|(place, _)| place.starts_with("persistentvolumes/"));
        let own = all.find(|(_, volume)| of_claim(volume)).map(|(_, volume)| volume.clone());
        match (claim["status"]["phase"].as_str(), own) {
            (Some("Lost"), _) => {}
            (Some("Bound"), None) => {
                self.fake.change(place, |claim| claim["status"]["phase"] = "Lost".into());
            }
            (Some("Bound"), Some(_)) => {
                let asked = &claim["spec"]["resources"]["requests"];
                if &claim["status"]["capacity"] != asked {
                    self.fake.change(place, |claim| claim["status"]["capacity"] = asked.clone());
                }
            }
            (None | Some("Pending"), None) if !claim["spec"]["volumeName"].is_null() => {
                self.bind_to_named(place, claim);
            }
            (_, Some(volume)) => self.fake.change(place, |claim| {
                claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
                claim["status"]["phase"] = "Bound".into();
            }),
            (phase, None) if !self.is_provisioned(claim) => {
                if phase.is_none() {
                    self.fake.change(place, |claim| claim["status"]["phase"] = "Pending".into());
                }
            }
            (_, None) => {
                let volume = format!("pv-{}", uid.as_str().unwrap());
                let claim_ref = json!({ "namespace": claim["metadata"]["namespace"], "name": name, "uid": uid });
                self.fake.put(
                    "persistentvolumes",
                    json!({
                        "metadata": { "name": volume },
                        "spec": { "claimRef": claim_ref, "storageClassName": "fast" },
                    }),
                );
                self.fake.change(place, |claim| {
                    claim["spec"]["volumeName"] = volume.into();
                    claim["status"]["phase"] = "Bound".into();
                    claim["status"]["capacity"] = claim["spec"]["resources"]["requests"].clone();
                });
            }
        }
    }

    /// Binds a PVC with a `volumeName` to that volume, if the volume's claimRef names the PVC and has no UID.
    fn bind_to_named(&self, place: &str, claim: &Value) {
        let metadata = &claim["metadata"];
        let volume =
            format!("persistentvolumes//{}", claim["spec"]["volumeName"].as_str().unwrap());
        let owner =
            self.fake.0.lock().unwrap().objects.get(&volume).map(|v| v["spec"]["claimRef"].clone());
        let waits = owner.is_some_and(|owner| {
            owner["uid"].is_null()
                && owner["name"] == metadata["name"]
                && owner["namespace"] == metadata["namespace"]
        });
        if waits {
            let uid = metadata["uid"].clone();
            self.fake.change(&volume, |volume| volume["spec"]["claimRef"]["uid"] = uid);
            self.fake.change(place, |claim| {
                claim["status"]["phase"] = "Bound".into();
                claim["status"]["capacity"] = claim["spec"]["resources"]["requests"].clone();
            });
        }
    }

    /// Whether the storage provisions the volume of a PVC. Not if a populator fills it, or if it has a data source that
    /// the driver cannot clone.
    fn is_provisioned(&self, claim: &Value) -> bool {
        if self.waits_for_pods && self.waits_for_its_pod(claim) {
            return false;
        }
        match claim["spec"]["dataSourceRef"]["kind"].as_str() {
            None => true,
            Some("PersistentVolumeClaim" | "VolumeSnapshot") => self.driver_clones,
            Some(_) => false,
        }
    }

    fn waits_for_its_pod(&self, claim: &Value) -> bool {
        let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class = self.fake.get("storageclasses", "", class).unwrap_or_default();
        let pods = format!("pods/{}/", claim["metadata"]["namespace"].as_str().unwrap());
        let mounts = |pod: &Value| {
            let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            volumes.any(|v| v["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"])
        };
        let state = self.fake.0.lock().unwrap();
        let mut pods = state.objects.iter().filter(|(place, _)| place.starts_with(&pods));
        class["volumeBindingMode"] == "WaitForFirstConsumer" && !pods.any(|(_, pod)| mounts(pod))
    }

    /// Snapshots are taken, and then ready.
    fn take(&self, place: &str, snapshot: &Value) {
        let status = &snapshot["status"];
        let next = if status.is_null() {
            json!({ "creationTime": "2026-01-01T00:00:00Z", "readyToUse": false })
        } else if status["readyToUse"] == false {
            json!({
                "creationTime": "2026-01-01T00:00:00Z", "readyToUse": true, "restoreSize": "1Gi",
                "boundVolumeSnapshotContentName": "content",
            })
        } else {
            return;
        };
        self.fake.change(place, |snapshot| snapshot["status"] = next);
    }

    /// Whether a pod has what it waits for: the server of a copy waits for a pod that reads the source, created after it.
    fn may_end(&self, pod: &Value) -> bool {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let state = self.fake.0.lock().unwrap();
        let claim = format!(
            "persistentvolumeclaims/{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap(),
            owner["name"].as_str().unwrap_or_default()
        );
        let Some(claim) = state.objects.get(&claim) else { return true };
        let Some(source) = claim["metadata"]["annotations"]["k8s.io/CloneRequest"].as_str() else {
            return true;
        };
        let namespace = source.split('/').next().unwrap();
        let reader = format!("pods/{namespace}/{}-source-pod", owner["uid"].as_str().unwrap());
        let Some(reader) = state.objects.get(&reader) else { return false };
        let sends = matches!(reader["status"]["phase"].as_str(), Some("Running" | "Succeeded"));
        let number = |pod: &Value| -> usize {
            let uid = pod["metadata"]["uid"].as_str().unwrap();
            uid.trim_start_matches("uid-").parse().unwrap()
        };
        sends && number(reader) > number(pod)
    }

    fn run(&self, place: &str, pod: &Value, termination_message: &str) {
        let container = |state: Value, ready: bool| {
            json!([{
                "name": pod["spec"]["containers"][0]["name"], "image": "i", "imageID": "",
                "ready": ready, "restartCount": 0, "state": state,
            }])
        };
        let volumes = pod["spec"]["volumes"].as_array().map_or(0, Vec::len);
        let is_reader = pod["metadata"]["labels"]["cdi.kubevirt.io"] == "cdi-clone-source";
        if is_reader && volumes > 1 && !self.has_large_node {
            self.fake.change(place, |pod| {
                pod["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
                pod["status"] = json!({
                    "phase": "Pending",
                    "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }],
                    "containerStatuses": container(json!({}), false),
                });
            });
            return;
        }
        let end = |termination_message: &str| {
            let end = json!({ "exitCode": 0, "reason": "Completed", "message": termination_message, "finishedAt": LONG_AGO });
            container(json!({ "terminated": end }), false)
        };
        let status = &pod["status"];
        let has_ended = status["containerStatuses"][0]["state"]["terminated"].is_object();
        let (phase, containers) = match status["phase"].as_str() {
            None => ("Pending", json!([])),
            Some("Pending") if self.is_quick => ("Running", end(termination_message)),
            Some("Pending") => {
                ("Running", container(json!({ "running": { "startedAt": LONG_AGO } }), true))
            }
            // The end of the container comes first, that of its pod later.
            Some("Running") if has_ended => ("Succeeded", status["containerStatuses"].clone()),
            Some("Running") if !self.may_end(pod) => return,
            Some("Running") => {
                ("Running", end(if is_reader { "Clone Complete" } else { termination_message }))
            }
            Some(_) => return,
        };
        self.fake.change(place, |pod| {
            pod["status"] = json!({ "phase": phase, "containerStatuses": containers });
        });
    }
}
