//! The Deployment of the operator, which manifests install and the operator does not change.

use api::labels::{self, component};
use serde_json::{Value, json};

use super::{HOSTNAME, PORT, container, health_port, pod_security, required_scc, rolling_update};
use crate::desired::environment as variable;
use crate::manifests::{Settings, common_labels, object};

const NAME: &str = component::OPERATOR;

/// Of an installation by plain manifests: without variables the operator keeps the certificates, and nothing else.
pub(super) fn certificate_keeper(settings: &Settings) -> Value {
    let mut deployment = deployment(settings);
    let class = settings.programs.priority_class.as_deref();
    let pod = &mut deployment["spec"]["template"]["spec"];
    if let Some(class) = class {
        pod["priorityClassName"] = class.into();
    }
    deployment
}

/// Of an installation by the CDI object. `version` is what the status of that object reports.
pub(in crate::manifests) fn installer(settings: &Settings, version: &str) -> Value {
    let mut deployment = deployment(settings);
    let images = &settings.images;
    let mut env = vec![
        (variable::DEPLOY_CLUSTER_RESOURCES, "true"),
        (variable::VERSION, version),
        (variable::CONTROLLER_IMAGE, &images.controller),
        (variable::IMPORTER_IMAGE, &images.importer),
        (variable::CLONER_IMAGE, &images.cloner),
        (variable::OVIRT_POPULATOR_IMAGE, &images.ovirt_populator),
        (variable::APISERVER_IMAGE, &images.apiserver),
        (variable::UPLOAD_SERVER_IMAGE, &images.upload_server),
        (variable::UPLOAD_PROXY_IMAGE, &images.upload_proxy),
    ];
    if let Some(image) = &images.importer_vddk {
        env.push((variable::IMPORTER_VDDK_IMAGE, image));
    }
    let verbosity = settings.verbosity.to_string();
    env.push((variable::VERBOSITY, &verbosity));
    env.push((variable::PULL_POLICY, &settings.pull_policy));
    // Empty: the usual namespace of the platform.
    env.push((variable::MONITORING_NAMESPACE, ""));
    let env: Vec<_> =
        env.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    deployment["spec"]["template"]["spec"]["containers"][0]["env"] = json!(env);
    deployment
}

/// A Job that prints what the operator would change, and ends. Its account may only read.
pub(in crate::manifests) fn check_job(settings: &Settings, version: &str, name: &str) -> Value {
    let mut pod = installer(settings, version)["spec"]["template"]["spec"].take();
    pod["serviceAccountName"] = name.into();
    pod["restartPolicy"] = "Never".into();
    let container = &mut pod["containers"][0];
    container["args"] = json!(["-check=true"]);
    // It serves nothing.
    if let Some(fields) = container.as_object_mut() {
        fields.retain(|field, _| {
            !["ports", "livenessProbe", "readinessProbe"].contains(&field.as_str())
        });
    }
    if let Some(fields) = pod.as_object_mut() {
        fields.remove("affinity");
    }
    let labels = json!({ labels::ALLOW_CLUSTER_SERVICES: "true" });
    let spec = json!({
        // A failure is a result.
        "backoffLimit": 0,
        "template": { "metadata": { "labels": labels, "annotations": required_scc() }, "spec": pod },
    });
    let namespace = Some(settings.namespace.as_str());
    object("batch/v1", "Job", name, namespace, "", json!({ "spec": spec }))
}

fn deployment(settings: &Settings) -> Value {
    // Immutable, and upstream CDI's, so that its Deployment can be changed into this one and back.
    let selector = json!({ "name": NAME, labels::OPERATOR: "" });
    let mut pod_labels = common_labels(NAME);
    pod_labels.insert("name".into(), NAME.into());
    pod_labels.insert(labels::OPERATOR.into(), "".into());
    pod_labels.insert(labels::ALLOW_CLUSTER_SERVICES.into(), "true".into());
    pod_labels.insert(labels::PROMETHEUS.into(), "true".into());
    let mut container = container(NAME, &settings.operator_image, "512Mi", settings);
    let metrics = json!({ "name": "metrics", "containerPort": PORT, "protocol": "TCP" });
    container["ports"] = json!([metrics, health_port()]);
    let near = json!([{
        "weight": 1,
        "podAffinityTerm": {
            "labelSelector": { "matchLabels": { labels::COMPONENT: NAME } },
            "topologyKey": HOSTNAME,
        },
    }]);
    let pod = json!({
        "serviceAccountName": "cdi-operator",
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "securityContext": pod_security(),
        "affinity": { "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": near } },
        "containers": [container],
    });
    let spec = json!({
        "replicas": 1,
        "selector": { "matchLabels": selector },
        "strategy": rolling_update(),
        "template": {
            "metadata": { "labels": pod_labels, "annotations": required_scc() },
            "spec": pod,
        },
    });
    let namespace = Some(settings.namespace.as_str());
    let mut deployment =
        object("apps/v1", "Deployment", NAME, namespace, NAME, json!({ "spec": spec }));
    deployment["metadata"]["labels"][labels::OPERATOR] = "".into();
    deployment
}
