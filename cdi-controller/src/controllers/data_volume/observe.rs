//! What the cache knows about a DataVolume.

use api::ClaimPhase;
use api::names;
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::controllers::clone_facts::{self, FoundCloneSource};
use crate::engine::Engine;
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::clone::{Origin, OriginKind};
use controller_core::data_volume::{
    CloneRequestFacts, CloneSourceObject, DataVolumeFacts, LookupResults,
};
use controller_core::meta::Pairs;
use controller_core::operation::{Operation, population_mode};
use controller_core::{data_source, meta, object_transfer};

/// `None`: there is no such DataVolume.
pub(super) fn observe(engine: &Engine, key: &Key) -> Option<DataVolumeFacts> {
    let caches = &engine.api.caches;
    let volume = caches.volumes.get(&key.namespace, &key.name)?;
    let uid = meta::uid(&volume.metadata);
    let classes = engine.classes();
    let drivers = caches.drivers.list();
    let drivers: Vec<_> =
        drivers.iter().map(|driver| meta::name(&driver.metadata).to_owned()).collect();
    let operation = Operation::from_spec(&volume.spec);
    let claim = caches.claims.get(&key.namespace, &key.name);
    let prime = claim.as_ref().and_then(|claim| {
        caches.claims.get(&key.namespace, &names::prime_pvc(meta::uid(&claim.metadata)))
    });
    let clone = match operation {
        Operation::Clone => clone_request(engine, &volume, claim.as_deref()),
        _ => CloneRequestFacts::default(),
    };
    // Sources are decoded when they are read, so they are read only in the states whose plan needs them.
    let is_bound =
        claim.as_ref().is_some_and(|claim| meta::claim_phase(claim) == ClaimPhase::Bound);
    let import_source = || caches.import_sources.get(&key.namespace, &names::import_source(uid));
    let upload_source = || caches.upload_sources.get(&key.namespace, &names::upload_source(uid));
    let is_in_stages = volume.spec.checkpoints.is_some();
    Some(DataVolumeFacts {
        population: population_mode(&volume, &classes, &drivers),
        is_in_transfer: is_in_transfer(engine, &volume),
        pvc_warnings: claim.as_ref().map(|claim| engine.warnings_about(claim)).unwrap_or_default(),
        config: engine.config_spec(),
        import_source: (is_bound || is_in_stages).then(import_source).flatten(),
        upload_source: is_bound.then(upload_source).flatten(),
        lookups: LookupResults::default(),
        volume,
        operation,
        claim,
        prime,
        classes,
        drivers,
        clone,
    })
}

fn is_in_transfer(engine: &Engine, volume: &DataVolume) -> bool {
    let Some(name) = object_transfer::reserved_by(&volume.metadata) else { return false };
    let transfers = &engine.api.caches.transfers;
    if transfers.is_undecodable("", name) {
        return true; // it may not have ended
    }
    transfers.get("", name).is_some_and(|transfer| !object_transfer::is_over(&transfer))
}

fn clone_request(
    engine: &Engine,
    volume: &DataVolume,
    claim: Option<&PersistentVolumeClaim>,
) -> CloneRequestFacts {
    let requested = requested_origin(engine, volume);
    let origin = claim.and_then(|claim| recorded_origin(engine, claim));
    let origin = origin.or_else(|| requested.clone());
    let found = origin.as_ref().and_then(|origin| clone_facts::find(engine, origin));
    let uid = meta::uid(&volume.metadata);
    let caches = &engine.api.caches;
    let snapshot = origin.as_ref().filter(|origin| origin.kind == OriginKind::Snapshot);
    CloneRequestFacts {
        restored: snapshot
            .and_then(|origin| caches.claims.get(&origin.namespace, &names::restored_pvc(uid))),
        source: found.map(|found| match found {
            FoundCloneSource::Claim(claim) => CloneSourceObject::Claim(claim),
            FoundCloneSource::Snapshot(snapshot) => CloneSourceObject::Snapshot(snapshot),
        }),
        data_source_labels: origin
            .as_ref()
            .and_then(|origin| data_source_labels(engine, volume, origin)),
        clone_sources: caches.clone_sources.find(&Term::Named(names::clone_source(uid))),
        origin,
        requested,
    }
}

/// The source of a clone, as recorded when its PVC was created.
fn recorded_origin(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Origin> {
    let source = || {
        let source = clone_facts::clone_source(engine, claim)?;
        Origin::referred_to(meta::namespace(&source.metadata), &source.spec.source)
    };
    Origin::copied(&claim.metadata).or_else(source)
}

/// The source of a clone, as its DataVolume requests it now. `None`: its DataSource refers to nothing.
fn requested_origin(engine: &Engine, volume: &DataVolume) -> Option<Origin> {
    let Some(reference) = &volume.spec.source_ref else {
        return Origin::of_data_volume(volume, None, None);
    };
    let own = meta::namespace(&volume.metadata);
    let namespace = reference.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let all = &engine.api.caches.data_sources;
    let source = all.get(namespace, &reference.name)?;
    let pointed_to = data_source::pointer(&source).and_then(|name| all.get(namespace, name));
    Origin::of_data_volume(volume, Some(&source), pointed_to.as_deref())
}

/// Labels of the DataSource that is named together with its namespace.
fn data_source_labels(engine: &Engine, volume: &DataVolume, origin: &Origin) -> Option<Pairs> {
    let reference = volume.spec.source_ref.as_ref()?;
    let namespace = reference.namespace.as_deref().filter(|name| !name.is_empty())?;
    let target_namespace = meta::namespace(&volume.metadata);
    // The permission to clone does not cover a DataSource elsewhere that refers to a source in the own namespace.
    if origin.namespace == target_namespace && namespace != target_namespace {
        return None;
    }
    engine.api.caches.data_sources.get(namespace, &reference.name)?.metadata.labels.clone()
}
