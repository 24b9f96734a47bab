//! The pod that imports into a PVC.

mod job;
mod mounts;
mod start;
mod starting;
mod volumes;

use std::collections::BTreeMap;
use std::iter;

use api::annotations::{import, request, state};
use api::labels::component;
use api::v1beta1::{CdiConfig, NodePlacement, ResolvedTlsProfile, resolve_tls_profile};
use api::{labels, names};
use contract::import::{BadImportJob, name as variable};
use contract::paths;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaim, Pod, PodSecurityContext,
    PodSpec, PreferredSchedulingTerm, ResourceRequirements, SeccompProfile, Secret,
    SecretKeySelector, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta::{self, Installation, Pairs};

pub use job::job;
pub use job::owner_uid;
pub use mounts::{claims_in, mounts, works_for};
pub use start::{StartDecision, WorkerStart, decide_worker_start};
pub use starting::{is_young, plan_delayed_start, starting_time_left};
pub use volumes::{journal, of_claim};

/// Annotations of a DataVolume or PVC that its worker pods get: their networks, and whether a service mesh injects
/// sidecars.
pub const PASSED_ON: [&str; 4] = [
    request::MULTUS_NETWORKS,
    request::MULTUS_DEFAULT_NETWORK,
    request::ISTIO_INJECT,
    request::LINKERD_INJECT,
];

/// What the pod of a worker depends on.
pub struct Facts<'a> {
    /// The PVC that it fills.
    pub claim: &'a PersistentVolumeClaim,
    /// The PVC that users see: the same, or the one that a populator fills it for.
    pub target: &'a PersistentVolumeClaim,
    /// The effective settings.
    pub config: Option<&'a CdiConfig>,
    /// All storage classes, for the overhead.
    pub classes: &'a [k8s_openapi::api::storage::v1::StorageClass],
    /// Where workers may run.
    pub placement: Option<&'a NodePlacement>,
    /// The importer's image, its pull policy and log verbosity.
    pub image: &'a Image,
    /// The image with VMware's library, where the source needs it.
    pub vddk_image: Option<&'a str>,
    /// `vddk-node-selector` of the ConfigMap with more options.
    pub vddk_node_selector: Option<&'a BTreeMap<String, String>>,
    /// For the labels.
    pub installation: &'a Installation,
    /// Shared key by which the controller authenticates to the metrics endpoint.
    pub metrics_key: Option<&'a str>,
}

/// How workers are started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Of the importer.
    pub importer: String,
    /// Of the importer with nbdkit, for VDDK sources only; the same if not set.
    pub importer_vddk: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: Option<String>,
    /// `-v`.
    pub verbosity: i32,
    /// Whether their logs are to be JSON, as those of the controller are.
    pub logs_are_json: bool,
}

impl Image {
    /// The argument for JSON logs. `None` for the default format: programs of other projects may not know the argument.
    pub fn log_format(&self) -> Option<String> {
        self.logs_are_json.then(|| "-logging-format=json".to_owned())
    }

    /// The importer's image for a source.
    fn importer_for(&self, is_vddk: bool) -> &str {
        self.importer_vddk.as_deref().filter(|_| is_vddk).unwrap_or(&self.importer)
    }

    /// How much is to be logged, and in which form.
    pub fn log_arguments(&self) -> Vec<String> {
        iter::once(format!("-v={}", self.verbosity)).chain(self.log_format()).collect()
    }
}

/// Why no worker can be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The annotations of the PVC contradict themselves.
    #[error("the claim's annotations order no import")]
    Job(#[source] BadImportJob),
    /// Reported with the reason `AwaitingVDDK`.
    #[error(
        "waiting for {} configmap or {} annotation for VDDK image",
        names::VDDK_CONFIG_MAP,
        request::VDDK_INIT_IMAGE
    )]
    NoVddkImage,
    #[error("the image of a registry source that the node pulls has no name")]
    NoImageName,
}

/// The worker's container. Its name sorts before that of the container that serves an image.
const IMPORTER: &str = "importer";
/// The weight of the most important preference, as Kubernetes bounds it.
const WEIGHT_MAX: i32 = 100;
/// The container that serves an image which the node has pulled.
const SERVER: &str = "server";
/// The user that owns disks, in every image of this project and in KubeVirt.
const USER: i64 = 107;
const SERVER_PROGRAM: &str = "/usr/bin/cdi-containerimage-server";
const SHARED_SERVER: &str = "/shared/server";
const SERVER_PORT: &str = "8100";

