//! The pod of an upload server, its Service and its Secret.

use api::annotations::{request, state};
use api::labels::component;
use api::v1beta1::{CdiConfig, NodePlacement, resolve_tls_profile};
use api::{labels, names};
use contract::paths;
use contract::upload::{PORT, UploadTlsFiles};
use contract::{Overhead, Quantity, UploadJob};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, HTTPGetAction, PersistentVolumeClaim, Pod, PodSpec, Probe,
    Secret, SecretVolumeSource, Service, ServicePort, ServiceSpec, Volume, VolumeDevice,
    VolumeMount,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{CLIENT_NAME, pod_name, service_name};
use crate::clone::Origin;
use crate::meta::{self, Installation, Pairs};
use crate::worker::{self, Image};
use crate::{config, copy, scratch};

const DATA: &str = "cdi-data-vol";
const SCRATCH: &str = "cdi-scratch-vol";
const TLS: &str = "tls-config";
const TLS_PATH: &str = "/etc/tls";

/// What the pod depends on.
pub struct Facts<'a> {
    /// The PVC that is uploaded to.
    pub claim: &'a PersistentVolumeClaim,
    /// The effective settings.
    pub config: Option<&'a CdiConfig>,
    /// All storage classes, for the overhead.
    pub classes: &'a [StorageClass],
    /// Where workers may run.
    pub placement: Option<&'a NodePlacement>,
    /// Settings of all workers; the importer's image is not used.
    pub image: &'a Image,
    /// Image of the upload server.
    pub upload_server: &'a str,
    /// When the server's certificates expire.
    pub deadline: Timestamp,
    /// Name of the Secret with the server's certificate.
    pub secret: &'a str,
    /// Source of the labels of all objects of the installation.
    pub installation: &'a Installation,
}

/// The pod, without a status.
pub fn pod(facts: &Facts) -> Pod {
    let metadata = &facts.claim.metadata;
    let text = |key| meta::annotation(metadata, key).filter(|text| !text.is_empty());
    let mut pod_labels = facts.installation.labels();
    pod_labels.insert(labels::COMPONENT.into(), component::UPLOAD_SERVER.into());
    pod_labels.insert(labels::SERVICE.into(), service_name(facts.claim));
    pod_labels.insert(labels::UPLOAD_TARGET.into(), meta::uid(metadata).into());
    let mut annotations = worker::passed_on(metadata);
    annotations.insert(state::CREATED_BY_UPLOAD_CONTROLLER.into(), "yes".into());
    let open = format!("- protocol: tcp\n  port: {PORT}\n");
    annotations.insert(state::OVN_OPEN_PORTS.into(), open);
    let (container, volumes) = container(facts);
    Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(facts.claim)),
            namespace: metadata.namespace.clone(),
            labels: Some(pod_labels),
            annotations: Some(annotations),
            owner_references: Some(vec![meta::owned_by("v1", "PersistentVolumeClaim", metadata)]),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(volumes),
            affinity: worker::affinity(facts.claim, facts.placement),
            priority_class_name: text(request::PRIORITY_CLASS).map(str::to_owned),
            service_account_name: text(request::SERVICE_ACCOUNT).map(str::to_owned),
            ..worker::pod_spec(facts.config, facts.placement)
        }),
        status: None,
    }
}

