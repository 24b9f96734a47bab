//! A pod without a task: by mounting a PVC it causes the PVC to be bound and its file system to be expanded.

use api::labels::{self, component};
use api::v1beta1::{CdiConfig, NodePlacement};
use contract::paths;
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, PodSpec, VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::facts::Facts;
use super::objects;
use crate::meta::{self, Pairs};
use crate::worker;

const VOLUME: &str = "cdi-data-vol";
const MOUNT: &str = "/var/run/cdi/clone/source";

/// Inputs of the pod.
pub(super) struct Prep<'a> {
    pub name: String,
    /// Labels by which it is found.
    pub marks: Pairs,
    /// More annotations.
    pub notes: Pairs,
    /// The PVC to bind and expand.
    pub claim: &'a PersistentVolumeClaim,
    /// Annotations for networks and service mesh.
    pub passed_on: Pairs,
    /// The cloner's image.
    pub image: &'a str,
    /// Where worker pods may run.
    pub placement: Option<&'a NodePlacement>,
    pub priority_class: Option<&'a str>,
    /// The effective configuration.
    pub config: Option<&'a CdiConfig>,
}

/// The pod for a PVC of the clone.
pub(super) fn pod(facts: &Facts, claim: &PersistentVolumeClaim) -> Pod {
    build_prep_pod(Prep {
        name: facts.names().pod,
        marks: objects::marks(facts),
        notes: Pairs::new(),
        claim,
        passed_on: objects::passed_on(facts),
        image: facts.image,
        placement: facts.placement,
        priority_class: facts.priority_class,
        config: facts.config,
    })
}

pub(super) fn build_prep_pod(prep: Prep) -> Pod {
    let Prep { name, marks, notes, claim, passed_on, image, placement, priority_class, config } =
        prep;
    let mut all_labels = marks;
    all_labels.insert(labels::COMPONENT.into(), component::POPULATOR_PREP.into());
    let mut annotations = passed_on;
    annotations.extend(notes);
    let is_block = meta::is_block(claim);
    let device = VolumeDevice { name: VOLUME.into(), device_path: paths::BLOCK_DEVICE.into() };
    let mount =
        VolumeMount { name: VOLUME.into(), mount_path: MOUNT.into(), ..VolumeMount::default() };
    let container = Container {
        name: "dummy".into(),
        image: Some(image.into()),
        command: Some(["/bin/bash", "-c", "echo 'hello cdi'"].map(str::to_owned).into()),
        resources: worker::resources(config),
        volume_devices: is_block.then(|| vec![device]),
        volume_mounts: (!is_block).then(|| vec![mount]),
        security_context: Some(worker::confined(true)),
        ..Container::default()
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(all_labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(vec![worker::of_claim(VOLUME, meta::name(&claim.metadata))]),
            affinity: worker::affinity(claim, placement),
            priority_class_name: priority_class.map(str::to_owned),
            ..worker::pod_spec(config, placement)
        }),
        status: None,
    }
}
