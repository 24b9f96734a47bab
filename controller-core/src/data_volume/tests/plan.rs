//! The decision about a whole DataVolume: which lookup, or which writes, status and requeue.

use std::sync::Arc;
use std::time::Duration;

use api::annotations::{request, state};
use api::v1beta1::CdiConfigSpec;
use serde_json::json;

use super::plan_facts::*;
use super::{claim, now, refusal};
use crate::clone::HeldToken;
use crate::data_volume::{
    DataVolumeFacts, Decision, IsMarked, plan_after_refusal, plan_data_volume,
};
use crate::object::Object;
use crate::operation::PopulationMode;
use crate::plan::{Requeue, Write};

type Row = (&'static str, fn() -> DataVolumeFacts, fn(&mut DataVolumeFacts), &'static str);

fn check(table: &[Row]) {
    for (case, facts, change, expected) in table {
        let mut facts = facts();
        change(&mut facts);
        assert_eq!(summary(plan_data_volume(&facts, now())), *expected, "{case}");
    }
}

#[test]
fn plan_decision_table() {
    check(&[
        ("in transfer", blank, |f| f.is_in_transfer = true, ""),
        ("terminating", blank, terminate, ""),
        ("new", blank, |_| (), "look up settings"),
        (
            "new, settings known",
            blank,
            |f| f.lookups.pvc_settings = Some(settings()),
            "create VolumeImportSource, create PersistentVolumeClaim now",
        ),
        (
            "new, without a populator",
            blank,
            |f| {
                f.population = Ok(PopulationMode::Legacy);
                f.lookups.pvc_settings = Some(settings());
            },
            "create PersistentVolumeClaim now",
        ),
        (
            "no PVC can be created",
            blank,
            |f| {
                Arc::make_mut(&mut f.volume).spec.pvc = None;
                f.lookups.pvc_settings = Some(settings());
            },
            "patch DataVolume, status  fail: invalid PVC",
        ),
        (
            "restored with its PVC, which is not there yet",
            blank,
            |f| annotate(f, &[(request::PRE_POPULATED, "disk")]),
            "patch DataVolume, status Pending",
        ),
        (
            "PVC created",
            blank,
            |f| f.claim = Some(owned("Pending", json!({}))),
            "patch DataVolume, status Pending",
        ),
        (
            "PVC of another client",
            blank,
            |f| f.claim = Some(Arc::new(claim("Bound", json!({})))),
            "patch DataVolume, status ",
        ),
        (
            "PVC to adopt",
            blank,
            |f| {
                let populated = json!({ request::POPULATED_FOR: "disk" });
                f.claim = Some(Arc::new(claim("Bound", populated)));
            },
            "patch PersistentVolumeClaim now",
        ),
        (
            "worker runs, without a populator",
            blank,
            |f| {
                f.population = Ok(PopulationMode::Legacy);
                f.claim = Some(owned("Bound", json!({ state::POD_PHASE: "Running" })));
            },
            "look up progress",
        ),
        ("succeeded", succeeded, |_| (), "delete VolumeImportSource"),
        ("succeeded, nothing left", succeeded, |f| f.import_source = None, ""),
        (
            "succeeded, not reported",
            succeeded,
            |f| Arc::make_mut(&mut f.volume).status = None,
            "status Succeeded now",
        ),
        (
            "succeeded, restored together with the PVC",
            succeeded,
            |f| annotate(f, &[(request::POPULATED_FOR, "disk")]),
            "patch PersistentVolumeClaim now",
        ),
        (
            "expires",
            succeeded,
            |f| {
                annotate(f, &[(request::DELETE_AFTER_COMPLETION, "true")]);
                f.config.data_volume_ttl_seconds = Some(60);
                f.import_source = None;
            },
            " later",
        ),
        (
            "expired",
            succeeded,
            |f| {
                annotate(f, &[(request::DELETE_AFTER_COMPLETION, "true")]);
                f.config.data_volume_ttl_seconds = Some(0);
            },
            "patch PersistentVolumeClaim, delete DataVolume",
        ),
    ]);
}

