//! DataSources: what one refers to, directly or through another one, and whether that is ready.

use api::conditions::{self as wire, reason, status};
use api::v1beta1::{
    DataSource, DataSourceReference, DataSourceSource, DataSourceStatus, DataVolume,
};
use api::{Phase, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::conditions::{self, ConditionState};
use crate::meta::{self, Pairs};
use crate::plan::Write;
use crate::snapshot::VolumeSnapshot;
use serde_json::{Value, json};

/// What a DataSource depends on.
pub struct Facts<'a> {
    pub source: &'a DataSource,
    /// The DataSource that it points to, if it is there.
    pub pointed_to: Option<&'a DataSource>,
    /// The DataVolume with the name of the PVC that [`object`] names.
    pub volume: Option<&'a DataVolume>,
    /// That PVC.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The snapshot that [`object`] names.
    pub snapshot: Option<&'a VolumeSnapshot>,
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// All of it.
    pub status: DataSourceStatus,
    /// Labels of the source, to put on the DataSource. Only those that differ.
    pub labels: Pairs,
}

/// A PVC or a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    Claim { namespace: &'a str, name: &'a str },
    Snapshot { namespace: &'a str, name: &'a str },
}

/// The DataSource that this one points to, in its namespace. `None`: it points to none, or to one that is not allowed.
pub fn pointer(source: &DataSource) -> Option<&str> {
    let reference = source.spec.source.data_source.as_ref()?;
    is_allowed(source, reference).is_ok().then_some(reference.name.as_str())
}

/// The object that decides whether this DataSource is ready. `pointed_to` is the one that [`pointer()`] names.
pub fn object<'a>(
    source: &'a DataSource,
    pointed_to: Option<&'a DataSource>,
) -> Option<Object<'a>> {
    let holder = resolved(source, pointed_to).ok()?;
    let own = meta::namespace(&holder.metadata);
    let members = &holder.spec.source;
    fn place<'a>(namespace: &'a str, own: &'a str) -> &'a str {
        if namespace.is_empty() { own } else { namespace }
    }
    if let Some(claim) = &members.pvc {
        return Some(Object::Claim { namespace: place(&claim.namespace, own), name: &claim.name });
    }
    let snapshot = members.snapshot.as_ref()?;
    Some(Object::Snapshot { namespace: place(&snapshot.namespace, own), name: &snapshot.name })
}

impl Plan {
    /// Labels and status in one patch: a DataSource has no subresource `status`.
    pub fn into_writes(self, source: &DataSource) -> crate::plan::Plan {
        let mut merge = json!({});
        if !self.labels.is_empty() {
            merge["metadata"] = json!({ "labels": self.labels });
        }
        if source.status.as_ref() != Some(&self.status) {
            let DataSourceStatus { source, conditions } = &self.status;
            let source = source.as_ref().map(members);
            merge["status"] = json!({ "source": source, "conditions": conditions });
        }
        let is_changed = merge != json!({});
        crate::plan::Plan::writes(is_changed.then(|| Write::patch(source, merge)))
    }
}

/// All members: a merge patch keeps those that are not named.
pub fn members(source: &DataSourceSource) -> Value {
    let DataSourceSource { pvc, snapshot, data_source } = source;
    json!({ "pvc": pvc, "snapshot": snapshot, "dataSource": data_source })
}

/// What the status of a DataSource should be.
pub fn plan(facts: &Facts, now: Timestamp) -> Plan {
    let source = facts.source;
    let (condition, found) = match resolved(source, facts.pointed_to) {
        Ok(holder) => match check_readiness(holder, facts) {
            Ok(labelled) => (ready(), Some((holder, labelled))),
            Err(condition) => (condition, None),
        },
        Err(condition) => (condition, None),
    };
    let mut status = source.status.clone().unwrap_or_default();
    let all = status.conditions.get_or_insert_default();
    let resolved = found.as_ref().map(|(holder, _)| holder.spec.source.clone()).unwrap_or_default();
    // Ready for another image is a transition of its own: clients that cache by this time see that the source is new.
    if status.source.as_ref().is_some_and(|known| *known != resolved) {
        all.retain(|condition| condition.type_ != wire::READY);
    }
    conditions::set(all, wire::READY, &condition, now);
    status.source = Some(resolved);
    let mut labels = Pairs::new();
    let is_near = found.as_ref().is_some_and(|(holder, _)| is_near(holder));
    let is_shown = |key: &str| {
        labels::is_copied(key) && (is_near || labels::INFERRED_BY_KUBEVIRT.contains(&key))
    };
    for metadata in found.into_iter().flat_map(|(_, labelled)| labelled) {
        let copied = metadata.labels.iter().flatten().filter(|(key, _)| is_shown(key));
        labels.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    }
    // The labels that name the DataImportCron of a DataSource are its own.
    labels.retain(|key, value| {
        !is_own(key) && meta::label(&source.metadata, key) != Some(value.as_str())
    });
    Plan { status, labels }
}

