//! DataImportCrons: an image that is imported again whenever there is a newer one, and a DataSource that refers to it.
//!
//! ```text
//! schedule ─► poll ─► desired digest ─► DataVolume "<source>-<12 digits>" ─► PVC ─► (snapshot) ─► DataSource
//!                       ▲ or by hand                                              old ones are deleted, 3 stay
//! ```
//!
//! Two invariants: the image that a DataSource refers to is not deleted, and it is not replaced before the next one is
//! complete. This module sends no requests to the API server or to a source: a plan states when the caller has to.

mod form;
mod garbage;
pub mod image_stream;
mod import;
pub mod jobs;
mod managed;
mod node_pull;
mod poll_request;
mod polling;
mod proof;
mod reuse;
mod schedule;
mod settle;
mod source;
mod state;
mod work;
mod writes;

use api::ClaimPhase;
use api::annotations::cron as key;
use api::conditions::{self as wire, reason, status};
use api::v1beta1::{
    ContentType, DataImportCron, DataImportCronStatus, DataSource, DataSourceSource, DataVolume,
    StorageProfile,
};
use api::{events, labels};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::classes;
use crate::components;
use crate::conditions::{self, ConditionState};
use crate::event::Event;
use crate::meta::{self, Changes, Installation, Pairs};
use crate::plan::{self, Requeue, Write};
use crate::snapshot::VolumeSnapshot;
use crate::storage_profile::SnapshotClass;
use serde_json::{Value, json};
use std::time::Duration;

pub use form::{Form, form};
pub use garbage::{NamespaceObjects, cleanup};
pub use import::marks;
pub use node_pull::{NodePull, node_pull};
pub use poll_request::{
    PollNeeds, PollRequestError, PollSecrets, poll_needs, polled_host, verify_poll_secret,
};
pub use polling::{PollFailure, PollResult, Polled, patience, place};
pub use proof::ProvenImage;
pub use reuse::{GoldenImage, golden_image, has_same_image};
pub use schedule::{BadSchedule, Schedule};
pub use source::{BadDigest, PollFrom, Poller, import_name, poller, template_source, url_of};
pub use writes::{IsProven, changes_plan, writes};

use work::CronPlanner;

/// Bounds the time until a corrected clock is noticed.
const SLEEP_MAX: Duration = Duration::from_hours(1);

/// Delay of the next reconcile while an object is terminating.
const SOON: SignedDuration = SignedDuration::from_secs(1);

/// Inputs of the plan for a DataImportCron.
pub struct Facts<'a> {
    pub cron: &'a DataImportCron,
    /// The cron that the DataSource's label names, if it is another one and exists.
    pub manager: Option<&'a DataImportCron>,
    /// All storage classes.
    pub classes: &'a [StorageClass],
    /// Their profiles.
    pub profiles: &'a [StorageProfile],
    /// Empty if the cluster has no snapshot API.
    pub snapshot_classes: &'a [SnapshotClass],
    /// In the cron's namespace.
    pub all: NamespaceObjects<'a>,
    /// Where registries are polled from.
    pub poll_from: PollFrom,
    /// The result of a poll that has just ended.
    pub polled: Option<&'a Polled>,
    /// Whether the service account of the cron may read the source PVC.
    pub may_clone: bool,
    /// For the labels.
    pub installation: &'a Installation,
}

/// A kind of object that a cron creates and deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Volume,
    /// PersistentVolumeClaim.
    Claim,
    Snapshot,
    Source,
}

/// A write, in the namespace of the cron.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    CreateVolume(Box<DataVolume>),
    /// Creates a snapshot of the PVC of its name, and signs a proof for it if the PVC has a valid proof of the same
    /// image.
    CreateSnapshot {
        snapshot: Box<VolumeSnapshot>,
        /// The image that the PVC holds.
        image: ProvenImage,
    },
    /// Signs the proof that a PVC holds an image.
    Prove {
        claim: String,
        /// The image that was imported into it.
        image: ProvenImage,
    },
    CreateSource(Box<DataSource>),
    ChangeSource {
        name: String,
        /// The new source; `None` leaves the present one.
        source: Option<DataSourceSource>,
        /// To add.
        labels: Pairs,
    },
    /// Sets labels and annotations of a PVC or a snapshot.
    Mark {
        kind: Kind,
        name: String,
        /// To add.
        labels: Pairs,
        /// To set or remove.
        annotations: Changes,
    },
    /// Deletes an object, which may be gone already.
    Delete(Kind, String),
}