/// The Secret `name` with what a pod proves itself with. The pod owns it.
pub fn secret(name: &str, pod: &Pod, data: &[(&str, &str)], installation: &Installation) -> Secret {
    let bytes = |&(name, text): &(&str, &str)| (name.to_owned(), ByteString(text.into()));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: pod.metadata.namespace.clone(),
            labels: Some(installation.labels()),
            owner_references: Some(vec![meta::owned_by("v1", "Pod", &pod.metadata)]),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(bytes).collect()),
        ..Secret::default()
    }
}

/// The pod that imports into a PVC.
///
/// # Errors
/// [`Error`].
pub fn pod(facts: &Facts) -> Result<Pod, Error> {
    let metadata = &facts.claim.metadata;
    let text = |key| meta::annotation(metadata, key).unwrap_or_default();
    let is_vddk = text(import::SOURCE) == "vddk";
    if is_vddk && facts.vddk_image.is_none() {
        return Err(Error::NoVddkImage);
    }
    let by_node = job::is_pulled_by_node(facts.claim);
    let node_image = if by_node { Some(node_image(text(import::ENDPOINT))?) } else { None };
    let is_stream = by_node && meta::is_true(metadata, import::REGISTRY_IMAGE_STREAM);

    let job = job(facts).map_err(Error::Job)?;
    let mut importer = container(facts, IMPORTER, facts.image.importer_for(is_vddk));
    importer.args = Some(facts.image.log_arguments());
    importer.env = Some(environment(&job, facts));
    importer.ports = Some(vec![metrics_port()]);
    let volumes = volumes::worker_volumes(facts, by_node, is_vddk);
    importer.volume_mounts = Some(volumes.mounts);
    importer.volume_devices = Some(volumes.devices).filter(|devices| !devices.is_empty());

    let mut containers = vec![importer];
    let mut before = Vec::new();
    if let Some(image) = node_image {
        let command = format!("cp {SERVER_PROGRAM} {SHARED_SERVER}");
        let mut copy = container(facts, "init", &facts.image.importer);
        copy.command = Some(vec!["sh".into(), "-c".into(), command]);
        copy.volume_mounts = Some(vec![volumes::shared()]);
        before.push(copy);
        let mut server = container(facts, SERVER, &image);
        let words = [
            SHARED_SERVER,
            "-p",
            SERVER_PORT,
            "-image-dir",
            "/disk",
            "-ready-file",
            paths::READY_FILE,
            "-done-file",
            paths::DONE_FILE,
        ];
        server.command = Some(words.map(str::to_owned).into());
        server.volume_mounts = Some(vec![volumes::shared()]);
        containers.push(server);
    }
    if let Some(image) = facts.vddk_image.filter(|_| is_vddk) {
        let mut side_car = container(facts, "vddk-side-car", image);
        side_car.volume_mounts = Some(vec![volumes::vddk()]);
        before.push(side_car);
    }

    let mut annotations = passed_on(metadata);
    annotations.insert(state::CREATED_BY_CONTROLLER.into(), "yes".into());
    if is_stream {
        annotations.insert(state::RESOLVE_NAMES.into(), "*".into());
    }
    let owner = meta::owned_by("v1", "PersistentVolumeClaim", metadata);
    let is_set = |text: &&str| !text.is_empty();
    Ok(Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(facts.claim)),
            namespace: metadata.namespace.clone(),
            labels: Some(pod_labels(facts)),
            annotations: Some(annotations),
            // OpenShift resolves the image stream for the owner or creator of the pod, which has to be this controller.
            owner_references: (!is_stream).then(|| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers,
            init_containers: Some(before).filter(|before| !before.is_empty()),
            volumes: Some(volumes.volumes),
            node_selector: node_selector(facts, by_node),
            affinity: affinity(facts.claim, facts.placement),
            priority_class_name: Some(text(request::PRIORITY_CLASS))
                .filter(is_set)
                .map(str::to_owned),
            service_account_name: Some(text(request::SERVICE_ACCOUNT))
                .filter(is_set)
                .map(str::to_owned),
            ..pod_spec(facts.config, facts.placement)
        }),
        status: None,
    })
}

/// Name of the worker, which differs for each checkpoint.
pub fn pod_name(claim: &PersistentVolumeClaim) -> String {
    let noted = meta::annotation(&claim.metadata, import::POD_NAME);
    let stage = meta::annotation(&claim.metadata, state::CHECKPOINT_CURRENT);
    let name =
        || names::importer_pod(meta::name(&claim.metadata), stage.filter(|at| !at.is_empty()));
    noted.map_or_else(name, str::to_owned)
}

/// Labels by which clients find workers, and those of the user's PVC.
fn pod_labels(facts: &Facts) -> Pairs {
    let mut pairs = facts.target.metadata.labels.clone().unwrap_or_default();
    pairs.extend(facts.installation.labels());
    pairs.insert(labels::COMPONENT.into(), component::IMPORTER.into());
    pairs.insert(labels::PROMETHEUS.into(), "true".into());
    // These labels of the PVC mean nothing on a pod.
    pairs.remove(labels::FILLING_UP_ALERT);
    pairs.remove(labels::EXCLUDE_FROM_BACKUP);
    pairs
}

