use api::v1beta1::{CdiConfig, NodePlacement};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::*;
use crate::meta::Installation;
use crate::populator;
use crate::worker::Image;

fn target(reference: Value, mode: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": {
            "name": "disk", "namespace": "vms", "uid": "t-uid",
            "labels": { "migration": "m-1", "alerts.k8s.io/KubePersistentVolumeFillingUp": "disabled" },
        },
        "spec": {
            "storageClassName": "fast", "volumeMode": mode, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "10Gi" } }, "dataSourceRef": reference,
        },
        "status": { "phase": "Pending" },
    }))
    .unwrap()
}

fn reference(kind: &str) -> Value {
    json!({ "apiGroup": "forklift.cdi.kubevirt.io", "kind": kind, "name": "source" })
}

fn populated(target: &PersistentVolumeClaim) -> Result<populator::PopulatorPlan, populator::Error> {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": { "name": "fast" }, "provisioner": "csi.example",
    }))
    .unwrap();
    populator::plan(&populator::Facts {
        target,
        source: Some(populator::Source::Forklift),
        class: Some(&class),
        prime: None,
        volume: None,
        measured: None,
        config: None,
        installation: &Installation::default(),
    })
}

/// The prime PVC of a target, as the populator creates it, with more annotations.
fn prime(target: &PersistentVolumeClaim, annotations: Value) -> PersistentVolumeClaim {
    let Ok(populator::PopulatorPlan::Create { mut prime, .. }) = populated(target) else {
        panic!()
    };
    prime.metadata.uid = Some("p-uid".into());
    let all = prime.metadata.annotations.get_or_insert_default();
    for (key, value) in annotations.as_object().unwrap() {
        all.insert(key.clone(), value.as_str().unwrap().into());
    }
    *prime
}

fn ovirt() -> PopulatorSpec {
    PopulatorSpec::from(&OvirtVolumePopulatorSpec {
        engine_url: "https://engine/api".into(),
        secret_ref: "keys".into(),
        disk_id: "d-1".into(),
        transfer_network: None,
    })
}

fn openstack() -> PopulatorSpec {
    PopulatorSpec::from(&OpenstackVolumePopulatorSpec {
        identity_url: "https://keystone/v3".into(),
        secret_ref: "keys".into(),
        image_id: "i-1".into(),
        transfer_network: Some("nets/fast".into()),
    })
}

/// The pod for a spec. `annotations` are those of the prime PVC, `status` that of the CDIConfig.
fn pod_of(
    spec: &PopulatorSpec,
    mode: &str,
    annotations: Value,
    status: Value,
    placement: Value,
) -> Pod {
    let kind = match spec.kind {
        Kind::Ovirt => "OvirtVolumePopulator",
        Kind::Openstack => "OpenstackVolumePopulator",
    };
    let target = target(reference(kind), mode);
    let config: CdiConfig = serde_json::from_value(json!({
        "apiVersion": "v", "kind": "CDIConfig", "metadata": {}, "spec": {}, "status": status,
    }))
    .unwrap();
    let placement: NodePlacement = serde_json::from_value(placement).unwrap();
    let image = Image { importer: "importer:1".into(), ..Image::default() };
    pod(&Facts {
        prime: &prime(&target, annotations),
        target: &target,
        spec,
        config: Some(&config),
        placement: Some(&placement),
        image: &image,
        ovirt_image: "ovirt:1",
        installation: &Installation::default(),
        metrics_key: "key",
    })
}

fn plain(spec: &PopulatorSpec, mode: &str) -> Pod {
    pod_of(spec, mode, json!({}), json!({}), json!({}))
}

