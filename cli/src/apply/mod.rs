//! `cdi apply`: creates the disks of a cluster's manifests in a local directory.

mod manifest;
mod plan;
mod source_references;
mod volume_directory;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use api::DataVolume;
use pipeline::{FileSpace, Options, Progress, Report, Target, UnpackOptions};
use serde::Serialize;

use crate::args::ApplyArgs;
use crate::progress::{Style, data_volume_phase_name, watch};
use crate::{EXIT_FAILURE, Environment, engine, failure, print, print_to_stderr};
use plan::{Content, DiskJob, Existing, VolumeFacts, VolumePlan, plan_volume};
use volume_directory::VolumeDirectory;

/// Creates the disks of all DataVolumes, one after the other. The failure of one does not stop the others.
///
/// # Errors
/// When the manifests hold no DataVolume or cannot be read. The failure of a volume is printed and makes the exit code
/// that of failure.
pub fn run(args: ApplyArgs, environment: Environment) -> Result<u8> {
    let manifest = manifest::read(&args.file)?;
    for other in &manifest.others {
        if !args.quiet {
            let other = other.escape_debug();
            print_to_stderr(&format!(
                "warning: skipping {other}: cdi apply supports only DataVolumes\n"
            ));
        }
    }
    ensure!(!manifest.volumes.is_empty(), "the manifests contain no DataVolume");
    let apply = Apply { args: &args, environment: &environment, references: &manifest.references };
    let mut outcomes = Vec::new();
    for volume in &manifest.volumes {
        let outcome = apply.volume(volume);
        apply.print_outcome(&outcome)?;
        outcomes.push(outcome);
    }
    if args.json {
        let json = serde_json::to_string_pretty(&Outcomes { volumes: &outcomes });
        print(&format!("{}\n", json.context("cannot write the report")?))?;
    }
    let all_good = outcomes.iter().all(|outcome| outcome.error.is_none());
    Ok(if all_good { 0 } else { EXIT_FAILURE })
}

/// The output of `--json`.
#[derive(Serialize)]
struct Outcomes<'a> {
    volumes: &'a [Outcome],
}

/// The result of one volume.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    namespace: String,
    name: String,
    /// `Succeeded` or `Failed`.
    phase: &'static str,
    /// Path of the disk, if complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    already_complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
    /// Error and causes, if failed.
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
        let directory = VolumeDirectory::new(&self.args.volumes, volume);
        match self.create_disk(volume, &directory) {
            Ok(report) => {
                outcome.disk = Some(directory.disk().display().to_string());
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

    /// `None`: the disk was complete already.
    fn create_disk(
        &self,
        volume: &DataVolume,
        directory: &VolumeDirectory,
    ) -> Result<Option<Report>> {
        let (namespace, name) = (volume.metadata.namespace(), &volume.metadata.name);
        let subject = format!("{namespace}/{name}");
        let plan = |existing| {
            let facts = VolumeFacts { references: self.references, existing };
            plan_volume(volume, self.args.filesystem_overhead, &facts)
        };
        // Names become part of a path only after validation.
        let plan = match plan(Existing::Nothing) {
            VolumePlan::Make(_) | VolumePlan::Keep => plan(directory.existing_disk()?),
            refused @ VolumePlan::Refuse(_) => refused,
        };
        let failed = || format!("cannot create DataVolume {subject}");
        match plan {
            VolumePlan::Keep => Ok(None),
            VolumePlan::Refuse(refusal) => Err(refusal).with_context(failed),
            VolumePlan::Make(job) => {
                let spec = plan::fingerprint(&volume.spec);
                directory.record_start(&spec).with_context(failed)?;
                let report = self.run_job(&subject, *job, directory).with_context(failed)?;
                directory.record_completion(&spec, &report).with_context(failed)?;
                Ok(Some(report))
            }
        }
    }

    fn run_job(&self, subject: &str, job: DiskJob, directory: &VolumeDirectory) -> Result<Report> {
        let DiskJob { content, claim, usable, preallocate, format } = job;
        let target = Target {
            path: directory.disk(),
            available: Some(claim),
            grow_to: Some(usable),
            preallocate,
        };
        let style = Style::for_stderr(self.args.quiet || self.args.json, self.environment.no_bar);
        let progress = Arc::new(Progress::default());
        watch(&progress, style, subject, data_volume_phase_name, || match content {
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

    /// Prints the phase to stdout, an error to stderr.
    fn print_outcome(&self, outcome: &Outcome) -> Result<()> {
        if let Some(error) = &outcome.error {
            print_to_stderr(&failure::format_lines(error));
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
    // A name that failed validation may contain control characters.
    format!("{}/{}  {phase}{note}\n", namespace.escape_debug(), name.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_line_escapes_names() {
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
