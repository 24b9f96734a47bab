//! ObjectTransfers: a claim with its volume, or a DataVolume with its claim, goes to another namespace, or to another name.
//!
//! ```text
//! claim       marked ─► recorded ─► volume retained ─► source deleted ─► volume handed over ─► target made ─► bound
//!                                                                                  ─► policy as it was ─► mark off
//! DataVolume  marked ─► recorded ─► claim let go ─► source deleted ─► claim moved, by a transfer of its own
//!                                                                                  ─► DataVolume made anew, done
//! ```
//!
//! Up to the record nothing has happened that cannot be taken back, and that the target can be made was tried without making
//! it. From then on a transfer goes to its end whatever happens, also when it is deleted, unless there can be none: the volume
//! is gone, or the namespace of the target is. The volume is retained before its
//! claim is deleted, and until another claim has it: whatever fails in between, the storage keeps it.

mod claim;
mod data_volume;
mod record;
mod writes;

use api::ClaimPhase;
use api::Phase as VolumePhase;
use api::annotations::state;
use api::conditions::status::{FALSE, TRUE};
use api::v1beta1::{DataVolume, ObjectTransfer, ObjectTransferSpec, ObjectTransferStatus};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::conditions::{self, Said};
use crate::meta;
use crate::volume::PersistentVolume;

pub use record::{Record, hand_over, target_claim, target_data_volume, transfer_of_claim};
pub use writes::write;

/// Keeps the volume when its claim is gone.
pub const RETAIN: &str = "Retain";

const COMPLETE: &str = "Complete";
/// Set by the storage on a claim that it copies from.
const BUSY_FINALIZERS: [&str; 2] = [
    "provisioner.storage.kubernetes.io/cloning-protection",
    "snapshot.storage.kubernetes.io/pvc-as-source-protection",
];

/// What can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// A claim.
    Claim,
    /// A DataVolume and its claim.
    DataVolume,
}

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What is moved. `None`: something that nobody here can move.
pub fn moved(spec: &ObjectTransferSpec) -> Option<Moved> {
    match spec.source.kind.as_str() {
        "PersistentVolumeClaim" => Some(Moved::Claim),
        "DataVolume" => Some(Moved::DataVolume),
        _ => None,
    }
}

/// Where it is moved from.
pub fn source(spec: &ObjectTransferSpec) -> Place {
    Place { namespace: spec.source.namespace.clone(), name: spec.source.name.clone() }
}

/// Where it is moved to. What is not said stays as it is.
pub fn target(spec: &ObjectTransferSpec) -> Place {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let source = source(spec);
    Place {
        namespace: said(&spec.target.namespace).unwrap_or(source.namespace),
        name: said(&spec.target.name).unwrap_or(source.name),
    }
}

/// What the next step depends on, all of it read a moment ago.
#[derive(Clone, Default)]
pub struct Facts<'a> {
    /// What was noted; `None`: nothing has happened yet.
    pub record: Option<&'a Record>,
    /// The claim in the place of the source.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// Its volume, or the recorded one.
    pub volume: Option<&'a PersistentVolume>,
    /// Pods have the claim mounted.
    pub is_used: bool,
    /// The claim in the place of the target.
    pub target_claim: Option<&'a PersistentVolumeClaim>,
    /// The source has the mark of another transfer, which is there.
    pub is_reserved: bool,
    /// The DataVolume in the place of the source, where one is moved.
    pub data_volume: Option<&'a DataVolume>,
    /// The DataVolume in the place of the target.
    pub target_data_volume: Option<&'a DataVolume>,
    /// The transfer of its claim.
    pub child: Option<&'a ObjectTransfer>,
}

/// One write, safe to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The source gets the mark of the transfer.
    Reserve,
    /// The source loses it again.
    Unreserve,
    /// The target is made on trial, and then it is noted what was there: from here on there is no way back.
    Begin,
    /// The volume outlives its claim.
    Retain,
    /// The claim is no longer the DataVolume's.
    LetGo,
    /// The source goes.
    DeleteSource,
    /// The volume waits for the target.
    HandOver,
    /// The target is made.
    MakeTarget,
    /// A transfer of the claim alone is made.
    MakeChild,
    /// That one is given up, as far as it can be.
    DeleteChild,
    /// The claim says for which DataVolume it is filled.
    MarkPopulated,
    /// What becomes of the volume with its claim is as it was.
    Restore,
    /// The target loses the mark.
    Settle,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something else has to happen first.
    Wait(Told),
    /// This.
    Do(Action),
    /// Nothing.
    Done(Told),
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has happened.
    Pending,
    /// It is under way.
    Running,
    /// All is in its place.
    Complete,
    /// It cannot go on as things are, and somebody has to look.
    Error,
}

