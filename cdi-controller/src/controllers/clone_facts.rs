//! What a clone depends on, looked up. Decides nothing, writes nothing.

use api::PodPhase;
use std::sync::Arc;

use api::Phase;
use api::annotations::{request, state};
use api::v1beta1::{ClaimVolumeMode, ContentType, StorageProfile, VolumeCloneSource};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::{Context, Error};
use controller_core::bound::Seen;
use controller_core::claim_kind::{is_import_target, is_upload_target};
use controller_core::clone::{
    ChosenClass, ClaimFacts, ClassFacts, CloneFacts, ContentFacts, Names, Origin, OriginKind,
    SnapshotClass, SnapshotFacts, SnapshotState, SourceFacts, Strategy, TargetClass, TargetFacts,
    Temporary, content_mode, driver_of, mode_of, named_by_both, owner_uid, requested,
    snapshot_class, state_of,
};
use controller_core::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use controller_core::snapshot_class::VolumeSnapshotClass;
use controller_core::volume::PersistentVolume;
use controller_core::{classes, config, copy, meta, ownership};

/// What is cloned, found.
pub enum Found {
    /// A claim.
    Claim(Arc<PersistentVolumeClaim>),
    /// A VolumeSnapshot.
    Snapshot(Arc<VolumeSnapshot>),
}

/// Namespace of the source of a claim, and of everything that is made for the clone. `None`: it is not said, so it is the
/// claim's own.
pub fn source_namespace(target: &PersistentVolumeClaim) -> Option<&str> {
    let noted = meta::annotation(&target.metadata, state::DATA_SOURCE_NAMESPACE);
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    noted.or_else(|| reference?.namespace.as_deref()).filter(|name| !name.is_empty())
}

/// The VolumeCloneSource that a claim refers to.
pub fn clone_source(
    context: &Context,
    target: &PersistentVolumeClaim,
) -> Option<Arc<VolumeCloneSource>> {
    let own = meta::namespace(&target.metadata);
    let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
    let namespace = source_namespace(target).unwrap_or(own);
    context.cluster.stores.clone_sources.get(namespace, &reference.name)
}

/// What is cloned. `None`: it is not there.
pub fn find(context: &Context, origin: &Origin) -> Option<Found> {
    let stores = &context.cluster.stores;
    match origin.kind {
        OriginKind::Claim => stores.claims.get(&origin.namespace, &origin.name).map(Found::Claim),
        OriginKind::Snapshot => {
            stores.snapshots.get(&origin.namespace, &origin.name).map(Found::Snapshot)
        }
    }
}

/// The class that a claim names.
pub fn class_of(context: &Context, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    context.cluster.stores.classes.get("", class_name(claim)?)
}

fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

/// The profile of the class that a claim names.
pub fn profile_of(context: &Context, claim: &PersistentVolumeClaim) -> Option<Arc<StorageProfile>> {
    context.cluster.stores.profiles.get("", class_name(claim)?)
}

/// Whether it is known what the storage of a claim is good for. A new class has no profile for a moment.
pub fn is_profiled(context: &Context, claim: &PersistentVolumeClaim) -> bool {
    let profile = profile_of(context, claim);
    class_of(context, claim).is_none() || profile.is_some_and(|profile| profile.status.is_some())
}

/// The volume of a claim.
pub fn volume_of(
    context: &Context,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolume>> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    context.cluster.stores.persistent_volumes.get("", name)
}

/// The class for a snapshot of the source that the target's volume can be made of.
///
/// # Errors
/// [`Error::NotItsVolume`], [`Error::Api`].
pub async fn class_for_snapshot(
    context: &Context,
    source: &PersistentVolumeClaim,
    target: &PersistentVolumeClaim,
) -> Result<Option<ChosenClass>, Error> {
    let Some(driver) = driver(context, source)? else { return Ok(None) };
    let known = &context.cluster.stores.snapshot_classes;
    let all: Vec<_> = match known.is_ready() {
        true => known.list().iter().map(as_fact).collect(),
        // Nobody waits for their list, as not every cluster has any. What is decided stays so, however.
        false => {
            context.cluster.list::<VolumeSnapshotClass>("", "").await?.iter().map(as_fact).collect()
        }
    };
    let of_source = profile_of(context, source);
    let of_target = profile_of(context, target);
    let named = |profile: &Option<Arc<StorageProfile>>| {
        profile.as_ref().and_then(|profile| profile.status.as_ref()?.snapshot_class.clone())
    };
    let (of_source, of_target) = (named(&of_source), named(&of_target));
    let both = named_by_both(of_source.as_deref(), of_target.as_deref());
    Ok(snapshot_class(&all, &driver, both))
}

