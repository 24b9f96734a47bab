//! The source pod of a host-assisted clone, and its Secret.

use api::annotations::state;
use api::labels::{self, component};
use api::v1beta1::{CdiConfig, NodePlacement};
use contract::CloneJob;
use contract::clone::{CloneTarget, ClonedVolume, VolumeMode, name as variable};
use contract::paths;
use contract::upload::PORT as UPLOAD_PORT;
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, EnvVarSource, PersistentVolumeClaim, Pod, PodAffinityTerm,
    PodSpec, Secret, SecretKeySelector, VolumeDevice, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::meta::{self, Installation, Pairs};
use crate::worker::{self, Image};
use crate::{copy, upload};

const VOLUME: &str = "cdi-data-vol";
const MOUNT: &str = "/var/run/cdi/clone/source";
const TARGET_VOLUME: &str = "cdi-target-vol";
const TARGET_DEVICE: &str = "/dev/cdi-clone-target";
const HOST: &str = "kubernetes.io/hostname";

/// What the pod depends on.
pub struct Facts<'a> {
    /// The PVC that is copied to.
    pub claim: &'a PersistentVolumeClaim,
    /// The PVC that is read.
    pub source: &'a PersistentVolumeClaim,
    /// CA of the upload server, PEM. `None`: the pod mounts both volumes and needs no server.
    pub authority: Option<&'a str>,
    /// The effective settings.
    pub config: Option<&'a CdiConfig>,
    /// Where workers may run.
    pub placement: Option<&'a NodePlacement>,
    /// Settings of all workers; the importer's image is not used.
    pub image: &'a Image,
    /// Image of the cloner.
    pub cloner: &'a str,
    /// Shared key by which the controller authenticates to the metrics endpoint.
    pub metrics_key: &'a str,
    /// Name of the Secret with the pod's client certificate.
    pub secret: &'a str,
    /// Source of the labels of all objects of the installation.
    pub installation: &'a Installation,
}

/// The pod, without a status.
pub fn pod(facts: &Facts) -> Pod {
    let target = &facts.claim.metadata;
    let source = &facts.source.metadata;
    let name = copy::pod_name(target);
    let mut pod_labels = facts.installation.labels();
    pod_labels.extend([
        (labels::COMPONENT.to_owned(), component::CLONE_SOURCE.to_owned()),
        (labels::PROMETHEUS.to_owned(), "true".to_owned()),
        (labels::CLONE_UNIQUE_ID.to_owned(), name.clone()),
        (labels::CLONE_SOURCE.to_owned(), meta::uid(source).to_owned()),
    ]);
    let mut annotations = worker::passed_on_in(meta::namespace(source), target, Some(source));
    let of_target = format!("{}/{}", meta::namespace(target), meta::name(target));
    annotations.insert(state::CREATED_BY_CONTROLLER.into(), "yes".into());
    annotations.insert(state::OWNER_REF.into(), of_target);
    let mut volumes = vec![worker::of_claim(VOLUME, meta::name(source))];
    if facts.authority.is_none() {
        volumes.push(worker::of_claim(TARGET_VOLUME, meta::name(target)));
    }
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: source.namespace.clone(),
            labels: Some(pod_labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container(facts)],
            volumes: Some(volumes),
            affinity: affinity(facts),
            priority_class_name: worker::priority_class_in(meta::namespace(source), target)
                .map(str::to_owned),
            ..worker::pod_spec(facts.config, facts.placement)
        }),
        status: None,
    }
}

/// Whether a pod mounts both volumes.
pub fn has_both(pod: &Pod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| volume.name == TARGET_VOLUME)
}

fn container(facts: &Facts) -> Container {
    let (mut devices, mut mounts) = (Vec::new(), Vec::new());
    let mut give = |name: &str, is_block: bool, device: &str, folder: &str, is_read_only: bool| {
        if is_block {
            devices.push(VolumeDevice { name: name.into(), device_path: device.into() });
        } else {
            mounts.push(VolumeMount {
                name: name.into(),
                mount_path: folder.into(),
                read_only: is_read_only.then_some(true),
                ..VolumeMount::default()
            });
        }
    };
    give(VOLUME, meta::is_block(facts.source), paths::BLOCK_DEVICE, MOUNT, true);
    if facts.authority.is_none() {
        give(TARGET_VOLUME, meta::is_block(facts.claim), TARGET_DEVICE, paths::DATA, false);
    }
    Container {
        name: component::CLONE_SOURCE.into(),
        image: Some(facts.cloner.into()),
        image_pull_policy: facts.image.pull_policy.clone(),
        args: Some(facts.image.log_arguments()),
        env: Some(environment(facts)),
        ports: Some(vec![worker::metrics_port()]),
        resources: worker::resources(facts.config),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        security_context: Some(worker::confined(true)),
        volume_devices: Some(devices).filter(|all| !all.is_empty()),
        volume_mounts: Some(mounts).filter(|all| !all.is_empty()),
        ..Container::default()
    }
}

