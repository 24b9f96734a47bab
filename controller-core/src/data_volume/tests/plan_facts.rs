//! The facts of DataVolumes whose plans are tested, and decisions as text.

use std::sync::Arc;

use api::annotations::{request, state};
use api::names;
use api::v1beta1::CdiConfigSpec;
use serde_json::{Value, json};

use super::{claim, now};
use crate::clone::{HeldToken, Origin, OriginKind, SnapshotState};
use crate::data_volume::{
    CloneNotAllowed, CloneRequestFacts, CloneSourceObject, DataVolumeFacts, Decision, Failure,
    Lookup, LookupResults, PvcSettings, RestoredSourceFacts, plan_data_volume,
};
use crate::meta::Installation;
use crate::operation::{Operation, PopulationMode};
use crate::plan::{Plan, Requeue, Write};

pub(super) fn owned(
    phase: &str,
    mut annotations: Value,
) -> Arc<k8s_openapi::api::core::v1::PersistentVolumeClaim> {
    annotations[state::CREATED_FOR_DATA_VOLUME] = "dv-uid".into();
    let mut claim = claim(phase, annotations);
    claim.metadata.uid = Some("pvc-uid".into());
    claim.metadata.owner_references = serde_json::from_value(json!([{
        "apiVersion": "v", "kind": "DataVolume", "name": "disk", "uid": "dv-uid", "controller": true,
    }]))
    .unwrap();
    Arc::new(claim)
}

pub(super) fn settings() -> PvcSettings {
    PvcSettings {
        config: None,
        profiles: Arc::default(),
        volumes: Vec::new(),
        installation: Installation::default(),
    }
}

/// A DataVolume that a populator fills, as a user has created it.
pub(super) fn facts(source: Value) -> DataVolumeFacts {
    let volume: api::v1beta1::DataVolume = serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": "disk", "namespace": "vms", "uid": "dv-uid" },
        "spec": { "source": source, "pvc": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        } },
    }))
    .unwrap();
    DataVolumeFacts {
        operation: Operation::from_spec(&volume.spec),
        population: Ok(PopulationMode::Populator),
        is_in_transfer: false,
        claim: None,
        prime: None,
        pvc_warnings: Vec::new(),
        classes: Arc::default(),
        drivers: vec!["csi.example".into()],
        config: CdiConfigSpec::default(),
        import_source: None,
        upload_source: None,
        clone: CloneRequestFacts::default(),
        lookups: LookupResults::default(),
        volume: Arc::new(volume),
    }
}

pub(super) fn blank() -> DataVolumeFacts {
    facts(json!({ "blank": {} }))
}

/// A clone from another namespace, which its token allows.
pub(super) fn clone() -> DataVolumeFacts {
    let mut facts = facts(json!({ "pvc": { "namespace": "images", "name": "golden" } }));
    let origin =
        Origin { kind: OriginKind::Claim, namespace: "images".into(), name: "golden".into() };
    let source = serde_json::from_value(json!({
        "metadata": { "name": "golden", "namespace": "images" },
        "spec": { "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Bound" },
    }))
    .unwrap();
    facts.clone = CloneRequestFacts {
        origin: Some(origin.clone()),
        requested: Some(origin),
        source: Some(CloneSourceObject::Claim(Arc::new(source))),
        ..CloneRequestFacts::default()
    };
    annotate(&mut facts, &[(request::USE_POPULATOR, "true")]);
    facts.lookups.pvc_settings = Some(settings());
    facts.lookups.clone_permission = Some(Ok(HeldToken::Extended));
    facts
}

/// A clone from a snapshot that the DataVolume restores itself, because there is no populator.
pub(super) fn from_snapshot() -> DataVolumeFacts {
    let mut facts = clone();
    facts.population = Ok(PopulationMode::Legacy);
    annotate(&mut facts, &[(request::USE_POPULATOR, "false")]);
    facts.claim = Some(owned(
        "Bound",
        json!({
            state::EXTENDED_CLONE_TOKEN: "signed", state::CLONE_SOURCE_SNAPSHOT: "golden",
            request::CLONE_REQUEST: format!("images/{}", names::restored_pvc("dv-uid")),
        }),
    ));
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "csi.example" });
    facts.lookups.restored_source = Some(RestoredSourceFacts {
        claim: None,
        pvc_warnings: Vec::new(),
        snapshot: Some(SnapshotState {
            name: "golden".into(),
            namespace: "images".into(),
            ready: true,
            restore_size: Some(contract::ByteCount::new(1 << 30)),
            ..SnapshotState::default()
        }),
        class: Some(Arc::new(serde_json::from_value(class).unwrap())),
        profile: None,
        pod: None,
        cloner_image: "cloner".into(),
        placement: None,
        config: None,
        installation: Installation::default(),
    });
    facts
}

