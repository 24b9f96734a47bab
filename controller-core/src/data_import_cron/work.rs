//! Plans the import cycle of a cron from the state of its present import. No plan deletes or replaces the last usable
//! image before the next one is complete.

use std::collections::BTreeSet;

use api::annotations::cron as key;
use api::conditions::{self as wire, reason, status};
use api::v1beta1::{DataSourceSource, ImportStatus, ImportedClaim, ObjectSource, StorageProfile};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::form::{self, Form};
use super::import::{DesiredImport, volume};
use super::schedule::Schedule;
use super::settle::Settled;
use super::source::{BadDigest, import_name, is_import_of, template_source};
use super::state::{Import, State};
use super::{Change, CronPlan, Facts, Kind, data_source, garbage, managed};
use crate::classes;
use crate::conditions::{self, ConditionState};
use crate::meta;
use crate::snapshot::VolumeSnapshot;

/// Plans one reconcile of a cron.
pub(super) struct CronPlanner<'a> {
    pub(super) facts: &'a Facts<'a>,
    /// The storage class that images are imported to.
    class: Option<&'a str>,
    pub(super) profile: Option<&'a StorageProfile>,
    pub(super) form: Form,
    /// Why the newest image is unknown.
    failure: Option<String>,
    pub(super) now: Timestamp,
    pub(super) plan: CronPlan,
}

impl<'a> CronPlanner<'a> {
    pub(super) fn new(
        facts: &'a Facts<'a>,
        class: Option<&'a str>,
        failure: Option<String>,
        now: Timestamp,
        plan: CronPlan,
    ) -> Self {
        let profile = class.and_then(|name| {
            facts.profiles.iter().find(|profile| meta::name(&profile.metadata) == name)
        });
        let found = class.and_then(|name| classes::named(facts.classes, name));
        let form = form::form(found, profile, facts.snapshot_classes);
        Self { facts, class, profile, form, failure, now, plan }
    }

    pub(super) fn plan_import_cycle(mut self) -> CronPlan {
        let all = self.plan.status.current_imports.take();
        let mut current = all
            .and_then(|all| all.into_iter().next())
            .filter(|current| is_import_of(self.facts.cron, current));
        let import = current.as_ref().map(|current| self.find(&current.data_volume_name));
        let mut state = import.as_ref().map_or(State::Nothing, Import::state);
        let mut restarts = false;
        if let (Some(import), Some(known)) = (&import, &current) {
            self.note_class(import);
            if import.is_terminating {
                self.plan.look_soon(self.now);
            }
            // Unfinished, and on a class that is no longer the desired one: it is restarted.
            if matches!(state, State::Running { .. }) && self.is_elsewhere(import) {
                let kind = if import.volume.is_some() { Kind::Volume } else { Kind::Claim };
                self.plan.changes.push(Change::Delete(kind, known.data_volume_name.clone()));
                self.plan.look_soon(self.now);
                (state, restarts) = (State::Nothing, true);
            }
        }
        if state == State::Nothing {
            current = None;
        }
        let wanted = self.wanted_digest();
        let mut settled = match (&current, &import) {
            (Some(current), Some(import)) => self.settle(current, import, &state),
            _ => Settled::default(),
        };
        if let Some(current) = current.as_ref().filter(|_| settled.is_complete) {
            self.note_imported(&current.data_volume_name);
        }

        let is_running = matches!(state, State::Running { .. });
        let is_other = |current: &ImportStatus| wanted.as_ref() != Some(&current.digest);
        let outdated = wanted.is_some()
            && current
                .as_ref()
                .is_none_or(|current| is_other(current) || !(is_running || settled.is_good));
        let mut up_to_date = self.up_to_date(outdated, &state, &settled);
        let mut progressing = match &state {
            State::Running { progressing, .. } => progressing.clone(),
            _ => ConditionState::new(status::FALSE, reason::NO_IMPORT, "No current import"),
        };
        self.change_source(&settled);
        self.plan.changes.extend(std::mem::take(&mut settled.deletions));

        let mut may_start = outdated && !is_running && !restarts;
        if outdated && matches!(state, State::Running { error: Some(_), .. }) {
            // A failing import is replaced by a newer image.
            if let Some(current) = current.take() {
                self.plan.changes.push(Change::Delete(Kind::Volume, current.data_volume_name));
            }
            may_start = true;
        }
        if settled.is_complete {
            self.collect_garbage(current.as_ref(), wanted.as_deref());
        }
        if let Some(digest) = wanted.filter(|_| may_start) {
            match self.start_import(&digest, current.as_ref()) {
                Ok(Some(started)) => current = Some(started),
                Ok(None) => {}
                Err(StartError::Digest(error)) => {
                    up_to_date = ConditionState::new(
                        status::FALSE,
                        reason::ILLEGAL_DIGEST,
                        error.to_string(),
                    );
                }
                Err(StartError::NotAuthorized) => {
                    let message = "Not authorized to create DataVolume";
                    progressing =
                        ConditionState::new(status::FALSE, reason::NOT_AUTHORIZED, message);
                }
            }
        }
        self.report(current, &progressing, &up_to_date);
        self.plan
    }

