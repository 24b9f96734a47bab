//! From how far the present import is to what has to be done: the part where a good image might get lost, and does not.

use std::collections::BTreeSet;

use api::annotations::cron as key;
use api::conditions::{self as wire, reason, status};
use api::v1beta1::{DataSourceSource, ImportStatus, ImportedClaim, ObjectSource, StorageProfile};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::form::{self, Form};
use super::import::{Wanted, volume};
use super::schedule::Schedule;
use super::settle::Settled;
use super::source::{BadDigest, import_name, is_import_of, template_source};
use super::state::{Import, State};
use super::{Change, CronPlan, Facts, Kind, data_source, garbage, managed};
use crate::classes;
use crate::conditions::{self, Said};
use crate::meta;
use crate::snapshot::VolumeSnapshot;

/// One look at a cron.
pub(super) struct Work<'a> {
    pub(super) facts: &'a Facts<'a>,
    /// The class that images are imported on.
    class: Option<&'a str>,
    pub(super) profile: Option<&'a StorageProfile>,
    pub(super) form: Form,
    /// Why nobody knows what the newest image is.
    failure: Option<String>,
    pub(super) now: Timestamp,
    pub(super) plan: CronPlan,
}

impl<'a> Work<'a> {
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

    pub(super) fn done(mut self) -> CronPlan {
        let all = self.plan.status.current_imports.take();
        let mut current = all
            .and_then(|all| all.into_iter().next())
            .filter(|current| is_import_of(self.facts.cron, current));
        let import = current.as_ref().map(|current| self.find(&current.data_volume_name));
        let mut state = import.as_ref().map_or(State::Nothing, Import::state);
        let mut begins_anew = false;
        if let (Some(import), Some(known)) = (&import, &current) {
            self.note_class(import);
            if import.is_going {
                self.plan.look_soon(self.now);
            }
            // Unfinished, and on a class that is no longer meant: it begins anew.
            if matches!(state, State::Running { .. }) && self.is_elsewhere(import) {
                let kind = if import.volume.is_some() { Kind::Volume } else { Kind::Claim };
                self.plan.changes.push(Change::Delete(kind, known.data_volume_name.clone()));
                self.plan.look_soon(self.now);
                (state, begins_anew) = (State::Nothing, true);
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
        let mut said = self.up_to_date(outdated, &state, &settled);
        let mut progressing = match &state {
            State::Running { said, .. } => said.clone(),
            _ => Said::new(status::FALSE, reason::NO_IMPORT, "No current import"),
        };
        self.change_source(&settled);
        self.plan.changes.extend(std::mem::take(&mut settled.leftovers));

        let mut may_begin = outdated && !is_running && !begins_anew;
        if outdated && matches!(state, State::Running { error: Some(_), .. }) {
            // What cannot be imported makes room for what is newer.
            if let Some(current) = current.take() {
                self.plan.changes.push(Change::Delete(Kind::Volume, current.data_volume_name));
            }
            may_begin = true;
        }
        if settled.is_complete {
            self.collect_garbage(current.as_ref(), wanted.as_deref());
        }
        if let Some(digest) = wanted.filter(|_| may_begin) {
            match self.begin(&digest, current.as_ref()) {
                Ok(Some(begun)) => current = Some(begun),
                Ok(None) => {}
                Err(Trouble::Digest(error)) => {
                    said = Said::new(status::FALSE, reason::ILLEGAL_DIGEST, error.to_string());
                }
                Err(Trouble::NotAuthorized) => {
                    let message = "Not authorized to create DataVolume";
                    progressing = Said::new(status::FALSE, reason::NOT_AUTHORIZED, message);
                }
            }
        }
        self.report(current, &progressing, &said);
        self.plan
    }

    fn find(&self, name: &str) -> Import<'a> {
        let all = self.facts.all;
        Import::find(name, all.volumes, all.claims, all.snapshots)
    }

    /// The annotation of this name as it is going to be.
    fn annotation(&self, key: &str) -> Option<String> {
        match self.plan.annotations.0.get(key) {
            Some(change) => change.clone(),
            None => meta::annotation(&self.facts.cron.metadata, key).map(str::to_owned),
        }
    }

    /// What should be there: what somebody chose, else the newest.
    fn wanted_digest(&self) -> Option<String> {
        let said = |key| self.annotation(key).filter(|digest| !digest.is_empty());
        said(key::PINNED_DIGEST).or_else(|| said(key::DESIRED_DIGEST))
    }

    /// Remembers the class of the present import: a snapshot does not tell.
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

    /// Whether an import is on another class than it should be.
    pub(super) fn is_elsewhere(&self, import: &Import) -> bool {
        let noted = || self.annotation(key::STORAGE_CLASS);
        let is_on = match import.class() {
            Some(class) => Some(class.to_owned()),
            None if import.volume.is_none() => noted(),
            None => None,
        };
        self.class.is_some_and(|class| is_on.is_some_and(|is_on| is_on != class))
    }

    /// Once, and again when another image comes or comes back.
    fn note_imported(&mut self, name: &str) {
        let ObjectSource { namespace, name } = self.place(name);
        let imported = Some(ImportedClaim { namespace, name });
        if self.plan.status.last_imported_pvc != imported {
            self.plan.status.last_imported_pvc = imported;
            self.plan.status.last_import_timestamp = Some(Time(self.now));
        }
    }

    /// What the DataSource stands for from now on. Where the present import is not complete, that is what it was.
    fn change_source(&mut self, settled: &Settled) {
        let present = data_source(self.facts);
        let is_empty = present.is_none_or(|source| source.spec.source == Default::default());
        let fallback = || self.standing(settled).filter(|_| is_empty);
        let wanted = settled.source.clone().or_else(fallback);
        let (cron, installation) = (self.facts.cron, self.facts.installation);
        self.plan.changes.extend(managed::change(cron, present, wanted, installation));
    }

    /// What a DataSource stands for that stands for nothing, as when somebody has deleted it.
    fn standing(&self, settled: &Settled) -> Option<DataSourceSource> {
        let name = &self.plan.status.last_imported_pvc.as_ref()?.name;
        let import = self.find(name);
        match import.state() {
            // A claim that is about to go is nothing to stand for.
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

    /// Begins an import, or takes one that is there already. `None`: its name is not free yet.
    fn begin(
        &mut self,
        digest: &str,
        current: Option<&ImportStatus>,
    ) -> Result<Option<ImportStatus>, Trouble> {
        let (cron, installation) = (self.facts.cron, self.facts.installation);
        let mut name = import_name(cron, digest, None).map_err(Trouble::Digest)?;
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
            // The image on the other class stays what it is until this one is complete.
            name = import_name(cron, digest, self.class).map_err(Trouble::Digest)?;
            import = self.find(&name);
        }
        if import.is_going {
            self.plan.look_soon(self.now);
            return Ok(None);
        }
        let begun = ImportStatus { data_volume_name: name.clone(), digest: digest.to_owned() };
        let fits = |snapshot: &&VolumeSnapshot| match &self.form {
            Form::Claim => false,
            Form::Snapshot { class } => form::is_of_class(snapshot, class),
        };
        let is_there = import.volume.is_some()
            || import.claim.is_some()
            || import.snapshot.as_ref().is_some_and(fits);
        if !is_there {
            // The webhook lets a cron name no snapshot and no DataSource. The clone would be made with our rights.
            let template = &cron.spec.template.spec;
            let is_clone = template.source_ref.is_some()
                || template_source(cron)
                    .is_some_and(|source| source.pvc.is_some() || source.snapshot.is_some());
            if is_clone && !self.facts.may_clone {
                return Err(Trouble::NotAuthorized);
            }
            let image_stream_ref = self.annotation(key::IMAGE_STREAM_DOCKER_REF);
            let wanted = Wanted {
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
        Ok(Some(begun))
    }

    fn up_to_date(&self, outdated: bool, state: &State, settled: &Settled) -> Said {
        let not = |reason: &str, message: &str| Said::new(status::FALSE, reason, message);
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
                Some(digest) => Said::new(
                    status::TRUE,
                    reason::PINNED,
                    format!("The image is pinned to {digest}"),
                ),
                None => Said::new(status::TRUE, reason::UP_TO_DATE, "Latest import is up to date"),
            }),
        }
    }

    fn no_digest(&self) -> Said {
        let schedule = &self.facts.cron.spec.schedule;
        let bad = (!schedule.is_empty()).then(|| Schedule::cached(schedule).err()).flatten();
        let (reason, message) = match bad {
            Some(error) => (reason::ILLEGAL_SCHEDULE, error.to_string()),
            None => (reason::NO_DIGEST, "No source digest".to_owned()),
        };
        Said::new(status::FALSE, reason, message)
    }

    fn pinned(&self) -> Option<&'a str> {
        meta::annotation(&self.facts.cron.metadata, key::PINNED_DIGEST)
            .filter(|text| !text.is_empty())
    }

    fn report(&mut self, current: Option<ImportStatus>, progressing: &Said, said: &Said) {
        let last = self.annotation(key::LAST_TIME).and_then(|text| text.parse().ok());
        let status = &mut self.plan.status;
        status.current_imports = current.map(|current| vec![current]);
        if let Some(last) = last {
            status.last_execution_timestamp = Some(Time(last));
        }
        if said.status == status::TRUE {
            status.source_format = Some(self.form.as_str().to_owned());
        }
        let all = status.conditions.get_or_insert_default();
        conditions::set(all, wire::PROGRESSING, progressing, self.now);
        conditions::set(all, wire::UP_TO_DATE, said, self.now);
    }
}

/// Why an import does not begin.
enum Trouble {
    Digest(BadDigest),
    NotAuthorized,
}
