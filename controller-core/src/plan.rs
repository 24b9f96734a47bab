//! What a reconcile does: the writes, the status, the events, and when to reconcile again.
//!
//! ```text
//! facts ─► plan ─► execute: writes in order ─► status ─► events ─► requeue
//!                     └─ refused ─► `OnRefused`: report on the objects that users read, then retry
//! ```

use std::time::Duration;

use api::annotations::import;
use auth::token::Claims;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::data_import_cron::ProvenImage;
use crate::event::Event;
use crate::meta::{Changes, Pairs};
use crate::object::{Object, ObjectKind, ObjectRef, Writable};
use crate::refusal::OnRefused;

/// All that a reconcile does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order; the first failure ends the list.
    pub writes: Vec<Write>,
    /// Written after `writes`.
    pub status: Option<StatusPatch>,
    /// Recorded after the writes and the status.
    pub events: Vec<ObjectEvent>,
    pub requeue: Requeue,
    /// Where a `Create` found an object of the same name, which the cache does not show yet: instead of `requeue`. The
    /// plan's status is not written then, nor its events.
    pub requeue_if_exists: Option<Requeue>,
    pub on_refused: OnRefused,
}

/// A write. Each is safe to repeat.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// That there is one already is no failure.
    Create(Object),
    /// A merge patch. `guarded`: by `resourceVersion`, for lists, which a merge patch replaces as a whole.
    Patch { target: ObjectRef, merge: Value, guarded: bool },
    /// The whole object, guarded by its `resourceVersion`.
    Replace(Object),
    /// A statement about the object, signed by the controller, as an annotation. Without a signing key nothing is
    /// written.
    Sign { target: ObjectRef, annotation: &'static str, statement: Claims },
    /// Signs which image `target` holds, if an earlier write of the same plan has created it: what an object of another
    /// client holds is not known.
    SignCreated { target: ObjectRef, image: ProvenImage },
    /// Guarded. `present` are the finalizers of the object as the plan saw it; where an earlier write of the same plan
    /// has changed the object, those of the response count. That the object is gone is no failure of a removal.
    SetFinalizer { target: ObjectRef, name: String, presence: Presence, present: Vec<String> },
    /// By UID, if the `ObjectRef` has one. That the object is gone is no failure.
    Delete(ObjectRef),
}

/// Whether an object is to have a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Present,
    Absent,
}

impl Presence {
    /// All finalizers, where these are there.
    pub fn apply(self, name: &str, finalizers: &[String]) -> Vec<String> {
        let mut all = finalizers.to_vec();
        all.retain(|one| one != name);
        if self == Self::Present {
            all.push(name.to_owned());
        }
        all
    }
}

/// A merge patch of the subresource `status`.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPatch {
    pub target: ObjectRef,
    pub status: Value,
}

/// An event about an object, in the name of a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEvent {
    pub component: &'static str,
    pub about: ObjectRef,
    pub event: Event,
}

/// What a decision comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision<L> {
    /// A read outside the cache, which is requested only where all else permits the action. The result is a fact of the
    /// next decision.
    LookUp(L),
    Execute(Box<Plan>),
}

impl<L> Decision<L> {
    pub fn execute(plan: Plan) -> Self {
        Self::Execute(Box::new(plan))
    }
}

/// When to reconcile again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requeue {
    /// When a watch reports a change.
    #[default]
    OnChange,
    After(Duration),
    /// At once: the next decision needs the result of this plan's writes.
    Now,
}

impl Requeue {
    /// After `delay` if there is one.
    pub fn after(delay: Option<Duration>) -> Self {
        delay.map_or(Self::OnChange, Self::After)
    }
}

impl Plan {
    /// Nothing to write.
    pub fn requeue(requeue: Requeue) -> Self {
        Self { requeue, ..Self::default() }
    }

    pub fn writes(writes: impl IntoIterator<Item = Write>) -> Self {
        Self { writes: writes.into_iter().collect(), ..Self::default() }
    }

    /// A merge patch of the status, and nothing else.
    pub fn status(object: &impl Writable, status: Value, requeue: Requeue) -> Self {
        let status = StatusPatch { target: ObjectRef::for_object(object), status };
        Self { status: Some(status), requeue, ..Self::default() }
    }

    /// This plan, then the other one, which determines when to reconcile again. One of the two may report refusals: it
    /// names the kind of the writes that it means.
    #[must_use]
    pub fn then(self, mut next: Self) -> Self {
        next.writes.splice(..0, self.writes);
        next.events.splice(..0, self.events);
        next.status = next.status.or(self.status);
        if next.on_refused == OnRefused::Retry {
            next.on_refused = self.on_refused;
        }
        next
    }

    /// Adds events about `object`.
    pub fn record<K: Writable>(
        &mut self,
        component: &'static str,
        object: &K,
        events: impl IntoIterator<Item = Event>,
    ) {
        let about = ObjectRef::for_object(object);
        let events = events.into_iter();
        self.events.extend(events.map(|event| ObjectEvent {
            component,
            about: about.clone(),
            event,
        }));
    }
}

