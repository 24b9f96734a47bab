//! The planner of an image with an index: its tables say which parts of the source hold data, and where that belongs.

use std::mem::take;
use std::ops::Range;

use formats::cluster::Codec;
use formats::index::{Layout, Piece, PieceKind, Tables};

use super::ranges::{Emit, OVERLAP_MAX, Run, run};
use super::{Flow, Outcome, SEGMENT, read_exact};
use crate::error::Error;
use crate::source::Source;

/// Unwanted bytes between two wanted ones that are fetched along, because a request costs more.
const GAP_MAX: u64 = 256 << 10;

/// Keeps a run's list short whatever the image says.
const PIECES_MAX: usize = 4096;

/// Tables looked at together, in bytes: enough that the runs of an ordinary image are long.
const WINDOW_BYTES: u64 = 1 << 20;

/// And the pieces kept of them, at most.
const WINDOW_PIECES: usize = 1 << 16;

/// Imports an image with an index from a source that serves ranges. What no table maps is never fetched. `delta`: what no
/// table maps is not zero, but in the target already.
///
/// # Errors
/// Of the source, the crew, and [`Error::Decode`] where a table is refused.
pub fn import(flow: &Flow<'_>, layout: &dyn Layout, delta: bool) -> Result<Outcome, Error> {
    let resumed = run(flow, |emit| {
        // Grains say themselves how long they are, and here only that they end where the next one begins.
        let loose = layout.codec() == Codec::Grain;
        let mut planner = Planner { emit, number: 0, loose };
        each_window(flow.source, layout, delta, |window| {
            if delta {
                zero_what_became_zero(flow, &window)?
            } else {
                zero_the_rest(flow, &window)?
            }
            planner.runs(window.pieces)
        })
    })?;
    Ok(Outcome { virtual_size: layout.virtual_size(), digest: None, resumed })
}

/// Guest bytes that hold data, as the tables tell.
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

fn zero_the_rest(flow: &Flow<'_>, window: &Window) -> Result<(), Error> {
    let mut at = window.guest.start;
    for piece in &window.pieces {
        zero(flow, at, piece.guest)?;
        at = piece.guest + piece.guest_len;
    }
    zero(flow, at, window.guest.end)
}

fn zero_what_became_zero(flow: &Flow<'_>, window: &Window) -> Result<(), Error> {
    let len = |range: &Range<u64>| range.end - range.start;
    let data: u64 = window.pieces.iter().map(|piece| piece.guest_len).sum();
    let zeroes: u64 = window.zeroes.iter().map(len).sum();
    flow.progress.lower_guest_total(len(&window.guest).saturating_sub(data + zeroes));
    window.zeroes.iter().try_for_each(|range| zero(flow, range.start, range.end))
}

fn zero(flow: &Flow<'_>, at: u64, end: u64) -> Result<(), Error> {
    if at < end { flow.outlet.zero(at, end - at) } else { Ok(()) }
}

/// A stretch of the guest's disk and all its data.
struct Window {
    guest: Range<u64>,
    /// Ascending guest addresses.
    pieces: Vec<Piece>,
    /// What is zero because a table says so, in a delta. Ascending.
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

/// Tables that lie side by side are fetched together: in most formats they are small, and many.
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

/// Orders pieces as they lie in the source and cuts them into runs.
struct Planner<'e> {
    emit: Emit<'e>,
    number: u64,
    /// What is compressed ends at the latest where the next piece begins.
    loose: bool,
}

impl Planner<'_> {
    fn runs(&mut self, mut pieces: Vec<Piece>) -> Result<(), Error> {
        pieces.sort_unstable_by_key(|piece| (piece.host, piece.guest));
        if self.loose {
            let mut next = u64::MAX;
            for piece in pieces.iter_mut().rev() {
                let room = next - piece.host;
                if piece.kind == PieceKind::Compressed && room > 0 {
                    piece.host_len = piece.host_len.min(room);
                }
                next = piece.host;
            }
        }
        let mut run: Vec<Piece> = Vec::new();
        let mut start = 0;
        let mut end = 0;
        for piece in pieces.into_iter().flat_map(split) {
            let fits = !run.is_empty()
                && piece.host + piece.host_len - start <= SEGMENT
                && run.len() < PIECES_MAX
                && piece.host <= end + GAP_MAX
                && may_follow(&run, end, &piece);
            if !fits {
                self.emit(take(&mut run))?;
                start = piece.host;
                end = start;
            }
            end = end.max(piece.host + piece.host_len);
            run.push(piece);
        }
        self.emit(run)
    }

    fn emit(&mut self, pieces: Vec<Piece>) -> Result<(), Error> {
        if pieces.is_empty() {
            return Ok(());
        }
        let number = self.number;
        self.number += 1;
        (self.emit)(Run { number, pieces })
    }
}

/// Overlaps only where compressed clusters share a sector: any other is fetched again.
fn may_follow(run: &[Piece], end: u64, piece: &Piece) -> bool {
    let both_compressed = run.last().is_some_and(|last| last.kind == PieceKind::Compressed)
        && piece.kind == PieceKind::Compressed;
    piece.host >= end || (both_compressed && end - piece.host < OVERLAP_MAX)
}

/// Long plain pieces are cut so that several readers share them and a kill costs little.
fn split(piece: Piece) -> impl Iterator<Item = Piece> {
    let step = match piece.kind {
        PieceKind::Plain => SEGMENT,
        PieceKind::Compressed => u64::MAX,
    };
    (0..piece.host_len.div_ceil(step).max(1)).map(move |index| {
        let offset = index * step;
        let host_len = step.min(piece.host_len - offset);
        let guest_len = if piece.host_len == host_len { piece.guest_len } else { host_len };
        Piece {
            guest: piece.guest + offset,
            guest_len,
            host: piece.host + offset,
            host_len,
            kind: piece.kind,
        }
    })
}
