//! The planner of a raw disk: what its source knows to be zero, or unchanged, is never fetched.

use std::ops::Range;

use formats::index::{Piece, PieceKind};

use super::ranges::{Emit, Run, run};
use super::{Flow, Outcome, SEGMENT};
use crate::error::Error;
use crate::source::{Extent, ExtentKind, Source};

/// Zeroes so short are read along with the data around them: a request of their own would cost more.
const READ_ANYWAY: u64 = 64 << 10;

/// Between two pieces of one run. What lies between them is fetched and thrown away.
const GAP_MAX: u64 = 256 << 10;

/// Keeps a run's list short whatever the source says.
const PIECES_MAX: usize = 4096;

/// Imports a raw disk of `length` bytes. `delta`: the target holds what the source calls unchanged.
///
/// # Errors
/// As for [`run`], and [`Error::Unsupported`] when something is unchanged that was never there.
pub fn by_ranges(flow: &Flow<'_>, length: u64, delta: bool) -> Result<Outcome, Error> {
    let resumed = run(flow, |emit| {
        let mut planner = Planner { emit, number: 0, pieces: vec![] };
        each_extent(flow.source, length, |Extent { range, kind }| {
            let len = range.end - range.start;
            match kind {
                ExtentKind::Zero if len >= READ_ANYWAY => flow.outlet.zero(range.start, len),
                ExtentKind::Data | ExtentKind::Zero => planner.data(range),
                ExtentKind::Unchanged if delta => {
                    flow.progress.lower_guest_total(len);
                    Ok(())
                }
                ExtentKind::Unchanged => {
                    let what = "a list of changes without the disk that they belong to".into();
                    Err(Error::Unsupported { what })
                }
            }
        })?;
        planner.emit()
    })?;
    Ok(Outcome { virtual_size: flow.end_of_raw(length)?, digest: None, resumed })
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

/// Cuts data into runs, none of which crosses a border of a segment.
struct Planner<'e> {
    emit: Emit<'e>,
    number: u64,
    pieces: Vec<Piece>,
}

impl Planner<'_> {
    fn data(&mut self, range: Range<u64>) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / SEGMENT + 1) * SEGMENT);
            self.piece(at, end)?;
            at = end;
        }
        Ok(())
    }

    fn piece(&mut self, at: u64, end: u64) -> Result<(), Error> {
        if let Some(last) = self.pieces.last() {
            let last_end = last.host + last.host_len;
            let follows = last.host / SEGMENT == at / SEGMENT
                && at - last_end <= GAP_MAX
                && self.pieces.len() < PIECES_MAX;
            if !follows {
                self.emit()?;
            }
        }
        let len = end - at;
        let kind = PieceKind::Plain;
        self.pieces.push(Piece { guest: at, guest_len: len, host: at, host_len: len, kind });
        Ok(())
    }

    fn emit(&mut self) -> Result<(), Error> {
        let pieces = std::mem::take(&mut self.pieces);
        if pieces.is_empty() {
            return Ok(());
        }
        let number = self.number;
        self.number += 1;
        (self.emit)(Run { number, pieces })
    }
}
