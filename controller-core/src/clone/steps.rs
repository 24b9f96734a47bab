//! The steps of a clone: each function returns the next action of its step, or `None` once the step is complete.

use api::annotations::{request, state};
use api::{ClaimPhase, PodPhase};
use contract::ByteCount;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use serde_json::json;

use super::driver_failure::{fallback_reason, warning_messages};
use super::facts::{Facts, SnapshotState, Source};
use super::objects::{self, Of};
use super::phase::{Error, Phase, Step};
use super::plan::ClonePlan;
use super::reason::Fallback;
use super::{in_use, prep_pod};
use crate::claim::quantity;
use crate::event::Event;
use crate::plan::Write;
use crate::{classes, meta};

/// How often objects are polled whose changes cause no watch event here, in seconds.
const SOURCE: u64 = 2;
const COPY: u64 = 3;
const DRIVER: u64 = 15;

type Done = Result<Option<Step>, Error>;

/// The storage clones the source.
pub(super) fn csi_clone(facts: &Facts) -> Done {
    if let Some(claim) = facts.temporary.claim {
        return Ok(populated_by_storage(facts, claim, Phase::CsiClone));
    }
    let Source::Claim { claim, .. } = facts.source else { return Ok(None) };
    if let Some(step) = source_not_ready(facts, Phase::CsiClone) {
        return Ok(Some(step));
    }
    let size = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage"));
    let size = size.and_then(meta::bytes);
    let created = objects::claim_of(facts, &Of::Claim(meta::name(&claim.metadata)), size);
    Ok(Some(Step::writing(Phase::CsiClone, Write::create(created))))
}

/// The storage takes a snapshot of the source.
pub(super) fn snapshot(facts: &Facts) -> Done {
    if facts.temporary.claim.is_some() {
        return Ok(None);
    }
    if let Some(snapshot) = facts.temporary.snapshot {
        return Ok(if snapshot.taken {
            None
        } else {
            Some(snapshot_not_ready(facts, snapshot, Phase::Snapshot))
        });
    }
    if let Some(step) = source_not_ready(facts, Phase::Snapshot) {
        return Ok(Some(step));
    }
    let (Source::Claim { claim, .. }, ClonePlan::Snapshot { class }) = (facts.source, facts.plan)
    else {
        return Ok(None);
    };
    let created = objects::snapshot(facts, class, meta::name(&claim.metadata));
    Ok(Some(Step::writing(Phase::Snapshot, Write::create(created.into_object()))))
}

/// The storage restores a snapshot: the source, or the one that was taken of it.
pub(super) fn restore(facts: &Facts) -> Done {
    const PHASE: Phase = Phase::SnapshotClone;
    if let Some(claim) = facts.temporary.claim {
        return Ok(populated_by_storage(facts, claim, PHASE));
    }
    let snapshot = match facts.source {
        Source::Snapshot(snapshot) => Some(snapshot),
        Source::Claim { .. } => facts.temporary.snapshot,
    };
    let Some(snapshot) = snapshot else { return Ok(None) };
    if !snapshot.ready {
        return Ok(Some(snapshot_not_ready(facts, snapshot, PHASE)));
    }
    let Some(size) = snapshot.restore_size else {
        return Err(Error::NoRestoreSize { name: snapshot.name.clone() });
    };
    let size = (size.get() > 0).then_some(size);
    let created = objects::claim_of(facts, &Of::Snapshot(&snapshot.name), size);
    Ok(Some(Step::writing(PHASE, Write::create(created))))
}

/// The source, a snapshot, is restored to a PVC that pods can read.
pub(super) fn restore_source(facts: &Facts) -> Done {
    const PHASE: Phase = Phase::SnapshotClone;
    // Not needed any more, and possibly deleted by another client.
    if facts.temporary.claim.is_some_and(is_copied) {
        return Ok(None);
    }
    if let Some(claim) = facts.temporary.source_claim {
        // It is bound once its first reader is scheduled.
        let waits = facts.restore_class.is_some_and(classes::waits_for_consumer);
        let is_restored = waits || meta::claim_phase(claim) == ClaimPhase::Bound;
        let waiting = || Step::waiting(PHASE, "the storage to make a claim of the snapshot");
        return Ok((!is_restored).then(waiting));
    }
    let Source::Snapshot(snapshot) = facts.source else { return Ok(None) };
    if !snapshot.ready {
        return Ok(Some(snapshot_not_ready(facts, snapshot, PHASE)));
    }
    let created = objects::source_claim(facts)
        .ok_or_else(|| Error::NoRestoreClass { name: snapshot.name.clone() })?;
    Ok(Some(Step::writing(PHASE, Write::create(created))))
}

