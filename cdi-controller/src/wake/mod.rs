//! Wakes the controllers that a watch event concerns.

mod clones;
pub(crate) mod crons;
mod forklift;

use std::time::Duration;

use api::ClaimPhase;
use api::annotations::{request, state};
use api::labels::{self, component};
use api::names;
use api::v1beta1::{
    Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, ObjectTransfer,
    OpenstackVolumePopulator, OvirtVolumePopulator, StorageProfile, VolumeCloneSource,
    VolumeImportSource, VolumeUploadSource,
};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::Engine;
use crate::engine::cache::{Change, key_of};
use crate::engine::index::Term;
use crate::engine::queue::{Key, Queue};
use controller_core::bound::ObservedEvent;
use controller_core::claim_kind::{
    has_populator_source, is_clone_target, is_import_target, is_upload_target, prime_target,
};
use controller_core::data_import_cron::PollFrom;
use controller_core::forklift::Kind;
use controller_core::object_transfer::{self, Moved};
use controller_core::openshift::{Proxy, Route};
use controller_core::snapshot::VolumeSnapshot;
use controller_core::snapshot_class::VolumeSnapshotClass;
use controller_core::volume::PersistentVolume;
use controller_core::{clone, meta};

/// A starting pod changes its state several times in a short time, and only the last state has to be written.
const POD_CHANGE_DELAY: Duration = Duration::from_millis(500);

/// The usual time in which a volume is rebound from the prime PVC to its target.
const REBIND_DELAY: Duration = Duration::from_secs(2);

/// The event reason of Kubernetes' volume-data-source-validator for kinds without a VolumePopulator.
const UNREGISTERED: &str = "UnrecognizedDataSourceKind";

/// The key of the settings, which are one work item.
pub fn settings_key() -> Key {
    Key::new("", names::CDI_CONFIG)
}

pub(super) fn volume(engine: &Engine, change: &Change<DataVolume>) {
    let volume = change.object();
    if volume.spec.checkpoints.is_some() {
        // The PVC of an import with checkpoints, if no populator is used.
        engine.queues.imports.add(key_of(volume));
    }
    engine.queues.volumes.add(key_of(volume));
    clones::volume(engine, change);
    crons::claim(engine, &volume.metadata);
}

pub(super) fn claim(engine: &Engine, change: &Change<PersistentVolumeClaim>) {
    let claim = change.object();
    let key = key_of(claim);
    let queues = &engine.queues;
    let caches = &engine.api.caches;
    crons::claim(engine, &claim.metadata);
    if has_populator_source(claim) {
        queues.populators.add(key.clone());
    }
    if is_import_target(&claim.metadata) {
        queues.imports.add(key.clone());
    }
    if is_upload_target(&claim.metadata) {
        queues.uploads.add(key.clone());
    }
    clones::claim(engine, claim, &key);
    forklift::claim(engine, claim, &key);
    if let Some(target) = prime_target(&claim.metadata) {
        queues.populators.add(target.clone());
        // The DataVolume depends on both PVCs.
        let of_volume = caches.claims.get(&target.namespace, &target.name);
        volume_of(engine, of_volume.as_deref(), target);
    } else if caches.volumes.contains(&key.namespace, &key.name) {
        volume_of(engine, Some(claim), key);
    }
    if let (Change::Applied(_), Some(uid)) = (change, &claim.metadata.uid) {
        for event in engine.early_warnings.take(uid) {
            warning(engine, &event);
        }
    }
}

/// Wakes the DataVolume of a PVC. If the content is complete and the PVC is to be rebound, the DataVolume waits for
/// that, to report both changes together.
fn volume_of(engine: &Engine, claim: Option<&PersistentVolumeClaim>, key: Key) {
    let is_to_be_rebound = |claim: &PersistentVolumeClaim| {
        let noted = |name| meta::annotation(&claim.metadata, name);
        has_populator_source(claim)
            && noted(state::POD_PHASE) == Some("Succeeded")
            && noted(state::CHECKPOINT_CURRENT).is_none()
            && matches!(meta::claim_phase(claim), ClaimPhase::Unset | ClaimPhase::Pending)
    };
    if claim.is_some_and(is_to_be_rebound) {
        engine.queues.volumes.add_after(key, REBIND_DELAY)
    } else {
        engine.queues.volumes.add(key)
    }
}

