//! `cdi apply`: the manifest that a cluster would take, carried out in a local folder.

mod given;
mod manifest;
mod plan;
mod store;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use api::DataVolume;
use pipeline::{FileSpace, Options, Progress, Report, Target, UnpackOptions};
use serde::Serialize;

use crate::args::ApplyArgs;
use crate::progress::{Style, phase_words, watch};
use crate::{Environment, complain, engine, failure, print};
use plan::{Content, Existing, Facts, VolumePlan, Work, plan_volume};
use store::Place;

/// Makes the disks of all DataVolumes, one after the other. A volume that fails does not keep the others from theirs.
///
/// # Errors
/// When no DataVolume can be read from the manifests. Volumes that fail are told as they do, and make the exit code
/// that of failure.
pub fn run(args: ApplyArgs, environment: Environment) -> Result<ExitCode> {
    let manifest = manifest::read(&args.file)?;
    for other in &manifest.others {
        if !args.quiet {
            let other = other.escape_debug();
            complain(&format!("note: {other} is left out: cdi apply makes DataVolumes only\n"));
        }
    }
    ensure!(!manifest.volumes.is_empty(), "the manifests hold no DataVolume");
    let apply = Apply { args: &args, environment: &environment, references: &manifest.references };
    let mut outcomes = Vec::new();
    for volume in &manifest.volumes {
        let outcome = apply.volume(volume);
        apply.tell(&outcome)?;
        outcomes.push(outcome);
    }
    if args.json {
        let json = serde_json::to_string_pretty(&Outcomes { volumes: &outcomes });
        print(&format!("{}\n", json.context("cannot write the report")?))?;
    }
    let all_good = outcomes.iter().all(|outcome| outcome.error.is_none());
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `--json` prints.
#[derive(Serialize)]
struct Outcomes<'a> {
    volumes: &'a [Outcome],
}

/// What became of a volume.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    namespace: String,
    name: String,
    /// `Succeeded` or `Failed`.
    phase: &'static str,
    /// The disk, where it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    /// It was complete before.
    already_complete: bool,
    /// What was done, where something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    /// Why there is no disk: a sentence, then its causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Vec<String>>,
}

struct Apply<'a> {
    args: &'a ApplyArgs,
    environment: &'a Environment,
    references: &'a manifest::References,
}

impl Apply<'_> {
    fn volume(&self, volume: &DataVolume) -> Outcome {
        let mut outcome = Outcome {
            namespace: volume.metadata.namespace().to_owned(),
            name: volume.metadata.name.clone(),
            phase: "Succeeded",
            disk: None,
            already_complete: false,
            report: None,
            error: None,
        };
        let place = Place::new(&self.args.volumes, volume);
        match self.carry_out(volume, &place) {
            Ok(report) => {
                outcome.disk = Some(place.disk().display().to_string());
                outcome.already_complete = report.is_none();
                outcome.report = report;
            }
            Err(error) => {
                outcome.phase = "Failed";
                outcome.error = Some(failure::lines(error.as_ref()));
            }
        }
        outcome
    }

    /// `None`: there was nothing to do.
    fn carry_out(&self, volume: &DataVolume, place: &Place) -> Result<Option<Report>> {
        let (namespace, name) = (volume.metadata.namespace(), &volume.metadata.name);
        let subject = format!("{namespace}/{name}");
        let plan = |existing| {
            let facts = Facts { references: self.references, existing };
            plan_volume(volume, self.args.filesystem_overhead, &facts)
        };
        // Names become a path only after they passed validation.
        let plan = match plan(Existing::Nothing) {
            VolumePlan::Make(_) | VolumePlan::Keep => plan(place.look()?),
            refused @ VolumePlan::Refuse(_) => refused,
        };
        let failed = || format!("cannot make DataVolume {subject}");
        match plan {
            VolumePlan::Keep => Ok(None),
            VolumePlan::Refuse(refusal) => Err(refusal).with_context(failed),
            VolumePlan::Make(work) => {
                let spec = plan::fingerprint(&volume.spec);
                place.begin(&spec).with_context(failed)?;
                let report = self.make(&subject, *work, place).with_context(failed)?;
                place.complete(&spec, &report).with_context(failed)?;
                Ok(Some(report))
            }
        }
    }

    fn make(&self, subject: &str, work: Work, place: &Place) -> Result<Report> {
        let Work { content, claim, usable, preallocate, format } = work;
        let target = Target {
            path: place.disk(),
            available: Some(claim),
            grow_to: Some(usable),
            preallocate,
        };
        let style = Style::for_stderr(self.args.quiet || self.args.json, self.environment.no_bar);
        let progress = Arc::new(Progress::default());
        watch(&progress, style, subject, phase_words, || match content {
            Content::Blank => engine::blank(usable, &target, &progress),
            Content::Image { url, access, checksum } => {
                let connections = self.args.connections.get();
                let access = access.with_registry(&self.args.registry)?;
                let http = access.into_options(connections, &self.environment.proxy);
                let options = Options {
                    file_space: FileSpace::Data,
                    format,
                    checksum,
                    memory: self.args.resources.memory,
                    scratch: self.args.resources.scratch.clone(),
                    ..Options::default()
                };
                engine::import(&url, &http, &target, &options, &progress)
            }
            Content::Archive { url, access, checksum } => {
                let connections = self.args.connections.get();
                let http = access.into_options(connections, &self.environment.proxy);
                let options = UnpackOptions {
                    checksum,
                    digest: false,
                    only_empty: true,
                    ..UnpackOptions::default()
                };
                let unpacked = engine::unpack(&url, &http, &target.path, &options, &progress)?;
                Ok(Report {
                    format: "tar".into(),
                    route: "unpack".into(),
                    compression: unpacked.compression,
                    bytes_read: unpacked.bytes_read,
                    bytes_written: unpacked.bytes_written,
                    digest: unpacked.digest,
                    seconds: unpacked.seconds,
                    ..Report::default()
                })
            }
        })
    }

    /// The phase on stdout, why on stderr.
    fn tell(&self, outcome: &Outcome) -> Result<()> {
        if let Some(error) = &outcome.error {
            complain(&failure::tell_lines(error));
        }
        if self.args.json || self.args.quiet {
            return Ok(());
        }
        print(&status_line(outcome))
    }
}

fn status_line(outcome: &Outcome) -> String {
    let Outcome { namespace, name, phase, .. } = outcome;
    let note = if outcome.already_complete { "  (was complete already)" } else { "" };
    // A name that was refused may hold anything.
    format!("{}/{}  {phase}{note}\n", namespace.escape_debug(), name.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_told_in_one_line_whatever_its_name() {
        let mut outcome = Outcome {
            namespace: "vm-images".into(),
            name: "fedora-root".into(),
            phase: "Succeeded",
            disk: None,
            already_complete: true,
            report: None,
            error: None,
        };
        assert_eq!(
            status_line(&outcome),
            "vm-images/fedora-root  Succeeded  (was complete already)\n"
        );
        outcome.already_complete = false;
        outcome.name = "a\n\x1b[2J".into();
        assert_eq!(status_line(&outcome), "vm-images/a\\n\\u{1b}[2J  Succeeded\n");
    }
}
