//! The first-level table, for a reader that can go anywhere in the file.

use std::ops::Range;

use super::header::Header;
use super::pieces::{Piece, Pieces};
use super::table;
use super::zeroes;
use crate::Error;
use crate::bytes::be_u64;

/// Where the second-level tables are. Checked: they begin where clusters do, lie within the file, and overlap neither
/// each other nor what the header names.
#[derive(Clone, Debug)]
pub struct L1 {
    header: Header,
    /// By index; 0 where there is none.
    tables: Vec<u64>,
    /// Indices of the tables there are, in the order of the file.
    by_offset: Vec<u32>,
}

impl L1 {
    /// Reads the table out of `bytes`, which the file has at [`Header::l1_range`].
    ///
    /// # Errors
    /// When `bytes` are too few, or a table cannot be where its entry says.
    pub fn parse(header: &Header, bytes: &[u8]) -> Result<Self, Error> {
        let Range { start, end } = header.l1_range();
        if (bytes.len() as u64) < end - start {
            return Err(Error::Truncated { what: "L1 table", at: start + bytes.len() as u64 });
        }
        let mut tables = Vec::with_capacity(header.l2_tables() as usize);
        for at in (start..end).step_by(8) {
            let entry = be_u64(bytes, (at - start) as usize);
            tables.push(l2_offset(header, entry, at)?.unwrap_or(0));
        }
        let mut by_offset: Vec<u32> =
            (0..tables.len() as u32).filter(|&index| tables[index as usize] != 0).collect();
        by_offset.sort_unstable_by_key(|&index| tables[index as usize]);
        if let Some(pair) =
            by_offset.windows(2).find(|pair| tables[pair[0] as usize] == tables[pair[1] as usize])
        {
            let at = tables[pair[0] as usize];
            return Err(Error::Overlap { what: "L2 table", at, with: "another L2 table" });
        }
        Ok(Self { header: header.clone(), tables, by_offset })
    }

    /// How many second-level tables map the disk, those that are not there included.
    pub fn len(&self) -> u64 {
        self.tables.len() as u64
    }

    /// Whether the disk has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Where the file has the second-level table `index`, one cluster long. `None`: all that it would map, from
    /// `index` × [`Header::l2_coverage`] on, is zero.
    pub fn l2_offset(&self, index: u64) -> Option<u64> {
        let offset = *self.tables.get(usize::try_from(index).ok()?)?;
        (offset != 0).then_some(offset)
    }

    /// The indices of the second-level tables there are, in the order in which the file has them.
    pub fn in_file_order(&self) -> impl ExactSizeIterator<Item = u64> {
        self.by_offset.iter().map(|&index| u64::from(index))
    }

    /// The pieces of the disk that table `index` maps, where `table` are the bytes at its [`l2_offset`](Self::l2_offset).
    ///
    /// # Errors
    /// When `table` is shorter than a cluster; each item, when an entry is impossible.
    ///
    /// # Panics
    /// When there is no table `index`.
    pub fn pieces<'a>(
        &'a self,
        index: u64,
        table: &'a [u8],
    ) -> Result<impl Iterator<Item = Result<Piece, Error>> + 'a, Error> {
        let table_at = self.l2_offset(index).expect("only asked for tables that are there");
        let pieces = Pieces::new(&self.header, index, table_at, table)?;
        Ok(pieces.map(|piece| piece.and_then(|piece| self.check(piece))))
    }

    /// The parts of the disk that table `index` says are zero, ascending, neighbours merged. What lies neither here nor in
    /// a piece is not allocated: in an image with a backing file, that file has it.
    ///
    /// # Errors
    /// As for [`pieces`](Self::pieces).
    ///
    /// # Panics
    /// When there is no table `index`.
    pub fn zeroes(&self, index: u64, table: &[u8]) -> Result<Vec<Range<u64>>, Error> {
        let table_at = self.l2_offset(index).expect("only asked for tables that are there");
        zeroes::of_table(&self.header, index, table_at, table)
    }

    /// Refuses a piece that overlaps an L2 table.
    fn check(&self, piece: Piece) -> Result<Piece, Error> {
        let offset = |index: &u32| self.tables[*index as usize];
        let Range { start, end } = piece.host_range();
        let next = self
            .by_offset
            .partition_point(|index| offset(index) + self.header.cluster_size() <= start);
        match self.by_offset.get(next) {
            Some(index) if offset(index) < end => {
                Err(Error::Overlap { what: piece.name(), at: start, with: "L2 table" })
            }
            _ => Ok(piece),
        }
    }
}

/// Where the L1 `entry` found at byte `at` has its table, checked against what the header tells.
pub(super) fn l2_offset(header: &Header, entry: u64, at: u64) -> Result<Option<u64>, Error> {
    let Some(table) = table::l1_entry(header, entry, at)? else { return Ok(None) };
    let range = table..table + header.cluster_size();
    if let Some(with) = header.metadata_in(&range) {
        return Err(Error::Overlap { what: "L2 table", at: table, with });
    }
    header.check_within_file("L2 table", &range)?;
    Ok(Some(table))
}
