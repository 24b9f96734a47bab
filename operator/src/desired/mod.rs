//! The objects that a CDI object describes, as the operator deploys and keeps them. Pure: the same facts give the same objects.

pub(crate) mod environment;
mod platform;
mod upload_endpoint;

use api::labels;
use api::v1beta1::{Cdi, CdiConfigSpec, ImagePullPolicy, InfraPlacement, NodePlacement};
use serde_json::{Map, Value};

pub use crate::customize::DesiredError;
use crate::customize::customize;
pub use crate::manifests::Images;
use crate::manifests::{
    self, MONITORING_NAMESPACE, MONITORING_NAMESPACE_OPENSHIFT, ProgramSettings, Settings,
};
pub use environment::{EnvironmentError, OperatorEnvironment};
pub use platform::{Platform, PlatformApi};

/// Used unless the CDI object names another one.
const DEFAULT_PRIORITY_CLASS: &str = "kubevirt-cluster-critical";
/// The flag of the controller by which pods poll registries, and its value.
const POLL_FROM_JOBS: (&str, &str) = ("poll-from", "jobs");

pub struct DesiredFacts<'a> {
    pub cdi: &'a Cdi,
    pub environment: &'a OperatorEnvironment,
    pub platform: &'a Platform,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DesiredSet {
    /// In the order to apply them. No two have the same kind, namespace and name.
    pub objects: Vec<Value>,
    /// A patch that cannot be applied is left out; the object is still desired, with all other patches.
    pub errors: Vec<DesiredError>,
}

/// The priority class that the CDI object asks for. It is used only if it exists.
pub fn priority_class(cdi: &Cdi) -> &str {
    let named = cdi.spec.priority_class.as_deref().filter(|class| !class.is_empty());
    named.unwrap_or(DEFAULT_PRIORITY_CLASS)
}

pub fn desired_objects(facts: &DesiredFacts<'_>) -> DesiredSet {
    let DesiredFacts { cdi, environment, platform } = *facts;
    let settings = settings(facts);
    let serves = |api| platform.serves(api);
    let mut objects = Vec::new();
    if serves(PlatformApi::SecurityContextConstraints) {
        // Before the account that it names, so that no worker is refused.
        objects.extend(manifests::security_context_constraints(&settings));
    }
    objects.extend(manifests::crds());
    objects.extend(manifests::access(&settings));
    if controller_flag(cdi, POLL_FROM_JOBS.0) == Some(POLL_FROM_JOBS.1) {
        objects.extend(manifests::polling_jobs(&settings));
    }
    objects.extend(manifests::services(&settings));
    if serves(PlatformApi::NetworkPolicy) {
        objects.extend(manifests::network(&settings));
    }
    objects.extend(manifests::deployments(&settings));
    objects.extend(manifests::admission(&settings));
    objects.extend(upload_endpoint::objects(facts));
    if serves(PlatformApi::PrometheusRule) || serves(PlatformApi::ServiceMonitor) {
        objects.extend(manifests::monitoring_access(&settings));
    }
    if serves(PlatformApi::PrometheusRule) {
        objects.push(manifests::prometheus_rule(&settings));
    }
    if serves(PlatformApi::ServiceMonitor) {
        objects.push(manifests::service_monitor(&settings));
    }
    if serves(PlatformApi::VolumePopulator) {
        objects.extend(manifests::populators());
    }
    if pvc_webhook_is_disabled(cdi) {
        objects.retain(|object| object["metadata"]["name"] != manifests::PVC_WEBHOOK);
    }
    if !environment.deploys_cluster_resources {
        objects.retain(|object| object["metadata"]["namespace"].is_string());
    }
    let installer = installer_labels(cdi);
    for object in &mut objects {
        add_labels(object, &installer);
    }
    let errors = match &cdi.spec.customize_components {
        Some(customizations) => customize(&mut objects, customizations),
        None => Vec::new(),
    };
    DesiredSet { objects, errors }
}