    fn find(&self, name: &str) -> Import<'a> {
        let all = self.facts.all;
        Import::find(name, all.volumes, all.claims, all.snapshots)
    }

    /// The annotation with this key, with the planned change.
    fn annotation(&self, key: &str) -> Option<String> {
        match self.plan.annotations.0.get(key) {
            Some(change) => change.clone(),
            None => meta::annotation(&self.facts.cron.metadata, key).map(str::to_owned),
        }
    }

    /// The desired image: the pinned one, else the newest.
    fn wanted_digest(&self) -> Option<String> {
        let digest = |key| self.annotation(key).filter(|digest| !digest.is_empty());
        digest(key::PINNED_DIGEST).or_else(|| digest(key::DESIRED_DIGEST))
    }

    /// Writes the storage class of the present import to an annotation: a snapshot does not state it.
    fn note_class(&mut self, import: &Import) {
        let present = &self.facts.cron.metadata;
        if let Some(class) = import.class() {
            self.plan.annotations.set(present, key::STORAGE_CLASS, class);
        } else if let Some(class) = self.class
            && !meta::has_annotation(present, key::STORAGE_CLASS)
        {
            self.plan.annotations.set(present, key::STORAGE_CLASS, class);
        }
    }

    /// Whether an import is on another class than the desired one.
    pub(super) fn is_elsewhere(&self, import: &Import) -> bool {
        let noted = || self.annotation(key::STORAGE_CLASS);
        let is_on = match import.class() {
            Some(class) => Some(class.to_owned()),
            None if import.volume.is_none() => noted(),
            None => None,
        };
        self.class.is_some_and(|class| is_on.is_some_and(|is_on| is_on != class))
    }

    /// Sets the last imported PVC and the time, if it is another one than before.
    fn note_imported(&mut self, name: &str) {
        let ObjectSource { namespace, name } = self.place(name);
        let imported = Some(ImportedClaim { namespace, name });
        if self.plan.status.last_imported_pvc != imported {
            self.plan.status.last_imported_pvc = imported;
            self.plan.status.last_import_timestamp = Some(Time(self.now));
        }
    }

    /// Plans the change of the DataSource. If the present import is not complete, its source stays.
    fn change_source(&mut self, settled: &Settled) {
        let present = data_source(self.facts);
        let is_empty = present.is_none_or(|source| source.spec.source == Default::default());
        let fallback = || self.last_imported(settled).filter(|_| is_empty);
        let wanted = settled.source.clone().or_else(fallback);
        let (cron, installation) = (self.facts.cron, self.facts.installation);
        self.plan.changes.extend(managed::change(cron, present, wanted, installation));
    }

    /// The source of an empty or deleted DataSource: the last import.
    fn last_imported(&self, settled: &Settled) -> Option<DataSourceSource> {
        let name = &self.plan.status.last_imported_pvc.as_ref()?.name;
        let import = self.find(name);
        match import.state() {
            // The PVC will be deleted, so the DataSource must not refer to it.
            State::Claim if settled.waits => Some(self.of_snapshot(name)),
            State::Claim => Some(self.of_claim(name)),
            State::Snapshot => Some(self.of_snapshot(name)),
            State::Running { .. } | State::Nothing => None,
        }
    }

    fn collect_garbage(&mut self, current: Option<&ImportStatus>, wanted: Option<&str>) {
        let cron = self.facts.cron;
        let mut kept = BTreeSet::new();
        kept.extend(current.map(|current| current.data_volume_name.clone()));
        kept.extend(self.plan.status.last_imported_pvc.as_ref().map(|last| last.name.clone()));
        kept.extend(wanted.and_then(|digest| import_name(cron, digest, None).ok()));
        let sources = self.facts.all.sources.iter().map(|source| &source.spec.source);
        for source in sources {
            kept.extend(source.pvc.iter().chain(&source.snapshot).map(|place| place.name.clone()));
        }
        let kept: BTreeSet<&str> = kept.iter().map(String::as_str).collect();
        let outdated = garbage::outdated(cron, &self.facts.all, &kept);
        for change in outdated {
            if !self.plan.changes.contains(&change) {
                self.plan.changes.push(change);
            }
        }
    }

    /// Starts an import, or adopts an existing one. `None`: its name is not free yet.
    fn start_import(
        &mut self,
        digest: &str,
        current: Option<&ImportStatus>,
    ) -> Result<Option<ImportStatus>, StartError> {
        let (cron, installation) = (self.facts.cron, self.facts.installation);
        let mut name = import_name(cron, digest, None).map_err(StartError::Digest)?;
        let mut import = self.find(&name);
        let is_taken = match import.state() {
            State::Claim | State::Running { .. } => {
                let class = import.class();
                class.is_some() && self.class.is_some() && class != self.class
            }
            State::Snapshot => {
                current.is_some_and(|current| current.data_volume_name == name)
                    && self.is_elsewhere(&import)
            }
            State::Nothing => false,
        };
        if is_taken {
            // The image on the other class stays unchanged until this one is complete.
            name = import_name(cron, digest, self.class).map_err(StartError::Digest)?;
            import = self.find(&name);
        }
        if import.is_terminating {
            self.plan.look_soon(self.now);
            return Ok(None);
        }
        let started = ImportStatus { data_volume_name: name.clone(), digest: digest.to_owned() };
        let fits = |snapshot: &&VolumeSnapshot| match &self.form {
            Form::Claim => false,
            Form::Snapshot { class } => form::is_of_class(snapshot, class),
        };
        let is_there = import.volume.is_some()
            || import.claim.is_some()
            || import.snapshot.as_ref().is_some_and(fits);
        if !is_there {
            // The webhook rejects crons with a snapshot or a DataSource. The clone would use the controller's
            // permissions.
            let template = &cron.spec.template.spec;
            let is_clone = template.source_ref.is_some()
                || template_source(cron)
                    .is_some_and(|source| source.pvc.is_some() || source.snapshot.is_some());
            if is_clone && !self.facts.may_clone {
                return Err(StartError::NotAuthorized);
            }
            let image_stream_ref = self.annotation(key::IMAGE_STREAM_DOCKER_REF);
            let wanted = DesiredImport {
                cron,
                name: &name,
                digest,
                image_stream_ref: image_stream_ref.as_deref(),
                profile: self.profile,
                installation,
            };
            self.plan.changes.push(Change::CreateVolume(Box::new(volume(&wanted, self.now))));
        }
        if let Some(class) = import.class().or(self.class) {
            self.plan.annotations.set(&cron.metadata, key::STORAGE_CLASS, class);
        }
        self.plan.look_soon(self.now);
        Ok(Some(started))
    }

    fn up_to_date(&self, outdated: bool, state: &State, settled: &Settled) -> ConditionState {
        let not = |reason: &str, message: &str| ConditionState::new(status::FALSE, reason, message);
        let unknown = self.failure.as_deref().map(|because| not(reason::POLL_FAILED, because));
        if outdated {
            return not(reason::OUTDATED, "Source digest updated since last import");
        }
        match state {
            State::Running { error: Some(because), .. } => not(reason::IMPORT_FAILED, because),
            State::Running { error: None, .. } => {
                not(reason::IMPORT_PROGRESSING, "Import is progressing")
            }
            State::Nothing => unknown.unwrap_or_else(|| self.no_digest()),
            State::Claim | State::Snapshot if settled.waits => {
                let message = "Snapshot of imported data is progressing";
                not(reason::IMPORT_PROGRESSING, message)
            }
            State::Claim | State::Snapshot => unknown.unwrap_or_else(|| match self.pinned() {
                Some(digest) => ConditionState::new(
                    status::TRUE,
                    reason::PINNED,
                    format!("The image is pinned to {digest}"),
                ),
                None => ConditionState::new(
                    status::TRUE,
                    reason::UP_TO_DATE,
                    "Latest import is up to date",
                ),
            }),
        }
    }

    fn no_digest(&self) -> ConditionState {
        let schedule = &self.facts.cron.spec.schedule;
        let bad = (!schedule.is_empty()).then(|| Schedule::cached(schedule).err()).flatten();
        let (reason, message) = match bad {
            Some(error) => (reason::ILLEGAL_SCHEDULE, error.to_string()),
            None => (reason::NO_DIGEST, "No source digest".to_owned()),
        };
        ConditionState::new(status::FALSE, reason, message)
    }

    fn pinned(&self) -> Option<&'a str> {
        meta::annotation(&self.facts.cron.metadata, key::PINNED_DIGEST)
            .filter(|text| !text.is_empty())
    }

    fn report(
        &mut self,
        current: Option<ImportStatus>,
        progressing: &ConditionState,
        up_to_date: &ConditionState,
    ) {
        let last = self.annotation(key::LAST_TIME).and_then(|text| text.parse().ok());
        let status = &mut self.plan.status;
        status.current_imports = current.map(|current| vec![current]);
        if let Some(last) = last {
            status.last_execution_timestamp = Some(Time(last));
        }
        if up_to_date.status == status::TRUE {
            status.source_format = Some(self.form.as_str().to_owned());
        }
        let all = status.conditions.get_or_insert_default();
        conditions::set(all, wire::PROGRESSING, progressing, self.now);
        conditions::set(all, wire::UP_TO_DATE, up_to_date, self.now);
    }
}

/// Why an import is not started.
enum StartError {
    Digest(BadDigest),
    NotAuthorized,
}
