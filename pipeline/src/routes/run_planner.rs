//! Groups pieces of an image into runs: one request for each, and one number in the journal.

use formats::index::{Piece, PieceKind};

use super::SEGMENT;
use super::cluster_batch::OVERLAP_MAX;
use crate::error::Error;

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

/// Where runs end, and where plain pieces are cut. Journals depend on it: a changed rule gives runs other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBorder {
    /// At multiples of [`SEGMENT`] in the source.
    Multiples,
    /// At most [`SEGMENT`] bytes after the first byte of the run or piece. Compressed pieces stay whole.
    Length,
}

impl RunBorder {
    /// Bytes of a plain piece at `host` that may stay together.
    fn piece_max(self, host: u64) -> u64 {
        match self {
            Self::Multiples => SEGMENT - host % SEGMENT,
            Self::Length => SEGMENT,
        }
    }

    fn allows(self, run_start: u64, piece: &Piece) -> bool {
        match self {
            Self::Multiples => run_start / SEGMENT == piece.host / SEGMENT,
            Self::Length => piece.host + piece.host_len - run_start <= SEGMENT,
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
    fn runs_end_at_gaps_borders_and_overlaps() {
        use RunBorder::{Length, Multiples};
        let gap = GAP_MAX;
        let table: [(&str, RunBorder, Vec<Piece>, Vec<Vec<(u64, u64)>>); 9] = [
            ("nothing", Length, vec![], vec![]),
            (
                "a gap",
                Length,
                vec![plain(0, 9), plain(9 + gap, 1)],
                vec![vec![(0, 9), (9 + gap, 1)]],
            ),
            (
                "a wide gap",
                Length,
                vec![plain(0, 9), plain(10 + gap, 1)],
                vec![vec![(0, 9)], vec![(10 + gap, 1)]],
            ),
            (
                "a long piece",
                Length,
                vec![plain(7, SEGMENT + 1)],
                vec![vec![(7, SEGMENT)], vec![(7 + SEGMENT, 1)]],
            ),
            (
                "a long piece at borders",
                Multiples,
                vec![plain(7, SEGMENT)],
                vec![vec![(7, SEGMENT - 7)], vec![(SEGMENT, 7)]],
            ),
            (
                "neighbours at a border",
                Multiples,
                vec![plain(SEGMENT - 1, 1), plain(SEGMENT, 1)],
                vec![vec![(SEGMENT - 1, 1)], vec![(SEGMENT, 1)]],
            ),
            (
                "compressed stays whole",
                Length,
                vec![compressed(0, SEGMENT + 1)],
                vec![vec![(0, SEGMENT + 1)]],
            ),
            (
                "a shared sector",
                Length,
                vec![compressed(0, 512), compressed(1, 511)],
                vec![vec![(0, 512), (1, 511)]],
            ),
            (
                "any other overlap",
                Length,
                vec![plain(0, 512), plain(1, 511)],
                vec![vec![(0, 512)], vec![(1, 511)]],
            ),
        ];
        for (case, border, pieces, expected) in table {
            assert_eq!(runs(border, &pieces), expected, "{case}");
        }
    }
}
