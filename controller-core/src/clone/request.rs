//! The clone of a DataVolume: the contents of its PVC and its VolumeCloneSource.

use api::annotations::{request, state};
use api::v1beta1::{DataVolume, VolumeCloneSource, VolumeCloneSourceSpec};
use api::{events, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{NOT_COPIED, Origin, OriginKind, Strategy};
use crate::event::Event;
use crate::operation::PopulationMode;
use crate::{claim, components, copy, meta};

/// Why pods copy to a PVC without a populator.
const NO_POPULATOR: &str = "In tree storage class does not support snapshot/clone";
/// Prefix of refusals.
pub const NOT_MET: &str = "The clone doesn't meet the validation requirements:";

/// The event for a PVC that only pods can populate.
pub fn no_populator() -> Event {
    Event::warning(events::NO_POPULATOR, NO_POPULATOR)
}

/// The component that records the events of the DataVolume.
pub fn component(origin: Option<&Origin>) -> &'static str {
    match origin.map(|origin| origin.kind) {
        Some(OriginKind::Snapshot) => components::DATA_VOLUME_SNAPSHOT_CLONE,
        Some(OriginKind::Claim) | None => components::DATA_VOLUME_PVC_CLONE,
    }
}

/// Why the source cannot be cloned to the target.
pub fn mismatch(
    volume: &DataVolume,
    source: &PersistentVolumeClaim,
    object: &PersistentVolumeClaim,
) -> Option<Event> {
    let wanted = claim::content_type(volume).as_str();
    let has = copy::content_of(&source.metadata);
    let why = match copy::check(source, object, None) {
        Ok(()) => return None,
        Err(_) if wanted != has => {
            format!("Source contentType ({has}) and target contentType ({wanted}) do not match")
        }
        Err(mismatch) => mismatch.to_string(),
    };
    Some(Event::warning(events::CLONE_VALIDATION_FAILED, format!("{NOT_MET} {why}")))
}

/// The VolumeCloneSource that the PVC refers to, in the namespace of the source.
pub fn clone_source(volume: &DataVolume, origin: &Origin) -> VolumeCloneSource {
    let metadata = &volume.metadata;
    let own = meta::namespace(metadata);
    let is_near = origin.namespace == own;
    let owner = meta::owned_by(api::data_volume::API_VERSION, "DataVolume", metadata);
    let elsewhere = || {
        let owner = format!("{own}/{}", meta::name(metadata));
        meta::Pairs::from([(state::OWNED_BY_DATA_VOLUME.to_owned(), owner)])
    };
    VolumeCloneSource {
        metadata: ObjectMeta {
            name: Some(names::clone_source(meta::uid(metadata))),
            namespace: Some(origin.namespace.clone()),
            // Owner references do not work across namespaces.
            owner_references: is_near.then(|| vec![owner]),
            annotations: (!is_near).then(elsewhere),
            ..ObjectMeta::default()
        },
        spec: VolumeCloneSourceSpec {
            source: origin.reference(),
            preallocation: volume.spec.preallocation,
            // Pods run in the namespace of the source, where the DataVolume's owner must not choose their priority.
            priority_class_name: volume.spec.priority_class_name.clone().filter(|_| is_near),
        },
        status: None,
    }
}

/// Writes source and method of the clone to annotations of the PVC.
pub fn annotate(
    object: &mut PersistentVolumeClaim,
    volume: &DataVolume,
    origin: &Origin,
    population: PopulationMode,
) {
    // The strategy that the user requests. On a DataVolume that has had a PVC, it is the decision for that PVC.
    let is_first = volume.status.as_ref().is_none_or(|status| status.claim_name.is_none());
    let annotations = object.metadata.annotations.get_or_insert_default();
    let requested = annotations.get(state::CLONE_TYPE).cloned().filter(|_| is_first);
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    annotations.extend(requested.map(|strategy| (state::CLONE_TYPE.to_owned(), strategy)));
    match population {
        PopulationMode::Populator => {
            annotations.insert(state::DATA_SOURCE_NAMESPACE.into(), origin.namespace.clone());
        }
        PopulationMode::Legacy => {
            // The storage restores a snapshot to a PVC in its namespace first.
            let copied = match origin.kind {
                OriginKind::Claim => origin.name.clone(),
                OriginKind::Snapshot => {
                    annotations.insert(state::CLONE_SOURCE_SNAPSHOT.into(), origin.name.clone());
                    names::restored_pvc(meta::uid(&volume.metadata))
                }
            };
            let wanted = format!("{}/{copied}", origin.namespace);
            annotations.insert(request::CLONE_REQUEST.into(), wanted);
            annotations.insert(state::CLONE_TYPE.into(), Strategy::Copy.as_str().into());
            annotations.insert(state::CLONE_FALLBACK_REASON.into(), NO_POPULATOR.into());
        }
    }
}
