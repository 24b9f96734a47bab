//! The write of each action. `None` where the object has gone meanwhile: the next reconcile sees that.

use api::annotations::{request, state};
use api::v1beta1::ObjectTransfer;
use serde_json::{Value, json};

use super::{
    Action, Facts, Moved, RETAIN, hand_over, moved, target, target_claim, target_data_volume,
    transfer_of_claim,
};
use crate::meta;
use crate::object::Writable;
use crate::ownership::without_owner;
use crate::plan::Write;

/// The write of an action, other than [`Action::Begin`], which the status records.
pub fn write(transfer: &ObjectTransfer, facts: &Facts, action: Action) -> Option<Write> {
    let is_of_data_volume = moved(&transfer.spec) == Some(Moved::DataVolume);
    match action {
        Action::Begin => None,
        Action::Reserve | Action::Unreserve => {
            let name = meta::name(&transfer.metadata);
            let value = (action == Action::Reserve).then_some(name);
            if is_of_data_volume {
                facts.data_volume.map(|volume| mark(volume, value))
            } else {
                facts.claim.map(|claim| mark(claim, value))
            }
        }
        Action::Retain => facts.volume.map(|volume| reclaim(volume, RETAIN)),
        Action::Restore => {
            let policy = facts.record?.reclaim_policy.as_deref()?;
            facts.volume.map(|volume| reclaim(volume, policy))
        }
        Action::LetGo => without_owner(facts.claim?, meta::uid(&facts.data_volume?.metadata)),
        Action::DeleteSource => {
            if is_of_data_volume {
                facts.data_volume.and_then(Write::delete)
            } else {
                facts.claim.and_then(Write::delete)
            }
        }
        Action::HandOver => {
            let merge = hand_over(&target(&transfer.spec));
            facts.volume.map(|volume| Write::guarded_patch(volume, merge))
        }
        Action::MakeTarget if is_of_data_volume => {
            target_data_volume(transfer, facts.record?).map(Write::create)
        }
        Action::MakeTarget => target_claim(transfer, facts.record?).map(Write::create),
        Action::MakeChild => Some(Write::create(transfer_of_claim(transfer, facts.record?))),
        Action::DeleteChild => facts.child.and_then(Write::delete),
        Action::MarkPopulated => {
            let name = target(&transfer.spec).name;
            facts.target_claim.map(|claim| annotate(claim, request::POPULATED_FOR, Some(&name)))
        }
        Action::Settle => facts.target_claim.map(|claim| mark(claim, None)),
    }
}

/// The mark of a transfer, set or removed.
fn mark(object: &impl Writable, value: Option<&str>) -> Write {
    annotate(object, state::OBJECT_TRANSFER_NAME, value)
}

fn annotate(object: &impl Writable, key: &str, value: Option<&str>) -> Write {
    Write::guarded_patch(object, json!({ "metadata": { "annotations": { key: value } } }))
}

/// What becomes of a volume without its PVC.
fn reclaim(volume: &crate::volume::PersistentVolume, policy: &str) -> Write {
    let spec: Value = json!({ "persistentVolumeReclaimPolicy": policy });
    Write::guarded_patch(volume, json!({ "spec": spec }))
}
