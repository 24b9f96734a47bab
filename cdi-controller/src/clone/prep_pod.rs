//! A pod that does nothing but be there: the claim that it mounts is bound, and its file system grows.

use api::labels::{self, component};
use contract::job::paths;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod,
    PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Volume, VolumeDevice,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::facts::Facts;
use super::objects;
use crate::{meta, worker};

const VOLUME: &str = "cdi-data-vol";
const MOUNT: &str = "/var/run/cdi/clone/source";
const USER: i64 = 107;

/// The pod for a claim of the clone.
pub(super) fn pod(facts: &Facts, claim: &PersistentVolumeClaim) -> Pod {
    let mut all_labels = objects::marks(facts);
    all_labels.insert(labels::COMPONENT.into(), component::POPULATOR_PREP.into());
    let config = facts.config.and_then(|config| config.status.as_ref());
    let seccomp = SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None };
    let is_block = meta::is_block(claim);
    let device = VolumeDevice { name: VOLUME.into(), device_path: paths::BLOCK_DEVICE.into() };
    let mount =
        VolumeMount { name: VOLUME.into(), mount_path: MOUNT.into(), ..VolumeMount::default() };
    let container = Container {
        name: "dummy".into(),
        image: Some(facts.image.into()),
        command: Some(["/bin/bash", "-c", "echo 'hello cdi'"].map(str::to_owned).into()),
        resources: config.and_then(|status| status.default_pod_resource_requirements.clone()),
        volume_devices: is_block.then(|| vec![device]),
        volume_mounts: (!is_block).then(|| vec![mount]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".into()]) }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(seccomp.clone()),
            ..SecurityContext::default()
        }),
        ..Container::default()
    };
    let source = PersistentVolumeClaimVolumeSource {
        claim_name: meta::name(&claim.metadata).into(),
        read_only: None,
    };
    let secrets = config.and_then(|status| status.image_pull_secrets.clone());
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
            volumes: Some(vec![Volume {
                name: VOLUME.into(),
                persistent_volume_claim: Some(source),
                ..Volume::default()
            }]),
            restart_policy: Some("OnFailure".into()),
            enable_service_links: Some(false),
            automount_service_account_token: Some(false),
            security_context: Some(PodSecurityContext {
                fs_group: Some(USER),
                seccomp_profile: Some(seccomp),
                ..PodSecurityContext::default()
            }),
            node_selector: facts.placement.and_then(|placement| placement.node_selector.clone()),
            affinity: worker::affinity(claim, facts.placement),
            tolerations: facts.placement.and_then(|placement| placement.tolerations.clone()),
            priority_class_name: facts.priority_class.map(str::to_owned),
            image_pull_secrets: secrets.filter(|secrets| !secrets.is_empty()),
            ..PodSpec::default()
        }),
        status: None,
    }
}
