//! The steps of a PVC that is moved.

use api::ClaimPhase;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::planner::{Planner, Step, set_mark, set_reclaim_policy};
use super::{
    Phase, RETAIN, Record, blocker, is_ours, is_volume_of, rebind_to_name, target, target_claim,
};
use crate::meta;
use crate::plan::Write;
use crate::volume::PersistentVolume;

impl Planner<'_> {
    pub(super) fn start_claim(self) -> Step {
        let claim = self.facts.claim.as_ref();
        if let Some(step) = self.cancel(claim) {
            return step;
        }
        if let Some(why) = blocker(self.facts) {
            return self.pending(&why);
        }
        let Some(claim) = claim else { return self.pending("No source") };
        // Its DataVolume would create another one.
        let owner = meta::controller(&claim.metadata).filter(|owner| owner.kind == "DataVolume");
        if let Some(owner) = owner {
            let name = &owner.name;
            return self.pending(&format!("The PVC is that of the DataVolume {name}: move that"));
        }
        if let Some(step) = self.reserve(claim) {
            return step;
        }
        match self.facts.target_claim {
            Some(_) => self.pending("The target exists already"),
            None => self.start(),
        }
    }

    pub(super) fn move_claim(self, record: &Record) -> Step {
        let target = self.facts.target_claim.as_ref();
        let Some(volume) = &self.facts.volume else { return self.end_without_volume(record) };
        let policy = reclaim_policy(volume);
        if let Some(target) = target
            && meta::claim_phase(target) == ClaimPhase::Bound
            && is_volume_of(volume, target)
        {
            return match &record.reclaim_policy {
                Some(before) if policy != Some(before.as_str()) => {
                    self.write(Some(set_reclaim_policy(volume, before)))
                }
                _ if is_ours(self.transfer, &target.metadata) => {
                    self.write(Some(set_mark(target, None)))
                }
                _ => self.complete(),
            };
        }
        // Before the source is deleted: the storage must not delete the volume with it.
        if policy != Some(RETAIN) {
            return self.write(Some(set_reclaim_policy(volume, RETAIN)));
        }
        let source = self.facts.claim.as_ref();
        match source.filter(|claim| meta::uid(&claim.metadata) == record.uid()) {
            Some(source) => self.delete_source(volume, source),
            None => self.create_target(volume, record),
        }
    }

    /// There is nothing to move, nor to keep.
    fn end_without_volume(self, record: &Record) -> Step {
        let target = self.facts.target_claim.as_ref();
        let marked = target.filter(|target| is_ours(self.transfer, &target.metadata));
        if let (true, Some(target)) = (self.is_terminating(), marked) {
            return self.write(Some(set_mark(target, None)));
        }
        let gone = || self.wait(Phase::Error, &format!("The PV {} is gone", record.volume_name));
        self.cancel(self.facts.claim.as_ref()).unwrap_or_else(gone)
    }

    fn delete_source(self, volume: &PersistentVolume, source: &PersistentVolumeClaim) -> Step {
        if !is_volume_of(volume, source) {
            return self.wait(Phase::Error, "PV bound to wrong PVC");
        }
        if source.metadata.deletion_timestamp.is_some() {
            return self.running("Waiting for the source to go");
        }
        // Pods that mounted it after the transfer had started keep it until they end.
        if self.facts.is_used {
            return self.running("Pods using PVC");
        }
        self.write(Write::delete(source))
    }

    /// The volume first: another PVC could be bound to a target that waits for no volume.
    fn create_target(self, volume: &PersistentVolume, record: &Record) -> Step {
        let place = target(&self.transfer.spec);
        let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let owner_uid = owner.and_then(|owner| owner.uid.as_deref()).filter(|uid| !uid.is_empty());
        let is_for_target = owner.is_some_and(|owner| {
            owner.namespace.as_deref() == Some(&place.namespace)
                && owner.name.as_deref() == Some(&place.name)
        });
        let present = self.facts.target_claim.as_ref();
        let target_uid = present.map(|claim| meta::uid(&claim.metadata));
        let is_rebound = is_for_target && (owner_uid.is_none() || owner_uid == target_uid);
        let is_released = owner.is_none() || owner_uid == Some(record.uid());
        if !is_rebound && !is_released {
            return self.wait(Phase::Error, "PV bound to wrong PVC");
        }
        match present {
            Some(claim) if !is_ours(self.transfer, &claim.metadata) && !is_rebound => {
                self.wait(Phase::Error, "The target exists already, and is not of this transfer")
            }
            _ if !is_rebound => {
                self.write(Some(Write::guarded_patch(volume, rebind_to_name(&place))))
            }
            None => self.write(target_claim(self.transfer, record).map(Write::create)),
            Some(_) => self.running("Waiting for target to be bound"),
        }
    }
}

fn reclaim_policy(volume: &PersistentVolume) -> Option<&str> {
    let spec = volume.spec.as_ref()?;
    // The API server's default for a volume that a client creates.
    Some(spec.persistent_volume_reclaim_policy.as_deref().unwrap_or(RETAIN))
}