fn as_fact(class: &VolumeSnapshotClass) -> SnapshotClass {
    let fact = class.to_fact();
    SnapshotClass { name: fact.name, driver: fact.driver, is_default: fact.is_default }
}

fn driver(context: &Context, claim: &PersistentVolumeClaim) -> Result<Option<String>, Error> {
    let (volume, class) = (volume_of(context, claim), class_of(context, claim));
    driver_of(claim, volume.as_deref(), class.as_deref()).map_err(Error::NotItsVolume)
}

/// The storage's side of a snapshot, which is read when it is needed: few clones do.
///
/// # Errors
/// [`Error::Api`].
pub async fn content_of(
    context: &Context,
    snapshot: &VolumeSnapshot,
) -> Result<Option<VolumeSnapshotContent>, Error> {
    let status = snapshot.status.as_ref();
    match status.and_then(|status| status.bound_volume_snapshot_content_name.as_deref()) {
        Some(name) => context.cluster.get::<VolumeSnapshotContent>("", name).await,
        None => Ok(None),
    }
}

/// What the way depends on.
///
/// # Errors
/// [`Error::NotItsVolume`].
pub fn of_decision(
    context: &Context,
    target: &PersistentVolumeClaim,
    found: &Found,
    content: Option<&VolumeSnapshotContent>,
    class: Option<&ChosenClass>,
) -> Result<CloneFacts, Error> {
    let source = match found {
        Found::Claim(claim) => SourceFacts::Claim(Some(ClaimFacts {
            driver: driver(context, claim)?,
            mode: mode_of(claim),
            request: meta::requested(claim).and_then(meta::bytes),
            capacity: capacity(claim),
            snapshot_class: class.map(|class| class.name.clone()),
        })),
        Found::Snapshot(snapshot) => SourceFacts::Snapshot(Some(SnapshotFacts {
            content: content.map(|content| ContentFacts {
                driver: content.spec.driver.clone(),
                mode: content_mode(content).unwrap_or(ClaimVolumeMode::Filesystem),
            }),
            restore_size: snapshot.restore_size().and_then(meta::bytes),
        })),
    };
    let installations = context.cluster.stores.installations.list();
    let active = config::active(&installations).ok().flatten();
    let strategy_override = active.and_then(|cdi| cdi.spec.clone_strategy_override);
    let disk = ContentType::Kubevirt.as_str();
    let source_is_disk = match found {
        Found::Claim(claim) => copy::content_of(&claim.metadata) == disk,
        Found::Snapshot(_) => true,
    };
    Ok(CloneFacts {
        target: of_target(context, target),
        source,
        is_disk: source_is_disk && copy::content_of(&target.metadata) == disk,
        requested: requested(&target.metadata),
        strategy_override: strategy_override.map(Strategy::from),
    })
}

fn of_target(context: &Context, target: &PersistentVolumeClaim) -> TargetFacts {
    let profile = profile_of(context, target);
    let class = match (class_name(target), class_of(context, target)) {
        (None, _) => TargetClass::Unset,
        (Some(""), _) => TargetClass::Empty,
        (Some(name), None) => TargetClass::Missing { name: name.to_owned() },
        (Some(_), Some(class)) => TargetClass::Known(ClassFacts {
            provisioner: class.provisioner.clone(),
            expands: class.allow_volume_expansion == Some(true),
            strategy: profile
                .as_ref()
                .and_then(|profile| profile.status.as_ref()?.clone_strategy.as_deref())
                .and_then(Strategy::named),
        }),
    };
    let asked = meta::requested(target).and_then(meta::bytes);
    TargetFacts {
        class,
        mode: mode_of(target),
        request: asked.max(config::minimum_size(profile.as_deref()).filter(|_| asked.is_some())),
        permissive: meta::has_annotation(&target.metadata, request::PERMISSIVE_CLONE),
    }
}

/// What a claim has.
pub fn capacity(claim: &PersistentVolumeClaim) -> Option<contract::ByteCount> {
    meta::bytes(claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)
}

