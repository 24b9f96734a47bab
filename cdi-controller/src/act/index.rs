//! What objects are looked for by, other than their names.
//!
//! Every change of a claim asks who is cloned from it, and every step of a clone asks what was made for it. With ten thousand
//! claims, looking at each of them would be most of what the controllers do.
//!
//! A term may pick a few too many: whoever looks by it looks again at what was found.

use api::Phase;
use api::annotations::{import, state};
use api::v1beta1::{DataVolume, VolumeCloneSource};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::queue::Key;
use super::route::{is_cloned, is_populated};
use crate::clone::{self, Origin};
use crate::meta;
use crate::snapshot::VolumeSnapshot;

/// What an object may be looked for by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// It was made for a clone, whichever.
    Helper,
    /// It was made for the clone to the claim of this UID.
    MadeFor(String),
    /// It is cloned to, and has this UID.
    ClonedTo(String),
    /// It wants what is in the claim or snapshot of this name, and may still be waiting for it.
    From(Key),
    /// It is a claim that refers to something of this name.
    RefersTo(String),
    /// It is a claim that was promised the worker of this name.
    PromisedTo(Key),
    /// It has this name, in whichever namespace.
    Named(String),
    /// It is a DataVolume without a claim, or a claim of ours that is not bound.
    Waits,
}

/// A DataVolume that has no claim yet, or has not heard of it.
pub fn is_unbegun(volume: &DataVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    [Phase::Unset, Phase::Pending, Phase::CloneScheduled]
        .iter()
        .any(|known| phase.unwrap_or_default() == known.as_str())
}

/// The terms of a DataVolume. One that has begun is never looked for: its claim is.
pub fn of_volume(volume: &DataVolume) -> Vec<Term> {
    if !is_unbegun(volume) {
        return Vec::new();
    }
    let origin = match volume.spec.source_ref {
        Some(_) => None,
        None => Origin::of(volume, None, None),
    };
    origin.map(from).into_iter().chain([Term::Waits]).collect()
}

/// The terms of a claim.
pub fn of_claim(claim: &PersistentVolumeClaim) -> Vec<Term> {
    let metadata = &claim.metadata;
    let mut terms = of_helper(metadata);
    if !meta::is_true(metadata, state::CLONE_OF) {
        terms.extend(Origin::requested(metadata).map(from));
    }
    if is_cloned(claim) {
        terms.push(Term::ClonedTo(meta::uid(metadata).to_owned()));
    }
    let waits = meta::claim_phase(claim) != "Bound";
    if waits && (is_cloned(claim) || is_populated(claim)) {
        terms.push(Term::Waits);
    }
    let reference = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    terms.extend(reference.map(|reference| Term::RefersTo(reference.name.clone())));
    if let Some(worker) = meta::annotation(metadata, import::POD_NAME) {
        terms.push(Term::PromisedTo(Key::new(meta::namespace(metadata), worker)));
    }
    terms
}

/// The terms of a VolumeCloneSource.
pub fn of_clone_source(source: &VolumeCloneSource) -> Vec<Term> {
    let namespace = meta::namespace(&source.metadata);
    let origin = Origin::referred_to(namespace, &source.spec.source).map(from);
    origin.into_iter().chain([Term::Named(meta::name(&source.metadata).to_owned())]).collect()
}

/// The terms of a snapshot.
pub fn of_snapshot(snapshot: &VolumeSnapshot) -> Vec<Term> {
    of_helper(&snapshot.metadata)
}

/// The terms of a worker.
pub fn of_pod(pod: &Pod) -> Vec<Term> {
    of_helper(&pod.metadata)
}

fn of_helper(metadata: &ObjectMeta) -> Vec<Term> {
    match clone::owner_uid(metadata) {
        Some(uid) => vec![Term::Helper, Term::MadeFor(uid.to_owned())],
        None => Vec::new(),
    }
}

fn from(origin: Origin) -> Term {
    Term::From(Key::new(origin.namespace, origin.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(phase: &str, spec: Value) -> DataVolume {
        let metadata = json!({ "name": "disk", "namespace": "vms" });
        let volume = json!({ "metadata": metadata, "spec": spec, "status": { "phase": phase } });
        serde_json::from_value(volume).unwrap()
    }

    fn claim(metadata: Value, reference: Value, phase: &str) -> PersistentVolumeClaim {
        let claim = json!({
            "metadata": metadata, "spec": { "dataSourceRef": reference }, "status": { "phase": phase },
        });
        serde_json::from_value(claim).unwrap()
    }

    fn key(namespace: &str, name: &str) -> Key {
        Key::new(namespace, name)
    }

    #[test]
    fn a_datavolume_is_looked_for_until_it_has_begun() {
        let cloned = json!({ "source": { "pvc": { "namespace": "golden", "name": "image" } } });
        let here = json!({ "source": { "snapshot": { "namespace": "", "name": "image" } } });
        let referred = json!({ "sourceRef": { "kind": "DataSource", "name": "image" } });
        let blank = json!({ "source": { "blank": {} } });
        for phase in ["", "Pending", "CloneScheduled"] {
            let terms = |spec: &Value| of_volume(&volume(phase, spec.clone()));
            assert_eq!(terms(&cloned), [Term::From(key("golden", "image")), Term::Waits]);
            assert_eq!(terms(&here), [Term::From(key("vms", "image")), Term::Waits]);
            assert_eq!(terms(&referred), [Term::Waits]);
            assert_eq!(terms(&blank), [Term::Waits]);
        }
        for phase in ["ImportInProgress", "Succeeded", "Failed", "CloneInProgress"] {
            assert_eq!(of_volume(&volume(phase, cloned.clone())), [], "{phase}");
        }
    }

    #[test]
    fn a_claim_is_found_by_what_it_waits_for_and_by_whose_it_is() {
        let reference =
            json!({ "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "source" });
        let own = json!({ "name": "disk", "namespace": "vms", "uid": "1" });
        let to = [Term::ClonedTo("1".into()), Term::Waits, Term::RefersTo("source".into())];
        assert_eq!(of_claim(&claim(own.clone(), reference.clone(), "Pending")), to);
        assert!(!of_claim(&claim(own, reference, "Bound")).contains(&Term::Waits));

        let helper = json!({
            "name": "prime", "namespace": "vms", "labels": { "cdi.kubevirt.io/OwnedByUID": "1" },
            "annotations": {
                "k8s.io/CloneRequest": "golden/image",
                "cdi.kubevirt.io/storage.import.importPodName": "importer",
            },
        });
        let helper = claim(helper, Value::Null, "Pending");
        let terms = [
            Term::Helper,
            Term::MadeFor("1".into()),
            Term::From(key("golden", "image")),
            Term::PromisedTo(key("vms", "importer")),
        ];
        assert_eq!(of_claim(&helper), terms);
    }
}
