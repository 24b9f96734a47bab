//! The facts that decide about the strategy of a clone.

use std::sync::Arc;

use api::annotations::request;
use api::v1beta1::{ClaimVolumeMode, ContentType, StorageProfile};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::storage::class_name;
use super::{FoundCloneSource, capacity, class_of, profile_of, volume_of};
use crate::engine::{Engine, Error};
use controller_core::clone::{
    ChosenClass, ClaimFacts, ClassFacts, CloneFacts, ContentFacts, SnapshotClass, SnapshotFacts,
    SourceFacts, Strategy, TargetClass, TargetFacts, content_mode, driver_of, mode_of,
    named_by_both, requested, snapshot_class,
};
use controller_core::snapshot::VolumeSnapshotContent;
use controller_core::snapshot_class::VolumeSnapshotClass;
use controller_core::{config, copy, meta};

/// What the way depends on.
///
/// # Errors
/// [`Error::NotItsVolume`].
pub fn of_decision(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    found: &FoundCloneSource,
    content: Option<&VolumeSnapshotContent>,
    class: Option<&ChosenClass>,
) -> Result<CloneFacts, Error> {
    let source = match found {
        FoundCloneSource::Claim(claim) => SourceFacts::Claim(Some(ClaimFacts {
            driver: driver(engine, claim)?,
            mode: mode_of(claim),
            request: meta::requested(claim).and_then(meta::bytes),
            capacity: capacity(claim),
            snapshot_class: class.map(|class| class.name.clone()),
        })),
        FoundCloneSource::Snapshot(snapshot) => SourceFacts::Snapshot(Some(SnapshotFacts {
            content: content.map(|content| ContentFacts {
                driver: content.spec.driver.clone(),
                mode: content_mode(content).unwrap_or(ClaimVolumeMode::Filesystem),
            }),
            restore_size: snapshot.restore_size().and_then(meta::bytes),
        })),
    };
    let installations = engine.api.caches.installations.list();
    let active = config::active(&installations).ok().flatten();
    let strategy_override = active.and_then(|cdi| cdi.spec.clone_strategy_override);
    let disk = ContentType::Kubevirt.as_str();
    let source_is_disk = match found {
        FoundCloneSource::Claim(claim) => copy::content_of(&claim.metadata) == disk,
        FoundCloneSource::Snapshot(_) => true,
    };
    Ok(CloneFacts {
        target: of_target(engine, target),
        source,
        is_disk: source_is_disk && copy::content_of(&target.metadata) == disk,
        requested: requested(&target.metadata),
        strategy_override: strategy_override.map(Strategy::from),
    })
}

fn of_target(engine: &Engine, target: &PersistentVolumeClaim) -> TargetFacts {
    let profile = profile_of(engine, target);
    let class = match (class_name(target), class_of(engine, target)) {
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

/// The class for a snapshot of the source that the target's volume can be made of.
///
/// # Errors
/// [`Error::NotItsVolume`], [`Error::Api`].
pub async fn class_for_snapshot(
    engine: &Engine,
    source: &PersistentVolumeClaim,
    target: &PersistentVolumeClaim,
) -> Result<Option<ChosenClass>, Error> {
    let Some(driver) = driver(engine, source)? else { return Ok(None) };
    let known = &engine.api.caches.snapshot_classes;
    let all: Vec<_> = if known.is_ready() {
        known.list().iter().map(as_fact).collect()
    } else {
        // The controller does not wait for the cache of this kind, as not every cluster has it. The decision is final, so it
        // must not be made without the classes.
        engine.api.list::<VolumeSnapshotClass>("", "").await?.iter().map(as_fact).collect()
    };
    let of_source = profile_of(engine, source);
    let of_target = profile_of(engine, target);
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

fn driver(engine: &Engine, claim: &PersistentVolumeClaim) -> Result<Option<String>, Error> {
    let (volume, class) = (volume_of(engine, claim), class_of(engine, claim));
    driver_of(claim, volume.as_deref(), class.as_deref()).map_err(Error::NotItsVolume)
}
