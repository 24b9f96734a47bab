//! The plans that the steps of a transfer share.

use api::v1beta1::ObjectTransfer;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use api::annotations::state;

use super::{
    Moved, Phase, Record, TargetDryRun, TransferFacts, is_ours, moved, release, status_with,
    target_claim, target_data_volume, transfer_of_claim,
};
use crate::meta;
use crate::object::Writable;
use crate::plan::{Decision, Plan, Requeue, Write};
use crate::progress::POLL;
use crate::volume::PersistentVolume;

pub(super) type Step = Decision<TargetDryRun>;

/// A transfer and what its next step depends on.
#[derive(Clone, Copy)]
pub(super) struct Planner<'a> {
    pub(super) transfer: &'a ObjectTransfer,
    pub(super) facts: &'a TransferFacts,
    pub(super) now: Timestamp,
}

impl<'a> Planner<'a> {
    pub(super) fn plan_step(self) -> Step {
        match (moved(&self.transfer.spec), &self.facts.record) {
            (Some(Moved::Claim), None) => self.start_claim(),
            (Some(Moved::Claim), Some(record)) => self.move_claim(record),
            (Some(Moved::DataVolume), None) => self.start_data_volume(),
            (Some(Moved::DataVolume), Some(record)) => self.move_data_volume(record),
            (None, _) => {
                let kind = &self.transfer.spec.source.kind;
                self.wait(Phase::Error, &format!("Unsupported kind {kind:?}"))
            }
        }
    }

    pub(super) fn is_terminating(self) -> bool {
        self.transfer.metadata.deletion_timestamp.is_some()
    }

    /// Executes a write, then plans again. `None`: the object has the state already.
    pub(super) fn write(self, write: Option<Write>) -> Step {
        let requeue = if write.is_some() { Requeue::Now } else { Requeue::After(POLL) };
        Decision::execute(Plan { requeue, ..Plan::writes(write) })
    }

    /// Waits for another client, and reports for what.
    pub(super) fn wait(self, phase: Phase, message: &str) -> Step {
        let mut plan = self.report(phase, message).unwrap_or_default();
        plan.requeue = Requeue::After(POLL);
        Decision::execute(plan)
    }

    pub(super) fn pending(self, message: &str) -> Step {
        self.wait(Phase::Pending, message)
    }

    pub(super) fn running(self, message: &str) -> Step {
        self.wait(Phase::Running, message)
    }

    /// Reports the end, then removes the finalizer: the status cannot be written after that.
    pub(super) fn finish(self, phase: Phase, message: &str) -> Step {
        let plan = self.report(phase, message);
        Decision::execute(plan.unwrap_or_else(|| release(self.transfer)))
    }

    pub(super) fn complete(self) -> Step {
        self.finish(Phase::Complete, "Transfer complete")
    }

    /// `None` where the status is this already.
    pub(super) fn report(self, phase: Phase, message: &str) -> Option<Plan> {
        let status = status_with(self.transfer, phase, message, self.now);
        let is_new = self.transfer.status.as_ref() != Some(&status);
        is_new.then(|| Plan::status(self.transfer, json!(status), Requeue::Now))
    }

    /// A deleted transfer ends here, as nothing irreversible has happened: `source` loses its mark first.
    pub(super) fn cancel(self, source: Option<&impl Writable>) -> Option<Step> {
        if !self.is_terminating() {
            return None;
        }
        let marked = source.filter(|source| is_ours(self.transfer, source.meta()));
        Some(match marked {
            Some(source) => self.write(Some(set_mark(source, None))),
            None => self.finish(Phase::Pending, "Given up"),
        })
    }

    /// What is missing on the source: annotations that the transfer requires, or the mark of the transfer.
    pub(super) fn reserve(self, source: &impl Writable) -> Option<Step> {
        let metadata: &ObjectMeta = source.meta();
        let required = self.transfer.spec.source.required_annotations.iter().flatten();
        let mut required = required.map(|(key, value)| (key, value.as_str()));
        if !required.all(|(key, value)| meta::annotation(metadata, key) == Some(value)) {
            return Some(self.pending("Required annotation missing"));
        }
        if self.facts.is_reserved {
            return Some(self.pending("Source in use by another transfer"));
        }
        let mark = set_mark(source, Some(meta::name(&self.transfer.metadata)));
        (!is_ours(self.transfer, metadata)).then(|| self.write(Some(mark)))
    }

    /// Tries to create the target, then records the source. The record is the point of no return.
    pub(super) fn start(self) -> Step {
        let Some(record) = Record::from_facts(&self.transfer.spec, self.facts) else {
            return Decision::execute(Plan::requeue(Requeue::After(POLL)));
        };
        if !self.facts.is_target_accepted {
            return Decision::LookUp(self.dry_run(&record));
        }
        let mut status = status_with(self.transfer, Phase::Running, "Running", self.now);
        status.data = Some(record.to_data());
        Decision::execute(Plan::status(self.transfer, json!(status), Requeue::Now))
    }

    fn dry_run(self, record: &Record) -> TargetDryRun {
        if moved(&self.transfer.spec) != Some(Moved::DataVolume) {
            let claim = target_claim(self.transfer, record).map(Box::new);
            return TargetDryRun { data_volume: None, claim };
        }
        let child = transfer_of_claim(self.transfer, record);
        let of_claim = Record::from_facts(&child.spec, self.facts);
        TargetDryRun {
            data_volume: target_data_volume(self.transfer, record).map(Box::new),
            claim: of_claim.and_then(|record| target_claim(&child, &record)).map(Box::new),
        }
    }
}

/// Sets or removes the mark of a transfer.
pub(super) fn set_mark(object: &impl Writable, value: Option<&str>) -> Write {
    set_annotation(object, state::OBJECT_TRANSFER_NAME, value)
}

pub(super) fn set_annotation(object: &impl Writable, key: &str, value: Option<&str>) -> Write {
    Write::guarded_patch(object, json!({ "metadata": { "annotations": { key: value } } }))
}

/// What happens to a volume when its PVC is deleted.
pub(super) fn set_reclaim_policy(volume: &PersistentVolume, policy: &str) -> Write {
    let spec = json!({ "persistentVolumeReclaimPolicy": policy });
    Write::guarded_patch(volume, json!({ "spec": spec }))
}
