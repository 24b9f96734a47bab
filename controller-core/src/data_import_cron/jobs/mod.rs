//! Pods that poll for the newest image where the controller itself cannot: CronJobs in the namespace of the
//! installation, and pods in the namespace of the cron whose image a node pulls.

mod agrees;

use std::collections::BTreeMap;

use api::annotations::{operator, request};
use api::v1beta1::{CdiConfig, DataImportCron, ImportProxy, NodePlacement, RegistrySource};
use api::{labels, names};
use contract::import::name as variable;
use contract::paths;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job, JobSpec, JobTemplateSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    Pod, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements, SeccompProfile,
    SecretKeySelector, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::source::{PollFrom, Poller, poller, template_source};
use crate::meta::{self, Installation, Pairs};
use crate::worker::{self, Image};

pub use agrees::agrees;

/// The program that polls.
const POLLER: &str = "/usr/bin/cdi-source-update-poller";
/// The service account it runs as.
const SERVICE_ACCOUNT: &str = "cdi-cronjob";
const CERTS: &str = "cdi-cert-vol";
const PROXY_CERTS: &str = "cdi-proxy-cert-vol";
const SHARED: &str = "shared-volume";
/// The user ID that owns disks in all images of this project and in KubeVirt. A container disk may name no user.
const USER: i64 = 107;
/// The SecurityContextConstraints of restricted pods on OpenShift.
const RESTRICTED_SCC: &str = "restricted-v2";
/// The container that runs the polled image.
const IMAGE_CONTAINER: &str = "image-container";
/// Characters of the UID in names.
const UID_PART: usize = 8;
const TRIES_AGAIN: i32 = 2;
const KEPT_SECONDS: i32 = 10;

/// Inputs of the plans for these pods.
pub struct Facts<'a> {
    pub cron: &'a DataImportCron,
    /// The effective configuration.
    pub config: Option<&'a CdiConfig>,
    /// Where worker pods may run.
    pub placement: Option<&'a NodePlacement>,
    /// The importer's image.
    pub image: &'a Image,
    /// For the labels.
    pub installation: &'a Installation,
    /// The CDI object, which owns the objects outside of the cron's namespace.
    pub owner: Option<&'a OwnerReference>,
    pub networks: &'a PollNetworks,
}

/// Networks of registries that polls may not connect to, and exceptions: CIDRs separated by commas, in the format of
/// the poller's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollNetworks {
    pub denied: String,
    pub allowed: String,
}

/// The desired objects in the namespace of the installation.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// No CronJob, no Job.
    Nothing,
    /// If the CronJob does not exist yet, the Job is created with it, for a first poll before the first scheduled time.
    Poll {
        /// To apply.
        cron_job: Box<CronJob>,
        /// To create once.
        first: Box<Job>,
    },
}

/// The CronJob of a cron, if its source is polled by one.
pub fn plan(facts: &Facts, from: PollFrom) -> Plan {
    let registry = template_source(facts.cron).and_then(|source| source.registry.as_ref());
    let url = registry.and_then(|registry| registry.url.as_deref());
    let (Poller::Job, Some(registry), Some(url)) = (poller(facts.cron, from), registry, url) else {
        return Plan::Nothing;
    };
    if facts.cron.metadata.deletion_timestamp.is_some() {
        return Plan::Nothing;
    }
    let spec = job_spec(facts, registry, url);
    let name = name(facts.cron);
    let mut all = facts.installation.labels();
    all.extend(selector(facts.cron));
    let metadata = |name: String| ObjectMeta {
        name: Some(name),
        namespace: Some(facts.installation.namespace.clone()),
        labels: Some(all.clone()),
        owner_references: facts.owner.map(|owner| vec![owner.clone()]),
        ..ObjectMeta::default()
    };
    let first = Job {
        metadata: metadata(names::object_name("initial-job", &name)),
        spec: Some(spec.clone()),
        status: None,
    };
    let cron_job = CronJob {
        metadata: metadata(name),
        spec: CronJobSpec {
            schedule: facts.cron.spec.schedule.clone(),
            concurrency_policy: Some("Forbid".into()),
            successful_jobs_history_limit: Some(1),
            failed_jobs_history_limit: Some(1),
            job_template: JobTemplateSpec { metadata: None, spec: Some(spec) },
            ..CronJobSpec::default()
        },
        status: None,
    };
    Plan::Poll { cron_job: Box::new(cron_job), first: Box::new(first) }
}

/// Name of the CronJob of a cron.
pub fn name(cron: &DataImportCron) -> String {
    let uid: String = meta::uid(&cron.metadata).chars().take(UID_PART).collect();
    names::object_name(meta::name(&cron.metadata), &uid)
}