/// The writes of a reconcile, in this order: changes, annotations, status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CronPlan {
    /// In this order.
    pub changes: Vec<Change>,
    /// Of the cron.
    pub annotations: Changes,
    /// The complete status.
    pub status: DataImportCronStatus,
    /// On the cron.
    pub events: Vec<Event>,
    /// Poll the source now, and plan again with the result.
    pub poll: Option<Poller>,
    /// Reconcile again at this time at the latest.
    pub look_again: Option<Timestamp>,
}

/// Plans a reconcile of a DataImportCron.
pub fn plan(facts: &Facts, now: Timestamp) -> CronPlan {
    let cron = facts.cron;
    let status = cron.status.clone().unwrap_or_default();
    let mut plan = CronPlan { status, ..CronPlan::default() };
    if cron.metadata.deletion_timestamp.is_some() {
        plan.changes = cleanup(meta::name(&cron.metadata), &facts.all);
        return plan;
    }
    if let Some(event) = managed_by_another(facts) {
        plan.events.push(event);
        return plan;
    }
    let poller = poller(cron, facts.poll_from);
    let poll = polling::poll(cron, poller, facts.polled, now, &mut plan.annotations);
    plan.poll = poll.is_due.then_some(poller);
    plan.look_again = poll.next;
    let class = desired_class(cron, facts.classes);
    if let Some(claim) = misplaced(facts, class) {
        plan.changes.push(Change::Delete(Kind::Claim, claim));
        plan.look_soon(now);
        return plan;
    }
    CronPlanner::new(facts, class, poll.failure, now, plan).plan_import_cycle()
}

impl CronPlan {
    /// Annotations and status, in one patch as a DataImportCron has no subresource `status`, and then the events.
    pub fn status_and_events(&self, cron: &DataImportCron) -> plan::Plan {
        let mut merge = json!({});
        if !self.annotations.is_empty() {
            merge["metadata"] = json!({ "annotations": self.annotations.0 });
        }
        if cron.status.clone().unwrap_or_default() != self.status {
            merge["status"] = status_members(&self.status);
        }
        let is_changed = merge != json!({});
        let mut plan = plan::Plan::writes(is_changed.then(|| Write::patch(cron, merge)));
        plan.record(components::DATA_IMPORT_CRON, cron, self.events.clone());
        plan
    }

    /// Sets the condition of an import that is not permitted, unless one is running.
    pub fn deny(&mut self, cron: &DataImportCron, now: Timestamp) {
        let all = self.status.conditions.get_or_insert_default();
        let Some(planned) = all.iter_mut().find(|one| one.type_ == wire::PROGRESSING) else {
            return;
        };
        if planned.reason.as_deref() != Some(reason::NO_IMPORT) {
            return;
        }
        // Restore the previous condition, so that an equal one is no change.
        let before = cron.status.as_ref().and_then(|status| status.conditions.as_deref());
        if let Some(before) = before.and_then(|before| conditions::find(before, wire::PROGRESSING))
        {
            planned.clone_from(before);
        }
        let message = "Not authorized to create DataVolume";
        let denied = ConditionState::new(status::FALSE, reason::NOT_AUTHORIZED, message);
        conditions::set(all, wire::PROGRESSING, &denied, now);
    }

    /// Whether a clone would have been created, had it been permitted.
    pub fn is_refused(&self) -> bool {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let progressing = conditions::find(conditions, wire::PROGRESSING);
        progressing
            .is_some_and(|condition| condition.reason.as_deref() == Some(reason::NOT_AUTHORIZED))
    }

    /// When to reconcile again. While a poll is running its source stays due, so `wait` applies instead.
    pub fn requeue(&self, wait: Option<Duration>, now: Timestamp) -> Requeue {
        let sleep =
            |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        let planned = self.look_again.filter(|at| wait.is_none() || *at > now).map(sleep);
        let delay = planned.into_iter().chain(wait).min();
        Requeue::after(delay.map(|delay| delay.min(SLEEP_MAX)))
    }

