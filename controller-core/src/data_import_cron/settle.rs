//! Finalizes a complete import: labels it, retains it as a PVC or a snapshot, and deletes objects that are not needed
//! any more.

use api::annotations::cron as key;
use api::labels;
use api::v1beta1::{DataSourceSource, ImportStatus, ObjectSource};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::form::{self, Form};
use super::import::{marks, nanoseconds};
use super::state::{Import, State, last_use};
use super::work::CronPlanner;
use super::{Change, Kind, ProvenImage, data_source, proof};
use crate::meta::{self, Changes};
use crate::snapshot::VolumeSnapshot;

/// The result of [`CronPlanner::settle`].
#[derive(Default)]
pub(super) struct Settled {
    /// It has the desired form and storage class, or will have them without another import.
    pub(super) is_good: bool,
    /// Its snapshot is being taken.
    pub(super) waits: bool,
    /// The image is complete.
    pub(super) is_complete: bool,
    /// What a DataSource may refer to from now on.
    pub(super) source: Option<DataSourceSource>,
    /// Deletes the objects that are unused once the DataSource has been changed.
    pub(super) deletions: Vec<Change>,
}

impl CronPlanner<'_> {
    pub(super) fn place(&self, name: &str) -> ObjectSource {
        let namespace = meta::namespace(&self.facts.cron.metadata).to_owned();
        ObjectSource { namespace, name: name.to_owned() }
    }

    pub(super) fn of_claim(&self, name: &str) -> DataSourceSource {
        DataSourceSource { pvc: Some(self.place(name)), ..DataSourceSource::default() }
    }

    pub(super) fn of_snapshot(&self, name: &str) -> DataSourceSource {
        DataSourceSource { snapshot: Some(self.place(name)), ..DataSourceSource::default() }
    }

    /// Plans the writes for an import that exists.
    pub(super) fn settle(
        &mut self,
        current: &ImportStatus,
        import: &Import,
        state: &State,
    ) -> Settled {
        let is_here = !self.is_elsewhere(import);
        let name = current.data_volume_name.as_str();
        match (state, self.form.clone()) {
            (State::Claim, Form::Claim) => {
                self.mark_claim(current, import);
                let old = import.snapshot.map(|_| Change::Delete(Kind::Snapshot, name.to_owned()));
                Settled {
                    is_good: is_here,
                    is_complete: true,
                    source: Some(self.of_claim(name)),
                    deletions: old.into_iter().collect(),
                    ..Settled::default()
                }
            }
            (State::Claim, Form::Snapshot { class }) => {
                self.mark_claim(current, import);
                let complete = Settled { is_complete: true, ..Settled::default() };
                if !is_here {
                    return complete;
                }
                Settled { is_good: true, ..self.take_snapshot(current, import, &class, complete) }
            }
            (State::Snapshot, Form::Snapshot { class }) => {
                let fits = import.snapshot.is_some_and(|found| form::is_of_class(found, &class));
                if !fits || !is_here {
                    return Settled::default(); // stays until another import is complete
                }
                let Some(snapshot) = import.ready_snapshot() else {
                    return Settled { is_good: true, waits: true, ..Settled::default() };
                };
                self.mark_snapshot(snapshot);
                Settled {
                    is_good: true,
                    is_complete: true,
                    source: Some(self.of_snapshot(name)),
                    ..Settled::default()
                }
            }
            (State::Snapshot, Form::Claim) | (State::Running { .. } | State::Nothing, _) => {
                Settled::default()
            }
        }
    }

    /// The image is on a PVC and is to be retained as a snapshot. Until the snapshot is ready, the PVC stays and the
    /// DataSource is not changed.
    fn take_snapshot(
        &mut self,
        current: &ImportStatus,
        import: &Import,
        class: &str,
        complete: Settled,
    ) -> Settled {
        let name = current.data_volume_name.as_str();
        let waits = Settled { waits: true, ..complete };
        match (import.snapshot, import.claim) {
            (Some(old), _) if !form::is_of_class(old, class) => {
                self.plan.look_soon(self.now);
                Settled {
                    source: Some(self.of_claim(name)),
                    deletions: vec![Change::Delete(Kind::Snapshot, name.to_owned())],
                    ..waits
                }
            }
            (Some(snapshot), _) if snapshot.is_ready() => {
                self.mark_snapshot(snapshot);
                let kind = if import.volume.is_some() { Kind::Volume } else { Kind::Claim };
                Settled {
                    waits: false,
                    source: Some(self.of_snapshot(name)),
                    deletions: vec![Change::Delete(kind, name.to_owned())],
                    ..waits
                }
            }
            (None, Some(claim)) if !import.is_terminating => {
                let (cron, installation) = (self.facts.cron, self.facts.installation);
                let snapshot = form::snapshot(cron, claim, class, installation, self.now);
                let image = ProvenImage::for_digest(cron, &current.digest);
                let snapshot = Box::new(snapshot);
                self.plan.changes.push(Change::CreateSnapshot { snapshot, image });
                waits
            }
            _ => waits,
        }
    }

    fn mark_claim(&mut self, current: &ImportStatus, import: &Import) {
        let Some(claim) = import.claim else { return };
        let others = self.facts.all.claims.iter().map(|claim| &claim.metadata);
        self.mark(Kind::Claim, &claim.metadata, others, Changes::default());
        let cron = self.facts.cron;
        let is_imported = import
            .volume
            .is_some_and(|volume| proof::is_imported(cron, &current.digest, volume, claim));
        if is_imported && proof::noted_proof(&claim.metadata).is_none() {
            let image = ProvenImage::for_digest(cron, &current.digest);
            let claim = current.data_volume_name.clone();
            self.plan.changes.push(Change::Prove { claim, image });
        }
    }

    fn mark_snapshot(&mut self, snapshot: &VolumeSnapshot) {
        let mut changes = Changes::default();
        form::completed(self.facts.cron, snapshot, self.profile, &mut changes);
        let others = self.facts.all.snapshots.iter().map(|snapshot| &snapshot.metadata);
        self.mark(Kind::Snapshot, &snapshot.metadata, others, changes);
    }

    /// Labels an object as the cron's, and sets its time of last use later than those of all others, whatever the clock
    /// was when those were set.
    fn mark<'b>(
        &mut self,
        kind: Kind,
        present: &ObjectMeta,
        others: impl Iterator<Item = &'b ObjectMeta>,
        mut annotations: Changes,
    ) {
        let cron = self.facts.cron;
        let own = meta::name(&cron.metadata);
        let name = meta::name(present);
        let mut labels = marks(cron);
        if kind == Kind::Snapshot {
            let data_source = data_source(self.facts);
            let copied = data_source.and_then(|source| source.metadata.labels.as_ref());
            let copied = copied.into_iter().flatten().filter(|(key, _)| labels::is_copied(key));
            for (key, value) in copied {
                if meta::label(present, key).is_none() {
                    labels.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        labels.retain(|key, value| meta::label(present, key) != Some(value.as_str()));
        let is_other = |metadata: &&ObjectMeta| {
            meta::label(metadata, labels::DATA_IMPORT_CRON) == Some(own)
                && meta::name(metadata) != name
        };
        let latest = others.filter(is_other).filter_map(last_use).max();
        let used = last_use(present);
        if used.is_none() || used <= latest {
            let tick = SignedDuration::from_nanos(1);
            let after = latest.and_then(|latest| latest.checked_add(tick).ok());
            let time = after.map_or(self.now, |after| after.max(self.now));
            annotations.set(present, key::LAST_USE_TIME, nanoseconds(time));
        }
        if !labels.is_empty() || !annotations.is_empty() {
            let name = name.to_owned();
            self.plan.changes.push(Change::Mark { kind, name, labels, annotations });
        }
    }
}
