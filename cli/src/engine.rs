//! Where the commands meet the engine: a source is opened and handed to the pipeline.

use std::sync::Arc;

use anyhow::{Context, Result};
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
    let source = importer::source(location, http).with_context(failed)?;
    pipeline::import(source.as_ref(), target, options, progress).with_context(failed)
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