    fn look_soon(&mut self, now: Timestamp) {
        let soon = now.checked_add(SOON).unwrap_or(now);
        self.look_again = Some(self.look_again.map_or(soon, |next| next.min(soon)));
    }
}

/// All members: a merge patch keeps those that are not named.
fn status_members(status: &DataImportCronStatus) -> Value {
    let DataImportCronStatus {
        current_imports,
        last_imported_pvc,
        last_execution_timestamp,
        last_import_timestamp,
        source_format,
        conditions,
    } = status;
    json!({
        "currentImports": current_imports,
        "lastImportedPVC": last_imported_pvc,
        "lastExecutionTimestamp": last_execution_timestamp,
        "lastImportTimestamp": last_import_timestamp,
        "sourceFormat": source_format,
        "conditions": conditions,
    })
}

/// The event for a DataSource that another cron manages: two crons would overwrite each other's changes.
fn managed_by_another(facts: &Facts) -> Option<Event> {
    let cron = facts.cron;
    let other = facts.manager.filter(|other| {
        meta::name(&other.metadata) != meta::name(&cron.metadata)
            && other.spec.managed_data_source == cron.spec.managed_data_source
    })?;
    let name = meta::name(&other.metadata);
    let source = data_source(facts)?;
    let is_its = meta::label(&source.metadata, labels::DATA_IMPORT_CRON) == Some(name);
    let message = format!(
        "DataSource {} is already managed by DataImportCron {name}",
        cron.spec.managed_data_source
    );
    is_its.then(|| Event::warning(events::DATA_SOURCE_ALREADY_MANAGED, message))
}

fn data_source<'a>(facts: &Facts<'a>) -> Option<&'a DataSource> {
    let name = &facts.cron.spec.managed_data_source;
    facts.all.sources.iter().find(|source| meta::name(&source.metadata) == name)
}

/// The class that images are imported on: the template's, else the default for disks, else the default.
pub fn desired_class<'a>(cron: &'a DataImportCron, classes: &'a [StorageClass]) -> Option<&'a str> {
    let default = || classes::default_for(classes, ContentType::Kubevirt);
    explicit_class(cron).or_else(|| default().map(|class| meta::name(&class.metadata)))
}

/// The class that the template names.
fn explicit_class(cron: &DataImportCron) -> Option<&str> {
    let spec = &cron.spec.template.spec;
    let of_storage =
        spec.storage.as_ref().and_then(|storage| storage.storage_class_name.as_deref());
    let of_pvc = spec.pvc.as_ref().and_then(|pvc| pvc.storage_class_name.as_deref());
    of_storage.or(of_pvc).filter(|name| !name.is_empty())
}

/// A pending PVC of this cron whose storage class is no longer the desired one. The DataVolume controller recreates it.
fn misplaced(facts: &Facts, class: Option<&str>) -> Option<String> {
    let (class, cron) = (class?, meta::name(&facts.cron.metadata));
    let claim = facts.all.claims.iter().find(|claim| {
        let metadata = &claim.metadata;
        let of = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let is_complete = facts.all.volumes.iter().any(|volume| {
            volume.metadata.name == metadata.name && state::phase_of(volume) == "Succeeded"
        });
        meta::label(metadata, labels::DATA_IMPORT_CRON) == Some(cron)
            && metadata.deletion_timestamp.is_none()
            && meta::claim_phase(claim) == ClaimPhase::Pending
            && of.is_some_and(|of| of != class)
            && !is_complete
    })?;
    Some(meta::name(&claim.metadata).to_owned())
}

/// The value of `kubevirt_cdi_dataimportcron_outdated` and its label `pending`: whether there is no class to import on.
pub fn outdated_metric(cron: &DataImportCron) -> (bool, bool) {
    let conditions = cron.status.as_ref().and_then(|status| status.conditions.as_deref());
    let up_to_date = conditions::find(conditions.unwrap_or_default(), wire::UP_TO_DATE);
    let is_up_to_date = up_to_date.is_some_and(|condition| condition.status == status::TRUE);
    let pending =
        !meta::has_annotation(&cron.metadata, key::STORAGE_CLASS) && explicit_class(cron).is_none();
    (!is_up_to_date, pending)
}

#[cfg(test)]
mod tests;
