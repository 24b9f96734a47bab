//! A DataVolume that is moved with its claim.

use api::ClaimPhase;
use api::annotations::request;
use api::v1beta1::ObjectTransfer;

use super::{
    Action, Facts, Phase, Record, Step, done, given_up, is_done, is_over, obstacle, of_source,
    pending, running, target,
};
use crate::meta;

pub(super) fn plan(transfer: &ObjectTransfer, facts: &Facts) -> Step {
    match facts.record {
        None => before(transfer, facts),
        Some(record) => under_way(transfer, facts, record),
    }
}

fn before(transfer: &ObjectTransfer, facts: &Facts) -> Step {
    let metadata = facts.data_volume.map(|volume| &volume.metadata);
    if let Some(step) = given_up(transfer, metadata) {
        return step;
    }
    let (Some(volume), Some(metadata)) = (facts.data_volume, metadata) else {
        return pending("No source");
    };
    if metadata.deletion_timestamp.is_some() {
        return pending("The source is being deleted");
    }
    if !is_done(volume) {
        return pending("The DataVolume has not succeeded");
    }
    if facts.claim.is_none() {
        return pending("The DataVolume has no PVC");
    }
    if let Some(why) = obstacle(facts) {
        return pending(why);
    }
    if let Some(step) = of_source(transfer, metadata, facts) {
        return step;
    }
    match (facts.target_data_volume, facts.target_claim) {
        (None, None) => Step::Do(Action::Begin),
        _ => pending("The target exists already"),
    }
}

fn under_way(transfer: &ObjectTransfer, facts: &Facts, record: &Record) -> Step {
    let source = facts.data_volume.filter(|volume| meta::uid(&volume.metadata) == record.uid());
    if let Some(source) = source {
        let owner = facts.claim.and_then(|claim| meta::controller(&claim.metadata));
        if owner.is_some_and(|owner| owner.uid == meta::uid(&source.metadata)) {
            return Step::Do(Action::LetGo);
        }
        return match source.metadata.deletion_timestamp {
            Some(_) => running("Waiting for the source to go"),
            None => Step::Do(Action::DeleteSource),
        };
    }
    // The claim may be there already, and its transfer gone.
    let has_arrived = facts.target_claim.is_some_and(|claim| {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        meta::claim_phase(claim) == ClaimPhase::Bound && volume == Some(&record.volume_name)
    });
    let is_leaving = transfer.metadata.deletion_timestamp.is_some();
    match facts.child {
        Some(child) if is_leaving && is_stuck(child) => return Step::Do(Action::DeleteChild),
        Some(child) if !is_over(child) => {
            let conditions = child.status.as_ref().and_then(|status| status.conditions.as_deref());
            let words = conditions.and_then(|all| all.first()?.message.clone()).unwrap_or_default();
            return running(format!("Waiting for the PVC: {words}"));
        }
        None if !has_arrived => {
            // Where there is no claim any more, its transfer was given up.
            let given_up = given_up(transfer, None).filter(|_| facts.claim.is_none());
            return given_up.unwrap_or(Step::Do(Action::MakeChild));
        }
        _ => {}
    }
    let Some(claim) = facts.target_claim else {
        return running("Waiting for the PVC: it is gone");
    };
    let name = target(&transfer.spec).name;
    if meta::annotation(&claim.metadata, request::POPULATED_FOR) != Some(name.as_str()) {
        return Step::Do(Action::MarkPopulated);
    }
    match facts.target_data_volume {
        None => Step::Do(Action::MakeTarget),
        Some(volume) if is_done(volume) => done(),
        Some(_) => running("Waiting for the DataVolume"),
    }
}

/// Whether a transfer cannot go on as things are, and nobody has deleted it. Then it has begun, and when it is deleted it ends
/// all the same if it can.
fn is_stuck(transfer: &ObjectTransfer) -> bool {
    let phase = transfer.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(Phase::Error.as_str()) && transfer.metadata.deletion_timestamp.is_none()
}
