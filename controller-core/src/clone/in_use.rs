//! Pods that could change a source while it is cloned.

use std::collections::BTreeSet;

use api::labels::{self, component};
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::event::Event;
use crate::meta;

/// Names of the pods, of one namespace, that may write to the PVC. Excludes pods that only read, as those of other
/// clones do.
pub fn writers<'a>(pods: &'a [Pod], claim: &str) -> Vec<&'a str> {
    let is_writer = |pod: &&Pod| {
        let phase = meta::pod_phase(pod);
        let has_ended = phase.has_ended();
        let is_reader =
            meta::label(&pod.metadata, labels::COMPONENT) == Some(component::CLONE_SOURCE);
        !has_ended && !is_reader && pod.spec.as_ref().is_some_and(|spec| writes(spec, claim))
    };
    pods.iter().filter(is_writer).map(|pod| meta::name(&pod.metadata)).collect()
}

/// The events about them, for the target.
pub fn events(namespace: &str, writers: &[&str], claim: &str) -> Vec<Event> {
    let event = |pod: &&str| {
        let message = format!("pod {namespace}/{pod} using PersistentVolumeClaim {claim}");
        Event::warning(api::events::CLONE_SOURCE_IN_USE, message)
    };
    writers.iter().map(event).collect()
}

/// What the clone waits for, as the rest of a sentence that begins with "Waits for".
pub fn free_of(claim: &str, writers: &[&str]) -> String {
    format!("{claim} to be free: it is used by {}", writers.join(", "))
}

fn writes(spec: &PodSpec, claim: &str) -> bool {
    let mut volumes = BTreeSet::new();
    for volume in spec.volumes.iter().flatten() {
        let Some(source) = &volume.persistent_volume_claim else { continue };
        if source.claim_name == claim && source.read_only != Some(true) {
            volumes.insert(volume.name.as_str());
        }
    }
    let of_all = |containers: &[k8s_openapi::api::core::v1::Container]| {
        containers.iter().any(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            // A block device has no read-only mount.
            let mut devices = container.volume_devices.iter().flatten();
            mounts
                .filter(|mount| mount.read_only != Some(true))
                .any(|m| volumes.contains(m.name.as_str()))
                || devices.any(|device| volumes.contains(device.name.as_str()))
        })
    };
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let mut mounts_of_ephemeral =
        ephemeral.flat_map(|container| container.volume_mounts.iter().flatten());
    of_all(&spec.containers)
        || of_all(spec.init_containers.as_deref().unwrap_or_default())
        || mounts_of_ephemeral
            .any(|mount| mount.read_only != Some(true) && volumes.contains(mount.name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, component: &str, claim: Value, container: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "vm", "labels": { labels::COMPONENT: component } },
            "spec": {
                "volumes": [{ "name": "disk", "persistentVolumeClaim": claim }],
                "containers": [{ "name": "compute", "image": "i" }, container],
            },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn only_pods_that_may_write_are_writers() {
        let ours = || json!({ "claimName": "golden" });
        let mounted = || json!({ "name": "c", "image": "i", "volumeMounts": [{ "name": "disk", "mountPath": "/d" }] });
        let read_only = json!({
            "name": "c", "image": "i", "volumeMounts": [{ "name": "disk", "mountPath": "/d", "readOnly": true }],
        });
        let device = || json!({ "name": "c", "image": "i", "volumeDevices": [{ "name": "disk", "devicePath": "/d" }] });
        let unused = json!({ "name": "c", "image": "i" });
        let claim_read_only = || json!({ "claimName": "golden", "readOnly": true });
        let table = [
            ("mounted", pod("Running", "", ours(), mounted()), true),
            ("pending", pod("Pending", "", ours(), mounted()), true),
            ("done", pod("Succeeded", "", ours(), mounted()), false),
            ("failed", pod("Failed", "", ours(), mounted()), false),
            ("a device", pod("Running", "", ours(), device()), true),
            ("mounted to read", pod("Running", "", ours(), read_only), false),
            ("claimed to read", pod("Running", "", claim_read_only(), mounted()), false),
            ("a device claimed to read", pod("Running", "", claim_read_only(), device()), false),
            ("not mounted", pod("Running", "", ours(), unused), false),
            (
                "another claim",
                pod("Running", "", json!({ "claimName": "other" }), mounted()),
                false,
            ),
            ("another clone", pod("Running", "cdi-clone-source", ours(), device()), false),
        ];
        for (case, pod, expected) in table {
            let pods = [pod];
            let found = writers(&pods, "golden");
            assert_eq!(!found.is_empty(), expected, "{case}");
            if expected {
                assert_eq!(
                    events("vms", &found, "golden"),
                    [Event::warning(
                        "CloneSourceInUse",
                        "pod vms/vm using PersistentVolumeClaim golden"
                    )]
                );
            }
        }
    }
}