fn worker(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

#[test]
fn each_program_gets_its_own_flags() {
    let of_disk = "--secret-name=keys --disk-id=d-1 --engine-url=https://engine/api";
    let of_image = "--endpoint=https://keystone/v3 --secret-name=keys --image-id=i-1";
    for (spec, mode, image, program, path, own) in [
        (ovirt(), "Filesystem", "ovirt:1", "ovirt-populator", "/mnt/disk.img", of_disk),
        (ovirt(), "Block", "ovirt:1", "ovirt-populator", "/dev/block", of_disk),
        (openstack(), "Filesystem", "importer:1", "openstack-populator", "/mnt/disk.img", of_image),
        (openstack(), "Block", "importer:1", "openstack-populator", "/dev/block", of_image),
    ] {
        let pod = plain(&spec, mode);
        let container = worker(&pod);
        assert_eq!(container.image.as_deref(), Some(image));
        assert_eq!(container.command, Some(vec![program.to_owned()]));
        let line = container.args.as_ref().unwrap().join(" ");
        let size = 10_u64 << 30;
        let expected = format!("--volume-path={path} {own} --owner-uid=t-uid --pvc-size={size}");
        assert_eq!(line, expected);
        let mounts = container.volume_mounts.iter().flatten().map(|m| m.mount_path.as_str());
        let devices = container.volume_devices.iter().flatten().map(|d| d.device_path.as_str());
        let expected = if mode == "Block" { "/dev/block" } else { "/mnt/" };
        assert_eq!(mounts.chain(devices).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn populator_pod_has_no_privileges() {
    let pod = plain(&openstack(), "Filesystem");
    let metadata = &pod.metadata;
    assert_eq!(metadata.name.as_deref(), Some("populate-t-uid"));
    assert_eq!(metadata.namespace.as_deref(), Some("vms"));
    assert_eq!(meta::controller(metadata).unwrap().uid, "p-uid");
    for (key, value) in [
        (state::POPULATOR_KIND, "forklift"),
        (request::MULTUS_DEFAULT_NETWORK, "nets/fast"),
        (request::ISTIO_INJECT, "false"),
    ] {
        assert_eq!(meta::annotation(metadata, key), Some(value), "{key}");
    }
    for (key, value) in [
        ("cdi.kubevirt.io", Some("cdi-forklift-populator")),
        ("prometheus.cdi.kubevirt.io", Some("true")),
        ("migration", Some("m-1")),
        ("alerts.k8s.io/KubePersistentVolumeFillingUp", None),
    ] {
        assert_eq!(meta::label(metadata, key), value, "{key}");
    }
    let spec = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
    let found = |pointer: &str| spec.pointer(pointer).unwrap_or(&Value::Null).clone();
    for (pointer, expected) in [
        ("/restartPolicy", json!("OnFailure")),
        ("/enableServiceLinks", json!(false)),
        ("/automountServiceAccountToken", json!(false)),
        ("/securityContext/fsGroup", json!(107)),
        ("/containers/0/name", json!("populate")),
        ("/containers/0/securityContext/runAsUser", json!(107)),
        ("/containers/0/securityContext/capabilities/drop", json!(["ALL"])),
        ("/containers/0/securityContext/readOnlyRootFilesystem", json!(true)),
        ("/containers/0/envFrom", json!([{ "secretRef": { "name": "keys" } }])),
        ("/containers/0/ports/0/name", json!("metrics")),
        ("/containers/0/ports/0/containerPort", json!(8443)),
        ("/volumes/0/name", json!("target")),
        ("/volumes/0/persistentVolumeClaim", json!({ "claimName": "prime-t-uid" })),
        ("/affinity", Value::Null),
        ("/nodeSelector", Value::Null),
    ] {
        assert_eq!(found(pointer), expected, "{pointer}");
    }
    // The controller requests the progress with these.
    let env = json!([
        { "name": "OWNER_UID", "value": "t-uid" }, { "name": "METRICS_KEY", "value": "key" },
    ]);
    assert_eq!(found("/containers/0/env"), env);
    // Another program may have to write elsewhere.
    let of_other = plain(&ovirt(), "Filesystem");
    let context = worker(&of_other).security_context.as_ref().unwrap();
    assert_eq!(context.read_only_root_filesystem, None);
}

#[test]
fn populator_pod_has_the_placement_and_settings_of_workers() {
    let pod = pod_of(
        &ovirt(),
        "Block",
        json!({
            request::SELECTED_NODE: "node-1", request::PRIORITY_CLASS: "high",
            request::MULTUS_DEFAULT_NETWORK: "own", request::SERVICE_ACCOUNT: "",
        }),
        json!({
            "defaultPodResourceRequirements": { "limits": { "cpu": "1" } },
            "imagePullSecrets": [{ "name": "pull" }],
        }),
        json!({ "nodeSelector": { "zone": "a" }, "tolerations": [{ "key": "busy" }] }),
    );
    let network = meta::annotation(&pod.metadata, request::MULTUS_DEFAULT_NETWORK);
    assert_eq!(network, Some("own"), "the annotation of the PVC, if the source has no network");
    let spec = serde_json::to_value(pod.spec.unwrap()).unwrap();
    let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let node = format!("{terms}/nodeSelectorTerms/0/matchFields/0/values/0");
    for (pointer, expected) in [
        (node.as_str(), json!("node-1")),
        ("/priorityClassName", json!("high")),
        ("/nodeSelector/zone", json!("a")),
        ("/tolerations/0/key", json!("busy")),
        ("/imagePullSecrets/0/name", json!("pull")),
        ("/containers/0/resources/limits/cpu", json!("1")),
    ] {
        assert_eq!(spec.pointer(pointer), Some(&expected), "{pointer}");
    }
    assert_eq!(spec.get("serviceAccountName"), None);
}

#[test]
fn pvc_refers_to_one_of_the_two_kinds_in_its_own_namespace() {
    let other_group =
        json!({ "apiGroup": "cdi.kubevirt.io", "kind": "OvirtVolumePopulator", "name": "source" });
    let in_namespace = |name: &str| {
        let mut reference = reference("OpenstackVolumePopulator");
        reference["namespace"] = name.into();
        reference
    };
    for (reference, kind, is_begun) in [
        (reference("OvirtVolumePopulator"), Some(Kind::Ovirt), true),
        (reference("OpenstackVolumePopulator"), Some(Kind::Openstack), true),
        (in_namespace("vms"), Some(Kind::Openstack), true),
        (in_namespace("other"), Some(Kind::Openstack), false),
        (reference("VolumeImportSource"), None, true), // of another populator
        (other_group, None, true),
        (json!({ "kind": "OvirtVolumePopulator", "name": "source" }), None, false),
        (Value::Null, None, false),
    ] {
        let target = target(reference.clone(), "Block");
        assert_eq!(Kind::from_claim(&target), kind, "{reference}");
        let plan = populated(&target).unwrap();
        assert_eq!(
            matches!(plan, populator::PopulatorPlan::Create { .. }),
            is_begun,
            "{reference}"
        );
    }
}

#[test]
fn prime_pvc_is_recognized_by_owner_and_populator() {
    let target = target(reference("OvirtVolumePopulator"), "Block");
    let ours = prime(&target, json!({}));
    assert_eq!(target_uid(&ours.metadata), Some("t-uid"));
    assert_eq!(meta::annotation(&ours.metadata, request::USE_POPULATOR), Some("true"));
    assert_eq!(meta::annotation(&ours.metadata, request::BIND_IMMEDIATE), Some(""));
    let import = prime(&target, json!({ state::POPULATOR_KIND: "VolumeImportSource" }));
    assert_eq!(target_uid(&import.metadata), None);
    let mut foreign = ours.clone();
    foreign.metadata.name = Some("disk-2".into());
    assert_eq!(target_uid(&foreign.metadata), None);
    let mut ownerless = ours;
    ownerless.metadata.owner_references = None;
    assert_eq!(target_uid(&ownerless.metadata), None);
}

fn running_pod(phase: &str, restarts: i32, state: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "populate-t-uid" },
        "status": { "phase": phase, "containerStatuses": [{
            "name": "populate", "image": "importer:1", "imageID": "", "ready": false,
            "restartCount": restarts, "state": state,
        }] },
    }))
    .unwrap()
}

