//! The objects of an installation. Deterministic for given settings, in an order in
//! which each finds what it needs.

mod admission;
mod monitoring;
mod network;
mod olm;
mod openshift;
mod populators;
mod programs;
mod release;
mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use api::labels;
use api::v1beta1::NodePlacement;
use k8s_openapi::api::core::v1::LocalObjectReference;
use serde_json::{Map, Value, json};

pub(crate) use admission::PVC_WEBHOOK;
pub use admission::{API_SERVICE, MUTATING, VALIDATING};
use monitoring::TOKEN as METRICS_TOKEN;

/// The settings of an installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub namespace: String,
    pub images: Images,
    pub operator_image: String,
    /// `imagePullPolicy` of all containers.
    pub pull_policy: String,
    /// `-v` of all programs.
    pub verbosity: i32,
    pub viewers: Viewers,
    /// Namespace of the monitoring stack.
    pub monitoring_namespace: String,
    /// Address of an alert's runbook; contains `%s` once, for the name of the alert.
    pub runbook_url_template: String,
    /// Ports of API servers that NetworkPolicies allow besides 443 and 6443.
    pub api_server_ports: BTreeSet<u16>,
    pub programs: ProgramSettings,
}

/// Images of the programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    pub controller: String,
    pub importer: String,
    /// `None`: VDDK imports run in [`Images::importer`].
    pub importer_vddk: Option<String>,
    pub cloner: String,
    pub apiserver: String,
    pub upload_server: String,
    pub upload_proxy: String,
    pub ovirt_populator: String,
}

impl Images {
    /// As `cargo xtask image` builds them: `REGISTRY/cdi-NAME:TAG`.
    pub fn tagged(registry: &str, tag: &str) -> Self {
        let image = |name| tagged_image(registry, name, tag);
        Self {
            controller: image("controller"),
            importer: image("importer"),
            importer_vddk: Some(image("importer-vddk")),
            cloner: image("cloner"),
            apiserver: image("apiserver"),
            upload_server: image("uploadserver"),
            upload_proxy: image("uploadproxy"),
            // The forklift populators are in the importer's image.
            ovirt_populator: image("importer"),
        }
    }
}

fn tagged_image(registry: &str, name: &str, tag: &str) -> String {
    format!("{registry}/cdi-{name}:{tag}")
}

/// Settings of the Deployments, except that of the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSettings {
    pub apiserver_replicas: u32,
    pub controller_replicas: u32,
    pub upload_proxy_replicas: u32,
    pub priority_class: Option<String>,
    pub image_pull_secrets: Vec<LocalObjectReference>,
    pub placement: NodePlacement,
}

/// As in `deploy/`: webhooks have a spare, and the class is one that every cluster has.
impl Default for ProgramSettings {
    fn default() -> Self {
        let linux = BTreeMap::from([("kubernetes.io/os".to_owned(), "linux".to_owned())]);
        Self {
            apiserver_replicas: 2,
            controller_replicas: 1,
            upload_proxy_replicas: 1,
            priority_class: Some("system-cluster-critical".into()),
            image_pull_secrets: Vec::new(),
            placement: NodePlacement { node_selector: Some(linux), ..NodePlacement::default() },
        }
    }
}

/// Permissions of users with the platform's role `view`, besides reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Viewers {
    /// They may clone every volume of the namespace to another one, as in older versions of upstream CDI.
    #[default]
    MayClone,
    /// They may only read. The role `cdi.kubevirt.io:clone-sourcer` permits cloning.
    MayRead,
}

/// Annotation with the purpose of an object.
const DESCRIPTION: &str = "kubernetes.io/description";
/// The runbooks of upstream's alerts.
pub const RUNBOOK_URL_TEMPLATE: &str = "https://kubevirt.io/monitoring/runbooks/%s";
/// Namespace of Prometheus, as its operator is usually installed.
pub const MONITORING_NAMESPACE: &str = "monitoring";
/// The same on OpenShift.
pub const MONITORING_NAMESPACE_OPENSHIFT: &str = "openshift-monitoring";

/// As in `deploy/`: images as `cargo xtask image` builds them.
impl Default for Settings {
    fn default() -> Self {
        Self::tagged("localhost", "dev")
    }
}

impl Settings {
    /// The defaults with images `REGISTRY/cdi-NAME:TAG`.
    pub fn tagged(registry: &str, tag: &str) -> Self {
        Self {
            namespace: "cdi".into(),
            images: Images::tagged(registry, tag),
            operator_image: tagged_image(registry, "operator", tag),
            pull_policy: "IfNotPresent".into(),
            verbosity: 1,
            viewers: Viewers::default(),
            monitoring_namespace: MONITORING_NAMESPACE.into(),
            runbook_url_template: RUNBOOK_URL_TEMPLATE.into(),
            api_server_ports: BTreeSet::new(),
            programs: ProgramSettings::default(),
        }
    }
}

