//! Index terms: what objects are found by, other than their names.
//!
//! Each change of a PVC looks up its clones, and each step of a clone looks up the objects created for it. With ten
//! thousand PVCs, scanning all of them would be most of the controllers' load.
//!
//! A term may select a few objects too many: the caller filters the result.

use api::ClaimPhase;
use api::Phase;
use api::annotations::{import, state};
use api::labels;
use api::v1beta1::{DataImportCron, DataSource, DataSourceSource, DataVolume, VolumeCloneSource};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::queue::Key;
use controller_core::claim_kind::{has_populator_source, is_clone_target};
use controller_core::clone::{self, Origin};
use controller_core::meta;
use controller_core::snapshot::VolumeSnapshot;

/// What an object may be found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// It was created for any clone.
    Helper,
    /// It was created for the clone whose target has this UID.
    MadeFor(String),
    /// It is the target of a clone, and has this UID.
    ClonedTo(String),
    /// Its source is the PVC or snapshot of this name, and it may still be waiting for it.
    From(Key),
    /// It is a PVC whose data source has this name.
    RefersTo(String),
    /// It is a PVC that records this name for its worker pod.
    PromisedTo(Key),
    /// It has this name, in any namespace.
    Named(String),
    /// It is a DataSource that refers to the PVC of this name.
    RefersToClaim(Key),
    /// It is a DataSource that refers to the snapshot of this name.
    RefersToSnapshot(Key),
    /// It is a DataSource that points to the DataSource of this name.
    PointsTo(Key),
    /// It is a DataImportCron that manages the DataSource of this name.
    Manages(Key),
    /// It carries the label of the DataImportCron of this name.
    OfCron(Key),
    /// It is a DataVolume without a PVC that names this DataSource.
    WaitsForSource(Key),
    /// It is a DataVolume without a PVC, or a PVC that is to be populated and is not bound.
    Waits,
}

/// Whether the DataVolume has no PVC yet, or its status does not report the PVC yet.
pub fn is_unbegun(volume: &DataVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    [Phase::Unset, Phase::Pending, Phase::CloneScheduled]
        .iter()
        .any(|known| phase.unwrap_or_default() == known.as_str())
}

/// The terms of a DataVolume. After its start, its PVC is looked up instead.
pub fn of_volume(volume: &DataVolume) -> Vec<Term> {
    let of_cron = of_cron(&volume.metadata);
    if !is_unbegun(volume) {
        return of_cron.into_iter().collect();
    }
    let waits_for = volume.spec.source_ref.as_ref().map(|reference| {
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        Term::WaitsForSource(in_namespace(namespace, &volume.metadata, &reference.name))
    });
    let origin = match volume.spec.source_ref {
        Some(_) => None,
        None => Origin::of_data_volume(volume, None, None),
    };
    origin.map(from).into_iter().chain(of_cron).chain(waits_for).chain([Term::Waits]).collect()
}

/// The terms of a PVC.
pub fn of_claim(claim: &PersistentVolumeClaim) -> Vec<Term> {
    let metadata = &claim.metadata;
    let mut terms = of_helper(metadata);
    terms.extend(of_cron(metadata));
    if !meta::is_true(metadata, state::CLONE_OF) {
        terms.extend(Origin::requested(metadata).map(from));
    }
    if is_clone_target(claim) {
        terms.push(Term::ClonedTo(meta::uid(metadata).to_owned()));
    }
    let waits = meta::claim_phase(claim) != ClaimPhase::Bound;
    if waits && (is_clone_target(claim) || has_populator_source(claim)) {
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
    let mut terms = of_helper(&snapshot.metadata);
    terms.extend(of_cron(&snapshot.metadata));
    terms
}

/// The terms of a DataSource.
pub fn of_data_source(source: &DataSource) -> Vec<Term> {
    let DataSourceSource { pvc, snapshot, data_source } = &source.spec.source;
    let key = |namespace: &str, name: &str| in_namespace(namespace, &source.metadata, name);
    let claim = pvc.as_ref().map(|of| Term::RefersToClaim(key(&of.namespace, &of.name)));
    let snapshot = snapshot.as_ref().map(|of| Term::RefersToSnapshot(key(&of.namespace, &of.name)));
    // Whatever namespace it names, only one of its own is looked at.
    let pointer = data_source.as_ref().map(|of| Term::PointsTo(key("", &of.name)));
    claim.into_iter().chain(snapshot).chain(pointer).collect()
}

/// The terms of a DataImportCron.
pub fn of_import_cron(cron: &DataImportCron) -> Vec<Term> {
    vec![Term::Manages(in_namespace("", &cron.metadata, &cron.spec.managed_data_source))]
}

/// The terms of a worker.
pub fn of_pod(pod: &Pod) -> Vec<Term> {
    of_helper(&pod.metadata)
}

fn of_cron(metadata: &ObjectMeta) -> Option<Term> {
    let name = meta::label(metadata, labels::DATA_IMPORT_CRON)?;
    Some(Term::OfCron(in_namespace("", metadata, name)))
}

/// The key of what an object refers to: in its own namespace, where it names none.
fn in_namespace(namespace: &str, referrer: &ObjectMeta, name: &str) -> Key {
    let namespace = if namespace.is_empty() { meta::namespace(referrer) } else { namespace };
    Key::new(namespace, name)
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
            let waits_for = Term::WaitsForSource(key("vms", "image"));
            assert_eq!(terms(&referred), [waits_for, Term::Waits]);
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

    #[test]
    fn a_data_source_is_found_by_each_object_that_it_refers_to() {
        let terms = |source: Value| {
            let metadata = json!({ "name": "image", "namespace": "vms" });
            let source = json!({ "metadata": metadata, "spec": { "source": source } });
            of_data_source(&serde_json::from_value(source).unwrap())
        };
        let there = json!({ "namespace": "golden", "name": "a" });
        let here = json!({ "namespace": "", "name": "a" });
        assert_eq!(terms(json!({})), []);
        assert_eq!(terms(json!({ "pvc": there })), [Term::RefersToClaim(key("golden", "a"))]);
        assert_eq!(terms(json!({ "pvc": here })), [Term::RefersToClaim(key("vms", "a"))]);
        let snapshot = Term::RefersToSnapshot(key("golden", "a"));
        assert_eq!(terms(json!({ "snapshot": there })), [snapshot]);
        assert_eq!(terms(json!({ "dataSource": there })), [Term::PointsTo(key("vms", "a"))]);
    }

    #[test]
    fn what_an_import_cron_made_is_found_by_its_label() {
        let metadata = json!({
            "name": "image-1", "namespace": "vms",
            "labels": { "cdi.kubevirt.io/dataImportCron": "cron" },
        });
        let of_cron = Term::OfCron(key("vms", "cron"));
        let claim = claim(metadata.clone(), Value::Null, "Bound");
        assert!(of_claim(&claim).contains(&of_cron));
        let mut volume = volume("Succeeded", json!({ "source": { "blank": {} } }));
        volume.metadata = serde_json::from_value(metadata).unwrap();
        assert_eq!(of_volume(&volume), [of_cron]);
    }
}