fn ended(code: i32, reason: &str, log: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": log } })
}

#[test]
fn each_state_of_the_pod_is_reported_with_the_message_of_its_program() {
    let log = "2026-11-22T10:00:00Z  INFO importer::populator: copying d-1\n\
               2026-11-22T10:00:01Z ERROR importer::populator: cannot populate the volume: d-1 answered 404\n";
    let foreign = "F1122 10:00:01.0 1 main.go:1] no such disk\n";
    let absent = json!({ "waiting": { "reason": "CreateContainerConfigError", "message": "secret \"keys\" not found" } });
    let target = target(reference("OvirtVolumePopulator"), "Block");
    // Phase and state of the pod, then: running, reason, message, message of the event, action on the pod.
    let table = [
        ("Running", json!({ "running": {} }), "true", "Pod is running", "", None, PodAction::Keep),
        (
            "Pending",
            absent,
            "false",
            "CreateContainerConfigError",
            "secret \"keys\" not found",
            None,
            PodAction::Keep,
        ),
        (
            "Running",
            ended(255, "Error", log),
            "false",
            "Error",
            "d-1 answered 404",
            Some("import into disk failed: d-1 answered 404"),
            PodAction::Keep,
        ),
        (
            "Running",
            ended(255, "Error", foreign),
            "false",
            "Error",
            "F1122 10:00:01.0 1 main.go:1] no such disk",
            Some("import into disk failed: F1122 10:00:01.0 1 main.go:1] no such disk"),
            PodAction::Keep,
        ),
        ("Succeeded", ended(0, "Completed", ""), "false", "Completed", "", None, PodAction::Delete),
        (
            "Succeeded",
            ended(0, "Completed", "{}"),
            "false",
            "Completed",
            "",
            None,
            PodAction::Delete,
        ),
    ];
    for (phase, state, running, reason, message, event, action) in table {
        let case = format!("{phase} {state}");
        let mut prime = prime(&target, json!({}));
        let first = plan(&prime, &running_pod(phase, 0, state.clone()));
        let value = |key: &str| first.annotations.0.get(key).and_then(|value| value.as_deref());
        assert_eq!(value(state::POD_PHASE), Some(phase), "{case}");
        assert_eq!(value(state::RUNNING), Some(running), "{case}");
        assert_eq!(value(state::RUNNING_REASON), Some(reason), "{case}");
        assert_eq!(value(state::RUNNING_MESSAGE), Some(message), "{case}");
        let events: Vec<_> = first.events.iter().map(|event| event.message.as_str()).collect();
        assert_eq!(events, Vec::from_iter(event), "{case}");
        assert!(first.events.iter().all(|event| event.reason == "importFailed"), "{case}");
        assert_eq!(first.pod, action, "{case}");
        assert!(needs_pod(&prime), "{case}");

        // A second plan changes nothing; a further failure is reported again.
        prime.metadata.annotations = Some(first.annotations.applied_to(&prime.metadata));
        let second = plan(&prime, &running_pod(phase, 0, state.clone()));
        assert!(second.annotations.is_empty() && second.events.is_empty(), "{case}: {second:?}");
        let third = plan(&prime, &running_pod(phase, 1, state));
        assert_eq!(third.events.len(), event.iter().len(), "{case}");
        assert_eq!(needs_pod(&prime), phase != "Succeeded", "{case}");
    }
}