fn settings(facts: &DesiredFacts<'_>) -> Settings {
    let DesiredFacts { cdi, environment, platform } = *facts;
    let config = cdi.spec.config.as_ref();
    let pull_policy = cdi.spec.image_pull_policy.map(pull_policy_name);
    let log_verbosity = config.and_then(|config| config.log_verbosity);
    let is_openshift = platform.serves(PlatformApi::SecurityContextConstraints);
    let usual = if is_openshift { MONITORING_NAMESPACE_OPENSHIFT } else { MONITORING_NAMESPACE };
    let monitoring_namespace = environment.monitoring_namespace.as_deref().unwrap_or(usual);
    Settings {
        namespace: environment.namespace.clone(),
        images: environment.images.clone(),
        // Not deployed by the operator.
        operator_image: String::new(),
        pull_policy: pull_policy.unwrap_or(&environment.pull_policy).to_owned(),
        verbosity: log_verbosity.unwrap_or(environment.verbosity).max(0),
        viewers: environment.viewers,
        monitoring_namespace: monitoring_namespace.to_owned(),
        runbook_url_template: environment.runbooks().to_owned(),
        api_server_ports: platform.api_server_ports.clone(),
        programs: program_settings(cdi, config, platform),
    }
}

fn program_settings(
    cdi: &Cdi,
    config: Option<&CdiConfigSpec>,
    platform: &Platform,
) -> ProgramSettings {
    let InfraPlacement {
        node_selector,
        affinity,
        tolerations,
        deployment_replicas,
        api_server_replicas,
        upload_proxy_replicas,
    } = cdi.spec.infra.clone().unwrap_or_default();
    // Upstream CDI applies a number only if it is more than one.
    let replicas =
        |count: Option<i32>| count.and_then(|count| count.try_into().ok()).unwrap_or(1).max(1);
    let class = priority_class(cdi).to_owned();
    ProgramSettings {
        apiserver_replicas: replicas(api_server_replicas),
        controller_replicas: replicas(deployment_replicas),
        upload_proxy_replicas: replicas(upload_proxy_replicas),
        priority_class: Some(class).filter(|_| platform.has_priority_class),
        image_pull_secrets: config
            .and_then(|config| config.image_pull_secrets.clone())
            .unwrap_or_default(),
        placement: NodePlacement { node_selector, affinity, tolerations },
    }
}

fn pull_policy_name(policy: ImagePullPolicy) -> &'static str {
    match policy {
        ImagePullPolicy::Always => "Always",
        ImagePullPolicy::IfNotPresent => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    }
}

fn pvc_webhook_is_disabled(cdi: &Cdi) -> bool {
    let config = cdi.spec.config.as_ref();
    config.and_then(|config| config.webhook_pvc_rendering.as_deref()) == Some("Disabled")
}

/// A flag of `customizeComponents`, whose names are not case-sensitive.
fn controller_flag<'a>(cdi: &'a Cdi, name: &str) -> Option<&'a str> {
    let flags = cdi.spec.customize_components.as_ref()?.flags.as_ref()?.controller.as_ref()?;
    flags.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// The labels of the CDI object that name the product which the installation is part of.
fn installer_labels(cdi: &Cdi) -> Map<String, Value> {
    let all = cdi.metadata.labels.clone().unwrap_or_default();
    let copied = [labels::PART_OF, labels::VERSION];
    all.into_iter()
        .filter(|(key, _)| copied.contains(&key.as_str()))
        .map(|(key, value)| (key, value.into()))
        .collect()
}

/// Adds labels to `object`, and to its pods. The programs read those of their pods for the objects that they create.
fn add_labels(object: &mut Value, added: &Map<String, Value>) {
    let add = |labels: &mut Value| {
        for (key, value) in added {
            labels[key] = value.clone();
        }
    };
    if object["kind"] == "Deployment" {
        add(&mut object["spec"]["template"]["metadata"]["labels"]);
    }
    if !added.is_empty() {
        add(&mut object["metadata"]["labels"]);
    }
}
