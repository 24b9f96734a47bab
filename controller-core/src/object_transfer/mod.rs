//! ObjectTransfers: a PVC with its volume, or a DataVolume with its PVC, moves to another namespace, or to another
//! name.
//!
//! ```text
//! PVC         marked ─► recorded ─► volume retained ─► source deleted ─► volume rebound ─► target created ─► bound
//!                                                                          ─► policy restored ─► mark removed
//! DataVolume  marked ─► recorded ─► PVC orphaned ─► source deleted ─► PVC moved, by a transfer of its own
//!                                                                          ─► DataVolume created again, complete
//! ```
//!
//! Each plan has one write; the next one is planned from objects that are read again. Nothing irreversible happens
//! before the record is written, and the creation of the target is tried before that without creating it. From then on
//! a transfer continues to its end whatever happens, also when it is deleted, unless there can be no end: the volume is
//! gone, or the namespace of the target is. The volume is retained before its PVC is deleted, and until another PVC has
//! it: whatever fails in between, the storage keeps it.

mod claim;
mod data_volume;
mod failure;
mod planner;
mod record;

use api::ClaimPhase;
use api::Phase as VolumePhase;
use api::annotations::state;
use api::conditions::status::{FALSE, TRUE};
use api::labels::finalizer;
use api::v1beta1::{DataVolume, ObjectTransfer, ObjectTransferSpec, ObjectTransferStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::conditions::{self, ConditionState};
use crate::meta;
use crate::object::Key;
use crate::plan::{Decision, Plan, Requeue, Write};
use crate::volume::PersistentVolume;

pub use failure::{AfterFailure, FailedStep, plan_after_failure};
use planner::Planner;
pub use record::{Record, rebind_to_name, target_claim, target_data_volume, transfer_of_claim};

/// Keeps the volume when its PVC is gone.
pub const RETAIN: &str = "Retain";

const COMPLETE: &str = "Complete";
/// Set by the storage on a PVC that it copies from.
const BUSY_FINALIZERS: [&str; 2] = [
    "provisioner.storage.kubernetes.io/cloning-protection",
    "snapshot.storage.kubernetes.io/pvc-as-source-protection",
];

/// What can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Claim,
    /// With its PVC.
    DataVolume,
}

/// What is moved. `None`: a kind that cannot be moved.
pub fn moved(spec: &ObjectTransferSpec) -> Option<Moved> {
    match spec.source.kind.as_str() {
        "PersistentVolumeClaim" => Some(Moved::Claim),
        "DataVolume" => Some(Moved::DataVolume),
        _ => None,
    }
}

pub fn source(spec: &ObjectTransferSpec) -> Key {
    Key::new(spec.source.namespace.as_str(), spec.source.name.as_str())
}

/// Namespace and name default to the source's.
pub fn target(spec: &ObjectTransferSpec) -> Key {
    let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let source = source(spec);
    Key {
        namespace: set(&spec.target.namespace).unwrap_or(source.namespace),
        name: set(&spec.target.name).unwrap_or(source.name),
    }
}

/// What the next step depends on. Read from the API server, not from the cache: a step that acts on an old object could
/// lose a volume.
#[derive(Clone, Debug, Default)]
pub struct TransferFacts {
    /// `None`: nothing irreversible has happened.
    pub record: Option<Record>,
    /// The PVC of the source's namespace and name.
    pub claim: Option<PersistentVolumeClaim>,
    /// The volume of that PVC, or the recorded one.
    pub volume: Option<PersistentVolume>,
    /// Pods have the PVC mounted.
    pub is_used: bool,
    /// The PVC of the target's namespace and name.
    pub target_claim: Option<PersistentVolumeClaim>,
    /// The source has the mark of another transfer, which exists and is not complete.
    pub is_reserved: bool,
    /// Where a DataVolume is moved.
    pub data_volume: Option<DataVolume>,
    pub target_data_volume: Option<DataVolume>,
    /// The transfer of the DataVolume's PVC.
    pub child: Option<ObjectTransfer>,
    /// The API server has accepted a dry run of the creation of the target.
    pub is_target_accepted: bool,
}

