//! The Deployments, and the objects that keep them running next to workloads of tenants.

use api::labels;
use api::{annotations, names};
use serde_json::{Value, json};

use super::{Settings, common_labels, object};

/// Kubernetes has it in every cluster, so no object has to come first and tenants gain no class that preempts others. While
/// webhooks with `failurePolicy: Fail` are away, no DataVolume can be created.
const PRIORITY_CLASS: &str = "system-cluster-critical";
/// Pods of that priority in the namespace. More than all of them in an update.
const CRITICAL_PODS_MAX: &str = "20";

/// The parameters of a Deployment.
struct Program {
    name: &'static str,
    replicas: u32,
    /// Bounds what a flood of requests may take of the node. Well above what was measured: the controllers have 131 MiB with
    /// ten thousand DataVolumes; the API server bounds all calls that it reviews at once to about 500 MiB.
    memory_limit: &'static str,
    account: &'static str,
    image: &'static str,
    env: Vec<Value>,
    mounts: Vec<Mount>,
    exports_metrics: bool,
    /// It writes a readiness file to `/tmp`.
    notes: bool,
}

/// A Secret or ConfigMap as files.
struct Mount {
    name: &'static str,
    path: String,
    is_secret: bool,
}

pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let secret = |name: &'static str| Mount {
        name,
        path: format!("/var/run/certs/{name}"),
        is_secret: true,
    };
    let bundle = |name: &'static str| Mount {
        name,
        path: format!("/var/run/ca-bundle/{name}"),
        is_secret: false,
    };
    let labelled = |name: &str, label: &str| {
        let path = format!("metadata.labels['{label}']");
        json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } } })
    };
    let installation = || {
        vec![
            labelled("INSTALLER_PART_OF_LABEL", labels::PART_OF),
            labelled("INSTALLER_VERSION_LABEL", labels::VERSION),
        ]
    };
    let text = |name: &str, value: &str| json!({ "name": name, "value": value });
    let key = json!({ "secretKeyRef": { "name": names::SIGNING_KEY_SECRET, "key": names::SIGNING_KEY_PUBLIC } });
    let mut controller_env = installation();
    controller_env.extend([
        text("IMPORTER_IMAGE", &settings.image("importer")),
        text("IMPORTER_VDDK_IMAGE", &settings.image("importer-vddk")),
        text("CLONER_IMAGE", &settings.image("cloner")),
        text("UPLOADSERVER_IMAGE", &settings.image("uploadserver")),
        text("UPLOADPROXY_SERVICE", names::UPLOAD_PROXY_SERVICE),
        // The forklift populators are in the importer's image.
        text("OVIRT_POPULATOR_IMAGE", &settings.image("importer")),
        text("PULL_POLICY", &settings.pull_policy),
    ]);
    let token_keys = Mount {
        name: names::SIGNING_KEY_SECRET,
        path: "/var/run/cdi/token/keys".into(),
        is_secret: true,
    };
    let programs = [
        Program {
            name: labels::component::OPERATOR,
            replicas: 1,
            memory_limit: "512Mi",
            account: "cdi-operator",
            image: "operator",
            env: vec![],
            mounts: vec![],
            exports_metrics: true,
            notes: false,
        },
        Program {
            name: labels::component::APISERVER,
            replicas: 2,
            memory_limit: "1Gi",
            account: "cdi-apiserver",
            image: "apiserver",
            env: installation(),
            mounts: vec![secret("cdi-apiserver-server-cert")],
            exports_metrics: false,
            notes: false,
        },
        Program {
            name: labels::component::DEPLOYMENT,
            replicas: 1,
            memory_limit: "2Gi",
            account: "cdi-sa",
            image: "controller",
            env: controller_env,
            mounts: vec![
                token_keys,
                secret("cdi-uploadserver-signer"),
                secret("cdi-uploadserver-client-signer"),
                bundle("cdi-uploadserver-signer-bundle"),
                bundle("cdi-uploadserver-client-signer-bundle"),
            ],
            exports_metrics: true,
            notes: true,
        },
        Program {
            name: labels::component::UPLOADPROXY,
            replicas: 1,
            memory_limit: "1Gi",
            account: "cdi-uploadproxy",
            image: "uploadproxy",
            env: vec![json!({ "name": "APISERVER_PUBLIC_KEY", "valueFrom": key })],
            mounts: vec![
                secret("cdi-uploadproxy-server-cert"),
                secret("cdi-uploadserver-client-cert"),
            ],
            exports_metrics: false,
            notes: false,
        },
    ];
    let mut objects = vec![critical_pods(settings)];
    objects.extend(programs.iter().map(|program| deployment(program, settings)));
    let with_spare = programs.iter().filter(|program| program.replicas > 1);
    objects.extend(with_spare.map(|program| disruption_budget(program.name, settings)));
    objects
}