/// Whether a DataSource refers to an object of its own namespace. Whether its users may read another namespace is
/// unknown.
fn is_near(holder: &DataSource) -> bool {
    let own = meta::namespace(&holder.metadata);
    match object(holder, None) {
        Some(Object::Claim { namespace, .. } | Object::Snapshot { namespace, .. }) => {
            namespace == own
        }
        None => true,
    }
}

fn is_own(key: &str) -> bool {
    [labels::DATA_IMPORT_CRON, labels::DATA_IMPORT_CRON_CLEANUP].contains(&key)
}

fn ready() -> ConditionState {
    ConditionState::new(status::TRUE, reason::READY, "DataSource is ready to be consumed")
}

fn not(reason: &str, message: impl Into<String>) -> ConditionState {
    ConditionState::new(status::FALSE, reason, message)
}

/// The DataSource whose PVC or snapshot is used: itself, or the one that it points to. One step and no more, so there
/// are no cycles.
fn resolved<'a>(
    source: &'a DataSource,
    pointed_to: Option<&'a DataSource>,
) -> Result<&'a DataSource, ConditionState> {
    let Some(reference) = &source.spec.source.data_source else { return Ok(source) };
    is_allowed(source, reference)?;
    let found = pointed_to.filter(|found| {
        meta::name(&found.metadata) == reference.name
            && meta::namespace(&found.metadata) == meta::namespace(&source.metadata)
    });
    let found = found.ok_or_else(|| not(reason::NOT_FOUND, "DataSource not found"))?;
    if found.spec.source.data_source.is_some() {
        let message = "DataSource points to a DataSource that points to another";
        return Err(not(reason::MAX_REFERENCE_DEPTH_REACHED, message));
    }
    Ok(found)
}

fn is_allowed(source: &DataSource, reference: &DataSourceReference) -> Result<(), ConditionState> {
    let own = meta::namespace(&source.metadata);
    let is_elsewhere = !reference.namespace.is_empty() && reference.namespace != own;
    if is_elsewhere {
        let message = "DataSource points to a DataSource of another namespace";
        return Err(not(reason::CROSS_NAMESPACE_REFERENCE, message));
    }
    if reference.name == meta::name(&source.metadata) {
        return Err(not(reason::SELF_REFERENCE, "DataSource points to itself"));
    }
    Ok(())
}

/// If it is ready, the objects whose labels it gets, by ascending precedence; else the condition.
fn check_readiness<'a>(
    holder: &DataSource,
    facts: &Facts<'a>,
) -> Result<Vec<&'a ObjectMeta>, ConditionState> {
    let members = &holder.spec.source;
    if members.pvc.is_some() {
        let phase = facts.volume.map(|volume| {
            volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
        });
        return match (phase, facts.volume, facts.claim) {
            (Some(phase), _, _) if phase != Phase::Succeeded.as_str() => {
                Err(not(phase, format!("Import DataVolume phase {phase}")))
            }
            (_, None, None) => Err(not(reason::NOT_FOUND, "PVC not found")),
            (_, volume, claim) => {
                let volume = volume.map(|volume| &volume.metadata);
                Ok(volume.into_iter().chain(claim.map(|claim| &claim.metadata)).collect())
            }
        };
    }
    if members.snapshot.is_some() {
        let snapshot = facts.snapshot;
        let snapshot = snapshot.ok_or_else(|| not(reason::NOT_FOUND, "Snapshot not found"))?;
        if !snapshot.is_ready() {
            return Err(not(reason::SNAPSHOT_NOT_READY, "Snapshot phase is not ready"));
        }
        return Ok(vec![&snapshot.metadata]);
    }
    Err(not(reason::NO_SOURCE, "No source PVC set"))
}

#[cfg(test)]
mod tests;
