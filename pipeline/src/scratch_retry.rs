//! Second attempt for an image whose clusters come in an order that one pass cannot place: through a scratch file, or
//! by reading the source twice.

use std::path::Path;
use std::sync::Arc;

use contract::Checksum;
use formats::decompress::{Limits, readers};
use formats::sniff::Compression;

use crate::completion::CompletionTracker;
use crate::error::Error;
use crate::finish::{check_digest, conclude};
use crate::import::{Import, PlannedImport};
use crate::options::SourceFormat;
use crate::plan::Route;
use crate::probe::{ProbedImage, probe};
use crate::routes::Outcome;
use crate::routes::scratch::Scratch;
use crate::source::Source;
use crate::transfer::transfer;
use crate::wire::Wire;

/// Imports again by ranges, and returns the bytes that went through scratch space. `because`: why one pass failed.
///
/// # Errors
/// [`Error::NeedsScratch`] where the source cannot be read again or there is no scratch directory, and as for an import.
pub fn import_through_scratch(
    planned: &PlannedImport<'_>,
    image: &ProbedImage,
    because: String,
) -> Result<(Outcome, u64), Error> {
    let Import { source, target, options, progress } = planned.import;
    if !source.can_reopen() {
        let name = &source.facts().name;
        let because =
            format!("{because}; {name} can be read only once, so save it in a file first");
        return Err(Error::NeedsScratch { because });
    }
    let (digest, scratch) = match &options.scratch {
        // One pass was chosen only because of the digest: calculate it first, then read by ranges.
        _ if image.facts.compressions.is_empty() && source.facts().ranges => {
            (digest_of_source(&planned.import)?, None)
        }
        Some(directory) => {
            let (digest, scratch) =
                fill_scratch(&planned.import, &image.facts.compressions, directory)?;
            (digest, Some(scratch))
        }
        None => return Err(Error::NeedsScratch { because }),
    };
    check_digest(options, digest.as_ref())?;
    let source: &dyn Source = scratch.as_ref().map_or(source, |scratch| scratch);
    progress.start_over();
    // Now that any part can be read, the layout may be more detailed.
    let layout = probe(source, None, SourceFormat::Detect)?.facts.layout;
    let disk = planned.disk_size().open_new(target)?;
    let completion = Arc::new(CompletionTracker::untracked());
    let import = Import { source, ..planned.import };
    let route = Route::Ranges { layout };
    let result = transfer(&import, planned.available, &disk, completion, &route, None);
    let result = result.map(|outcome| Outcome { digest, ..outcome });
    let scratch_bytes = scratch.as_ref().map_or(0, Scratch::len);
    Ok((conclude(planned, disk, result)?, scratch_bytes))
}

fn digest_of_source(import: &Import<'_>) -> Result<Option<Checksum>, Error> {
    let stream = import.source.open(0, None);
    let wire = Wire::new(stream, import.progress, import.options.hasher())?;
    wire.finish().map_err(|error| crate::wire::explain(error, &import.source.facts().name))
}

fn fill_scratch(
    import: &Import<'_>,
    compressions: &[Compression],
    directory: &Path,
) -> Result<(Option<Checksum>, Scratch), Error> {
    let name = &import.source.facts().name;
    let explain = |error| crate::wire::explain(error, name);
    let stream = import.source.open(0, None);
    let mut wire = Wire::new(stream, import.progress, import.options.hasher())?;
    let scratch = {
        let mut reader = readers(compressions, Box::new(&mut wire), Limits::default());
        Scratch::fill(directory, name, &mut reader, explain)?
    };
    Ok((wire.finish().map_err(explain)?, scratch))
}
