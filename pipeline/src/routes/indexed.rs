//! Ranges of an image with an index: its tables list which parts of the source hold data, and at which guest address.

use std::mem::take;
use std::ops::Range;

use formats::cluster::Codec;
use formats::index::{Layout, Piece, PieceKind, Tables};

use super::ranges::transfer_runs;
use super::run_planner::{RunBorder, RunPlanner, run_max};
use super::{Outcome, TransferContext, read_exact};
use crate::error::Error;
use crate::source::Source;

/// Tables examined together, in bytes: enough that the runs of an ordinary image are long.
const WINDOW_BYTES: u64 = 1 << 20;

/// And the pieces kept of them, at most.
const WINDOW_PIECES: usize = 1 << 16;

/// Imports an image with an index from a source that serves ranges. What no table maps is never fetched. `delta`: what no
/// table maps is not zero, but in the target already.
///
/// # Errors
/// Of the source, the worker pool, and [`Error::Decode`] where a table is refused.
pub fn import_ranges(
    context: &TransferContext<'_>,
    layout: &dyn Layout,
    delta: bool,
) -> Result<Outcome, Error> {
    let resumed = transfer_runs(context, |emit| {
        let run_max = run_max(context.source.facts());
        let mut planner = RunPlanner::new(RunBorder::Length(run_max), emit);
        each_window(context.source, layout, delta, |window| {
            if delta {
                zero_what_became_zero(context, &window)?
            } else {
                zero_the_rest(context, &window)?
            }
            plan_window(layout.codec(), window.pieces, &mut planner)
        })
    })?;
    Ok(Outcome { virtual_size: layout.virtual_size(), digest: None, resumed })
}

/// Guest bytes that hold data, according to the tables.
///
/// # Errors
/// Of the source, and [`Error::Decode`] where a table is refused.
pub fn allocated(source: &dyn Source, layout: &dyn Layout) -> Result<u64, Error> {
    let mut allocated = 0;
    each_window(source, layout, false, |window| {
        allocated += window.pieces.iter().map(|piece| piece.guest_len).sum::<u64>();
        Ok(())
    })?;
    Ok(allocated)
}

fn zero_the_rest(context: &TransferContext<'_>, window: &Window) -> Result<(), Error> {
    let mut at = window.guest.start;
    for piece in &window.pieces {
        zero(context, at, piece.guest)?;
        at = piece.guest + piece.guest_len;
    }
    zero(context, at, window.guest.end)
}

fn zero_what_became_zero(context: &TransferContext<'_>, window: &Window) -> Result<(), Error> {
    let len = |range: &Range<u64>| range.end - range.start;
    let data: u64 = window.pieces.iter().map(|piece| piece.guest_len).sum();
    let zeroes: u64 = window.zeroes.iter().map(len).sum();
    context.progress.lower_guest_total(len(&window.guest).saturating_sub(data + zeroes));
    window.zeroes.iter().try_for_each(|range| zero(context, range.start, range.end))
}

fn zero(context: &TransferContext<'_>, at: u64, end: u64) -> Result<(), Error> {
    if at < end { context.sink.zero(at, end - at) } else { Ok(()) }
}

/// A range of the guest's disk and all its data.
struct Window {
    guest: Range<u64>,
    /// Ascending guest addresses.
    pieces: Vec<Piece>,
    /// Ranges that a table lists as zero, in a delta. Ascending.
    zeroes: Vec<Range<u64>>,
}

/// Reads the tables a few at a time, so that an image of any size takes the same memory.
fn each_window(
    source: &dyn Source,
    layout: &dyn Layout,
    delta: bool,
    mut use_window: impl FnMut(Window) -> Result<(), Error>,
) -> Result<(), Error> {
    let refused = |error| Error::Decode { name: source.facts().name.clone(), source: error };
    let bytes = read_range(source, &layout.root_range())?;
    let tables = Tables::parse(layout, &bytes).map_err(refused)?;
    drop(bytes);
    let mut ahead = Ahead { source, range: 0..0, bytes: Vec::new() };
    let mut start = 0;
    let mut table_bytes = 0;
    let mut pieces = Vec::new();
    let mut zeroes = Vec::new();
    for index in 0..tables.len() {
        if let Some(range) = tables.range(index) {
            let table = ahead.table(&tables, index, &range)?;
            table_bytes += range.end - range.start;
            for piece in tables.pieces(index, table).map_err(refused)? {
                let piece: Piece = piece.map_err(refused)?;
                let end = piece.guest + piece.guest_len;
                pieces.push(piece);
                if pieces.len() >= WINDOW_PIECES {
                    let (pieces, zeroes) = (take(&mut pieces), take(&mut zeroes));
                    use_window(Window { guest: start..end, pieces, zeroes })?;
                    start = end;
                }
            }
            if delta {
                zeroes.extend(layout.zeroes(index, range.start, table).map_err(refused)?);
            }
        }
        let end = ((index + 1) * layout.coverage()).min(layout.virtual_size());
        if table_bytes >= WINDOW_BYTES || index + 1 == tables.len() {
            let (pieces, zeroes) = (take(&mut pieces), take(&mut zeroes));
            use_window(Window { guest: start..end, pieces, zeroes })?;
            (start, table_bytes) = (end, 0);
        }
    }
    Ok(())
}

/// Adjacent tables are fetched together: in most formats they are small, and many.
struct Ahead<'s> {
    source: &'s dyn Source,
    range: Range<u64>,
    bytes: Vec<u8>,
}

impl Ahead<'_> {
    /// The bytes of table `index`, which the source has at `range`.
    fn table(
        &mut self,
        tables: &Tables<'_>,
        index: u64,
        range: &Range<u64>,
    ) -> Result<&[u8], Error> {
        if range.start < self.range.start || range.end > self.range.end {
            let mut fetched = range.clone();
            for next in (index + 1..tables.len()).map_while(|index| tables.range(index)) {
                if next.start != fetched.end || next.end - fetched.start > WINDOW_BYTES {
                    break;
                }
                fetched.end = next.end;
            }
            self.bytes = read_range(self.source, &fetched)?;
            self.range = fetched;
        }
        let start = (range.start - self.range.start) as usize;
        Ok(&self.bytes[start..start + (range.end - range.start) as usize])
    }
}

fn read_range(source: &dyn Source, range: &Range<u64>) -> Result<Vec<u8>, Error> {
    read_exact(source, range.start, (range.end - range.start) as usize)
}

/// Plans the pieces of a window in the order of the source. Runs do not reach into the next window.
fn plan_window(
    codec: Codec,
    mut pieces: Vec<Piece>,
    planner: &mut RunPlanner<'_>,
) -> Result<(), Error> {
    pieces.sort_unstable_by_key(|piece| (piece.host, piece.guest));
    if codec == Codec::Grain {
        clip_to_next(&mut pieces);
    }
    pieces.into_iter().try_for_each(|piece| planner.add(piece))?;
    planner.flush()
}

/// A table of VMDK gives only the start of a compressed grain: it ends at the latest where the next piece begins.
fn clip_to_next(pieces: &mut [Piece]) {
    let mut next = u64::MAX;
    for piece in pieces.iter_mut().rev() {
        let len_max = next - piece.host;
        if piece.kind == PieceKind::Compressed && len_max > 0 {
            piece.host_len = piece.host_len.min(len_max);
        }
        next = piece.host;
    }
}