/// The files and their objects, in the order to apply them.
pub fn objects(settings: &Settings) -> Vec<(&'static str, Vec<Value>)> {
    vec![
        ("00-namespace.yaml", vec![namespace(settings)]),
        ("10-rights.yaml", rights::objects(settings)),
        ("20-services.yaml", services(settings)),
        ("30-programs.yaml", programs::objects(settings)),
        ("40-admission.yaml", admission::objects(settings)),
        ("50-network.yaml", network::objects(settings)),
    ]
}

/// Additional objects for clusters with Prometheus' operator.
pub fn monitoring(settings: &Settings) -> Vec<Value> {
    let mut all = monitoring::access(settings);
    all.extend([monitoring::rule(settings), monitoring::monitor(settings)]);
    all
}

/// The CRDs of all kinds. Built once: their schemas are large.
pub(crate) fn crds() -> Vec<Value> {
    static CRDS: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let value = |crd| serde_json::to_value(crd).expect("a CRD is JSON");
        api::v1beta1::crds().into_iter().map(value).map(with_common_labels).collect()
    });
    CRDS.clone()
}

/// Accounts, roles and bindings of users and of all programs but the operator.
pub(crate) fn access(settings: &Settings) -> Vec<Value> {
    rights::deployed(settings)
}

/// Additional permissions for a controller that polls registries by jobs.
pub(crate) fn polling_jobs(settings: &Settings) -> Vec<Value> {
    rights::polling_jobs(settings)
}

pub(crate) fn network(settings: &Settings) -> Vec<Value> {
    network::objects(settings)
}

/// Deployments of all programs but the operator, with their budgets.
pub(crate) fn deployments(settings: &Settings) -> Vec<Value> {
    programs::deployed(settings)
}

/// All objects that the operator may deploy, except Routes and Ingresses.
fn everything(settings: &Settings) -> Vec<Value> {
    let mut all = crds();
    all.extend(access(settings));
    all.extend(polling_jobs(settings));
    all.extend(services(settings));
    all.extend(network(settings));
    all.extend(deployments(settings));
    all.extend(admission(settings));
    all.extend(security_context_constraints(settings));
    all.extend(monitoring(settings));
    all.extend(populators());
    all
}

/// The Deployment of an operator that installs what a CDI object describes. `version` is what the status of that object
/// reports.
pub fn operator_deployment(settings: &Settings, version: &str) -> Value {
    programs::operator::installer(settings, version)
}

pub(crate) fn admission(settings: &Settings) -> Vec<Value> {
    admission::objects(settings)
}

pub(crate) fn security_context_constraints(settings: &Settings) -> Vec<Value> {
    openshift::constraints(settings)
}

/// What Prometheus needs to find and read the programs' metrics.
pub(crate) fn monitoring_access(settings: &Settings) -> Vec<Value> {
    monitoring::access(settings)
}

pub(crate) fn prometheus_rule(settings: &Settings) -> Value {
    monitoring::rule(settings)
}

pub(crate) fn service_monitor(settings: &Settings) -> Value {
    monitoring::monitor(settings)
}

/// In a directory of its own, as most clusters do not have its kinds.
pub const MONITORING_FILE: &str = "monitoring/prometheus.yaml";

/// Additional objects for clusters that validate `dataSourceRef` of PVCs.
pub fn populators() -> Vec<Value> {
    populators::objects()
}

/// In a directory of its own for the same reason.
pub const POPULATORS_FILE: &str = "populators/volumepopulators.yaml";

/// Optional changes of the installation, described in the user guide: file in `deploy/`, and objects.
pub fn options(settings: &Settings) -> Vec<(&'static str, Vec<Value>)> {
    let strict = Settings { viewers: Viewers::MayRead, ..settings.clone() };
    vec![
        (STRICT_VIEW_FILE, rights::viewers(&strict)),
        (POLLING_JOBS_FILE, rights::polling_jobs(settings)),
        (METRICS_NETWORK_FILE, network::metrics_from_monitoring(settings)),
        (OPENSHIFT_FILE, openshift::constraints(settings)),
    ]
}

/// The role `cdi.kubevirt.io:view` without the permission to clone volumes.
pub const STRICT_VIEW_FILE: &str = "options/strict-view.yaml";
/// Permissions of polling jobs, for a controller with `-poll-from=jobs`.
pub const POLLING_JOBS_FILE: &str = "options/polling-jobs.yaml";
/// Metrics are read from the namespace of the monitoring stack only.
pub const METRICS_NETWORK_FILE: &str = "options/metrics-from-monitoring.yaml";

