//! The Deployments, and the objects that keep them running next to workloads of tenants.

use api::labels;
use api::v1beta1::NodePlacement;
use api::{annotations, names};
use serde_json::{Value, json};

use super::{Settings, common_labels, object};

pub(super) mod operator;

const PORT: u16 = 8443;
const HEALTH_PORT: u16 = 8444;
/// How long a pod that ends goes on serving: nodes need a moment to send no more connections of its Service to it, and those to a
/// pod that has ended are refused, webhooks among them.
const LEAVES_SERVICE_SECONDS: u32 = 3;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Classes that every cluster has, so no object has to come first and tenants gain no class that preempts others. While
/// webhooks with `failurePolicy: Fail` are away, no DataVolume can be created.
const SYSTEM_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// Pods of that priority in the namespace, if there are not more replicas. More than all of them in an update.
const CRITICAL_PODS_MIN: u32 = 20;

/// The parameters of a Deployment.
struct Program {
    name: &'static str,
    replicas: u32,
    /// Bounds what a flood of requests may take of the node. Well above what was measured: the controllers have 131 MiB with
    /// ten thousand DataVolumes; the API server bounds all calls that it reviews at once to about 500 MiB.
    memory_limit: &'static str,
    account: &'static str,
    image: String,
    env: Vec<Value>,
    mounts: Vec<Mount>,
    exports_metrics: bool,
    /// It writes files to `/tmp`.
    needs_tmp: bool,
    /// Clients reach it by a Service.
    serves_clients: bool,
}

/// A Secret or ConfigMap as files.
struct Mount {
    name: &'static str,
    path: String,
    is_secret: bool,
}

/// Of an installation without a CDI object: the operator keeps the certificates only.
pub(super) fn objects(settings: &Settings) -> Vec<Value> {
    let programs = programs(settings);
    let mut objects = vec![critical_pods(settings)];
    objects.push(operator::certificate_keeper(settings));
    objects.extend(programs.iter().map(|program| deployment(program, settings)));
    objects.extend(disruption_budgets(&programs, settings));
    objects
}

/// What the operator deploys.
pub(super) fn deployed(settings: &Settings) -> Vec<Value> {
    let programs = programs(settings);
    let is_system = |class: &&String| class.starts_with("system-");
    let quota = settings.programs.priority_class.as_ref().filter(is_system);
    let mut objects: Vec<_> = quota.map(|_| critical_pods(settings)).into_iter().collect();
    objects.extend(programs.iter().map(|program| deployment(program, settings)));
    objects.extend(disruption_budgets(&programs, settings));
    objects
}

fn programs(settings: &Settings) -> [Program; 3] {
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
    let images = &settings.images;
    let mut controller_env = installation();
    controller_env.push(text("IMPORTER_IMAGE", &images.importer));
    controller_env
        .extend(images.importer_vddk.as_ref().map(|image| text("IMPORTER_VDDK_IMAGE", image)));
    controller_env.extend([
        text("CLONER_IMAGE", &images.cloner),
        text("UPLOADSERVER_IMAGE", &images.upload_server),
        text("UPLOADPROXY_SERVICE", names::UPLOAD_PROXY_SERVICE),
        text("OVIRT_POPULATOR_IMAGE", &images.ovirt_populator),
        text("PULL_POLICY", &settings.pull_policy),
    ]);
    let token_keys = Mount {
        name: names::SIGNING_KEY_SECRET,
        path: "/var/run/cdi/token/keys".into(),
        is_secret: true,
    };
    let counts = &settings.programs;
    [
        Program {
            name: labels::component::APISERVER,
            replicas: counts.apiserver_replicas,
            memory_limit: "1Gi",
            account: "cdi-apiserver",
            image: images.apiserver.clone(),
            env: installation(),
            mounts: vec![secret("cdi-apiserver-server-cert")],
            exports_metrics: false,
            needs_tmp: false,
            serves_clients: true,
        },
        Program {
            name: labels::component::DEPLOYMENT,
            replicas: counts.controller_replicas,
            memory_limit: "2Gi",
            account: names::CONTROLLER_ACCOUNT,
            image: images.controller.clone(),
            env: controller_env,
            mounts: vec![
                token_keys,
                secret("cdi-uploadserver-signer"),
                secret("cdi-uploadserver-client-signer"),
                bundle("cdi-uploadserver-signer-bundle"),
                bundle("cdi-uploadserver-client-signer-bundle"),
            ],
            exports_metrics: true,
            needs_tmp: true,
            serves_clients: false,
        },
        Program {
            name: labels::component::UPLOADPROXY,
            replicas: counts.upload_proxy_replicas,
            memory_limit: "1Gi",
            account: "cdi-uploadproxy",
            image: images.upload_proxy.clone(),
            env: vec![json!({ "name": "APISERVER_PUBLIC_KEY", "valueFrom": key })],
            mounts: vec![
                secret("cdi-uploadproxy-server-cert"),
                secret("cdi-uploadserver-client-cert"),
            ],
            exports_metrics: false,
            needs_tmp: false,
            serves_clients: true,
        },
    ]
}