fn container(facts: &Facts) -> (Container, Vec<Volume>) {
    let name = meta::name(&facts.claim.metadata);
    let mount = |volume: &str, path: &str| VolumeMount {
        name: volume.into(),
        mount_path: path.into(),
        ..VolumeMount::default()
    };
    let mut volumes = vec![worker::of_claim(DATA, name)];
    let (mut mounts, mut devices) = (Vec::new(), Vec::new());
    if meta::is_block(facts.claim) {
        devices.push(VolumeDevice { name: DATA.into(), device_path: paths::BLOCK_DEVICE.into() });
    } else {
        mounts.push(mount(DATA, paths::DATA));
    }
    if scratch::is_needed(facts.claim) {
        volumes.push(worker::of_claim(SCRATCH, &names::scratch_pvc(name)));
        mounts.push(mount(SCRATCH, paths::SCRATCH));
    }
    volumes.push(Volume {
        name: TLS.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(facts.secret.to_owned()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    mounts.push(VolumeMount { read_only: Some(true), ..mount(TLS, TLS_PATH) });
    // An emptyDir, because the volume may contain nothing but the upload.
    let journal = worker::journal();
    mounts.push(mount(&journal.name, paths::JOURNAL));
    volumes.push(journal);
    let container = Container {
        name: component::UPLOAD_SERVER.into(),
        image: Some(facts.upload_server.into()),
        image_pull_policy: facts.image.pull_policy.clone(),
        args: Some(facts.image.log_arguments()),
        env: Some(environment(facts)),
        ports: Some(vec![ContainerPort {
            container_port: i32::from(PORT),
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/healthz".into()),
                port: IntOrString::Int(i32::from(PORT)),
                scheme: Some("HTTPS".into()),
                ..HTTPGetAction::default()
            }),
            // A client waits for the first success. As many failures as fit into 15 s are tolerated: a busy server may
            // respond late, and must not look unready during its transfer.
            period_seconds: Some(1),
            failure_threshold: Some(15),
            ..Probe::default()
        }),
        resources: worker::resources(facts.config),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        security_context: Some(worker::confined(true)),
        volume_mounts: Some(mounts),
        volume_devices: Some(devices).filter(|devices| !devices.is_empty()),
        ..Container::default()
    };
    (container, volumes)
}

fn environment(facts: &Facts) -> Vec<EnvVar> {
    let plain = |(name, value)| EnvVar { name, value: Some(value), value_from: None };
    let variables = job(facts).to_environment().into_iter().map(plain);
    variables.chain(worker::required_sandbox(facts.config)).collect()
}

fn job(facts: &Facts) -> UploadJob {
    let claim = facts.claim;
    let status = facts.config.and_then(|config| config.status.as_ref());
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let is_block = meta::is_block(claim);
    let overhead =
        if is_block { Overhead::ZERO } else { config::overhead_of(status, facts.classes, class) };
    let profile = facts.config.and_then(|config| config.spec.tls_security_profile.as_ref());
    let tls = resolve_tls_profile(profile);
    // The server of a clone accepts only the pod that reads the source. The PVC's annotation with that name is
    // information for users: a client that may edit the PVC could change it.
    let source = Origin::requested(&claim.metadata);
    let of_copy = source.map(|source| copy::client_name(&claim.metadata, &source));
    let source_format = meta::annotation(&claim.metadata, request::SOURCE_FORMAT);
    let default = UploadJob::default();
    UploadJob {
        tls: UploadTlsFiles::mounted_at(TLS_PATH),
        tls_min_version: tls.min_version.as_str().to_owned(),
        tls_ciphers: tls.ciphers,
        client_name: of_copy.unwrap_or_else(|| CLIENT_NAME.to_owned()),
        destination: if is_block { paths::BLOCK_DEVICE.to_owned() } else { default.destination },
        // Fails closed: a size that cannot be read admits no image.
        image_size: meta::requested(claim).map(|size| size.0.parse().unwrap_or(Quantity::ZERO)),
        overhead,
        preallocate: meta::is_true(&claim.metadata, state::PREALLOCATION_REQUESTED),
        raw: source_format == Some("raw"),
        deadline: Some(facts.deadline),
        owner_uid: worker::owner_uid(claim).to_owned(),
        ..default
    }
}

/// A headless Service: its name is the host that the upload proxy connects to.
pub fn service(claim: &PersistentVolumeClaim, installation: &Installation) -> Service {
    let name = service_name(claim);
    let mut all_labels = installation.labels();
    all_labels.insert(labels::COMPONENT.into(), component::UPLOAD_SERVER.into());
    Service {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(all_labels),
            owner_references: Some(vec![meta::owned_by(
                "v1",
                "PersistentVolumeClaim",
                &claim.metadata,
            )]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            ports: Some(vec![ServicePort {
                port: i32::from(PORT),
                target_port: Some(IntOrString::Int(i32::from(PORT))),
                protocol: Some("TCP".into()),
                ..ServicePort::default()
            }]),
            selector: Some(Pairs::from([(labels::SERVICE.into(), name)])),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// DNS names of the server, for its certificate.
pub fn hosts(claim: &PersistentVolumeClaim) -> Vec<String> {
    let (service, namespace) = (service_name(claim), meta::namespace(&claim.metadata));
    vec![service.clone(), format!("{service}.{namespace}"), format!("{service}.{namespace}.svc")]
}

/// The server's certificate and key, and the CA of its clients. Its name is the one in the pod's volumes: another
/// version of this controller may have created the pod.
pub fn secret(
    pod: &Pod,
    certificate: &str,
    key: &str,
    client_ca: &str,
    installation: &Installation,
) -> Secret {
    let data = [("tls.crt", certificate), ("tls.key", key), ("ca.crt", client_ca)];
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mounted = volumes.find(|volume| volume.name == TLS).and_then(|one| one.secret.as_ref());
    let name = mounted.and_then(|source| source.secret_name.as_deref());
    worker::secret(name.unwrap_or(meta::name(&pod.metadata)), pod, &data, installation)
}
