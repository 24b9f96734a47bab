//! The steps of a DataVolume that is moved with its PVC.

use api::ClaimPhase;
use api::annotations::request;
use api::v1beta1::{DataVolume, ObjectTransfer};

use super::planner::{Planner, Step, set_annotation};
use super::{
    Phase, Record, blocker, has_succeeded, is_over, target, target_data_volume, transfer_of_claim,
};
use crate::meta;
use crate::ownership::without_owner;
use crate::plan::Write;

impl Planner<'_> {
    pub(super) fn start_data_volume(self) -> Step {
        let volume = self.facts.data_volume.as_ref();
        if let Some(step) = self.cancel(volume) {
            return step;
        }
        let Some(volume) = volume else { return self.pending("No source") };
        if volume.metadata.deletion_timestamp.is_some() {
            return self.pending("The source is being deleted");
        }
        if !has_succeeded(volume) {
            return self.pending("The DataVolume has not succeeded");
        }
        if self.facts.claim.is_none() {
            return self.pending("The DataVolume has no PVC");
        }
        if let Some(why) = blocker(self.facts) {
            return self.pending(&why);
        }
        if let Some(step) = self.reserve(volume) {
            return step;
        }
        match (&self.facts.target_data_volume, &self.facts.target_claim) {
            (None, None) => self.start(),
            _ => self.pending("The target exists already"),
        }
    }

    /// The PVC loses its owner before that is deleted, which would delete it too.
    pub(super) fn move_data_volume(self, record: &Record) -> Step {
        let source = self.facts.data_volume.as_ref();
        match source.filter(|volume| meta::uid(&volume.metadata) == record.uid()) {
            Some(source) => self.delete_source_data_volume(source),
            None => self.wait_for_claim(record).unwrap_or_else(|| self.create_data_volume(record)),
        }
    }

    fn delete_source_data_volume(self, source: &DataVolume) -> Step {
        let uid = meta::uid(&source.metadata);
        let claim = self.facts.claim.as_ref();
        let is_owned = |claim: &&_| owner_uid(claim) == Some(uid);
        if let Some(claim) = claim.filter(is_owned) {
            return self.write(without_owner(claim, uid));
        }
        match source.metadata.deletion_timestamp {
            Some(_) => self.running("Waiting for the source to go"),
            None => self.write(Write::delete(source)),
        }
    }

    /// The step of the transfer that moves the PVC. `None`: it has moved the PVC.
    fn wait_for_claim(self, record: &Record) -> Option<Step> {
        // The PVC may have arrived, and its transfer be gone.
        let has_arrived = self.facts.target_claim.as_ref().is_some_and(|claim| {
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            meta::claim_phase(claim) == ClaimPhase::Bound && volume == Some(&record.volume_name)
        });
        match &self.facts.child {
            Some(child) if self.is_terminating() && is_stuck(child) => {
                Some(self.write(Write::delete(child)))
            }
            Some(child) if !is_over(child) => {
                let status = child.status.as_ref();
                let conditions = status.and_then(|status| status.conditions.as_deref());
                let message = conditions.and_then(|all| all.first()?.message.as_deref());
                let message = message.unwrap_or_default();
                Some(self.running(&format!("Waiting for the PVC: {message}")))
            }
            None if !has_arrived => {
                // Without a PVC, its transfer was abandoned.
                let cancelled = match self.facts.claim {
                    None => self.cancel(None::<&DataVolume>),
                    Some(_) => None,
                };
                let child = transfer_of_claim(self.transfer, record);
                Some(cancelled.unwrap_or_else(|| self.write(Some(Write::create(child)))))
            }
            _ => None,
        }
    }

    /// The PVC is declared to be filled for the DataVolume before that exists, and would fill it again.
    fn create_data_volume(self, record: &Record) -> Step {
        let Some(claim) = &self.facts.target_claim else {
            return self.running("Waiting for the PVC: it is gone");
        };
        let name = target(&self.transfer.spec).name;
        if meta::annotation(&claim.metadata, request::POPULATED_FOR) != Some(name.as_str()) {
            return self.write(Some(set_annotation(claim, request::POPULATED_FOR, Some(&name))));
        }
        match &self.facts.target_data_volume {
            None => self.write(target_data_volume(self.transfer, record).map(Write::create)),
            Some(volume) if has_succeeded(volume) => self.complete(),
            Some(_) => self.running("Waiting for the DataVolume"),
        }
    }
}

fn owner_uid(claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> Option<&str> {
    meta::controller(&claim.metadata).map(|owner| owner.uid.as_str())
}

/// Whether a transfer cannot continue as things are, and is not being deleted. Once it is deleted, it ends if it can.
fn is_stuck(transfer: &ObjectTransfer) -> bool {
    let phase = transfer.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some(Phase::Error.as_str()) && transfer.metadata.deletion_timestamp.is_none()
}
