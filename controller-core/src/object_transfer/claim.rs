//! A claim that is moved.

use api::ClaimPhase;
use api::v1beta1::ObjectTransfer;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::{
    Action, Facts, Phase, RETAIN, Record, Step, done, given_up, is_ours, is_volume_of, obstacle,
    of_source, pending, running, target, wait,
};
use crate::meta;
use crate::volume::PersistentVolume;

pub(super) fn plan(transfer: &ObjectTransfer, facts: &Facts) -> Step {
    match facts.record {
        None => before(transfer, facts),
        Some(record) => under_way(transfer, facts, record),
    }
}

fn before(transfer: &ObjectTransfer, facts: &Facts) -> Step {
    let metadata = facts.claim.map(|claim| &claim.metadata);
    if let Some(step) = given_up(transfer, metadata) {
        return step;
    }
    if let Some(why) = obstacle(facts) {
        return pending(why);
    }
    let Some(metadata) = metadata else { return pending("No source") };
    // Its DataVolume would make another one in its place.
    if let Some(owner) = meta::controller(metadata).filter(|owner| owner.kind == "DataVolume") {
        return pending(format!("The PVC is that of the DataVolume {}: move that", owner.name));
    }
    if let Some(step) = of_source(transfer, metadata, facts) {
        return step;
    }
    match facts.target_claim {
        Some(_) => pending("The target exists already"),
        None => Step::Do(Action::Begin),
    }
}

fn under_way(transfer: &ObjectTransfer, facts: &Facts, record: &Record) -> Step {
    let name = &record.volume_name;
    let Some(volume) = facts.volume else {
        // There is nothing left to move, nor to keep.
        let is_leaving = transfer.metadata.deletion_timestamp.is_some();
        let target = facts.target_claim.map(|claim| &claim.metadata);
        if is_leaving && target.is_some_and(|target| is_ours(transfer, target)) {
            return Step::Do(Action::Settle);
        }
        let given_up = given_up(transfer, facts.claim.map(|claim| &claim.metadata));
        let gone = || wait(Phase::Error, format!("The PV {name} is gone"));
        return given_up.unwrap_or_else(gone);
    };
    let policy = policy(volume);
    if let Some(target) = facts.target_claim
        && meta::claim_phase(target) == ClaimPhase::Bound
        && is_volume_of(volume, target)
    {
        return match &record.reclaim_policy {
            Some(before) if policy != Some(before.as_str()) => Step::Do(Action::Restore),
            _ if is_ours(transfer, &target.metadata) => Step::Do(Action::Settle),
            _ => done(),
        };
    }
    // Whatever comes, the volume stays.
    if policy != Some(RETAIN) {
        return Step::Do(Action::Retain);
    }
    let source = facts.claim.filter(|claim| meta::uid(&claim.metadata) == record.uid());
    match source {
        Some(source) => source_goes(facts, volume, source),
        None => target_comes(transfer, facts, volume, record),
    }
}

fn source_goes(facts: &Facts, volume: &PersistentVolume, source: &PersistentVolumeClaim) -> Step {
    if !is_volume_of(volume, source) {
        return wait(Phase::Error, "PV bound to wrong PVC");
    }
    if source.metadata.deletion_timestamp.is_some() {
        return running("Waiting for the source to go");
    }
    // Whoever came after the transfer had begun may have it until they are done.
    if facts.is_used {
        return running("Pods using PVC");
    }
    Step::Do(Action::DeleteSource)
}

fn target_comes(
    transfer: &ObjectTransfer,
    facts: &Facts,
    volume: &PersistentVolume,
    record: &Record,
) -> Step {
    let place = target(&transfer.spec);
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let owner_uid = owner.and_then(|owner| owner.uid.as_deref()).filter(|uid| !uid.is_empty());
    let is_for_target = owner.is_some_and(|owner| {
        owner.namespace.as_deref() == Some(&place.namespace)
            && owner.name.as_deref() == Some(&place.name)
    });
    let target_uid = facts.target_claim.map(|claim| meta::uid(&claim.metadata));
    let is_handed_over = is_for_target && (owner_uid.is_none() || owner_uid == target_uid);
    let is_left = owner.is_none() || owner_uid == Some(record.uid());
    if !is_handed_over && !is_left {
        return wait(Phase::Error, "PV bound to wrong PVC");
    }
    match facts.target_claim {
        Some(claim) if !is_ours(transfer, &claim.metadata) && !is_handed_over => {
            wait(Phase::Error, "The target exists already, and is not of this transfer")
        }
        _ if !is_handed_over => Step::Do(Action::HandOver),
        None => Step::Do(Action::MakeTarget),
        Some(_) => running("Waiting for target to be bound"),
    }
}

fn policy(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    // As the cluster reads one that says nothing.
    Some(spec.persistent_volume_reclaim_policy.as_deref().unwrap_or(RETAIN))
}
