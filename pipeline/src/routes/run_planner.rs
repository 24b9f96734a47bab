//! Groups pieces of an image into runs: one request for each, and one number in the journal.

use formats::index::{Piece, PieceKind};

use super::SEGMENT;
use super::cluster_batch::OVERLAP_MAX;
use crate::error::Error;
use crate::source::SourceFacts;

/// Consecutive bytes of the source that are fetched by one request, and the pieces among them.
pub struct Run {
    /// Number of the segment that the journal records: the same image always gives the same runs.
    pub number: u64,
    /// Ascending in the source. Overlaps of less than [`OVERLAP_MAX`] are allowed: compressed clusters share sectors.
    pub pieces: Vec<Piece>,
}

/// Takes each run of a planner, in order.
pub type Emit<'e> = &'e mut dyn FnMut(Run) -> Result<(), Error>;

/// Bytes between two pieces up to which they are fetched together and the gap is thrown away: a request costs more.
const GAP_MAX: u64 = 256 << 10;

/// Limits the memory of a run, whatever the image contains.
const PIECES_MAX: usize = 4096;

/// A small image has at least so many runs, where several connections can share it.
const RUNS_MIN: u64 = 8;
/// Smaller runs would cost a request each for little.
const RUN_MIN: u64 = 1 << 20;

/// Bytes of each run of a source, at most; a power of two.
pub fn run_max(source: &SourceFacts) -> u64 {
    if source.streams_max < 2 {
        return SEGMENT;
    }
    let share = source.length.unwrap_or(u64::MAX) / RUNS_MIN;
    1 << share.clamp(RUN_MIN, SEGMENT).ilog2()
}

/// Where runs end, and where plain pieces are cut, by [`run_max`]. Journals depend on it: a changed rule gives runs other
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBorder {
    /// At multiples of it in the source.
    Multiples(u64),
    /// At most so many bytes after the first byte of the run or piece. Compressed pieces stay whole.
    Length(u64),
}

impl RunBorder {
    /// Bytes of a plain piece at `host` that may stay together.
    fn piece_max(self, host: u64) -> u64 {
        match self {
            Self::Multiples(len) => len - host % len,
            Self::Length(len) => len,
        }
    }

    fn allows(self, run_start: u64, piece: &Piece) -> bool {
        match self {
            Self::Multiples(len) => run_start / len == piece.host / len,
            Self::Length(len) => piece.host + piece.host_len - run_start <= len,
        }
    }
}

/// Emits runs of the pieces it is given, which have to come in the order of the source.
pub struct RunPlanner<'e> {
    emit: Emit<'e>,
    border: RunBorder,
    /// Of the next run.
    number: u64,
    pieces: Vec<Piece>,
    /// Source bytes of `pieces`, if there are any.
    start: u64,
    end: u64,
}

impl<'e> RunPlanner<'e> {
    pub fn new(border: RunBorder, emit: Emit<'e>) -> Self {
        Self { emit, border, number: 0, pieces: Vec::new(), start: 0, end: 0 }
    }

    /// Cuts `piece` where it is plain and too long, so that several readers share it and a restart repeats little.
    pub fn add(&mut self, mut piece: Piece) -> Result<(), Error> {
        while piece.kind == PieceKind::Plain && piece.host_len > self.border.piece_max(piece.host) {
            let len = self.border.piece_max(piece.host);
            self.append(Piece { guest_len: len, host_len: len, ..piece })?;
            let rest = piece.host_len - len;
            let (guest, host) = (piece.guest + len, piece.host + len);
            piece = Piece { guest, host, guest_len: rest, host_len: rest, ..piece };
        }
        self.append(piece)
    }

    /// Emits the run in work. The next piece begins another.
    pub fn flush(&mut self) -> Result<(), Error> {
        let pieces = std::mem::take(&mut self.pieces);
        if pieces.is_empty() {
            return Ok(());
        }
        let number = self.number;
        self.number += 1;
        (self.emit)(Run { number, pieces })
    }

    fn append(&mut self, piece: Piece) -> Result<(), Error> {
        if !self.has_space_for(&piece) {
            self.flush()?;
            (self.start, self.end) = (piece.host, piece.host);
        }
        self.end = self.end.max(piece.host + piece.host_len);
        self.pieces.push(piece);
        Ok(())
    }