impl Write {
    /// The kind of the object.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Create(object) | Self::Replace(object) => object.reference().kind,
            Self::Patch { target, .. }
            | Self::Sign { target, .. }
            | Self::SignCreated { target, .. }
            | Self::SetFinalizer { target, .. }
            | Self::Delete(target) => target.kind,
        }
    }

    pub fn create(object: impl Writable) -> Self {
        Self::Create(object.into_object())
    }

    pub fn replace(object: impl Writable) -> Self {
        Self::Replace(object.into_object())
    }

    pub fn patch(object: &impl Writable, merge: Value) -> Self {
        Self::Patch { target: ObjectRef::for_object(object), merge, guarded: false }
    }

    /// A patch that fails with a conflict if the object has changed.
    pub fn guarded_patch(object: &impl Writable, merge: Value) -> Self {
        Self::Patch { target: ObjectRef::for_object(object), merge, guarded: true }
    }

    /// Labels and annotations; `None` where nothing changes.
    pub fn metadata(object: &impl Writable, labels: &Pairs, annotations: &Changes) -> Option<Self> {
        Some(Self::patch(object, metadata_patch(labels, annotations)?))
    }

    pub fn annotations(object: &impl Writable, annotations: &Changes) -> Option<Self> {
        Self::metadata(object, &Pairs::new(), annotations)
    }

    /// Signs which image an object of a DataImportCron holds.
    pub fn sign_image(object: &impl Writable, statement: Claims) -> Self {
        let (target, annotation) = (ObjectRef::for_object(object), import::GOLDEN_IMAGE_PROOF);
        Self::Sign { target, annotation, statement }
    }

    /// `None` where the object has the finalizer.
    pub fn add_finalizer(object: &impl Writable, name: &str) -> Option<Self> {
        (!has_finalizer(object.meta(), name))
            .then(|| Self::set_finalizer(object, name, Presence::Present))
    }

    /// `None` where the object does not have the finalizer.
    pub fn remove_finalizer(object: &impl Writable, name: &str) -> Option<Self> {
        has_finalizer(object.meta(), name)
            .then(|| Self::set_finalizer(object, name, Presence::Absent))
    }

    fn set_finalizer(object: &impl Writable, name: &str, presence: Presence) -> Self {
        let present = object.meta().finalizers.clone().unwrap_or_default();
        let (target, name) = (ObjectRef::for_object(object), name.to_owned());
        Self::SetFinalizer { target, name, presence, present }
    }

    /// `None` where the object is terminating.
    pub fn delete(object: &impl Writable) -> Option<Self> {
        let is_terminating = object.meta().deletion_timestamp.is_some();
        (!is_terminating).then(|| Self::Delete(ObjectRef::for_object(object)))
    }

    /// Deletes whichever object has this name.
    pub fn delete_named<K: Writable>(namespace: &str, name: &str) -> Self {
        Self::Delete(ObjectRef::named::<K>(namespace, name))
    }

    /// Points a PersistentVolume at another PVC, if the volume is as it was read.
    pub fn rebind(
        volume: &crate::volume::PersistentVolume,
        claim: &k8s_openapi::api::core::v1::ObjectReference,
    ) -> Self {
        Self::guarded_patch(volume, json!({ "spec": { "claimRef": claim } }))
    }
}

fn has_finalizer(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == name)
}

/// A merge patch of labels and annotations; `None` where nothing changes.
pub fn metadata_patch(labels: &Pairs, annotations: &Changes) -> Option<Value> {
    if labels.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut metadata = Map::new();
    if !labels.is_empty() {
        metadata.insert("labels".into(), json!(labels));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".into(), json!(annotations.0));
    }
    Some(json!({ "metadata": metadata }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod(metadata: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn write_without_a_change_is_none() {
        let held = pod(json!({ "name": "a", "finalizers": ["x", "y"], "resourceVersion": "7" }));
        let free = pod(json!({ "name": "a" }));
        let leaving = pod(json!({ "name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        assert_eq!(Write::add_finalizer(&held, "x"), None);
        assert_eq!(Write::remove_finalizer(&free, "x"), None);
        assert_eq!(Write::delete(&leaving), None);
        assert_eq!(Write::annotations(&free, &Changes::default()), None);
        let set = |write: Option<Write>| {
            let Some(Write::SetFinalizer { target, name, presence, present }) = write else {
                panic!("no write")
            };
            (target.resource_version.unwrap_or_default(), presence.apply(&name, &present))
        };
        assert_eq!(set(Write::remove_finalizer(&held, "x")), ("7".into(), vec!["y".into()]));
        let all = vec!["x".into(), "y".into(), "z".into()];
        assert_eq!(set(Write::add_finalizer(&held, "z")), ("7".into(), all));
    }
}
