//! A pod that does nothing but be there: the claim that it mounts is bound, and its file system grows.

use api::labels::{self, component};
use contract::job::paths;
use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, PodSpec, VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::facts::Facts;
use super::objects;
use crate::{meta, worker};

const VOLUME: &str = "cdi-data-vol";
const MOUNT: &str = "/var/run/cdi/clone/source";

/// The pod for a claim of the clone.
pub(super) fn pod(facts: &Facts, claim: &PersistentVolumeClaim) -> Pod {
    let mut all_labels = objects::marks(facts);
    all_labels.insert(labels::COMPONENT.into(), component::POPULATOR_PREP.into());
    let is_block = meta::is_block(claim);
    let device = VolumeDevice { name: VOLUME.into(), device_path: paths::BLOCK_DEVICE.into() };
    let mount =
        VolumeMount { name: VOLUME.into(), mount_path: MOUNT.into(), ..VolumeMount::default() };
    let container = Container {
        name: "dummy".into(),
        image: Some(facts.image.into()),
        command: Some(["/bin/bash", "-c", "echo 'hello cdi'"].map(str::to_owned).into()),
        resources: worker::resources(facts.config),
        volume_devices: is_block.then(|| vec![device]),
        volume_mounts: (!is_block).then(|| vec![mount]),
        security_context: Some(worker::confined(true)),
        ..Container::default()
    };
    let target = &facts.target.metadata;
    Pod {
        metadata: ObjectMeta {
            name: Some(facts.names().pod),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(all_labels),
            annotations: Some(worker::passed_on(target)),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(vec![worker::of_claim(VOLUME, meta::name(&claim.metadata))]),
            affinity: worker::affinity(claim, facts.placement),
            priority_class_name: facts.priority_class.map(str::to_owned),
            ..worker::pod_spec(facts.config, facts.placement)
        }),
        status: None,
    }
}