/// The annotations of a DataVolume or PVC that every pod that works for it gets.
pub fn passed_on(metadata: &ObjectMeta) -> Pairs {
    let mut pairs = Pairs::from([
        (request::ISTIO_INJECT.into(), "false".into()),
        (request::LINKERD_INJECT.into(), "disabled".into()),
    ]);
    for key in PASSED_ON {
        if let Some(value) = meta::annotation(metadata, key) {
            pairs.insert(key.into(), value.into());
        }
    }
    pairs
}

/// The annotations for pods of a clone in `namespace`: those of the target if it is in that namespace. Otherwise those
/// of the source, which is there. The owner of a target elsewhere chooses neither networks nor a mesh for pods that
/// have the source.
pub fn passed_on_in(namespace: &str, target: &ObjectMeta, source: Option<&ObjectMeta>) -> Pairs {
    let follows = Some(target).filter(|target| meta::namespace(target) == namespace).or(source);
    follows.map_or_else(|| passed_on(&ObjectMeta::default()), passed_on)
}

/// The priority class that pods of a clone in `namespace` have: the target's, if that is in the same namespace.
pub fn priority_class_in<'a>(namespace: &str, target: &'a ObjectMeta) -> Option<&'a str> {
    let class = meta::annotation(target, request::PRIORITY_CLASS)?;
    (meta::namespace(target) == namespace && !class.is_empty()).then_some(class)
}

fn container(facts: &Facts, name: &str, image: &str) -> Container {
    Container {
        name: name.into(),
        image: Some(image.into()),
        image_pull_policy: facts.image.pull_policy.clone(),
        resources: resources(facts.config),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        security_context: Some(confined(name == IMPORTER)),
        ..Container::default()
    }
}

/// The security context of a container of a worker: no privileges.
pub fn confined(has_read_only_root: bool) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".into()]) }),
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        read_only_root_filesystem: has_read_only_root.then_some(true),
        seccomp_profile: Some(seccomp()),
        ..SecurityContext::default()
    }
}

/// What the pods of all workers have in common: security context, the group of their volumes, placement, pull secrets
/// and restart policy.
pub fn pod_spec(config: Option<&CdiConfig>, placement: Option<&NodePlacement>) -> PodSpec {
    let secrets = config.and_then(|config| config.status.as_ref()?.image_pull_secrets.clone());
    PodSpec {
        restart_policy: Some("OnFailure".into()),
        enable_service_links: Some(false),
        automount_service_account_token: Some(false),
        security_context: Some(PodSecurityContext {
            fs_group: Some(USER),
            seccomp_profile: Some(seccomp()),
            ..PodSecurityContext::default()
        }),
        node_selector: placement.and_then(|placement| placement.node_selector.clone()),
        tolerations: placement.and_then(|placement| placement.tolerations.clone()),
        image_pull_secrets: secrets.filter(|secrets| !secrets.is_empty()),
        ..PodSpec::default()
    }
}

/// The port of the metrics with the progress.
pub fn metrics_port() -> ContainerPort {
    ContainerPort {
        name: Some(paths::METRICS_PORT_NAME.into()),
        container_port: i32::from(paths::METRICS_PORT),
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

fn seccomp() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }
}

/// CPU and memory of a worker.
pub fn resources(config: Option<&CdiConfig>) -> Option<ResourceRequirements> {
    config?.status.as_ref()?.default_pod_resource_requirements.clone()
}

/// The variable by which a worker requires its sandbox, if the settings do.
pub fn required_sandbox(config: Option<&CdiConfig>) -> Option<EnvVar> {
    let is_required = config.is_some_and(|config| config.spec.require_sandbox == Some(true));
    is_required.then(|| EnvVar {
        name: variable::REQUIRE_SANDBOX.into(),
        value: Some("true".into()),
        value_from: None,
    })
}

/// The variables by which the metrics of a worker follow the TLS profile of the settings. None without a profile: the
/// default profile permits what the TLS library offers.
pub fn metrics_tls(config: Option<&CdiConfig>) -> Vec<EnvVar> {
    let Some(profile) = config.and_then(|config| config.spec.tls_security_profile.as_ref()) else {
        return Vec::new();
    };
    let ResolvedTlsProfile { min_version, ciphers } = resolve_tls_profile(Some(profile));
    [
        (variable::TLS_MIN_VERSION, min_version.as_str().to_owned()),
        (variable::TLS_CIPHERS, ciphers.join(",")),
    ]
    .map(|(name, value)| EnvVar { name: name.into(), value: Some(value), value_from: None })
    .into()
}