    fn has_space_for(&self, piece: &Piece) -> bool {
        let Some(last) = self.pieces.last() else { return false };
        // Only compressed clusters overlap, by less than a sector. Any other overlap is fetched again.
        let both_compressed = [last.kind, piece.kind] == [PieceKind::Compressed; 2];
        let follows =
            piece.host >= self.end || (both_compressed && self.end - piece.host < OVERLAP_MAX);
        follows
            && piece.host <= self.end + GAP_MAX
            && self.pieces.len() < PIECES_MAX
            && self.border.allows(self.start, piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(host: u64, len: u64) -> Piece {
        Piece { guest: host, guest_len: len, host, host_len: len, kind: PieceKind::Plain }
    }

    fn compressed(host: u64, host_len: u64) -> Piece {
        let kind = PieceKind::Compressed;
        Piece { guest: host << 20, guest_len: 65536, host, host_len, kind }
    }

    /// Start and length of each piece of each run.
    fn runs(border: RunBorder, pieces: &[Piece]) -> Vec<Vec<(u64, u64)>> {
        let mut runs = Vec::new();
        let mut emit = |run: Run| {
            assert_eq!(run.number, runs.len() as u64);
            runs.push(run.pieces.iter().map(|piece| (piece.host, piece.host_len)).collect());
            Ok(())
        };
        let mut planner = RunPlanner::new(border, &mut emit);
        pieces.iter().for_each(|piece| planner.add(*piece).unwrap());
        planner.flush().unwrap();
        runs
    }

    #[test]
    fn small_images_have_short_runs() {
        let table = [
            (None, 8, SEGMENT),
            (Some(0), 8, RUN_MIN),
            (Some(8 * RUN_MIN), 2, RUN_MIN),
            (Some(17 * RUN_MIN), 8, 2 * RUN_MIN),
            (Some(17 * RUN_MIN), 1, SEGMENT),
            (Some(100 * RUN_MIN), 8, 8 * RUN_MIN),
            (Some(8 * SEGMENT), 8, SEGMENT),
            (Some(u64::MAX), 8, SEGMENT),
        ];
        for (length, streams_max, expected) in table {
            let source = SourceFacts { length, streams_max, ..SourceFacts::default() };
            assert_eq!(run_max(&source), expected, "{length:?} by {streams_max}");
        }
    }

    #[test]
    fn runs_end_at_gaps_borders_and_overlaps() {
        let (length, multiples) = (RunBorder::Length(SEGMENT), RunBorder::Multiples(SEGMENT));
        let gap = GAP_MAX;
        let table: [(&str, RunBorder, Vec<Piece>, Vec<Vec<(u64, u64)>>); 9] = [
            ("nothing", length, vec![], vec![]),
            (
                "a gap",
                length,
                vec![plain(0, 9), plain(9 + gap, 1)],
                vec![vec![(0, 9), (9 + gap, 1)]],
            ),
            (
                "a wide gap",
                length,
                vec![plain(0, 9), plain(10 + gap, 1)],
                vec![vec![(0, 9)], vec![(10 + gap, 1)]],
            ),
            (
                "a long piece",
                length,
                vec![plain(7, SEGMENT + 1)],
                vec![vec![(7, SEGMENT)], vec![(7 + SEGMENT, 1)]],
            ),
            (
                "a long piece at borders",
                multiples,
                vec![plain(7, SEGMENT)],
                vec![vec![(7, SEGMENT - 7)], vec![(SEGMENT, 7)]],
            ),
            (
                "neighbours at a border",
                multiples,
                vec![plain(SEGMENT - 1, 1), plain(SEGMENT, 1)],
                vec![vec![(SEGMENT - 1, 1)], vec![(SEGMENT, 1)]],
            ),
            (
                "compressed stays whole",
                length,
                vec![compressed(0, SEGMENT + 1)],
                vec![vec![(0, SEGMENT + 1)]],
            ),
            (
                "a shared sector",
                length,
                vec![compressed(0, 512), compressed(1, 511)],
                vec![vec![(0, 512), (1, 511)]],
            ),
            (
                "any other overlap",
                length,
                vec![plain(0, 512), plain(1, 511)],
                vec![vec![(0, 512)], vec![(1, 511)]],
            ),
        ];
        for (case, border, pieces, expected) in table {
            assert_eq!(runs(border, &pieces), expected, "{case}");
        }
    }
}