pub(super) fn persistent_volume(engine: &Engine, change: &Change<PersistentVolume>) {
    let volume = change.object();
    let spec = volume.spec.as_ref();
    if let Some(owner) = spec.and_then(|spec| spec.claim_ref.as_ref()) {
        let namespace = owner.namespace.as_deref().unwrap_or_default();
        let name = owner.name.as_deref().unwrap_or_default();
        let caches = &engine.api.caches;
        match caches.claims.get(namespace, name) {
            Some(claim) => {
                if let Some(target) = prime_target(&claim.metadata) {
                    engine.queues.populators.add(target);
                }
                clones::helper(engine, &claim.metadata);
            }
            None => volume_reserved(engine, caches.volumes.get(namespace, name).as_deref()),
        }
        return;
    }
    // A DataVolume may wait for a volume of a class without a StorageClass object, or of no class.
    let class = volume.class_name();
    retry_without_pvc(engine, |volume| {
        let storage = volume.spec.storage.as_ref();
        storage.is_some_and(|storage| storage.storage_class_name.as_deref() == Some(class))
    });
    if !class.is_empty() {
        engine.queues.profiles.add(Key::new("", class));
    }
}

/// A volume was reserved for a PVC that does not exist: its DataVolume may wait for the volume.
fn volume_reserved(engine: &Engine, volume: Option<&DataVolume>) {
    if let Some(volume) = volume
        && meta::has_annotation(&volume.metadata, request::CHECK_STATIC_VOLUME)
    {
        engine.queues.volumes.add(key_of(volume));
    }
}

/// Wakes DataVolumes whose PVC could not be created so far.
fn retry_without_pvc(engine: &Engine, wanted: impl Fn(&DataVolume) -> bool) {
    let waits = |volume: &DataVolume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        phase.unwrap_or_default().is_empty() && wanted(volume)
    };
    for volume in engine.api.caches.volumes.find(&Term::Waits) {
        if waits(&volume) {
            engine.queues.volumes.add(key_of(volume.as_ref()));
        }
    }
}

pub(super) fn pod(engine: &Engine, change: &Change<Pod>) {
    let pod = change.object();
    clones::pod(engine, change);
    let Some(key) = claim_of(engine, pod) else { return };
    let queue = match meta::label(&pod.metadata, labels::COMPONENT) {
        Some(component::IMPORTER) => &engine.queues.imports,
        Some(component::UPLOAD_SERVER) => &engine.queues.uploads,
        Some(component::FORKLIFT_POPULATOR) => &engine.queues.forklift,
        _ => return,
    };
    worker(queue, key, change);
}

/// The PVC `key` of a worker that has changed: at once if that has ended, else after a delay.
fn worker(queue: &Queue, key: Key, change: &Change<Pod>) {
    let is_active = |pod: &Pod| {
        !meta::worker_pod_phase(pod).has_ended() && pod.metadata.deletion_timestamp.is_none()
    };
    match change {
        Change::Applied(pod) if is_active(pod) => queue.add_after(key, POD_CHANGE_DELAY),
        Change::Applied(_) | Change::Deleted(_) => queue.add(key),
    }
}

/// The PVC that a worker fills: its owner. A pod whose image is an image stream has no owner, and is found by its name.
fn claim_of(engine: &Engine, pod: &Pod) -> Option<Key> {
    let (namespace, name) = (meta::namespace(&pod.metadata), meta::name(&pod.metadata));
    if let Some(owner) = meta::controller(&pod.metadata) {
        let is_claim = owner.kind == "PersistentVolumeClaim";
        return is_claim.then(|| Key::new(namespace, owner.name.as_str()));
    }
    let claims = engine.api.caches.claims.find(&Term::PromisedTo(Key::new(namespace, name)));
    claims.first().map(|claim| key_of(claim.as_ref()))
}