/// The variables of the job, and references to the Secrets with its credentials.
fn environment(job: &contract::ImportJob, facts: &Facts) -> Vec<EnvVar> {
    let plain = |(name, value)| EnvVar { name, value: Some(value), value_from: None };
    let mut all: Vec<_> = job.to_environment().into_iter().map(plain).collect();
    let metadata = &facts.claim.metadata;
    let secret = meta::annotation(metadata, import::SECRET_NAME).filter(|name| !name.is_empty());
    let is_gcs = meta::annotation(metadata, import::SOURCE) == Some("gcs");
    if let Some(secret) = secret.filter(|_| !is_gcs) {
        for (name, key) in
            [(variable::ACCESS_KEY, "accessKeyId"), (variable::SECRET_KEY, "secretKey")]
        {
            let key =
                SecretKeySelector { name: secret.to_owned(), key: key.into(), optional: None };
            all.push(EnvVar {
                name: name.into(),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: Some(key),
                    ..EnvVarSource::default()
                }),
            });
        }
    }
    if proxy_authority(facts.config).is_some() {
        all.push(EnvVar {
            name: variable::PROXY_CERT_DIR.into(),
            value: Some(format!("{}/", paths::PROXY_CERTS)),
            value_from: None,
        });
    }
    all.extend(facts.metrics_key.map(|key| plain((variable::METRICS_KEY.into(), key.into()))));
    all.extend(metrics_tls(facts.config));
    all.extend(required_sandbox(facts.config));
    all
}

/// The ConfigMap of the installation with the proxy's CA, of which each worker gets a copy.
pub fn proxy_authority(config: Option<&CdiConfig>) -> Option<&str> {
    let proxy = config?.status.as_ref()?.import_proxy.as_ref()?;
    proxy.trusted_ca_proxy.as_deref().filter(|name| !name.is_empty())
}

/// Name of that copy.
pub fn proxy_authority_copy(claim: &PersistentVolumeClaim) -> String {
    names::object_name("import-proxy-cm", meta::name(&claim.metadata))
}

fn node_selector(facts: &Facts, by_node: bool) -> Option<BTreeMap<String, String>> {
    let placed = facts.placement.and_then(|placement| placement.node_selector.clone());
    let mut selector = placed.unwrap_or_default();
    selector.extend(facts.vddk_node_selector.cloned().unwrap_or_default());
    let architecture = meta::annotation(&facts.claim.metadata, import::REGISTRY_ARCHITECTURE);
    if let Some(architecture) = architecture.filter(|name| by_node && !name.is_empty()) {
        selector.insert("kubernetes.io/arch".into(), architecture.into());
    }
    Some(selector).filter(|selector| !selector.is_empty())
}

/// Where workers may run, and the node that the scheduler has chosen for the consumer of the PVC. As a rule for the
/// scheduler, not as `nodeName`: a pod that bypasses the scheduler is not held by quotas and scheduling gates.
///
/// A PVC with a volume only prefers the node. The volume decides from where it can be reached: a worker that replaces another one
/// must not wait for a node that is drained or lost.
pub fn affinity(
    claim: &PersistentVolumeClaim,
    placement: Option<&NodePlacement>,
) -> Option<Affinity> {
    let placed = placement.and_then(|placement| placement.affinity.clone());
    let node = meta::annotation(&claim.metadata, request::SELECTED_NODE);
    let Some(node) = node.filter(|name| !name.is_empty()) else { return placed };
    let here = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    };
    let mut affinity = placed.unwrap_or_default();
    let rules = affinity.node_affinity.get_or_insert_default();
    if meta::has_volume(claim) {
        let term = NodeSelectorTerm { match_fields: Some(vec![here]), ..Default::default() };
        let preferred =
            rules.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        preferred.push(PreferredSchedulingTerm { preference: term, weight: WEIGHT_MAX });
        return Some(affinity);
    }
    let required = rules
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(|| NodeSelector { node_selector_terms: Vec::new() });
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    // The terms are alternatives, so each gets the node.
    for term in &mut required.node_selector_terms {
        term.match_fields.get_or_insert_default().push(here.clone());
    }
    Some(affinity)
}

/// The image that the node pulls: host and path of the address, or the name of an image stream.
fn node_image(endpoint: &str) -> Result<String, Error> {
    let image =
        endpoint.split_once("://").map_or(endpoint, |(_, image)| image).trim_start_matches('/');
    if image.is_empty() { Err(Error::NoImageName) } else { Ok(image.to_owned()) }
}

#[cfg(test)]
mod settings_tests;
#[cfg(test)]
mod tests;