fn disruption_budgets(programs: &[Program], settings: &Settings) -> Vec<Value> {
    let with_spare = programs.iter().filter(|program| program.replicas > 1);
    with_spare.map(|program| disruption_budget(program.name, settings)).collect()
}

/// Some platforms admit pods of system priority classes only if a quota allows them.
fn critical_pods(settings: &Settings) -> Value {
    let counts = &settings.programs;
    let programs =
        [counts.apiserver_replicas, counts.controller_replicas, counts.upload_proxy_replicas];
    // With the operator, and each twice in an update.
    let pods =
        programs.iter().fold(2_u32, |sum, count| sum.saturating_add(count.saturating_mul(2)));
    let pods = pods.max(CRITICAL_PODS_MIN);
    let priority = json!({
        "scopeName": "PriorityClass", "operator": "In", "values": SYSTEM_CLASSES,
    });
    let spec = json!({
        "hard": { "pods": pods.to_string() },
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
        needs_tmp,
        serves_clients,
    } = program;
    let selector = json!({ labels::COMPONENT: name });
    let mut pod_labels = common_labels(name);
    pod_labels.insert(labels::ALLOW_CLUSTER_SERVICES.into(), "true".into());
    if *exports_metrics {
        pod_labels.insert(labels::PROMETHEUS.into(), "true".into());
    }
    let mut volumes: Vec<_> = mounts.iter().map(volume).collect();
    let mut volume_mounts: Vec<_> = mounts
        .iter()
        .map(|mount| json!({ "name": mount.name, "mountPath": mount.path, "readOnly": true }))
        .collect();
    if *needs_tmp {
        volumes.push(json!({ "name": "tmp", "emptyDir": {} }));
        volume_mounts.push(json!({ "name": "tmp", "mountPath": "/tmp" }));
    }
    let mut port = json!({ "containerPort": PORT, "protocol": "TCP" });
    if *exports_metrics {
        port["name"] = "metrics".into();
    }
    let mut container = container(name, image, memory_limit, settings);
    container["env"] = json!(env);
    container["ports"] = json!([port, health_port()]);
    container["volumeMounts"] = json!(volume_mounts);
    if *serves_clients {
        container["lifecycle"] =
            json!({ "preStop": { "sleep": { "seconds": LEAVES_SERVICE_SECONDS } } });
    }
    let apart = json!({
        "weight": 1,
        "podAffinityTerm": { "labelSelector": { "matchLabels": selector }, "topologyKey": HOSTNAME },
    });
    let mut pod = json!({
        "serviceAccountName": account,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": volumes,
    });
    place(&mut pod, &settings.programs.placement, apart);
    if let Some(class) = &settings.programs.priority_class {
        pod["priorityClassName"] = class.as_str().into();
    }
    if !settings.programs.image_pull_secrets.is_empty() {
        pod["imagePullSecrets"] = json!(settings.programs.image_pull_secrets);
    }
    let spec = json!({
        "replicas": replicas,
        "selector": { "matchLabels": selector },
        "strategy": rolling_update(),
        "template": { "metadata": { "labels": pod_labels, "annotations": required_scc() }, "spec": pod },
    });
    let namespace = Some(settings.namespace.as_str());
    object("apps/v1", "Deployment", name, namespace, name, json!({ "spec": spec }))
}

/// A new pod is ready before an old one ends, so that webhooks are always served and progress is always reported.
fn rolling_update() -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })
}

/// `apart` is added to the preferred pod anti-affinity of the placement.
fn place(pod: &mut Value, placement: &NodePlacement, apart: Value) {
    if let Some(selector) = &placement.node_selector {
        pod["nodeSelector"] = json!(selector);
    }
    if let Some(tolerations) = &placement.tolerations {
        pod["tolerations"] = json!(tolerations);
    }
    pod["affinity"] = match &placement.affinity {
        Some(affinity) => json!(affinity),
        None => json!({}),
    };
    let preferred =
        &mut pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    match preferred.as_array_mut() {
        Some(terms) => terms.push(apart),
        None => *preferred = json!([apart]),
    }
}

/// What the containers of all programs have in common.
fn container(name: &str, image: &str, memory_limit: &str, settings: &Settings) -> Value {
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
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": settings.pull_policy,
        "args": [format!("-v={}", settings.verbosity)],
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
    })
}

fn health_port() -> Value {
    json!({ "name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP" })
}

fn pod_security() -> Value {
    json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } })
}

fn required_scc() -> Value {
    json!({ annotations::operator::REQUIRED_SCC: "restricted-v2" })
}

fn volume(mount: &Mount) -> Value {
    let Mount { name, is_secret, .. } = mount;
    if *is_secret {
        json!({ "name": name, "secret": { "secretName": name } })
    } else {
        json!({ "name": name, "configMap": { "name": name } })
    }
}