pub(super) fn import_source(engine: &Engine, change: &Change<VolumeImportSource>) {
    source(engine, "VolumeImportSource", &change.object().metadata);
}

pub(super) fn upload_source(engine: &Engine, change: &Change<VolumeUploadSource>) {
    source(engine, "VolumeUploadSource", &change.object().metadata);
}

pub(super) fn clone_source(engine: &Engine, change: &Change<VolumeCloneSource>) {
    clones::clone_source(engine, &change.object().metadata);
}

pub(super) fn ovirt_disk(engine: &Engine, change: &Change<OvirtVolumePopulator>) {
    forklift::source(engine, Kind::Ovirt, &change.object().metadata);
}

pub(super) fn openstack_image(engine: &Engine, change: &Change<OpenstackVolumePopulator>) {
    forklift::source(engine, Kind::Openstack, &change.object().metadata);
}

pub(super) fn data_source(engine: &Engine, change: &Change<DataSource>) {
    crons::data_source(engine, &change.object().metadata);
    clones::data_source(engine, &change.object().metadata);
}

pub(super) fn snapshot(engine: &Engine, change: &Change<VolumeSnapshot>) {
    crons::snapshot(engine, &change.object().metadata);
    clones::snapshot(engine, &change.object().metadata);
}

pub(super) fn cron(engine: &Engine, change: &Change<DataImportCron>) {
    crons::cron(engine, change);
}

pub(super) fn cron_job(engine: &Engine, change: &Change<CronJob>) {
    crons::cron_job(engine, &change.object().metadata);
}

/// PVCs that refer to a source: that of the owning DataVolume, or any if no DataVolume owns the source.
fn source(engine: &Engine, kind: &str, source: &ObjectMeta) {
    let namespace = meta::namespace(source);
    if let Some(owner) = meta::controller(source) {
        wake(engine, Key::new(namespace, owner.name.as_str()));
        return;
    }
    let refers = |claim: &PersistentVolumeClaim| {
        let reference = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
        claim.metadata.namespace.as_deref() == Some(namespace)
            && reference.is_some_and(|r| r.kind == kind && r.name == meta::name(source))
    };
    let term = Term::RefersTo(meta::name(source).to_owned());
    for claim in engine.api.caches.claims.find(&term) {
        if refers(&claim) {
            wake(engine, key_of(claim.as_ref()));
        }
    }
}

/// A PVC, and its prime PVC, which may have waited for the next stage.
fn wake(engine: &Engine, target: Key) {
    if let Some(claim) = engine.api.caches.claims.get(&target.namespace, &target.name) {
        let prime = names::prime_pvc(meta::uid(&claim.metadata));
        engine.queues.imports.add(Key::new(target.namespace.as_str(), prime));
    }
    engine.queues.populators.add(target);
}

pub(super) fn class(engine: &Engine, change: &Change<StorageClass>) {
    engine.queues.profiles.add(key_of(change.object()));
    engine.queues.configs.add(settings_key());
    retry_without_pvc(engine, |_| true);
    crons::all(engine);
    // PVCs may have been waiting for their class.
    for claim in engine.api.caches.claims.find(&Term::Waits) {
        if has_populator_source(&claim) {
            engine.queues.populators.add(key_of(claim.as_ref()));
        }
    }
    clones::all_that_wait(engine);
}

pub(super) fn snapshot_class(engine: &Engine, change: &Change<VolumeSnapshotClass>) {
    let driver = &change.object().driver;
    let all = engine.api.caches.classes.filter(|class| class.provisioner == *driver);
    for class in all {
        engine.queues.profiles.add(key_of(class.as_ref()));
    }
    clones::all_that_wait(engine);
    crons::all(engine);
}

pub(super) fn profile(engine: &Engine, change: &Change<StorageProfile>) {
    engine.queues.profiles.add(key_of(change.object()));
    retry_without_pvc(engine, |_| true);
    clones::all_that_wait(engine);
    crons::all(engine);
}

