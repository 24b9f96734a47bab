//! Connects the commands to `importer` and `pipeline`: opens the source and runs the import.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use contract::ByteCount;
use importer::HttpOptions;
use pipeline::{FileSpace, Inspection, Options, Progress, Report, Target, UnpackOptions, Unpacked};

/// Imports the image at `location` to `target`; returns once the disk is complete and durable.
///
/// # Errors
/// The failure of source or pipeline, with both names.
pub fn import(
    location: &str,
    http: &HttpOptions,
    target: &Target,
    options: &Options,
    progress: &Arc<Progress>,
) -> Result<Report> {
    let failed =
        || format!("cannot import {} to {}", importer::name_of(location), target.path.display());
    if same_device(location, &target.path) {
        let because = "source and target are the same device: the source would be overwritten before it is read";
        return Err(anyhow!(because).context(failed()));
    }
    let source = importer::source(location, http).with_context(failed)?;
    pipeline::import(source.as_ref(), target, options, progress)
        .map_err(|error| in_terms_of_files(error, target))
        .with_context(failed)
}

/// Replaces the texts of size errors, which name PVCs, by texts about files and devices.
fn in_terms_of_files(error: pipeline::Error, target: &Target) -> anyhow::Error {
    const ADVICE: &str = "free space, or choose another file system";
    let path = target.path.display();
    match error {
        pipeline::Error::TooLarge { needed, offered } => {
            let is_device = std::fs::metadata(&target.path)
                .is_ok_and(|facts| facts.file_type().is_block_device());
            let is_volume_full = target.available.is_some_and(|volume| volume <= offered);
            // Sizes that differ by a few bytes would look equal if rounded.
            let (needed, offered) = match (needed.human().to_string(), offered.human().to_string())
            {
                (a, b) if a == b => (format!("{needed} bytes"), format!("{offered} bytes")),
                rounded => rounded,
            };
            match (is_device, is_volume_full) {
                (true, _) => anyhow!(
                    "the disk needs {needed}, the device {path} has {offered}: choose a larger device"
                ),
                (false, true) => anyhow!(
                    "the disk needs {needed}, the requested volume has {offered}: request a larger volume"
                ),
                (false, false) => anyhow!(
                    "the disk needs {needed}, the file system of {path} has {offered} free: {ADVICE}"
                ),
            }
        }
        pipeline::Error::Target { ref source, .. } if pipeline::target::is_full(source) => {
            let free = pipeline::target::available(&target.path).map_or_else(
                |_| String::new(),
                |free| format!(" ({} free without this disk)", ByteCount::new(free).human()),
            );
            let full = format!("the file system of {path} is full{free}: {ADVICE}");
            anyhow::Error::from(error).context(full)
        }
        other => other.into(),
    }
}

/// A file may be its own target, as it is replaced once the new one is complete. A device may not.
fn same_device(location: &str, target: &Path) -> bool {
    let device = |path: &Path| {
        let facts = std::fs::metadata(path).ok()?;
        facts.file_type().is_block_device().then(|| facts.rdev())
    };
    let source = location.strip_prefix("file://").unwrap_or(location);
    device(Path::new(source)).is_some_and(|source| device(target) == Some(source))
}

/// Creates an empty disk of `size` bytes.
///
/// # Errors
/// The failure of the pipeline, with the target's name.
pub fn blank(size: ByteCount, target: &Target, progress: &Arc<Progress>) -> Result<Report> {
    let failed = || format!("cannot create the empty disk {}", target.path.display());
    pipeline::blank(size, target, FileSpace::Data, progress)
        .map_err(|error| in_terms_of_files(error, target))
        .with_context(failed)
}

/// Unpacks the archive that `location` holds into `directory`. An empty directory that is there is filled; a new one has its
/// name once it is complete and durable.
///
/// # Errors
/// The failure of source or pipeline, with both names.
pub fn unpack(
    location: &str,
    http: &HttpOptions,
    directory: &Path,
    options: &UnpackOptions,
    progress: &Arc<Progress>,
) -> Result<Unpacked> {
    let failed =
        || format!("cannot unpack {} into {}", importer::name_of(location), directory.display());
    let source = importer::source(location, http).with_context(failed)?;
    if directory.exists() {
        return pipeline::unpack(source.as_ref(), directory, options, progress)
            .with_context(failed);
    }
    let name =
        directory.file_name().context("the path has no last component").with_context(failed)?;
    let name = format!(".{}.cdi-partial", name.to_string_lossy());
    let above = match directory.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    let partial = above.join(name);
    // The partial directory of an earlier attempt is emptied first.
    match std::fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(failed);
        }
        _ => {}
    }
    std::fs::create_dir(&partial).with_context(failed)?;
    let unpacked = pipeline::unpack(source.as_ref(), &partial, options, progress);
    if unpacked.is_err() {
        let _ = std::fs::remove_dir(&partial); // emptied already; the first error matters
    }
    let unpacked = unpacked.with_context(failed)?;
    let named = || {
        std::fs::rename(&partial, directory)?;
        pipeline::target::sync_directory(above)
    };
    named().with_context(failed)?;
    Ok(unpacked)
}

/// Probes the image at `location`, and plans its import.
///
/// # Errors
/// When the source cannot be read.
pub fn inspect(location: &str, http: &HttpOptions, options: &Options) -> Result<Inspection> {
    let failed = || format!("cannot inspect {}", importer::name_of(location));
    let source = importer::source(location, http).with_context(failed)?;
    pipeline::inspect(source.as_ref(), options).with_context(failed)
}