pub const OPENSHIFT_FILE: &str = "options/openshift.yaml";

/// Installation by the operator. Not in the same directory as the plain manifests: a cluster has one or the other.
pub const OPERATOR_FILE: &str = "operator/cdi-operator.yaml";
pub const INSTALLATION_FILE: &str = "operator/cdi-cr.yaml";
pub const OPERATOR_NETWORK_FILE: &str = "operator/network-policies.yaml";
pub const CHECK_FILE: &str = "operator/check.yaml";

/// The files of an installation by the operator, and their objects.
pub fn release(settings: &Settings, version: &str) -> Vec<(&'static str, Vec<Value>)> {
    vec![
        (OPERATOR_FILE, release::operator(settings, version)),
        (INSTALLATION_FILE, vec![release::installation(settings)]),
        (OPERATOR_NETWORK_FILE, release::network_policies(settings)),
        (CHECK_FILE, release::check(settings, version)),
    ]
}

/// The files of the bundle for the Operator Lifecycle Manager, and their objects.
pub fn olm(settings: &Settings, version: &str) -> Vec<(&'static str, Value)> {
    olm::files(settings, version)
}

/// All generated files except the CRDs, and their text. `version` is that of the operator.
pub fn files(settings: &Settings, version: &str) -> Vec<(&'static str, String)> {
    const HEAD: &str =
        "# Generated by `cargo xtask manifests` from operator/src/manifests. Do not edit.\n";
    let yaml = |object: &Value| yaml_serde::to_string(object).expect("JSON is YAML");
    let text = |objects: Vec<Value>| {
        let mut text = HEAD.to_owned();
        for object in objects {
            text.push_str("---\n");
            text.push_str(&yaml(&object));
        }
        text
    };
    let mut all = objects(settings);
    all.push((MONITORING_FILE, monitoring(settings)));
    all.push((POPULATORS_FILE, populators()));
    all.extend(options(settings));
    all.extend(release(settings, version));
    let mut files: Vec<_> = all.into_iter().map(|(name, objects)| (name, text(objects))).collect();
    let bundle = olm::files(settings, version).into_iter();
    files.extend(bundle.map(|(name, object)| (name, format!("{HEAD}{}", yaml(&object)))));
    files.push((olm::IMAGE_FILE, format!("{HEAD}{}", olm::image_file())));
    files
}

/// Labels of all installed objects; `component` is empty for objects that belong to no program.
fn common_labels(component: &str) -> Map<String, Value> {
    let pairs = [
        (labels::APP, labels::APP_VALUE),
        (labels::APP_COMPONENT, "storage"),
        (labels::MANAGED_BY, labels::component::OPERATOR),
        (labels::COMPONENT, component),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// Adds the labels of all installed objects where the object has none of the same name.
fn with_common_labels(mut object: Value) -> Value {
    let labels = &mut object["metadata"]["labels"];
    for (key, value) in common_labels("") {
        if labels[&key].is_null() {
            labels[key] = value;
        }
    }
    object
}

/// `place`: the namespace, if any.
pub(crate) fn object(
    api_version: &str,
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    component: &str,
    rest: Value,
) -> Value {
    let mut metadata = json!({ "name": name, "labels": common_labels(component) });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
        object.extend(rest);
    }
    object
}

fn namespace(settings: &Settings) -> Value {
    let mut namespace = object("v1", "Namespace", &settings.namespace, None, "", json!({}));
    for level in ["enforce", "audit", "warn"] {
        namespace["metadata"]["labels"][format!("pod-security.kubernetes.io/{level}")] =
            "restricted".into();
    }
    namespace
}

pub(crate) fn services(settings: &Settings) -> Vec<Value> {
    let service = |name: &str, component: &str, selector: (&str, &str), port: u16, named: bool| {
        let mut port = json!({ "port": port, "protocol": "TCP", "targetPort": 8443 });
        if named {
            port["name"] = "metrics".into();
        }
        let spec =
            json!({ "type": "ClusterIP", "selector": { selector.0: selector.1 }, "ports": [port] });
        let place = Some(settings.namespace.as_str());
        object("v1", "Service", name, place, component, json!({ "spec": spec }))
    };
    let of = |component| (labels::COMPONENT, component);
    let proxy = labels::component::UPLOADPROXY;
    let (api, apiserver) = (api::names::API_SERVICE, labels::component::APISERVER);
    let mut metrics =
        service("cdi-prometheus-metrics", "", (labels::PROMETHEUS, "true"), 8443, true);
    metrics["metadata"]["labels"][labels::PROMETHEUS] = "true".into();
    vec![
        service(api, apiserver, of(apiserver), 443, false),
        service(api::names::UPLOAD_PROXY_SERVICE, proxy, of(proxy), 443, false),
        metrics,
    ]
}