#[test]
fn unschedulable_and_killed_pods_are_reported_and_retried() {
    let target = target(reference("OvirtVolumePopulator"), "Block");
    let mut waiting = running_pod("Pending", 0, json!({}));
    let status = waiting.status.as_mut().unwrap();
    status.container_statuses = None;
    status.conditions = serde_json::from_value(json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
    }]))
    .unwrap();
    let written = plan(&prime(&target, json!({})), &waiting).annotations.0;
    assert_eq!(written[state::POD_SCHEDULABLE].as_deref(), Some("false"));
    assert_eq!(written[state::RUNNING_REASON].as_deref(), Some("Unschedulable"));
    assert_eq!(written[state::RUNNING_MESSAGE].as_deref(), Some("0/1 nodes"));

    let killed = running_pod("Running", 3, ended(137, "OOMKilled", ""));
    let plan = plan(&prime(&target, json!({})), &killed);
    assert_eq!((plan.pod, plan.events.len()), (PodAction::Keep, 1));
    assert_eq!(plan.annotations.0[state::POD_RESTARTS].as_deref(), Some("3"));
    assert_eq!(plan.annotations.0[state::RUNNING_REASON].as_deref(), Some("OOMKilled"));
}

#[test]
fn pod_is_deleted_with_its_pvc_and_kept_if_pods_are_retained() {
    let target = target(reference("OvirtVolumePopulator"), "Block");
    let working = running_pod("Running", 0, json!({ "running": {} }));
    let done = running_pod("Succeeded", 0, ended(0, "Completed", ""));
    let mut terminating = prime(&target, json!({}));
    terminating.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    for pod in [&working, &done] {
        let plan = plan(&terminating, pod);
        assert_eq!((plan.pod, plan.annotations.is_empty()), (PodAction::Delete, true));
    }
    assert!(!needs_pod(&terminating));
    let kept = prime(&target, json!({ request::RETAIN_PODS: "true" }));
    assert_eq!(plan(&kept, &done).pod, PodAction::Keep);
}

#[test]
fn pod_belongs_to_the_pvc_that_owns_it_and_to_no_earlier_one() {
    let target = target(reference("OvirtVolumePopulator"), "Block");
    let prime = prime(&target, json!({}));
    let mut pod = plain(&ovirt(), "Block");
    assert!(is_of(&pod, &prime));
    pod.metadata.owner_references.as_mut().unwrap()[0].uid = "earlier".into();
    assert!(!is_of(&pod, &prime));
    pod.metadata.owner_references = None;
    assert!(!is_of(&pod, &prime));
}