impl Phase {
    /// As on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Complete => COMPLETE,
            Self::Error => "Error",
        }
    }
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// How far it is.
    pub phase: Phase,
    /// What it waits for, or what is wrong.
    pub message: String,
}

impl Told {
    /// Words for a phase.
    pub fn new(phase: Phase, message: impl Into<String>) -> Self {
        Self { phase, message: message.into() }
    }
}

/// What comes next.
pub fn plan(transfer: &ObjectTransfer, facts: &Facts) -> Step {
    match moved(&transfer.spec) {
        Some(Moved::Claim) => claim::plan(transfer, facts),
        Some(Moved::DataVolume) => data_volume::plan(transfer, facts),
        None => {
            let words = format!("Unsupported kind {:?}", transfer.spec.source.kind);
            wait(Phase::Error, words)
        }
    }
}

/// Whether all is in its place, and nothing is ever to be done again.
pub fn is_over(transfer: &ObjectTransfer) -> bool {
    let phase = transfer.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(COMPLETE)
}

/// The status with these words.
pub fn status(transfer: &ObjectTransfer, told: &Told, now: Timestamp) -> ObjectTransferStatus {
    let mut status = transfer.status.clone().unwrap_or_default();
    status.phase = Some(told.phase.as_str().to_owned());
    let is_complete = if told.phase == Phase::Complete { TRUE } else { FALSE };
    let said = Said::new(is_complete, told.phase.as_str(), told.message.as_str());
    conditions::set(status.conditions.get_or_insert_default(), COMPLETE, &said, now);
    status
}

/// The transfer that an object has the mark of.
pub fn reserved_by(metadata: &ObjectMeta) -> Option<&str> {
    meta::annotation(metadata, state::OBJECT_TRANSFER_NAME).filter(|name| !name.is_empty())
}

fn wait(phase: Phase, message: impl Into<String>) -> Step {
    Step::Wait(Told::new(phase, message))
}

fn pending(message: impl Into<String>) -> Step {
    wait(Phase::Pending, message)
}

fn running(message: impl Into<String>) -> Step {
    wait(Phase::Running, message)
}

fn done() -> Step {
    Step::Done(Told::new(Phase::Complete, "Transfer complete"))
}

/// Before anything has happened, nobody has to go through with it.
fn given_up(transfer: &ObjectTransfer, source: Option<&ObjectMeta>) -> Option<Step> {
    transfer.metadata.deletion_timestamp.as_ref()?;
    let is_marked = source.is_some_and(|source| is_ours(transfer, source));
    Some(if is_marked {
        Step::Do(Action::Unreserve)
    } else {
        Step::Done(Told::new(Phase::Pending, "Given up"))
    })
}

fn is_ours(transfer: &ObjectTransfer, metadata: &ObjectMeta) -> bool {
    reserved_by(metadata) == transfer.metadata.name.as_deref()
}

/// What the source itself says of whether it may be moved, or that it has not been marked yet.
fn of_source(transfer: &ObjectTransfer, metadata: &ObjectMeta, facts: &Facts) -> Option<Step> {
    let wanted = transfer.spec.source.required_annotations.iter().flatten();
    let mut wanted = wanted.map(|(key, value)| (key, value.as_str()));
    if !wanted.all(|(key, value)| meta::annotation(metadata, key) == Some(value)) {
        return Some(pending("Required annotation missing"));
    }
    if facts.is_reserved {
        return Some(pending("Source in use by another transfer"));
    }
    (!is_ours(transfer, metadata)).then_some(Step::Do(Action::Reserve))
}

/// What keeps a claim where it is for now.
fn obstacle(facts: &Facts) -> Option<String> {
    let Some(claim) = facts.claim else { return Some("No source".into()) };
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
    if !facts.volume.is_some_and(|volume| is_volume_of(volume, claim)) {
        return Some("PV not bound".into());
    }
    facts.is_used.then(|| "Pods using PVC".into())
}

/// Whether a volume is bound to this very claim.
fn is_volume_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    named == volume.metadata.name.as_deref()
        && owner.is_some_and(|owner| owner.uid.is_some() && owner.uid == claim.metadata.uid)
}

fn is_done(volume: &DataVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(VolumePhase::Succeeded.as_str())
}

#[cfg(test)]
mod tests;