/// The PVC is bound and has the size of the target.
pub(super) fn prepare(facts: &Facts) -> Done {
    let Some(claim) = facts.temporary.claim else { return Ok(None) };
    let wanted = facts.wanted().ok_or(Error::NoRequest)?;
    if meta::requested(claim).and_then(meta::bytes).is_none_or(|requested| requested < wanted)
        && capacity(claim).is_some()
    {
        let storage = quantity(wanted);
        let merge = json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
        return Ok(Some(Step::writing(Phase::PrepClaim, Write::patch(claim, merge))));
    }
    Ok(prepared(facts, claim, Some(wanted)))
}

/// The PVC that is copied is bound.
pub(super) fn prepare_source(facts: &Facts) -> Done {
    if facts.temporary.claim.is_some_and(is_copied) {
        return Ok(None);
    }
    let Some(claim) = facts.temporary.source_claim else { return Ok(None) };
    Ok(prepared(facts, claim, None))
}

/// A pod that mounts the PVC causes it to be bound, and its file system to be expanded.
fn prepared(
    facts: &Facts,
    claim: &PersistentVolumeClaim,
    wanted: Option<ByteCount>,
) -> Option<Step> {
    const PHASE: Phase = Phase::PrepClaim;
    let has = capacity(claim);
    let is_done = has.is_some() && has >= wanted;
    let Some(pod) = facts.temporary.pod else {
        let create = || {
            let pod = prep_pod::pod(facts, claim);
            Step::writing(PHASE, Write::create(pod))
        };
        return (!is_done).then(create);
    };
    let phase = meta::pod_phase(pod);
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Step::waiting(PHASE, "the pod that prepared the claim to go"));
    }
    if is_done || phase.has_ended() {
        return Some(Step::writing(PHASE, Write::delete(pod)).again(SOURCE));
    }
    let since = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // If this pod cannot be scheduled, the pod of a copy cannot either.
    let is_placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let late = is_placed.then(|| fallback_if_failed(facts, since)).flatten();
    Some(late.unwrap_or_else(|| {
        Step::waiting(PHASE, "the storage to bind the claim and to make it large enough")
            .again(DRIVER)
    }))
}

/// Pods copy to a PVC.
pub(super) fn host_clone(facts: &Facts) -> Done {
    const PHASE: Phase = Phase::HostClone;
    let copied = match (facts.source, facts.temporary.source_claim) {
        (Source::Claim { claim, .. }, _) => meta::name(&claim.metadata),
        (Source::Snapshot(_), Some(claim)) => meta::name(&claim.metadata),
        (Source::Snapshot(_), None) => "",
    };
    let Some(claim) = facts.temporary.claim else {
        let created = objects::claim_to_copy_to(facts, copied);
        return Ok(Some(Step::writing(PHASE, Write::create(created))));
    };
    if !meta::has_annotation(&claim.metadata, request::CLONE_REQUEST) {
        // Created by another strategy, which was tried before.
        let writes = Write::delete(claim).into_iter().collect();
        let waiting = Step::waiting(PHASE, "a claim of an earlier attempt to go");
        return Ok(Some(Step { writes, ..waiting }));
    }
    let is_allocated = !facts.preallocation || meta::is_true(&claim.metadata, state::PREALLOCATION);
    if is_copied(claim) && is_allocated {
        return Ok(None);
    }
    Ok(Some(Step::waiting(PHASE, "pods to copy the volume").again(COPY)))
}

