//! From an L2 table to the pieces of the file that hold the guest's data.

use std::ops::Range;

use super::header::Header;
use super::table::{self, Cluster};
use crate::Error;
use crate::index::{Layout, Piece, PieceKind};

const SECTOR: u64 = 512;

/// The pieces that one L2 table maps, in the order of the disk, neighbours not merged.
///
/// Each entry has been checked against the header: a piece lies within the file, where its length is known,
/// and overlaps neither the header nor a table that the header names.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    header: &'a Header,
    table: &'a [u8],
    table_at: u64,
    /// Where the table's part of the disk begins.
    guest: u64,
    /// The next entry to look at; behind the last: all done.
    entry: u64,
    /// Subclusters of the entry before that are still to be returned.
    rest: Option<Subclusters>,
}

#[derive(Clone, Copy, Debug)]
struct Subclusters {
    guest: u64,
    host: u64,
    parts: u32,
}

impl<'a> Pieces<'a> {
    /// The pieces of the table number `index` (an entry of the L1 table), whose bytes `table` were found at `table_at`.
    pub(super) fn new(
        header: &'a Header,
        index: u64,
        table_at: u64,
        table: &'a [u8],
    ) -> Result<Self, Error> {
        if (table.len() as u64) < header.cluster_size() {
            return Err(Error::Truncated { what: "L2 table", at: table_at + table.len() as u64 });
        }
        let guest = index * header.l2_coverage();
        Ok(Self { header, table, table_at, guest, entry: 0, rest: None })
    }

    /// The first run of subclusters that are data; the others are kept for later.
    fn subclusters(&mut self, all: Subclusters) -> Result<Piece, Error> {
        let Subclusters { guest, host, parts } = all;
        let (first, part_len) = (parts.trailing_zeros(), self.header.subcluster_size());
        let count = (parts >> first).trailing_ones();
        let left = u64::from(parts) >> (first + count) << (first + count);
        self.rest = (left != 0).then_some(Subclusters { guest, host, parts: left as u32 });
        let offset = u64::from(first) * part_len;
        self.plain(guest + offset, host + offset, u64::from(count) * part_len)
    }

    /// The subclusters of the cluster at `guest` that the disk has: its end may lie in the middle of a cluster.
    fn parts_on_disk(&self, guest: u64) -> u32 {
        let count = (self.header.virtual_size() - guest).div_ceil(self.header.subcluster_size());
        u32::MAX >> 32u64.saturating_sub(count)
    }

    fn plain(&self, guest: u64, host: u64, len: u64) -> Result<Piece, Error> {
        // QEMU reads zeroes where the file ends before the cluster does. But no writer leaves bytes out that a guest
        // can see, so that a file which lacks some has been cut.
        let len = len.min(self.header.virtual_size() - guest);
        let piece = Piece { guest, guest_len: len, host, host_len: len, kind: PieceKind::Plain };
        self.check_apart("cluster", &piece.host_range())?;
        self.header.check_within_file("cluster", &piece.host_range())?;
        Ok(piece)
    }

    fn compressed(&self, guest: u64, host: u64, end: u64) -> Result<Piece, Error> {
        self.check_apart("compressed cluster", &(host..end))?;
        // The last sector need not be whole: the file may end with the cluster's last byte.
        self.header.check_within_file("compressed cluster", &(host..host.max(end - SECTOR) + 1))?;
        let host_len = self.header.file_len().map_or(end, |file_len| end.min(file_len)) - host;
        let guest_len = self.header.cluster_size().min(self.header.virtual_size() - guest);
        Ok(Piece { guest, guest_len, host, host_len, kind: PieceKind::Compressed })
    }

    fn check_apart(&self, what: &'static str, range: &Range<u64>) -> Result<(), Error> {
        match self.header.metadata_in(range) {
            Some(with) => Err(Error::Overlap { what, at: range.start, with }),
            None => Ok(()),
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(rest) = self.rest.take() {
                return Some(self.subclusters(rest));
            }
            let guest = self.guest + (self.entry << self.header.cluster_bits());
            if self.entry == self.header.l2_entries() || guest >= self.header.virtual_size() {
                return None;
            }
            let index = self.entry as usize;
            self.entry += 1;
            match table::l2_entry(self.header, self.table_at, self.table, index) {
                Ok(Cluster::Zero) => {}
                Ok(Cluster::Plain { host, parts: u32::MAX }) => {
                    return Some(self.plain(guest, host, self.header.cluster_size()));
                }
                Ok(Cluster::Plain { host, parts }) => {
                    let parts = parts & self.parts_on_disk(guest);
                    self.rest = (parts != 0).then_some(Subclusters { guest, host, parts });
                }
                Ok(Cluster::Compressed { host, end }) => {
                    return Some(self.compressed(guest, host, end));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