#[test]
fn plan_of_static_volume_decision_table() {
    let listed = |volume: &str| {
        let listed = json!({ state::PERSISTENT_VOLUME_LIST: r#"["pv-1"]"# });
        let mut claim = owned("Bound", listed);
        Arc::make_mut(&mut claim).spec.as_mut().unwrap().volume_name = Some(volume.into());
        claim
    };
    let table: [(&str, Box<dyn Fn(&mut DataVolumeFacts)>, &str); 5] = [
        (
            "not looked up",
            Box::new(|f| annotate(f, &[(request::CHECK_STATIC_VOLUME, "")])),
            "look up reserved volumes",
        ),
        ("reserved", Box::new(|f| reserve(f, true)), "create PersistentVolumeClaim now"),
        (
            "none reserved",
            Box::new(|f| reserve(f, false)),
            "create VolumeImportSource, create PersistentVolumeClaim now",
        ),
        (
            "bound to it",
            Box::new(move |f| {
                reserve(f, true);
                f.claim = Some(listed("pv-1"));
            }),
            "patch PersistentVolumeClaim now",
        ),
        (
            "bound to another",
            Box::new(move |f| {
                reserve(f, true);
                f.claim = Some(listed("pv-2"));
            }),
            "delete PersistentVolumeClaim fail: unexpected volume",
        ),
    ];
    for (case, change, expected) in table {
        let mut facts = blank();
        change(&mut facts);
        assert_eq!(summary(plan_data_volume(&facts, now())), expected, "{case}");
    }
}

#[test]
fn plan_of_clone_decision_table() {
    check(&[
        (
            "labels and annotations come before the PVC",
            clone,
            |f| Arc::make_mut(&mut f.volume).metadata.annotations = None,
            "patch DataVolume now",
        ),
        (
            "permission not verified",
            clone,
            |f| f.lookups.clone_permission = None,
            "look up permission",
        ),
        ("not allowed", clone, refuse, "status "),
        (
            "short token",
            clone,
            |f| f.lookups.clone_permission = Some(Ok(HeldToken::Short)),
            "look up token",
        ),
        (
            "short token, extended",
            clone,
            |f| {
                f.lookups.clone_permission = Some(Ok(HeldToken::Short));
                f.lookups.extended_token = Some("signed".into());
            },
            "patch DataVolume now",
        ),
        ("no source", clone, |f| f.clone.source = None, "status "),
        (
            "allowed",
            clone,
            |_| (),
            "finalizer of DataVolume, create VolumeCloneSource, create PersistentVolumeClaim now",
        ),
        (
            "PVC without a token",
            clone,
            |f| f.claim = Some(owned("Pending", json!({}))),
            "look up token",
        ),
        (
            "PVC without a token, not allowed any longer",
            clone,
            |f| {
                refuse(f);
                f.claim = Some(owned("Pending", json!({})));
            },
            " fail: not allowed",
        ),
        (
            "PVC with a token",
            clone,
            |f| {
                let token = json!({ state::EXTENDED_CLONE_TOKEN: "signed" });
                f.claim = Some(owned("Pending", token));
            },
            "status CloneScheduled",
        ),
        (
            "terminating",
            clone,
            |f| {
                terminate(f);
                let finalizers = vec![api::labels::finalizer::DATA_VOLUME.to_owned()];
                Arc::make_mut(&mut f.volume).metadata.finalizers = Some(finalizers);
            },
            "delete VolumeCloneSource, finalizer of DataVolume",
        ),
        (
            "from a snapshot, without a populator",
            clone,
            |f| {
                *f = from_snapshot();
                f.lookups.restored_source = None;
            },
            "look up restored source",
        ),
        ("restored source known, mark not signed", from_snapshot, |_| (), "look up mark"),
        (
            "mark signed",
            from_snapshot,
            |f| f.lookups.restored_mark = Some("signed".into()),
            "patch PersistentVolumeClaim, create PersistentVolumeClaim, status CloneFromSnapshotSourceInProgress",
        ),
        (
            "name taken by another client",
            from_snapshot,
            |f| {
                let found = f.lookups.restored_source.as_mut().unwrap();
                found.claim = Some((Arc::new(claim("Bound", json!({}))), IsMarked::No));
            },
            "patch PersistentVolumeClaim, status CloneScheduled later",
        ),
        ("from a snapshot, not allowed", from_snapshot, refuse, "patch PersistentVolumeClaim now"),
    ]);
}

#[test]
fn nothing_of_a_source_is_reported_without_permission() {
    let mut facts = clone();
    refuse(&mut facts);
    facts.clone.source = None;
    let Decision::Execute(plan) = plan_data_volume(&facts, now()) else { panic!("no plan") };
    let reasons: Vec<_> = plan.events.iter().map(|event| event.event.reason.as_str()).collect();
    assert_eq!(reasons, [api::events::CLONE_VALIDATION_FAILED], "and not that it does not exist");
}

#[test]
fn pvc_is_created_after_what_it_refers_to() {
    let mut facts = clone();
    facts.config = CdiConfigSpec::default();
    let Decision::Execute(plan) = plan_data_volume(&facts, now()) else { panic!("no plan") };
    let last = plan.writes.last().unwrap();
    assert!(matches!(last, Write::Create(Object::PersistentVolumeClaim(_))), "{last:?}");
    assert_eq!(plan.requeue_if_exists, Some(Requeue::OnChange));
}

#[test]
fn refused_pvc_decision_table() {
    for (case, code, message, expected) in [
        ("quota", 403, "exceeded quota: q", Some("patch DataVolume, status Pending")),
        ("invalid", 422, "is invalid", Some("patch DataVolume, status ")),
        ("server error", 500, "not now", None),
    ] {
        let refusal = refusal(code, message);
        let decision = plan_after_refusal(&blank(), Some(&refusal), now());
        assert_eq!(decision.map(summary).as_deref(), expected, "{case}");
    }
    assert!(plan_after_refusal(&blank(), None, now()).is_none(), "no answer");
}

#[test]
fn requeue_of_an_expiring_data_volume_is_the_rest_of_its_time() {
    let mut facts = succeeded();
    annotate(&mut facts, &[(request::DELETE_AFTER_COMPLETION, "true")]);
    facts.config.data_volume_ttl_seconds = Some(60);
    facts.import_source = None;
    let later = now().checked_add(Duration::from_secs(45)).unwrap();
    let Decision::Execute(plan) = plan_data_volume(&facts, later) else { panic!("no plan") };
    assert_eq!(plan.requeue, Requeue::After(Duration::from_secs(15)));
}