pub(super) fn config(engine: &Engine, _change: &Change<CdiConfig>) {
    engine.queues.configs.add(settings_key());
    let is_concerned = |volume: &DataVolume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        // For completed DataVolumes, only the TTL depends on the settings.
        phase != Some("Succeeded")
            || meta::is_true(&volume.metadata, request::DELETE_AFTER_COMPLETION)
    };
    for volume in engine.api.caches.volumes.filter(is_concerned) {
        engine.queues.volumes.add(key_of(volume.as_ref()));
    }
    if engine.settings.poll_from == PollFrom::Jobs {
        crons::all(engine); // their Jobs depend on the settings too
    }
}

pub(super) fn installation(engine: &Engine, _change: &Change<Cdi>) {
    engine.queues.configs.add(settings_key());
}

/// A transfer, its parent, and the DataVolume that it reserves.
pub(super) fn transfer(engine: &Engine, change: &Change<ObjectTransfer>) {
    let transfer = change.object();
    engine.queues.transfers.add(key_of(transfer));
    if let Some(parent) = &transfer.spec.parent_name {
        engine.queues.transfers.add(Key::new("", parent.as_str()));
    }
    if object_transfer::moved(&transfer.spec) == Some(Moved::DataVolume) {
        let source = object_transfer::source(&transfer.spec);
        engine.queues.volumes.add(Key::new(source.namespace, source.name));
    }
}

pub(super) fn ingress(engine: &Engine, _change: &Change<Ingress>) {
    engine.queues.configs.add(settings_key());
}

pub(super) fn route(engine: &Engine, _change: &Change<Route>) {
    engine.queues.configs.add(settings_key());
}

pub(super) fn proxy(engine: &Engine, _change: &Change<Proxy>) {
    engine.queues.configs.add(settings_key());
}

/// A warning about a PVC: kept until the PVC is bound, as the reason why it is not.
pub(super) fn warning(engine: &Engine, event: &Event) {
    let about = &event.involved_object;
    let namespace = about.namespace.as_deref().unwrap_or_default();
    let key = Key::new(namespace, about.name.as_deref().unwrap_or_default());
    let component = event.source.as_ref().and_then(|source| source.component.as_deref());
    if component.is_some_and(|name| controller_core::components::ALL.contains(&name)) {
        return; // recorded by this controller, which reports the cause itself
    }
    // In a cluster without VolumePopulators for CDI's sources, each PVC has this warning, and is populated all the
    // same.
    if event.reason.as_deref() == Some(UNREGISTERED) {
        return;
    }
    let known = engine.api.caches.claims.get(namespace, &key.name);
    let Some(claim) = known.filter(|claim| claim.metadata.uid == about.uid) else {
        engine.early_warnings.keep(event);
        return;
    };
    let is_ours = has_populator_source(&claim)
        || is_import_target(&claim.metadata)
        || is_upload_target(&claim.metadata)
        || is_clone_target(&claim)
        || clone::owner_uid(&claim.metadata).is_some()
        || meta::controller(&claim.metadata).is_some_and(|owner| owner.kind == "DataVolume");
    if meta::claim_phase(&claim) == ClaimPhase::Bound || !is_ours {
        return;
    }
    let at = event.last_timestamp.as_ref().map(|time| time.0);
    let at = at.or(event.event_time.as_ref().map(|time| time.0));
    let seen = ObservedEvent {
        event: controller_core::event::Event::warning(
            event.reason.clone().unwrap_or_default(),
            event.message.clone().unwrap_or_default(),
        ),
        at,
    };
    engine.pvc_warnings.record(key.clone(), seen);
    match prime_target(&claim.metadata) {
        Some(target) => engine.queues.populators.add(target),
        None if has_populator_source(&claim) => engine.queues.populators.add(key),
        None if is_clone_target(&claim) => engine.queues.clones.add(key),
        None if clone::owner_uid(&claim.metadata).is_some() => {
            clones::helper(engine, &claim.metadata);
        }
        None => engine.queues.volumes.add(key),
    }
}