/// The labels by which CronJobs and Jobs of a cron are found, also after it is gone.
pub fn selector(cron: &DataImportCron) -> Pairs {
    Pairs::from([
        (labels::DATA_IMPORT_CRON.into(), meta::name(&cron.metadata).into()),
        (labels::DATA_IMPORT_CRON_NAMESPACE.into(), meta::namespace(&cron.metadata).into()),
    ])
}

/// Whether the cluster's list of insecure registries contains the registry of this URL.
fn is_insecure(url: &str, config: Option<&CdiConfig>) -> bool {
    let address = url.strip_prefix("docker://").unwrap_or_default();
    let host = address.split('/').next().unwrap_or_default();
    let listed = config.and_then(|config| config.spec.insecure_registries.as_ref());
    !host.is_empty() && listed.is_some_and(|listed| listed.iter().any(|one| one == host))
}

fn job_spec(facts: &Facts, registry: &RegistrySource, url: &str) -> JobSpec {
    let cron = facts.cron;
    let is_set = |text: &&str| !text.is_empty();
    let certs = registry.cert_config_map.as_deref().filter(is_set);
    let namespace = meta::namespace(&cron.metadata);
    let arguments = [POLLER, "-ns", namespace, "-cron", meta::name(&cron.metadata), "-url", url];
    let certdir = certs.map(|_| ["-certdir", paths::CERTS]).into_iter().flatten();
    let PollNetworks { denied, allowed } = facts.networks;
    let networks = [("-poll-deny-cidrs", denied), ("-poll-allow-cidrs", allowed)];
    let networks = networks.into_iter().filter(|(_, cidrs)| !cidrs.is_empty());
    let networks = networks.flat_map(|(flag, cidrs)| [flag.to_owned(), cidrs.clone()]);
    let command = arguments.into_iter().chain(certdir).map(str::to_owned).chain(networks);
    let command = command.chain(facts.image.log_format()).collect();

    let plain = |name: &str, value: &str| EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    };
    let mut env = Vec::new();
    if let Some(secret) = registry.secret_ref.as_deref().filter(is_set) {
        for (name, key) in
            [(variable::ACCESS_KEY, "accessKeyId"), (variable::SECRET_KEY, "secretKey")]
        {
            let key = SecretKeySelector { name: secret.into(), key: key.into(), optional: None };
            let value_from = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
            env.push(EnvVar { name: name.into(), value: None, value_from: Some(value_from) });
        }
    }
    if is_insecure(url, facts.config) {
        env.push(plain(variable::INSECURE_TLS, "true"));
    }
    env.extend(worker::required_sandbox(facts.config));
    let status = facts.config.and_then(|config| config.status.as_ref());
    let proxy = status.and_then(|status| status.import_proxy.clone()).unwrap_or_default();
    let ImportProxy { http_proxy, https_proxy, no_proxy, trusted_ca_proxy } = proxy;
    for (name, value) in [
        (variable::HTTP_PROXY, http_proxy),
        (variable::HTTPS_PROXY, https_proxy),
        (variable::NO_PROXY, no_proxy),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            env.push(plain(name, &value));
        }
    }

    let mounted = [
        (CERTS, certs.map(str::to_owned), paths::CERTS),
        (PROXY_CERTS, trusted_ca_proxy.filter(|name| !name.is_empty()), paths::PROXY_CERTS),
    ];
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    for (name, config_map, path) in mounted {
        let Some(config_map) = config_map else { continue };
        let config_map =
            ConfigMapVolumeSource { name: config_map, ..ConfigMapVolumeSource::default() };
        volumes.push(Volume {
            name: name.into(),
            config_map: Some(config_map),
            ..Volume::default()
        });
        mounts.push(mount(name, path));
    }
    let some = |all: Vec<VolumeMount>| Some(all).filter(|all| !all.is_empty());
    let container = Container {
        command: Some(command),
        env: Some(env).filter(|env| !env.is_empty()),
        volume_mounts: some(mounts),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..container(facts, "cdi-source-update-poller", &facts.image.importer)
    };
    let mut all = facts.installation.labels();
    all.insert(labels::DATA_IMPORT_CRON_POLLER.into(), String::new());
    all.insert(labels::ALLOW_CLUSTER_SERVICES.into(), "true".into());
    let annotations = Pairs::from([(operator::REQUIRED_SCC.into(), RESTRICTED_SCC.into())]);
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(all),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(volumes).filter(|volumes| !volumes.is_empty()),
            service_account_name: Some(SERVICE_ACCOUNT.into()),
            // The service account disables the mount of its token unless a pod requests it.
            automount_service_account_token: Some(true),
            ..pod_spec(facts)
        }),
    };
    JobSpec {
        backoff_limit: Some(TRIES_AGAIN),
        ttl_seconds_after_finished: Some(KEPT_SECONDS),
        template,
        ..JobSpec::default()
    }
}

