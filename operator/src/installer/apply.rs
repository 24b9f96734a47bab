//! Applies the desired objects one after the other. An object that cannot be applied does not stop the others.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::api_client::{ApiClient, Propagation};
use crate::error::Error;
use crate::events::{EventRecorder, InstallationEvent};
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::plan::completion::{WriteFailure, WriteVerb};
use crate::plan::drift::{AcceptedWrite, DriftFacts, ObjectStep, object_step};
use crate::plan::stored_versions::{StoredVersionStep, stored_version_step, with_stored_versions};

/// What is common to the objects of a pass.
pub struct ApplyContext<'a> {
    pub api: &'a ApiClient,
    pub events: &'a mut EventRecorder,
    pub accepted: &'a mut BTreeMap<ObjectId, AcceptedWrite>,
    pub installation: &'a Value,
    pub operator_version: &'a str,
    pub ca_bundle: Option<String>,
    pub now: Timestamp,
}

/// What a pass has done and seen.
#[derive(Debug, Default)]
pub struct ApplyReport {
    /// The objects as they are after the pass.
    pub observed: BTreeMap<ObjectId, Value>,
    pub failures: Vec<WriteFailure>,
    /// Another pass has to follow soon: a deletion is awaited, or another writer was faster.
    pub awaited: bool,
}

impl ApplyReport {
    pub async fn fail(
        &mut self,
        context: &mut ApplyContext<'_>,
        verb: WriteVerb,
        object: String,
        error: &Error,
    ) {
        if error.is_conflict() {
            self.awaited = true;
            return;
        }
        let failure = WriteFailure { verb, object, cause: runtime::chain(error) };
        tracing::warn!("{}", failure.message());
        let event = InstallationEvent::warning(verb.failed_reason(), failure.message());
        context.events.record(context.api, context.installation, event, context.now).await;
        self.failures.push(failure);
    }
}

/// Creates, replaces or keeps `desired`.
pub async fn apply_object(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    id: &ObjectId,
    desired: &Value,
    owner: &Value,
) {
    let current = match context.api.get(id).await {
        Ok(current) => current,
        Err(error) => return report.fail(context, WriteVerb::Update, id.to_string(), &error).await,
    };
    let desired = match &current {
        Some(current) if id.kind == &kinds::CRD => with_stored_versions(desired, current),
        _ => desired.clone(),
    };
    let step = object_step(&drift_facts(context, id, &desired, current.as_ref(), owner));
    let (verb, written) = match step {
        ObjectStep::Keep => {
            if let Some(current) = current {
                rewrite_stored_objects(context, report, id, &desired, &current).await;
                report.observed.insert(id.clone(), current);
            }
            return;
        }
        ObjectStep::AwaitDeletion => {
            report.awaited = true;
            return;
        }
        ObjectStep::Recreate => {
            return recreate(context, report, id, current.as_ref()).await;
        }
        ObjectStep::Create(object) => (WriteVerb::Create, object),
        ObjectStep::Replace(object) => (WriteVerb::Update, object),
    };
    let result = match verb {
        WriteVerb::Create => context.api.create(id, &written).await,
        _ => context.api.replace(id, &written).await,
    };
    let result = match result {
        Ok(result) => result,
        Err(error) => return report.fail(context, verb, id.to_string(), &error).await,
    };
    tracing::info!("{}", verb.success_message(id));
    let event = InstallationEvent::normal(verb.success_reason(), verb.success_message(id));
    context.events.record(context.api, context.installation, event, context.now).await;
    remember_accepted(context, id, &desired, owner, &result);
    report.observed.insert(id.clone(), result);
}

fn drift_facts<'a>(
    context: &'a ApplyContext<'_>,
    id: &'a ObjectId,
    desired: &'a Value,
    current: Option<&'a Value>,
    owner: &'a Value,
) -> DriftFacts<'a> {
    DriftFacts {
        id,
        desired,
        current,
        owner,
        operator_version: context.operator_version,
        ca_bundle: context.ca_bundle.as_deref(),
        accepted: context.accepted.get(id),
    }
}

/// If the API server has stored the object in another form, the next pass would write it again, and so would each later one.
fn remember_accepted(
    context: &mut ApplyContext<'_>,
    id: &ObjectId,
    desired: &Value,
    owner: &Value,
    result: &Value,
) {
    context.accepted.remove(id);
    if let ObjectStep::Replace(merged) =
        object_step(&drift_facts(context, id, desired, Some(result), owner))
    {
        tracing::debug!("the API server stores {id} in another form than desired");
        let accepted = AcceptedWrite { merged, result: result.clone() };
        context.accepted.insert(id.clone(), accepted);
    }
}

async fn recreate(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    id: &ObjectId,
    current: Option<&Value>,
) {
    report.awaited = true;
    let Some(current) = current else { return };
    tracing::info!("deleting {id}: an immutable field differs, so it is created again");
    delete_object(context, report, id, metadata::uid(current)).await;
}

/// Deletes with an event. Objects that own others go after them.
pub async fn delete_object(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    id: &ObjectId,
    uid: &str,
) {
    match context.api.delete(id, uid, Propagation::Foreground).await {
        Ok(()) => {
            let verb = WriteVerb::Delete;
            tracing::info!("{}", verb.success_message(id));
            let event = InstallationEvent::normal(verb.success_reason(), verb.success_message(id));
            context.events.record(context.api, context.installation, event, context.now).await;
        }
        Err(error) => report.fail(context, WriteVerb::Delete, id.to_string(), &error).await,
    }
}

/// Stores all objects of a CRD in its newest version, so that older ones need not be served any more.
async fn rewrite_stored_objects(
    context: &mut ApplyContext<'_>,
    report: &mut ApplyReport,
    id: &ObjectId,
    desired: &Value,
    current: &Value,
) {
    if id.kind != &kinds::CRD {
        return;
    }
    let version = match stored_version_step(desired, current) {
        StoredVersionStep::Current => return,
        StoredVersionStep::AwaitStorageVersion => {
            report.awaited = true;
            return;
        }
        StoredVersionStep::Rewrite { version } => version,
    };
    tracing::info!("rewriting the objects of {id} in version {version}");
    let outcome = rewrite_all(context.api, current, &version).await;
    let outcome = match outcome {
        Ok(()) => {
            let mut migrated = current.clone();
            migrated["status"]["storedVersions"] = serde_json::json!([version]);
            context.api.replace_status(id, &migrated).await.map(drop)
        }
        Err(error) => Err(Error::cluster(format!("rewrite the objects of {id}"))(error)),
    };
    // The next pass removes the versions that are not stored any more.
    report.awaited = true;
    if let Err(error) = outcome {
        report.fail(context, WriteVerb::Update, id.to_string(), &error).await;
    }
}

async fn rewrite_all(api: &ApiClient, crd: &Value, version: &str) -> Result<(), kube::Error> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let kind = text("/spec/names/kind");
    let base = format!("/apis/{group}/{version}");
    for mut object in api.list_path(&format!("{base}/{plural}"), None).await? {
        object["apiVersion"] = format!("{group}/{version}").into();
        object["kind"] = kind.into();
        let path = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
            None => format!("{base}/{plural}"),
        };
        api.rewrite(&path, &object).await?;
    }
    Ok(())
}
