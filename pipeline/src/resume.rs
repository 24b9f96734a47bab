//! Opens the target of an import: the unfinished disk of an earlier process if the journal proves that it fits, or a new
//! one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::completion::CompletionTracker;
use crate::counting_sink::CountingSink;
use crate::error::Error;
use crate::finish::{final_size, target_failed};
use crate::import::{Import, PlannedImport};
use crate::journal::{self, Identity, Journal};
use crate::options::{Delta, SourceFormat};
use crate::routes;
use crate::target::Disk;

/// A disk, and what of it is complete.
pub struct OpenedTarget {
    pub disk: Arc<Disk>,
    pub completion: Arc<CompletionTracker>,
}

/// Opens the target. A journal of another image, validator or target is removed, and the import begins at 0.
///
/// # Errors
/// [`Error::Target`] and those of [`Disk::open`].
pub fn open_target(planned: &PlannedImport<'_>) -> Result<OpenedTarget, Error> {
    let Import { source, target, options, .. } = planned.import;
    let journal = journal_path(&planned.import);
    if let Some(delta) = &options.delta {
        remove_journal(journal.as_deref())?;
        return open_stage(planned, delta);
    }
    let (Some(path), Some(validator), true) =
        (&journal, &source.facts().validator, planned.plan.resumable)
    else {
        remove_journal(journal.as_deref())?;
        let disk = planned.disk_size().open_new(target)?;
        return Ok(OpenedTarget { disk, completion: Arc::new(CompletionTracker::untracked()) });
    };
    let mut resumed = None;
    if options.resume && path.exists() {
        let disk = planned.disk_size().open_resumed(target)?;
        let journal = Journal::new(path.clone(), identity(planned, validator, &disk));
        resumed = journal.load().map(|completed| (disk, completed));
    }
    let (disk, completed) = match resumed {
        Some(resumed) => resumed,
        None => {
            remove_journal(Some(path))?;
            (planned.disk_size().open_new(target)?, Vec::new())
        }
    };
    let journal = Journal::new(path.clone(), identity(planned, validator, &disk));
    let sink = CountingSink::new(disk.clone(), &target.path, planned.import.progress);
    let tracker = CompletionTracker::new(journal, sink, options.checkpoint_every, completed);
    Ok(OpenedTarget { disk, completion: Arc::new(tracker) })
}

/// A delta changes a finished disk, and is repeated as a whole after a failure.
fn open_stage(planned: &PlannedImport<'_>, delta: &Delta) -> Result<OpenedTarget, Error> {
    let target = planned.import.target;
    let size = final_size(target, planned.plan.virtual_size.unwrap_or(0));
    let disk = Disk::reopen(&target.path, size, target.preallocate, &delta.stage)?;
    let completion = Arc::new(CompletionTracker::untracked());
    Ok(OpenedTarget { disk: Arc::new(disk), completion })
}

fn identity(planned: &PlannedImport<'_>, validator: &str, disk: &Disk) -> Identity {
    let facts = planned.import.source.facts();
    // A forced raw format cuts the same bytes into other segments than a detected one.
    let format = match planned.import.options.format {
        SourceFormat::Detect => "",
        SourceFormat::Raw => " as raw",
    };
    let run_max = routes::run_planner::run_max(facts);
    Identity {
        source: facts.name.clone(),
        validator: validator.to_owned(),
        length: facts.length.unwrap_or(0),
        layout: format!("{} {}{format}", planned.plan.route.name(), run_max),
        virtual_size: planned.plan.virtual_size.unwrap_or(0),
        target: disk.partial_identity(),
    }
}

/// Where the journal of an import is. `None`: a device has none unless `options` name one.
pub fn journal_path(import: &Import<'_>) -> Option<PathBuf> {
    let next_to_target = || crate::target::journal_next_to(&import.target.path);
    import.options.journal.clone().or_else(next_to_target)
}

/// Removes the journal at `path`, if there is one.
pub fn remove_journal(path: Option<&Path>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    journal::remove(path).map_err(|error| target_failed("remove the journal", path, error))
}
