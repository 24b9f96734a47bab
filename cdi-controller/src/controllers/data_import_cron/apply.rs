//! The writes of a cron's plan, in its order: deletions come last, when no DataSource refers to the objects any more.

use std::sync::Arc;

use api::events;
use api::v1beta1::{DataImportCron, DataSource, DataVolume};
use auth::token::Resource;
use controller_core::components::DATA_IMPORT_CRON as COMPONENT;
use controller_core::data_import_cron::{self as crons, Change, ProvenImage};
use controller_core::data_source::members;
use controller_core::meta;
use controller_core::object::{ObjectKind, ObjectRef, Writable};
use controller_core::plan::{Plan, Write};
use controller_core::refusal::{Audience, CauseText, OnRefused, RefusalReport, ReportedFailures};
use controller_core::snapshot::VolumeSnapshot;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::engine::api_client::Kind;
use crate::engine::{Engine, image_proof};

/// All changes of a cron. The cron reports a DataVolume that will be refused again.
pub fn plan_changes(engine: &Engine, cron: &DataImportCron, changes: Vec<Change>) -> Plan {
    let audience = vec![Audience {
        component: COMPONENT,
        about: ObjectRef::for_object(cron),
        prefix: String::new(),
    }];
    let report = RefusalReport {
        which: ReportedFailures::Final,
        kind: ObjectKind::DataVolume,
        reason: events::CLAIM_NOT_VALID,
        prefix: "Unable to create DataVolume: ".into(),
        cause: CauseText::Message,
        audience,
        note: None,
    };
    let on_refused = OnRefused::Report(Box::new(report));
    Plan { on_refused, ..Plan::writes(writes(engine, meta::namespace(&cron.metadata), changes)) }
}

/// The writes of these changes, in their order. An object that is gone needs no change. What a snapshot holds is signed if it
/// is known of its PVC, also by an earlier one of these changes.
pub fn writes(engine: &Engine, namespace: &str, changes: Vec<Change>) -> Vec<Write> {
    let mut proven: Vec<(String, ProvenImage)> = Vec::new();
    let mut writes = Vec::new();
    for change in changes {
        let mut signature = None;
        match &change {
            Change::Prove { claim, image } => proven.push((claim.clone(), image.clone())),
            Change::CreateSnapshot { snapshot, image } => {
                let name = meta::name(&snapshot.metadata);
                let claim = engine.api.caches.claims.get(namespace, name);
                let is_signed =
                    claim.is_some_and(|claim| image_proof::is_proven(engine, &claim, image));
                if is_signed || proven.iter().any(|(claim, known)| claim == name && known == image)
                {
                    let target = ObjectRef::named::<VolumeSnapshot>(namespace, name);
                    signature = Some(Write::SignCreated { target, image: image.clone() });
                }
            }
            _ => {}
        }
        writes.extend(write(engine, namespace, change).into_iter().chain(signature));
    }
    writes
}

fn write(engine: &Engine, namespace: &str, change: Change) -> Option<Write> {
    let caches = &engine.api.caches;
    match change {
        Change::CreateVolume(volume) => Some(Write::create(*volume)),
        Change::CreateSnapshot { snapshot, .. } => Some(Write::create(*snapshot)),
        Change::CreateSource(source) => Some(Write::create(*source)),
        Change::Prove { claim, image } => {
            let claim = caches.claims.get(namespace, &claim)?;
            let statement = image.statement(Resource::pvcs(), &claim.metadata)?;
            Some(Write::sign_image(claim.as_ref(), statement))
        }
        Change::ChangeSource { name, source, labels } => {
            let present = caches.data_sources.get(namespace, &name)?;
            let mut merge = json!({});
            if !labels.is_empty() {
                merge["metadata"] = json!({ "labels": labels });
            }
            if let Some(source) = source {
                merge["spec"] = json!({ "source": members(&source) });
            }
            Some(Write::patch(present.as_ref(), merge))
        }
        Change::Mark { kind, name, labels, annotations } => {
            let (labels, annotations) = (&labels, &annotations);
            match kind {
                crons::Kind::Volume => known::<DataVolume>(engine, namespace, &name)
                    .and_then(|object| Write::metadata(object.as_ref(), labels, annotations)),
                crons::Kind::Claim => known::<PersistentVolumeClaim>(engine, namespace, &name)
                    .and_then(|object| Write::metadata(object.as_ref(), labels, annotations)),
                crons::Kind::Snapshot => known::<VolumeSnapshot>(engine, namespace, &name)
                    .and_then(|object| Write::metadata(object.as_ref(), labels, annotations)),
                crons::Kind::Source => known::<DataSource>(engine, namespace, &name)
                    .and_then(|object| Write::metadata(object.as_ref(), labels, annotations)),
            }
        }
        Change::Delete(kind, name) => match kind {
            crons::Kind::Volume => deleted::<DataVolume>(engine, namespace, &name),
            crons::Kind::Claim => deleted::<PersistentVolumeClaim>(engine, namespace, &name),
            crons::Kind::Snapshot => deleted::<VolumeSnapshot>(engine, namespace, &name),
            crons::Kind::Source => deleted::<DataSource>(engine, namespace, &name),
        },
    }
}

fn known<K: Kind>(engine: &Engine, namespace: &str, name: &str) -> Option<Arc<K>> {
    K::store(&engine.api.caches)?.get(namespace, name)
}

fn deleted<K: Kind + Writable>(engine: &Engine, namespace: &str, name: &str) -> Option<Write> {
    Write::delete(known::<K>(engine, namespace, name)?.as_ref())
}