/// The pod whose image its node pulls, so that the digest is resolved by the node's own mirrors and credentials. `None`
/// for other sources.
pub fn node_pod(facts: &Facts) -> Option<Pod> {
    let cron = facts.cron;
    let registry = template_source(cron)?.registry.as_ref()?;
    let url = registry.url.as_deref()?;
    let image = url.split_once("://").map_or(url, |(_, image)| image);
    let shared = mount(SHARED, "/shared");
    let mut copy = Container {
        command: Some(vec![
            "sh".into(),
            "-c".into(),
            "cp /usr/bin/cdi-containerimage-server /shared/server".into(),
        ]),
        volume_mounts: Some(vec![shared.clone()]),
        ..container(facts, "init", &facts.image.importer)
    };
    let mut pulled = Container {
        command: Some(vec!["/shared/server".into(), "-h".into()]),
        image_pull_policy: Some("Always".into()),
        volume_mounts: Some(vec![shared]),
        ..container(facts, IMAGE_CONTAINER, image)
    };
    for container in [&mut copy, &mut pulled] {
        container.security_context.get_or_insert_default().run_as_user = Some(USER);
    }
    let architecture =
        registry.platform.as_ref().and_then(|platform| platform.architecture.clone());
    let volume = Volume {
        name: SHARED.into(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    let mut spec = PodSpec {
        init_containers: Some(vec![copy]),
        containers: vec![pulled],
        volumes: Some(vec![volume]),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        ..pod_spec(facts)
    };
    if let Some(architecture) = architecture.filter(|name| !name.is_empty()) {
        let selector = spec.node_selector.get_or_insert_default();
        selector.insert("kubernetes.io/arch".into(), architecture);
    }
    let mut all = facts.installation.labels();
    all.insert(labels::DATA_IMPORT_CRON_POLLER.into(), String::new());
    let annotations = BTreeMap::from([
        (operator::REQUIRED_SCC.into(), RESTRICTED_SCC.into()),
        (request::ISTIO_INJECT.into(), "false".into()),
        (request::LINKERD_INJECT.into(), "disabled".into()),
    ]);
    Some(Pod {
        metadata: ObjectMeta {
            name: Some(names::object_name("poller", &name(cron))),
            namespace: cron.metadata.namespace.clone(),
            labels: Some(all),
            annotations: Some(annotations),
            owner_references: Some(vec![meta::owned_by(
                api::data_volume::API_VERSION,
                "DataImportCron",
                &cron.metadata,
            )]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// The digest that the kubelet reports for the image of the pod, or why the pull fails. `None`: neither yet.
pub fn pulled_digest(pod: &Pod) -> Option<Result<String, String>> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let mut failure = None;
    for container in all {
        if container.name == IMAGE_CONTAINER
            && let Some(at) = container.image_id.rfind("sha256:")
        {
            return Some(Ok(container.image_id[at..].to_owned()));
        }
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
        if matches!(reason, "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName") {
            // Without its message, which differs at each retry.
            let image = &container.image;
            failure = Some(Err(format!("the node cannot pull the image {image} ({reason})")));
        }
    }
    failure
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

fn seccomp() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }
}

/// A container with restricted privileges and without a user ID: the platform may set one.
fn container(facts: &Facts, name: &str, image: &str) -> Container {
    let status = facts.config.and_then(|config| config.status.as_ref());
    let resources: Option<ResourceRequirements> =
        status.and_then(|status| status.default_pod_resource_requirements.clone());
    Container {
        name: name.into(),
        image: Some(image.into()),
        image_pull_policy: facts.image.pull_policy.clone(),
        resources,
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".into()]) }),
            run_as_non_root: Some(true),
            seccomp_profile: Some(seccomp()),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn pod_spec(facts: &Facts) -> PodSpec {
    let status = facts.config.and_then(|config| config.status.as_ref());
    let secrets = status.and_then(|status| status.image_pull_secrets.clone());
    let placement = facts.placement;
    PodSpec {
        restart_policy: Some("Never".into()),
        termination_grace_period_seconds: Some(0),
        security_context: Some(PodSecurityContext {
            seccomp_profile: Some(seccomp()),
            ..PodSecurityContext::default()
        }),
        image_pull_secrets: secrets.filter(|secrets| !secrets.is_empty()),
        node_selector: placement.and_then(|placement| placement.node_selector.clone()),
        affinity: placement.and_then(|placement| placement.affinity.clone()),
        tolerations: placement.and_then(|placement| placement.tolerations.clone()),
        ..PodSpec::default()
    }
}

#[cfg(test)]
mod tests;
