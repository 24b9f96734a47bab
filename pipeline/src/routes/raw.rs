//! Ranges of a raw disk: what its source knows to be zero, or unchanged, is never fetched.

use std::ops::Range;

use formats::index::{Piece, PieceKind};

use super::ranges::transfer_runs;
use super::run_planner::{RunBorder, RunPlanner, run_max};
use super::{Outcome, TransferContext};
use crate::error::Error;
use crate::source::{Extent, ExtentKind, Source};

/// Zeroes so short are read along with the data around them: a request of their own would cost more.
const READ_ANYWAY: u64 = 64 << 10;

/// Imports a raw disk of `length` bytes. `delta`: the target holds what the source calls unchanged.
///
/// # Errors
/// As for [`transfer_runs`], and [`Error::Unsupported`] when something is unchanged that was never there.
pub fn import_ranges(
    context: &TransferContext<'_>,
    length: u64,
    delta: bool,
) -> Result<Outcome, Error> {
    let resumed = transfer_runs(context, |emit| {
        let run_max = run_max(context.source.facts());
        let mut planner = RunPlanner::new(RunBorder::Multiples(run_max), emit);
        each_extent(context.source, length, |Extent { range, kind }| {
            let len = range.end - range.start;
            match kind {
                ExtentKind::Zero if len >= READ_ANYWAY => context.sink.zero(range.start, len),
                ExtentKind::Data | ExtentKind::Zero => planner.add(piece(range)),
                ExtentKind::Unchanged if delta => {
                    context.progress.lower_guest_total(len);
                    Ok(())
                }
                ExtentKind::Unchanged => {
                    let what = "a list of changes without the disk that they belong to".into();
                    Err(Error::Unsupported { what })
                }
            }
        })?;
        planner.flush()
    })?;
    Ok(Outcome { virtual_size: context.end_of_raw(length)?, digest: None, resumed })
}

/// Bytes that have to be read, where the source knows.
///
/// # Errors
/// [`Error::Source`].
pub fn allocated(source: &dyn Source, length: u64) -> Result<Option<u64>, Error> {
    let known = length > 0 && extents(source, 0, length)?.is_some();
    let mut allocated = 0;
    if known {
        each_extent(source, length, |Extent { range, kind }| {
            allocated += if kind == ExtentKind::Data { range.end - range.start } else { 0 };
            Ok(())
        })?;
    }
    Ok(known.then_some(allocated))
}

/// All that the source knows, from its start to `length`, checked.
fn each_extent(
    source: &dyn Source,
    length: u64,
    mut each: impl FnMut(Extent) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut at = 0;
    while at < length {
        let whole = || vec![Extent { range: at..length, kind: ExtentKind::Data }];
        let known = extents(source, at, length)?.unwrap_or_else(whole);
        let before = at;
        for extent in known {
            let Range { start, end } = extent.range;
            if start != at || end <= at || end > length {
                return Err(nonsense(source, at));
            }
            at = end;
            each(extent)?;
        }
        if at == before {
            return Err(nonsense(source, at));
        }
    }
    Ok(())
}

fn extents(source: &dyn Source, at: u64, end: u64) -> Result<Option<Vec<Extent>>, Error> {
    let name = || source.facts().name.clone();
    source.extents(at, end).map_err(|source| Error::Source { name: name(), source })
}

fn nonsense(source: &dyn Source, at: u64) -> Error {
    let text = format!("its list of extents makes no sense at byte {at}");
    Error::Source { name: source.facts().name.clone(), source: text.into() }
}

/// A raw disk has each byte at its guest address.
fn piece(Range { start, end }: Range<u64>) -> Piece {
    let len = end - start;
    Piece { guest: start, guest_len: len, host: start, host_len: len, kind: PieceKind::Plain }
}