/// Some platforms admit pods of system priority classes only if a quota allows them.
fn critical_pods(settings: &Settings) -> Value {
    let priority = json!({
        "scopeName": "PriorityClass", "operator": "In", "values": [PRIORITY_CLASS],
    });
    let spec = json!({
        "hard": { "pods": CRITICAL_PODS_MAX },
        "scopeSelector": { "matchExpressions": [priority] },
    });
    let namespace = Some(settings.namespace.as_str());
    object("v1", "ResourceQuota", "cdi-critical-pods", namespace, "", json!({ "spec": spec }))
}

/// A drain evicts one of the pods only if another one is ready. A pod that is not ready blocks no drain.
fn disruption_budget(name: &str, settings: &Settings) -> Value {
    let spec = json!({
        "minAvailable": 1,
        "selector": { "matchLabels": { labels::COMPONENT: name } },
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    });
    let namespace = Some(settings.namespace.as_str());
    object("policy/v1", "PodDisruptionBudget", name, namespace, name, json!({ "spec": spec }))
}

fn deployment(program: &Program, settings: &Settings) -> Value {
    let Program {
        name,
        replicas,
        memory_limit,
        account,
        image,
        env,
        mounts,
        exports_metrics,
        notes,
    } = program;
    let selector = json!({ labels::COMPONENT: name });
    let mut pod_labels = common_labels(name);
    pod_labels.insert(labels::ALLOW_CLUSTER_SERVICES.into(), "true".into());
    if *exports_metrics {
        pod_labels.insert(labels::PROMETHEUS.into(), "true".into());
    }
    // Runbooks select the operator's pod by this label, and others by the common ones.
    if *name == labels::component::OPERATOR {
        pod_labels.insert("name".into(), (*name).into());
        pod_labels.insert(labels::OPERATOR.into(), "".into());
    }
    let mut volumes: Vec<_> = mounts.iter().map(volume).collect();
    let mut volume_mounts: Vec<_> = mounts
        .iter()
        .map(|mount| json!({ "name": mount.name, "mountPath": mount.path, "readOnly": true }))
        .collect();
    if *notes {
        volumes.push(json!({ "name": "tmp", "emptyDir": {} }));
        volume_mounts.push(json!({ "name": "tmp", "mountPath": "/tmp" }));
    }
    let readiness = json!({
        // A port of its own, so that a flood of the main port does not fail the probes.
        "httpGet": { "path": "/healthz", "port": "health", "scheme": "HTTP" },
        "initialDelaySeconds": 2,
        "periodSeconds": 5,
        // A program without CPU time for a while, as on a node that starts many pods, stays ready.
        "timeoutSeconds": 10,
        "failureThreshold": 3,
    });
    // And is not killed.
    let mut liveness = readiness.clone();
    liveness["periodSeconds"] = 10.into();
    liveness["failureThreshold"] = 6.into();
    let mut port = json!({ "containerPort": 8443, "protocol": "TCP" });
    if *exports_metrics {
        port["name"] = "metrics".into();
    }
    let container = json!({
        "name": name,
        "image": settings.image(image),
        "imagePullPolicy": settings.pull_policy,
        "args": [format!("-v={}", settings.verbosity)],
        "env": env,
        "ports": [port, { "name": "health", "containerPort": 8444, "protocol": "TCP" }],
        "livenessProbe": liveness,
        "readinessProbe": readiness,
        "resources": {
            "requests": { "cpu": "100m", "memory": "150Mi" },
            "limits": { "memory": memory_limit },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volume_mounts,
    });
    let neighbours = json!([{
        "weight": 1,
        "podAffinityTerm": { "labelSelector": { "matchLabels": selector }, "topologyKey": "kubernetes.io/hostname" },
    }]);
    let pod = json!({
        "serviceAccountName": account,
        "priorityClassName": PRIORITY_CLASS,
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": neighbours } },
        "containers": [container],
        "volumes": volumes,
    });
    let scc = json!({ annotations::operator::REQUIRED_SCC: "restricted-v2" });
    let spec = json!({
        "replicas": replicas,
        "selector": { "matchLabels": selector },
        "template": { "metadata": { "labels": pod_labels, "annotations": scc }, "spec": pod },
    });
    let place = Some(settings.namespace.as_str());
    object("apps/v1", "Deployment", name, place, name, json!({ "spec": spec }))
}

fn volume(mount: &Mount) -> Value {
    let Mount { name, is_secret, .. } = mount;
    if *is_secret {
        json!({ "name": name, "secret": { "secretName": name } })
    } else {
        json!({ "name": name, "configMap": { "name": name } })
    }
}
