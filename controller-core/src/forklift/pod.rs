//! The pod that runs one of forklift's populators.

use api::annotations::{request, state};
use api::labels::{self, component};
use api::v1beta1::{CdiConfig, NodePlacement};
use contract::ByteCount;
use contract::import::name as variable;
use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, EnvVar, PersistentVolumeClaim, Pod, PodSpec, SecretEnvSource,
    VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Kind, POPULATOR, PopulatorSpec};
use crate::meta::{self, Installation, Pairs};
use crate::worker::{self, Image};

const CONTAINER: &str = "populate";
const VOLUME: &str = "target";
const FOLDER: &str = "/mnt/";
const DISK: &str = "/mnt/disk.img";
const DEVICE: &str = "/dev/block";

/// What the pod depends on.
pub struct Facts<'a> {
    /// The prime PVC that it fills.
    pub prime: &'a PersistentVolumeClaim,
    /// The PVC that users see.
    pub target: &'a PersistentVolumeClaim,
    pub spec: &'a PopulatorSpec,
    /// The effective settings.
    pub config: Option<&'a CdiConfig>,
    /// Where workers may run.
    pub placement: Option<&'a NodePlacement>,
    /// The importer's image, which contains both programs, and how it is pulled.
    pub image: &'a Image,
    /// The image with the program for oVirt, which may be another.
    pub ovirt_image: &'a str,
    /// For the labels.
    pub installation: &'a Installation,
    /// Shared key by which the controller authenticates to the metrics endpoint.
    pub metrics_key: &'a str,
}

/// Name of the pod for the target with this UID.
pub fn pod_name(target_uid: &str) -> String {
    format!("populate-{target_uid}")
}

/// The pod.
pub fn pod(facts: &Facts) -> Pod {
    let prime = &facts.prime.metadata;
    let annotation = |key| meta::annotation(prime, key).filter(|text| !text.is_empty());
    Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(meta::uid(&facts.target.metadata))),
            namespace: prime.namespace.clone(),
            labels: Some(pod_labels(facts)),
            annotations: Some(annotations(facts)),
            owner_references: Some(vec![meta::owned_by("v1", "PersistentVolumeClaim", prime)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container(facts)],
            volumes: Some(vec![worker::of_claim(VOLUME, meta::name(prime))]),
            affinity: worker::affinity(facts.prime, facts.placement),
            priority_class_name: annotation(request::PRIORITY_CLASS).map(str::to_owned),
            service_account_name: annotation(request::SERVICE_ACCOUNT).map(str::to_owned),
            ..worker::pod_spec(facts.config, facts.placement)
        }),
        status: None,
    }
}

fn container(facts: &Facts) -> Container {
    let image = match facts.spec.kind {
        Kind::Ovirt => facts.ovirt_image,
        Kind::Openstack => &facts.image.importer,
    };
    let is_block = meta::is_block(facts.prime);
    let device = VolumeDevice { name: VOLUME.into(), device_path: DEVICE.into() };
    let mount =
        VolumeMount { name: VOLUME.into(), mount_path: FOLDER.into(), ..VolumeMount::default() };
    let secret = SecretEnvSource { name: facts.spec.secret.clone(), optional: None };
    let plain = |name: &str, value: &str| EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    };
    Container {
        name: CONTAINER.into(),
        image: Some(image.into()),
        image_pull_policy: facts.image.pull_policy.clone(),
        command: Some(vec![facts.spec.kind.program().into()]),
        args: Some(arguments(facts)),
        env_from: Some(vec![EnvFromSource {
            secret_ref: Some(secret),
            ..EnvFromSource::default()
        }]),
        // These take precedence over keys of the Secret. The controller requests the progress with them.
        env: Some(
            [
                plain(variable::OWNER_UID, meta::uid(&facts.target.metadata)),
                plain(variable::METRICS_KEY, facts.metrics_key),
            ]
            .into_iter()
            .chain(worker::metrics_tls(facts.config))
            .chain(worker::required_sandbox(facts.config))
            .collect(),
        ),
        ports: Some(vec![worker::metrics_port()]),
        resources: worker::resources(facts.config),
        volume_devices: is_block.then(|| vec![device]),
        volume_mounts: (!is_block).then(|| vec![mount]),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        // Upstream's program for oVirt writes to /tmp; ours writes only to the volume.
        security_context: Some(worker::confined(image == facts.image.importer)),
        ..Container::default()
    }
}

fn arguments(facts: &Facts) -> Vec<String> {
    let PopulatorSpec { kind, address, secret, identifier, network: _ } = facts.spec;
    let path = if meta::is_block(facts.prime) { DEVICE } else { DISK };
    // The API server rejects PVCs without a size, and the program refuses a 0.
    let size = meta::requested(facts.target).and_then(meta::bytes).map_or(0, ByteCount::get);
    let own = match kind {
        Kind::Ovirt => [("secret-name", secret), ("disk-id", identifier), ("engine-url", address)],
        Kind::Openstack => {
            [("endpoint", address), ("secret-name", secret), ("image-id", identifier)]
        }
    };
    let mut all = vec![format!("--volume-path={path}")];
    all.extend(own.map(|(name, value)| format!("--{name}={value}")));
    all.push(format!("--owner-uid={}", meta::uid(&facts.target.metadata)));
    all.push(format!("--pvc-size={size}"));
    all.extend(facts.image.log_format());
    all
}

/// Labels by which clients find workers, and those of the user's PVC.
fn pod_labels(facts: &Facts) -> Pairs {
    let mut pairs = facts.target.metadata.labels.clone().unwrap_or_default();
    pairs.extend(facts.installation.labels());
    pairs.insert(labels::COMPONENT.into(), component::FORKLIFT_POPULATOR.into());
    pairs.insert(labels::PROMETHEUS.into(), "true".into());
    // These labels of the PVC mean nothing on a pod.
    pairs.remove(labels::FILLING_UP_ALERT);
    pairs.remove(labels::EXCLUDE_FROM_BACKUP);
    pairs
}

fn annotations(facts: &Facts) -> Pairs {
    let mut pairs = worker::passed_on(&facts.prime.metadata);
    pairs.insert(state::POPULATOR_KIND.into(), POPULATOR.into());
    if let Some(network) = facts.spec.network.as_ref().filter(|name| !name.is_empty()) {
        pairs.insert(request::MULTUS_DEFAULT_NETWORK.into(), network.clone());
    }
    pairs
}
