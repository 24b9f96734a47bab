//! What an installation consists of, as objects to apply. Always the same objects for the same settings, in an order in
//! which each finds what it needs.

mod admission;
mod monitoring;
mod network;
mod openshift;
mod populators;
mod programs;
mod rights;

use api::labels;
use serde_json::{Map, Value, json};

pub use admission::{API_SERVICE, MUTATING, VALIDATING};

/// What may be different from one installation to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the programs run.
    pub namespace: String,
    /// What the names of images begin with.
    pub registry: String,
    /// What they end with.
    pub tag: String,
    /// When nodes pull them.
    pub pull_policy: String,
    /// How much is logged.
    pub verbosity: u8,
    /// Whether users with the platform's role `view` may copy volumes.
    pub viewers: Viewers,
}

/// What users may do who have the platform's role `view` in a namespace, besides looking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Viewers {
    /// They may copy every volume of the namespace to another one, as the public project's documents say (R-SEC-1).
    #[default]
    MayCopy,
    /// They may look. Who is to copy gets the role `cdi.kubevirt.io:clone-sourcer`.
    MayLook,
}

/// As in `deploy/`: images as `cargo xtask image` makes them.
impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "cdi".into(),
            registry: "localhost".into(),
            tag: "dev".into(),
            pull_policy: "IfNotPresent".into(),
            verbosity: 1,
            viewers: Viewers::default(),
        }
    }
}

impl Settings {
    /// `localhost/cdi-NAME:dev`
    fn image(&self, name: &str) -> String {
        format!("{}/cdi-{name}:{}", self.registry, self.tag)
    }
}

/// The objects by file: name and objects, in the order to apply them.
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

/// What is added where the cluster has Prometheus' operator.
pub fn monitoring(settings: &Settings) -> Vec<Value> {
    monitoring::objects(settings)
}

/// The file of it in `deploy/`, in a folder of its own: most clusters know no such objects.
pub const MONITORING_FILE: &str = "monitoring/prometheus.yaml";

/// What is added where the cluster validates the sources of claims.
pub fn populators() -> Vec<Value> {
    populators::objects()
}

/// The file of it in `deploy/`, in a folder of its own for the same reason.
pub const POPULATORS_FILE: &str = "populators/volumepopulators.yaml";

/// What may be applied over the installation, each for a reason that the user guide names: file in `deploy/`, and objects.
pub fn options(settings: &Settings) -> Vec<(&'static str, Vec<Value>)> {
    let strict = Settings { viewers: Viewers::MayLook, ..settings.clone() };
    vec![
        (STRICT_VIEW_FILE, rights::viewers(&strict)),
        (POLLING_JOBS_FILE, rights::polling_jobs(settings)),
        (METRICS_NETWORK_FILE, network::metrics_from_monitoring(settings)),
        (OPENSHIFT_FILE, openshift::constraints(settings)),
    ]
}

/// The role `cdi.kubevirt.io:view` without the right to copy volumes.
pub const STRICT_VIEW_FILE: &str = "options/strict-view.yaml";
/// The rights of polling by jobs, for a controller that is started with `-poll-from=jobs`.
pub const POLLING_JOBS_FILE: &str = "options/polling-jobs.yaml";
/// Metrics are read from the namespace of the monitoring stack only.
pub const METRICS_NETWORK_FILE: &str = "options/metrics-from-monitoring.yaml";

/// What OpenShift needs to admit workers.
pub const OPENSHIFT_FILE: &str = "options/openshift.yaml";

/// The files of `deploy/`: name and content.
pub fn files(settings: &Settings) -> Vec<(&'static str, String)> {
    let text = |objects: Vec<Value>| {
        let mut text =
            "# Made by `cargo xtask manifests` from operator/src/manifests. Do not edit.\n"
                .to_owned();
        for object in objects {
            let object = yaml_serde::to_string(&object).expect("JSON is YAML");
            text.push_str("---\n");
            text.push_str(&object);
        }
        text
    };
    let mut all = objects(settings);
    all.push((MONITORING_FILE, monitoring(settings)));
    all.push((POPULATORS_FILE, populators()));
    all.extend(options(settings));
    all.into_iter().map(|(name, objects)| (name, text(objects))).collect()
}

/// Labels of everything that is installed; `component` is empty for what belongs to no program.
fn common_labels(component: &str) -> Map<String, Value> {
    let pairs = [
        (labels::APP, labels::APP_VALUE),
        (labels::APP_COMPONENT, "storage"),
        (labels::MANAGED_BY, labels::component::OPERATOR),
        (labels::COMPONENT, component),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// An object with its name, and its namespace where it is in one.
fn object(
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

fn services(settings: &Settings) -> Vec<Value> {
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
