//! Where the commands meet the engine: a source is opened and handed to the pipeline.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use contract::ByteCount;
use importer::HttpOptions;
use pipeline::{Inspection, Options, Progress, Report, Target};

/// Fills `target` with the disk that `location` holds; returns once it is complete and durable.
///
/// # Errors
/// Whatever source or pipeline say, in one sentence that names both ends.
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
        let because = "source and target are the same device, and it would be overwritten unread";
        return Err(anyhow!(because).context(failed()));
    }
    let source = importer::source(location, http).with_context(failed)?;
    pipeline::import(source.as_ref(), target, options, progress).with_context(failed)
}

/// A file may be its own target, since the new one is complete before the old one goes. A device may not.
fn same_device(location: &str, target: &Path) -> bool {
    let device = |path: &Path| {
        let facts = std::fs::metadata(path).ok()?;
        facts.file_type().is_block_device().then(|| facts.rdev())
    };
    let source = location.strip_prefix("file://").unwrap_or(location);
    device(Path::new(source)).is_some_and(|source| device(target) == Some(source))
}

/// Makes an empty disk of `size` bytes.
///
/// # Errors
/// Whatever the pipeline says, in one sentence that names the target.
pub fn blank(size: ByteCount, target: &Target, progress: &Arc<Progress>) -> Result<Report> {
    let failed = || format!("cannot make the empty disk {}", target.path.display());
    pipeline::blank(size, target, progress).with_context(failed)
}

/// Says what `location` holds, and how it would be imported.
///
/// # Errors
/// When it cannot be read.
pub fn inspect(location: &str, http: &HttpOptions, options: &Options) -> Result<Inspection> {
    let failed = || format!("cannot inspect {}", importer::name_of(location));
    let source = importer::source(location, http).with_context(failed)?;
    pipeline::inspect(source.as_ref(), options).with_context(failed)
}