/// Whether nobody is still filling a claim.
pub fn is_filled(context: &Context, claim: &PersistentVolumeClaim) -> bool {
    let metadata = &claim.metadata;
    let owner = meta::controller(metadata).filter(|owner| owner.kind == "DataVolume");
    let volumes = &context.cluster.stores.volumes;
    let namespace = meta::namespace(metadata);
    if owner.is_some_and(|owner| volumes.is_undecodable(namespace, &owner.name)) {
        return false; // whether the DataVolume is done is not known
    }
    let volume = owner.and_then(|owner| volumes.get(namespace, &owner.name));
    let is_filled_by_pod = is_import_target(metadata) || is_upload_target(metadata);
    let is_filled = !is_filled_by_pod || meta::worker_phase(metadata) == PodPhase::Succeeded;
    match volume {
        Some(volume) => {
            let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
            // The status may still be that of a claim which was deleted.
            phase == Some(Phase::Succeeded.as_str())
                && (is_filled
                    || !ownership::requires_work(&volume, Some(claim), &context.config_spec()))
        }
        None => is_filled,
    }
}

/// What was made for a clone so far.
pub struct Parts {
    claim: Option<Arc<PersistentVolumeClaim>>,
    volume: Option<Arc<PersistentVolume>>,
    told: Vec<Seen>,
    source_claim: Option<Arc<PersistentVolumeClaim>>,
    snapshot: Option<SnapshotState>,
    pod: Option<Arc<Pod>>,
}

impl Parts {
    /// By their names, and only if they carry the mark of the target: nobody else's object is taken for ours.
    pub fn of(context: &Context, namespace: &str, target_uid: &str, names: &Names) -> Self {
        let stores = &context.cluster.stores;
        let is_ours = |metadata: &ObjectMeta| owner_uid(metadata) == Some(target_uid);
        let claim = |name: &str| {
            stores.claims.get(namespace, name).filter(|claim| is_ours(&claim.metadata))
        };
        let made = claim(&names.claim);
        let snapshot = stores.snapshots.get(namespace, &names.snapshot);
        let pod = stores.pods.get(namespace, &names.pod);
        Self {
            volume: made.as_ref().and_then(|claim| volume_of(context, claim)),
            claim: made,
            told: context.complaints.of(namespace, &names.claim),
            source_claim: claim(&names.source_claim),
            snapshot: snapshot
                .filter(|snapshot| is_ours(&snapshot.metadata))
                .map(|snapshot| state_of(&snapshot, None)),
            pod: pod.filter(|pod| is_ours(&pod.metadata)),
        }
    }

    /// As steps look at it.
    pub fn temporary(&self) -> Temporary<'_> {
        Temporary {
            claim: self.claim.as_deref(),
            volume: self.volume.as_deref(),
            told: &self.told,
            source_claim: self.source_claim.as_deref(),
            snapshot: self.snapshot.as_ref(),
            pod: self.pod.as_deref(),
        }
    }

    /// The claim that is filled in the target's stead.
    pub fn claim(&self) -> Option<&PersistentVolumeClaim> {
        self.claim.as_deref()
    }
}

/// The class of a claim that is made of a snapshot to be copied: what the claim has, if it is there, else the first of the
/// driver by name.
pub fn restore_class(
    context: &Context,
    parts: &Parts,
    content: Option<&VolumeSnapshotContent>,
) -> Option<Arc<StorageClass>> {
    if let Some(claim) = &parts.source_claim {
        return class_of(context, claim);
    }
    first_class_of(context, content?.spec.driver.as_str())
}

/// The first class of a driver, by name.
pub fn first_class_of(context: &Context, driver: &str) -> Option<Arc<StorageClass>> {
    let mut all = context.cluster.stores.classes.filter(|class| class.provisioner == driver);
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all.into_iter().next()
}

/// Whether it is known where a claim is going to be.
pub fn is_placed(context: &Context, target: &PersistentVolumeClaim) -> bool {
    let class = class_of(context, target);
    !controller_core::claim::waits_for_consumer(target, class.as_deref())
}

/// How much a disk may have in a claim of this size.
pub fn room(context: &Context, claim: &PersistentVolumeClaim) -> Option<contract::ByteCount> {
    let size = meta::requested(claim).and_then(meta::bytes)?;
    if meta::is_block(claim) {
        return Some(size);
    }
    let settings = context.config();
    let status = settings.as_ref().and_then(|config| config.status.as_ref());
    let all = context.classes();
    let named = class_name(claim)
        .or_else(|| classes::default(&all).map(|class| meta::name(&class.metadata)));
    Some(config::overhead_of(status, &all, named).usable(size))
}
