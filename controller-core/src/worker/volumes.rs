//! What a worker has mounted, and where.

use api::annotations::{import, request};
use api::names;
use contract::paths;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource,
    SecretVolumeSource, Volume, VolumeDevice, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Facts, job, proxy_authority, proxy_authority_copy};
use crate::{meta, scratch};

const DATA: &str = "cdi-data-vol";
const SCRATCH: &str = "cdi-scratch-vol";
const CERTS: &str = "cdi-cert-vol";
const PROXY_CERTS: &str = "cdi-proxy-cert-vol";
const SECRET: &str = "cdi-secret-vol";
const HEADERS: &str = "cdi-secret-extra-headers-vol";
const SHARED: &str = "shared-volume";
const JOURNAL: &str = "cdi-journal-vol";
/// A journal is replaced as a whole, and has no more than 4 MiB.
const JOURNAL_SIZE: &str = "16Mi";
const SOCKETS: &str = "cdi-socket-vol";
const VDDK: &str = "vddk-vol-mount";
const VDDK_PATH: &str = "/opt";
const VDDK_ARGS: &str = "vddk-extra-args";
const VDDK_ARGS_PATH: &str = "/vddk-args";

#[derive(Default)]
pub(super) struct Volumes {
    pub volumes: Vec<Volume>,
    pub mounts: Vec<VolumeMount>,
    pub devices: Vec<VolumeDevice>,
}

impl Volumes {
    fn add(&mut self, volume: Volume, path: &str) {
        self.mounts.push(mount(&volume.name, path));
        self.volumes.push(volume);
    }
}

/// The volumes of the worker's container.
pub(super) fn worker_volumes(facts: &Facts, by_node: bool, is_vddk: bool) -> Volumes {
    let metadata = &facts.claim.metadata;
    let text = |key| meta::annotation(metadata, key).filter(|value| !value.is_empty());
    let mut all = Volumes::default();
    let data = of_claim(DATA, meta::name(metadata));
    if meta::is_block(facts.claim) {
        all.devices
            .push(VolumeDevice { name: DATA.into(), device_path: paths::BLOCK_DEVICE.into() });
        all.volumes.push(data);
        // A device has no free space next to the disk. A blank disk needs no journal.
        if text(import::SOURCE) != Some("none") {
            all.add(journal(), paths::JOURNAL);
        }
    } else {
        all.add(data, paths::DATA);
    }
    if scratch::is_needed(facts.claim) {
        all.add(of_claim(SCRATCH, &names::scratch_pvc(meta::name(metadata))), paths::SCRATCH);
    }
    if let Some(name) = text(import::CERT_CONFIG_MAP) {
        all.add(of_config_map(CERTS, name), paths::CERTS);
    }
    if proxy_authority(facts.config).is_some() {
        let copy = proxy_authority_copy(facts.claim);
        all.add(of_config_map(PROXY_CERTS, &copy), paths::PROXY_CERTS);
    }
    if let Some(name) = text(import::SECRET_NAME)
        && text(import::SOURCE) == Some("gcs")
    {
        all.add(of_secret(SECRET, name), paths::GOOGLE);
    }
    for (number, name) in job::numbered(metadata, import::SECRET_EXTRA_HEADERS).iter().enumerate() {
        let volume = of_secret(&format!("{HEADERS}-{number}"), name);
        all.add(volume, &format!("{}/{number}", paths::EXTRA_HEADERS));
    }
    if by_node {
        all.add(empty(SHARED, None), paths::SHARED);
    }
    if is_vddk {
        all.add(empty(VDDK, None), VDDK_PATH);
        all.add(empty(SOCKETS, None), paths::SOCKETS);
        if let Some(name) = text(request::VDDK_EXTRA_ARGS) {
            all.add(of_config_map(VDDK_ARGS, name), VDDK_ARGS_PATH);
        }
    }
    all
}

/// Where a restarted container finds the journal of its predecessor.
pub fn journal() -> Volume {
    empty(JOURNAL, Some(JOURNAL_SIZE))
}

/// Shared by the containers of a node pull.
pub(super) fn shared() -> VolumeMount {
    mount(SHARED, paths::SHARED)
}

/// The mount of VMware's library.
pub(super) fn vddk() -> VolumeMount {
    mount(VDDK, VDDK_PATH)
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

/// The volume of a PVC. `readOnly` is unset, as it concerns how the driver attaches the
/// volume: mounts of containers are read-only instead.
pub fn of_claim(name: &str, claim: &str) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.into(), read_only: None };
    Volume { name: name.into(), persistent_volume_claim: Some(source), ..Volume::default() }
}

fn of_config_map(name: &str, config_map: &str) -> Volume {
    let source =
        ConfigMapVolumeSource { name: config_map.into(), ..ConfigMapVolumeSource::default() };
    Volume { name: name.into(), config_map: Some(source), ..Volume::default() }
}

fn of_secret(name: &str, secret: &str) -> Volume {
    let source =
        SecretVolumeSource { secret_name: Some(secret.into()), ..SecretVolumeSource::default() };
    Volume { name: name.into(), secret: Some(source), ..Volume::default() }
}

fn empty(name: &str, size_max: Option<&str>) -> Volume {
    let size_limit = size_max.map(|size| Quantity(size.into()));
    let source = EmptyDirVolumeSource { size_limit, ..EmptyDirVolumeSource::default() };
    Volume { name: name.into(), empty_dir: Some(source), ..Volume::default() }
}
