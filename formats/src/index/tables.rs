//! Where the tables are, for a reader that can go anywhere in the file.

use std::ops::Range;

use super::{Layout, Piece, PieceKind};
use crate::Error;
use crate::cluster::Codec;

/// Where the tables are. Checked: they lie within the file, and overlap neither each other nor what the header names.
#[derive(Debug)]
pub struct Tables<'l> {
    layout: &'l dyn Layout,
    /// By index; 0 where there is none.
    offsets: Vec<u64>,
    /// Indices of the tables there are, in the order of the file.
    by_offset: Vec<u32>,
}

impl<'l> Tables<'l> {
    /// Reads the root out of `root`, which the file has at [`Layout::root_range`].
    ///
    /// # Errors
    /// When there are too few bytes, or the offset in an entry is not possible.
    pub fn parse(layout: &'l dyn Layout, root: &[u8]) -> Result<Self, Error> {
        let range = layout.root_range();
        if (root.len() as u64) < range.end - range.start {
            let at = range.start + root.len() as u64;
            return Err(Error::Truncated { what: layout.names().root, at });
        }
        let count = layout.table_count();
        let entry_len = root_entry_len(layout);
        let mut offsets = Vec::with_capacity(count as usize); // every format bounds it
        for index in 0..count {
            let offset = index * entry_len;
            let entry = &root[offset as usize..(offset + entry_len) as usize];
            offsets.push(table_at(layout, index, entry, range.start + offset)?.unwrap_or(0));
        }
        let mut by_offset: Vec<u32> =
            (0..offsets.len() as u32).filter(|&index| offsets[index as usize] != 0).collect();
        by_offset.sort_unstable_by_key(|&index| offsets[index as usize]);
        let tables = Self { layout, offsets, by_offset };
        let overlaps = |pair: &&[u32]| {
            let end = |index: u32| tables.offsets[index as usize] + layout.table_len(index.into());
            end(pair[0]) > tables.offsets[pair[1] as usize]
        };
        if let Some(pair) = tables.by_offset.windows(2).find(overlaps) {
            let at = tables.offsets[pair[1] as usize];
            let names = layout.names();
            return Err(Error::Overlap { what: names.table, at, with: names.other_table });
        }
        Ok(tables)
    }

    /// How many tables map the disk, those that are not there included.
    pub fn len(&self) -> u64 {
        self.offsets.len() as u64
    }

    /// Whether the disk has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Where the file has the table `index`. `None`: all that it would map, from `index` × [`Layout::coverage`] on, is
    /// zero.
    pub fn range(&self, index: u64) -> Option<Range<u64>> {
        let offset = *self.offsets.get(usize::try_from(index).ok()?)?;
        (offset != 0).then(|| offset..offset + self.layout.table_len(index))
    }

    /// The indices of the tables there are, in the order in which the file has them.
    pub fn in_file_order(&self) -> impl ExactSizeIterator<Item = u64> {
        self.by_offset.iter().map(|&index| u64::from(index))
    }

    /// The pieces of the disk that table `index` maps, where `table` are the bytes at its [`range`](Self::range).
    ///
    /// # Errors
    /// When `table` is too short; each item, when an entry is impossible.
    ///
    /// # Panics
    /// When there is no table `index`.
    pub fn pieces<'a>(
        &'a self,
        index: u64,
        table: &'a [u8],
    ) -> Result<impl Iterator<Item = Result<Piece, Error>> + 'a, Error> {
        let range = self.range(index).expect("only called for tables that exist");
        let pieces = self.layout.pieces(index, range.start, table)?;
        Ok(pieces.map(|piece| piece.and_then(|piece| self.check(piece))))
    }

    /// Refuses a piece that overlaps a table. One whose length is not known yet ends there.
    fn check(&self, mut piece: Piece) -> Result<Piece, Error> {
        let Range { start, end } = piece.host_range();
        let next = self.by_offset.partition_point(|&index| {
            self.offsets[index as usize] + self.layout.table_len(index.into()) <= start
        });
        match self.by_offset.get(next) {
            Some(&index)
                if piece.kind == PieceKind::Compressed
                    && self.layout.codec() == Codec::Grain
                    && (start + 1..end).contains(&self.offsets[index as usize]) =>
            {
                piece.host_len = self.offsets[index as usize] - start;
                Ok(piece)
            }
            Some(&index) if self.offsets[index as usize] < end => {
                let names = self.layout.names();
                Err(Error::Overlap { what: piece.name(names), at: start, with: names.table })
            }
            _ => Ok(piece),
        }
    }
}

/// Bytes of the root for each table.
pub(crate) fn root_entry_len(layout: &dyn Layout) -> u64 {
    let range = layout.root_range();
    (range.end - range.start).checked_div(layout.table_count()).unwrap_or(0)
}

/// Where the root's `entry` for table `index`, found at byte `at`, has it; checked against the header.
pub(crate) fn table_at(
    layout: &dyn Layout,
    index: u64,
    entry: &[u8],
    at: u64,
) -> Result<Option<u64>, Error> {
    let Some(table) = layout.table_at(index, entry, at)? else { return Ok(None) };
    let range = table..table + layout.table_len(index);
    let what = layout.names().table;
    if let Some(with) = layout.metadata_in(&range) {
        return Err(Error::Overlap { what, at: table, with });
    }
    layout.check_within_file(what, &range)?;
    Ok(Some(table))
}