/// Objects whose creation is tried before anything irreversible happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetDryRun {
    pub data_volume: Option<Box<DataVolume>>,
    pub claim: Option<Box<PersistentVolumeClaim>>,
}

/// As on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has happened.
    Pending,
    Running,
    Complete,
    /// It cannot continue until an administrator or another client changes something.
    Error,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Complete => COMPLETE,
            Self::Error => "Error",
        }
    }
}

/// The plan of a transfer that needs no facts: its finalizer is missing, or has to be removed. `None`: see
/// [`plan_transfer`].
pub fn plan_finalizer(transfer: &ObjectTransfer) -> Option<Plan> {
    let is_terminating = transfer.metadata.deletion_timestamp.is_some();
    let missing = Write::add_finalizer(transfer, finalizer::OBJECT_TRANSFER);
    if is_over(transfer) || (is_terminating && missing.is_some()) {
        return Some(release(transfer));
    }
    missing.map(|write| Plan { requeue: Requeue::Now, ..Plan::writes([write]) })
}

/// The next step of a transfer that has its finalizer.
pub fn plan_transfer(
    transfer: &ObjectTransfer,
    facts: &TransferFacts,
    now: Timestamp,
) -> Decision<TargetDryRun> {
    Planner { transfer, facts, now }.plan_step()
}

fn release(transfer: &ObjectTransfer) -> Plan {
    Plan::writes(Write::remove_finalizer(transfer, finalizer::OBJECT_TRANSFER))
}

/// Whether the transfer is complete, which it stays.
pub fn is_over(transfer: &ObjectTransfer) -> bool {
    let phase = transfer.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(COMPLETE)
}

/// The status with this phase and message.
pub fn status_with(
    transfer: &ObjectTransfer,
    phase: Phase,
    message: &str,
    now: Timestamp,
) -> ObjectTransferStatus {
    let mut status = transfer.status.clone().unwrap_or_default();
    status.phase = Some(phase.as_str().to_owned());
    let is_complete = if phase == Phase::Complete { TRUE } else { FALSE };
    let condition = ConditionState::new(is_complete, phase.as_str(), message);
    conditions::set(status.conditions.get_or_insert_default(), COMPLETE, &condition, now);
    status
}

/// The transfer that an object has the mark of.
pub fn reserved_by(metadata: &ObjectMeta) -> Option<&str> {
    meta::annotation(metadata, state::OBJECT_TRANSFER_NAME).filter(|name| !name.is_empty())
}

/// Why the PVC cannot be moved at the moment.
fn blocker(facts: &TransferFacts) -> Option<String> {
    let Some(claim) = &facts.claim else { return Some("No source".into()) };
    if claim.metadata.deletion_timestamp.is_some() {
        return Some("The source is being deleted".into());
    }
    if meta::claim_phase(claim) != ClaimPhase::Bound {
        return Some("PVC not bound".into());
    }
    let mut finalizers = claim.metadata.finalizers.iter().flatten();
    if let Some(busy) = finalizers.find(|name| BUSY_FINALIZERS.contains(&name.as_str())) {
        return Some(format!("PVC has finalizer: {busy}"));
    }
    if !facts.volume.as_ref().is_some_and(|volume| is_volume_of(volume, claim)) {
        return Some("PV not bound".into());
    }
    facts.is_used.then(|| "Pods using PVC".into())
}

fn is_ours(transfer: &ObjectTransfer, metadata: &ObjectMeta) -> bool {
    reserved_by(metadata) == transfer.metadata.name.as_deref()
}

/// Whether a volume is bound to this PVC, by UID.
fn is_volume_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    named == volume.metadata.name.as_deref()
        && owner.is_some_and(|owner| owner.uid.is_some() && owner.uid == claim.metadata.uid)
}

fn has_succeeded(volume: &DataVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(VolumePhase::Succeeded.as_str())
}

#[cfg(test)]
mod tests;
