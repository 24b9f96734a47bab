//! What has to be there before the PVC of a clone: the permission to clone, the source, and the object that names it.

use std::ops::ControlFlow;

use api::annotations::state;
use api::events;
use api::labels::finalizer;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::clone_size;
use super::facts::{CloneNotAllowed, CloneSourceObject, DataVolumeFacts, Lookup};
use super::plan::{Planned, looked_up, write_now};
use crate::clone::{self, HeldToken, NOT_MET, Origin};
use crate::event::Event;
use crate::meta;
use crate::object::Writable;
use crate::operation::PopulationMode;
use crate::plan::Write;

/// Completes the PVC of a clone; returns the writes that come before it, or what blocks the clone.
pub(super) fn prepare(
    facts: &DataVolumeFacts,
    population: PopulationMode,
    object: &mut PersistentVolumeClaim,
) -> Planned<Result<Vec<Write>, Event>> {
    let volume = facts.volume.as_ref();
    let Some(origin) = &facts.clone.origin else {
        let name = volume.spec.source_ref.as_ref().map(|source| source.name.as_str());
        let name = name.unwrap_or_default();
        let message = format!("The DataSource {name} doesn't exist, or has no source yet");
        return blocked(Event::warning(events::CLONE_WITHOUT_SOURCE, message));
    };
    let is_far = origin.namespace != meta::namespace(&volume.metadata);
    if is_far {
        // Before anything of another namespace is read or reported.
        match permission(facts, origin)? {
            Ok(HeldToken::Extended) => {}
            // The webhook's token is valid for minutes only.
            Ok(HeldToken::Short) => {
                write_now([extended_token(facts, origin, volume)?])?;
            }
            Err(refusal) => {
                let message = format!("{NOT_MET} {}", refusal.message);
                return blocked(Event::warning(events::CLONE_VALIDATION_FAILED, message));
            }
        }
    }
    let Some(source) = &facts.clone.source else {
        let message = format!("The source {} doesn't exist", origin.named());
        return blocked(Event::warning(events::CLONE_WITHOUT_SOURCE, message));
    };
    if let CloneSourceObject::Claim(source) = source
        && let Some(event) = clone::mismatch(volume, source, object)
    {
        return blocked(event);
    }
    if let Err(event) = clone_size::complete(facts, source, object)? {
        return blocked(event);
    }
    clone::annotate(object, volume, origin, population);
    let mut writes = Vec::new();
    if population == PopulationMode::Populator {
        // Nothing owns across namespaces: the finalizer keeps the DataVolume until its VolumeCloneSource is deleted.
        if is_far {
            writes.extend(Write::add_finalizer(volume, finalizer::DATA_VOLUME));
        }
        writes.push(Write::create(clone::clone_source(volume, origin)));
    }
    ControlFlow::Continue(Ok(writes))
}

fn blocked<T>(event: Event) -> Planned<Result<T, Event>> {
    ControlFlow::Continue(Err(event))
}

/// Whether the tokens of the DataVolume allow it to be cloned from `origin`, which is in another namespace.
pub(super) fn permission<'a>(
    facts: &'a DataVolumeFacts,
    origin: &Origin,
) -> Planned<Result<HeldToken, &'a CloneNotAllowed>> {
    let result = facts.lookups.clone_permission.as_ref();
    let result = looked_up(result, || Lookup::ClonePermission(origin.clone()))?;
    ControlFlow::Continue(result.as_ref().copied())
}

pub(super) fn has_extended_token(metadata: &ObjectMeta) -> bool {
    meta::has_annotation(metadata, state::EXTENDED_CLONE_TOKEN)
}

/// Writes a token to `target` that is bound to its UID.
pub(super) fn extended_token<K: Writable>(
    facts: &DataVolumeFacts,
    origin: &Origin,
    target: &K,
) -> Planned<Write> {
    let token = looked_up(facts.lookups.extended_token.as_ref(), || Lookup::ExtendedToken {
        origin: origin.clone(),
        target: Box::new(target.meta().clone()),
    })?;
    let merge = json!({ "metadata": { "annotations": { state::EXTENDED_CLONE_TOKEN: token } } });
    ControlFlow::Continue(Write::patch(target, merge))
}