pub(super) fn annotate(facts: &mut DataVolumeFacts, pairs: &[(&str, &str)]) {
    let annotations = Arc::make_mut(&mut facts.volume).metadata.annotations.get_or_insert_default();
    annotations.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
}

pub(super) fn reserve(facts: &mut DataVolumeFacts, reserved: bool) {
    let volume = json!({
        "metadata": { "name": "pv-1" }, "spec": { "capacity": { "storage": "1Gi" } },
    });
    let volumes = reserved.then(|| Arc::new(serde_json::from_value(volume).unwrap()));
    facts.lookups.reserved_volumes = Some(volumes.into_iter().collect());
    facts.lookups.pvc_settings = Some(settings());
    annotate(facts, &[(request::CHECK_STATIC_VOLUME, "")]);
}

pub(super) fn refuse(facts: &mut DataVolumeFacts) {
    let message = "invalid token: pvc images/golden may not be cloned to vms/disk".to_owned();
    facts.lookups.clone_permission = Some(Err(CloneNotAllowed {
        origin: "pvc images/golden".into(),
        target: "vms/disk".into(),
        source: None,
        message,
    }));
}

/// Succeeded, and reported as that.
pub(super) fn succeeded() -> DataVolumeFacts {
    let mut facts = blank();
    annotate(&mut facts, &[(request::USE_POPULATOR, "true")]);
    facts.claim = Some(owned("Bound", json!({ state::POD_PHASE: "Succeeded" })));
    facts.import_source = Some(Arc::new(
        serde_json::from_value(json!({
            "apiVersion": "v", "kind": "k", "spec": {},
            "metadata": { "namespace": "vms", "name": names::import_source("dv-uid"), "uid": "3" },
        }))
        .unwrap(),
    ));
    settle(&mut facts);
    facts
}

/// Takes over the status, as a cluster would.
pub(super) fn settle(facts: &mut DataVolumeFacts) {
    let Decision::Execute(Plan { status: Some(status), .. }) = plan_data_volume(facts, now())
    else {
        panic!("no status")
    };
    let status = serde_json::from_value(status.status).unwrap();
    Arc::make_mut(&mut facts.volume).status = Some(status);
}

pub(super) fn terminate(facts: &mut DataVolumeFacts) {
    let deleted = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    Arc::make_mut(&mut facts.volume).metadata.deletion_timestamp = Some(deleted);
}

/// One word per write, then the phase that is reported, when to reconcile again, and the failure.
pub(super) fn summary(decision: Decision) -> String {
    let (plan, failure) = match decision {
        Decision::LookUp(lookup) => return format!("look up {}", lookup_name(&lookup)),
        Decision::Execute(plan) => (plan, ""),
        Decision::ExecuteAndFail(plan, failure) => (
            plan,
            match failure {
                Failure::PopulationMode(_) => " fail: population mode",
                Failure::InvalidPvc(_) => " fail: invalid PVC",
                Failure::UnexpectedVolume { .. } => " fail: unexpected volume",
                Failure::CloneNotAllowed(_) => " fail: not allowed",
            },
        ),
    };
    let kind = |write: &Write| write.kind().type_meta().1;
    let mut words: Vec<_> = plan
        .writes
        .iter()
        .map(|write| match write {
            Write::Create(_) => format!("create {}", kind(write)),
            Write::Patch { merge, .. } if merge.pointer("/metadata/finalizers").is_none() => {
                format!("patch {}", kind(write))
            }
            Write::Delete(_) => format!("delete {}", kind(write)),
            Write::Replace(_) | Write::Sign { .. } => panic!("{write:?}"),
            _ => format!("finalizer of {}", kind(write)),
        })
        .collect();
    words.extend(
        plan.status.map(|status| {
            format!("status {}", status.status["phase"].as_str().unwrap_or_default())
        }),
    );
    let requeue = match plan.requeue {
        Requeue::OnChange => "",
        Requeue::After(_) => " later",
        Requeue::Now => " now",
    };
    format!("{}{requeue}{failure}", words.join(", "))
}

fn lookup_name(lookup: &Lookup) -> &'static str {
    match lookup {
        Lookup::ReservedVolumes => "reserved volumes",
        Lookup::PvcSettings => "settings",
        Lookup::SnapshotContent(_) => "content",
        Lookup::ClonePermission(_) => "permission",
        Lookup::ExtendedToken { .. } => "token",
        Lookup::RestoredSource(_) => "restored source",
        Lookup::RestoredMark(_) => "mark",
        Lookup::Progress => "progress",
    }
}
