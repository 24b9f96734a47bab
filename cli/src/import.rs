//! `cdi import`

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use contract::ByteCount;
use importer::HttpOptions;
use pipeline::{FileSpace, Options, Progress, Report, Target, UnpackOptions, Unpacked};

use crate::access::Access;
use crate::args::ImportArgs;
use crate::progress::{Style, plain_phase_name, watch};
use crate::{Environment, engine, print};

/// Runs the import and prints its report.
///
/// # Errors
/// When the disk is not complete and durable.
pub fn run(args: ImportArgs, environment: Environment) -> Result<()> {
    let access = Access::from_args(&args.web, environment.password.clone())?
        .with_registry(&args.registry)?
        .with_stores(&args.store, environment.google_key.clone());
    let http = access.into_options(args.web.connections.get(), &environment.proxy);
    if args.archive {
        return unpack(&args, &http, &environment);
    }
    let journal = match args.journal {
        None => device_journal(&args.to, environment.state.as_deref())?,
        given => given,
    };
    let target = Target {
        path: args.to,
        available: None,
        grow_to: args.size,
        preallocate: args.preallocate,
    };
    let options = Options {
        file_space: FileSpace::Data,
        format: args.format.into(),
        checksum: args.checksum,
        checksum_later: None,
        digest: args.digest,
        memory: args.resources.memory,
        journal,
        resume: !args.no_resume,
        checkpoint_every: args.checkpoint_every,
        scratch: args.resources.scratch,
        delta: None,
    };
    let style = Style::for_stderr(args.quiet || args.json, environment.no_bar);
    let progress = Arc::new(Progress::default());
    let report = watch(&progress, style, "", plain_phase_name, || {
        engine::import(&args.source, &http, &target, &options, &progress)
    })?;
    if args.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write the report")?;
        print(&format!("{json}\n"))
    } else if args.quiet {
        Ok(())
    } else {
        print(&summary(&target.path.display().to_string(), &report))
    }
}

/// `--archive`.
fn unpack(args: &ImportArgs, http: &HttpOptions, environment: &Environment) -> Result<()> {
    let options = UnpackOptions {
        checksum: args.checksum,
        digest: args.digest,
        only_empty: true,
        ..UnpackOptions::default()
    };
    let style = Style::for_stderr(args.quiet || args.json, environment.no_bar);
    let progress = Arc::new(Progress::default());
    let unpacked = watch(&progress, style, "", plain_phase_name, || {
        engine::unpack(&args.source, http, &args.to, &options, &progress)
    })?;
    if args.json {
        let json = serde_json::to_string_pretty(&unpacked).context("cannot write the report")?;
        print(&format!("{json}\n"))
    } else if args.quiet {
        Ok(())
    } else {
        print(&archive_summary(&args.to.display().to_string(), &unpacked))
    }
}

fn archive_summary(target: &str, unpacked: &Unpacked) -> String {
    let size = |bytes| ByteCount::new(bytes).human();
    let digest = unpacked.digest.iter().map(|digest| format!("{digest}\n")).collect::<String>();
    format!(
        "{target} is complete: {} files with {} in {} directories; {} read, in {:.1} s\n{digest}",
        unpacked.files,
        size(unpacked.bytes_written),
        unpacked.folders,
        size(unpacked.bytes_read),
        unpacked.seconds
    )
}

/// The report as text.
fn summary(target: &str, report: &Report) -> String {
    let size = |bytes| ByteCount::new(bytes).human();
    let mut text =
        format!("{target} is complete: {} from {}", size(report.virtual_size), kind(report));
    let _ = write!(
        text,
        "; {} read, {} of data written, in {:.1} s",
        size(report.bytes_read),
        size(report.bytes_written),
        report.seconds
    );
    if report.resumed_at > 0 {
        let _ = write!(text, "; {} were there from an earlier run", size(report.resumed_at));
    }
    if report.scratch_bytes > 0 {
        let _ = write!(text, "; {} went through scratch space", size(report.scratch_bytes));
    }
    text.push('\n');
    if let Some(digest) = &report.digest {
        let _ = writeln!(text, "{digest}");
    }
    text
}

/// `qcow2`, `raw in gzip`.
fn kind(report: &Report) -> String {
    let inside_out = report.compression.iter().rev();
    inside_out.fold(report.format.clone(), |text, compression| format!("{text} in {compression}"))
}

/// The journal of a file is next to it. The journal of a device is in the user's state directory, under the
/// device's name.
fn device_journal(target: &Path, state: Option<&Path>) -> Result<Option<PathBuf>> {
    let (None, Some(state)) = (pipeline::target::journal_next_to(target), state) else {
        return Ok(None);
    };
    let device = target.canonicalize().unwrap_or_else(|_| target.to_owned());
    let name: Vec<_> =
        device.iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect();
    std::fs::create_dir_all(state)
        .with_context(|| format!("cannot create the directory of journals {}", state.display()))?;
    Ok(Some(state.join(format!("{}.journal", name.join("-")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            format: "qcow2".into(),
            route: "ranges".into(),
            virtual_size: 10 << 30,
            bytes_read: 600 << 20,
            bytes_written: 1 << 30,
            seconds: 3.149,
            ..Report::default()
        }
    }

    #[test]
    fn summary_of_a_disk() {
        assert_eq!(
            summary("disk.img", &report()),
            "disk.img is complete: 10 GiB from qcow2; 600 MiB read, 1 GiB of data written, in 3.1 s\n"
        );
        let report = Report {
            compression: vec!["gzip".into(), "xz".into()],
            resumed_at: 5 << 20,
            scratch_bytes: 7 << 10,
            digest: Some("sha256:00".into()),
            ..report()
        };
        assert_eq!(
            summary("/dev/loop7", &report),
            "/dev/loop7 is complete: 10 GiB from qcow2 in xz in gzip; 600 MiB read, 1 GiB of data written, \
             in 3.1 s; 5 MiB were there from an earlier run; 7 KiB went through scratch space\nsha256:00\n"
        );
    }

    #[test]
    fn summary_of_an_archive_counts_files() {
        let unpacked = Unpacked {
            files: 3,
            folders: 1,
            bytes_written: 5 << 20,
            bytes_read: 1 << 20,
            seconds: 1.0,
            ..Unpacked::default()
        };
        assert_eq!(
            archive_summary("files", &unpacked),
            "files is complete: 3 files with 5 MiB in 1 directories; 1 MiB read, in 1.0 s\n"
        );
    }

    #[test]
    fn json_has_the_documented_fields() {
        let json: serde_json::Value = serde_json::to_value(report()).unwrap();
        for field in [
            "format",
            "compression",
            "virtualSize",
            "bytesRead",
            "bytesWritten",
            "zeroBytes",
            "scratchBytes",
            "resumedAt",
            "digest",
            "seconds",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
        let activities =
            ["networkWait", "digestWait", "decompression", "decoding", "writeWait", "sync"];
        for field in activities {
            assert_eq!(json["time"][field], 0.0, "{field}");
        }
        assert_eq!(json["time"].as_object().map(|time| time.len()), Some(activities.len()));
    }
}