/// The volume is rebound to the target.
pub(super) fn rebind(facts: &Facts) -> Done {
    const PHASE: Phase = Phase::Rebind;
    let (Some(claim), Some(volume)) = (facts.temporary.claim, facts.temporary.volume) else {
        return Ok(Some(Step::waiting(PHASE, "the volume to be there")));
    };
    let target = &facts.target.metadata;
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let owner = owner.and_then(|owner| owner.uid.as_deref()).unwrap_or_default();
    if owner == meta::uid(target) && !owner.is_empty() {
        return Ok(None);
    }
    if owner != meta::uid(&claim.metadata) || owner.is_empty() {
        return Err(Error::VolumeTaken {
            volume: meta::name(&volume.metadata).to_owned(),
            claim: meta::name(&claim.metadata).to_owned(),
        });
    }
    let to = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        name: target.name.clone(),
        namespace: target.namespace.clone(),
        uid: target.uid.clone(),
        resource_version: target.resource_version.clone(),
        ..ObjectReference::default()
    };
    Ok(Some(Step::writing(PHASE, Write::rebind(volume, &to))))
}

/// A PVC that the storage populates. `None` once it is bound, or if it waits for its first consumer.
fn populated_by_storage(
    facts: &Facts,
    claim: &PersistentVolumeClaim,
    phase: Phase,
) -> Option<Step> {
    let is_bound = matches!(meta::claim_phase(claim), ClaimPhase::Bound | ClaimPhase::Lost);
    if is_bound || facts.class.is_some_and(classes::waits_for_consumer) {
        return None;
    }
    let since = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Some(fallback_if_failed(facts, since).unwrap_or_else(|| {
        let last = warning_messages(facts.temporary.pvc_warnings).last();
        let warning = last.map(|message| format!("; it reports: {message}")).unwrap_or_default();
        Step::waiting(phase, format!("the storage to clone the volume{warning}")).again(DRIVER)
    }))
}

fn snapshot_not_ready(facts: &Facts, snapshot: &SnapshotState, phase: Phase) -> Step {
    let error = snapshot.error.as_deref();
    let is_ours = matches!(facts.source, Source::Claim { .. });
    let late = fallback_reason(facts.patience, snapshot.created_at, facts.now, error.into_iter());
    match late.filter(|_| is_ours) {
        Some(because) => fall_back(facts, because),
        None => {
            let error = error.map(|error| format!("; it reports: {error}")).unwrap_or_default();
            let name = &snapshot.name;
            let waits_for = format!("snapshot {name} to be ready to use{error}");
            let waiting = Step::waiting(phase, waits_for);
            if is_ours { waiting.again(DRIVER) } else { waiting }
        }
    }
}

/// Falls back to a copy after a timeout or a final error of the driver. Not for a snapshot, which only the driver can
/// restore.
fn fallback_if_failed(facts: &Facts, since: Option<Timestamp>) -> Option<Step> {
    let Source::Claim { .. } = facts.source else { return None };
    let messages = warning_messages(facts.temporary.pvc_warnings);
    let because = fallback_reason(facts.patience, since, facts.now, messages)?;
    Some(fall_back(facts, because))
}

/// Deletes the objects of the failed strategy, and continues with a copy.
fn fall_back(facts: &Facts, because: Fallback) -> Step {
    let event = Event::warning(because.reason(), because.to_string());
    let temporary = &facts.temporary;
    let pod = temporary.pod.and_then(Write::delete);
    let claim = temporary.claim.and_then(Write::delete);
    let snapshot = temporary.snapshot.and_then(SnapshotState::delete);
    let writes = pod.into_iter().chain(claim).chain(snapshot).collect();
    let step = Step::new(Phase::Pending).again(SOURCE);
    Step { writes, events: vec![event], fallback: Some(because), ..step }
}

/// Why the source cannot be read yet.
fn source_not_ready(facts: &Facts, phase: Phase) -> Option<Step> {
    let Source::Claim { claim, populated, writers } = facts.source else { return None };
    let name = meta::name(&claim.metadata);
    if meta::claim_phase(claim) != ClaimPhase::Bound || !populated {
        return Some(Step::waiting(phase, format!("{name} to be filled")).again(SOURCE));
    }
    if writers.is_empty() {
        return None;
    }
    let events = in_use::events(facts.source.namespace(), writers, name);
    Some(Step { events, ..Step::waiting(phase, in_use::free_of(name, writers)).again(SOURCE) })
}

fn is_copied(claim: &PersistentVolumeClaim) -> bool {
    meta::worker_phase(&claim.metadata) == PodPhase::Succeeded
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<ByteCount> {
    meta::bytes(claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)
}