/// The variables of the job, and where the kubelet finds the certificate of the reader.
fn environment(facts: &Facts) -> Vec<EnvVar> {
    let plain = |(name, value)| EnvVar { name, value: Some(value), value_from: None };
    let secret = |(name, key): (&str, &str)| EnvVar {
        name: name.into(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: facts.secret.to_owned(),
                key: key.into(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    };
    let job = job(facts);
    let mut all: Vec<_> = job.to_environment().into_iter().map(plain).collect();
    if let CloneTarget::Server { .. } = job.target {
        let identity =
            [(variable::CLIENT_KEY, "tls.key"), (variable::CLIENT_CERTIFICATE, "tls.crt")];
        all.extend(identity.map(secret));
    }
    all.push(plain((variable::METRICS_KEY.into(), facts.metrics_key.into())));
    all.extend(worker::metrics_tls(facts.config));
    all.extend(worker::required_sandbox(facts.config));
    all
}

fn job(facts: &Facts) -> CloneJob {
    let claim = &facts.claim.metadata;
    let volume = |of: &PersistentVolumeClaim, device: &str, directory: &str| {
        let (mode, path) = if meta::is_block(of) {
            (VolumeMode::Block, device)
        } else {
            (VolumeMode::Filesystem, directory)
        };
        ClonedVolume { mode, path: path.to_owned() }
    };
    let target = match facts.authority {
        Some(ca) => {
            let service = upload::service_name(facts.claim);
            let (namespace, port) = (meta::namespace(claim), UPLOAD_PORT);
            let url = format!("https://{service}.{namespace}.svc:{port}/v1beta1/upload");
            CloneTarget::Server { url, ca: ca.to_owned() }
        }
        None => CloneTarget::Volume(volume(facts.claim, TARGET_DEVICE, paths::DATA)),
    };
    CloneJob {
        source: volume(facts.source, paths::BLOCK_DEVICE, MOUNT),
        preallocate: meta::is_true(claim, state::PREALLOCATION_REQUESTED),
        owner_uid: owner_uid(claim).to_owned(),
        target,
    }
}

/// UID of the object that shows the progress: the PVC that a populator fills, or the DataVolume.
fn owner_uid(claim: &ObjectMeta) -> &str {
    let noted = meta::annotation(claim, state::OWNER_UID);
    let owner = || meta::controller(claim).map(|owner| owner.uid.as_str());
    noted.or_else(owner).unwrap_or(meta::uid(claim))
}

/// Pods that read a ReadWriteOnce source run on one node, preferably next to the upload server. A pod with both volumes
/// runs where the scheduler wants the target.
fn affinity(facts: &Facts) -> Option<Affinity> {
    let target = &facts.claim.metadata;
    let mut affinity = match facts.authority {
        Some(_) => facts.placement.and_then(|placement| placement.affinity.clone()),
        None => worker::affinity(facts.claim, facts.placement),
    }
    .unwrap_or_default();
    let rules = affinity.pod_affinity.get_or_insert_default();
    let near = |key: &str, value: &str, namespace: Option<&str>| PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(Pairs::from([(key.to_owned(), value.to_owned())])),
            ..LabelSelector::default()
        }),
        namespaces: namespace.map(|namespace| vec![namespace.to_owned()]),
        topology_key: HOST.into(),
        ..PodAffinityTerm::default()
    };
    let modes = facts.source.spec.as_ref().and_then(|spec| spec.access_modes.as_deref());
    if modes.is_some_and(|modes| modes == ["ReadWriteOnce"]) {
        let uid = meta::uid(&facts.source.metadata);
        let required = &mut rules.required_during_scheduling_ignored_during_execution;
        required.get_or_insert_default().push(near(labels::CLONE_SOURCE, uid, None));
    }
    if facts.authority.is_some() {
        let term = near(labels::UPLOAD_TARGET, meta::uid(target), Some(meta::namespace(target)));
        let preferred = &mut rules.preferred_during_scheduling_ignored_during_execution;
        preferred
            .get_or_insert_default()
            .push(WeightedPodAffinityTerm { pod_affinity_term: term, weight: 100 });
    }
    Some(affinity)
}

/// The pod's client certificate and key. Its name is the one in the pod's environment: another version of this
/// controller may have created the pod.
pub fn secret(pod: &Pod, certificate: &str, key: &str, installation: &Installation) -> Secret {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut variables = containers.flat_map(|container| container.env.iter().flatten());
    let named = variables.find(|entry| entry.name == variable::CLIENT_KEY);
    let source = named.and_then(|variable| variable.value_from.as_ref()?.secret_key_ref.as_ref());
    let name = source.map_or(meta::name(&pod.metadata), |source| source.name.as_str());
    worker::secret(name, pod, &[("tls.crt", certificate), ("tls.key", key)], installation)
}
