//! What the decoder learns from tables: where data will be, and where what is parked belongs.

use super::OnePassError;
use super::decoder::{Decoder, used_twice};
use super::expected_regions::{Batch, ExpectedRegions};
use super::output::Output;
use super::parking::Claimed;
use crate::Error;
use crate::index::{Piece, PieceKind, table_at};

/// Memory that it takes to remember where no data is, about.
const NO_DATA_BYTES: usize = 16;

impl Decoder {
    /// Takes entries of the root, the first of them found at byte `at`.
    pub(super) fn read_root(
        &mut self,
        at: u64,
        entry_len: u64,
        entries: &[u8],
    ) -> Result<(), OnePassError> {
        let entries = entries.chunks_exact(entry_len as usize);
        for (at, entry) in (at..).step_by(entry_len as usize).zip(entries) {
            let index = (at - self.layout.root_range().start) / entry_len;
            if let Some(table) = table_at(&*self.layout, index, entry, at)? {
                self.tables.push((table, index as u32)); // formats bound their number
                self.check_index(0)?;
            }
        }
        Ok(())
    }

    /// The root has been read: tables are still to come, or are parked.
    pub(super) fn complete_root(&mut self, output: &mut dyn Output) -> Result<(), OnePassError> {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_unstable();
        let len = |index: u32| self.layout.table_len(index.into());
        let overlaps = |pair: &&[(u64, u32)]| pair[0].0 + len(pair[0].1) > pair[1].0;
        if let Some(pair) = tables.windows(2).find(overlaps) {
            let names = self.layout.names();
            let (what, with) = (names.table, names.other_table);
            return Err(Error::Overlap { what, at: pair[1].0, with }.into());
        }
        self.tables_left += tables.len();
        self.tables_left -= 1;
        let passed = tables.partition_point(|&(table, _)| table < self.cursor);
        self.expected.add_tables(tables.drain(passed..));
        for (at, index) in tables {
            let len = self.layout.table_len(index.into());
            let table = self.parking.claim_all(&(at..at + len), output)?;
            if (table.len() as u64) < len {
                return Err(used_twice(at));
            }
            self.read_table(index, at, &table, output)?;
        }
        self.settle_if_complete(output)
    }

    /// Takes a table: what it maps is still to come, or parked.
    pub(super) fn read_table(
        &mut self,
        index: u32,
        at: u64,
        table: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let layout = std::sync::Arc::clone(&self.layout);
        let guest = u64::from(index) * layout.coverage();
        let guest_end = layout.virtual_size().min(guest + layout.coverage());
        let table_end = at + layout.table_len(index.into());
        let mut batch = Batch::new(guest..guest_end, layout.raw_alignment());
        for piece in layout.pieces(index.into(), at, table)? {
            let piece = piece?;
            let host = piece.host_range();
            if host.start < table_end && at < host.end {
                let names = layout.names();
                let (what, with) = (piece.name(names), names.table);
                return Err(Error::Overlap { what, at: host.start, with }.into());
            }
            if host.start < self.cursor {
                self.unpark(&piece, output)?;
            } else {
                batch.push(&piece);
            }
            self.check_index(batch.len())?;
        }
        self.expected.add(batch);
        self.tables_left -= 1;
        Ok(())
    }

    /// Passes on what came before its table was known.
    fn unpark(&mut self, piece: &Piece, output: &mut dyn Output) -> Result<(), OnePassError> {
        let (mut host, mut guest) = (piece.host_range(), piece.guest);
        if piece.kind == PieceKind::Compressed {
            let cluster = self.parking.claim_compressed(&host, output)?;
            let cluster = cluster.ok_or_else(|| used_twice(host.start))?;
            self.vacate(guest, self.layout.cluster_size(), output)?;
            return Ok(output.compressed_owned(cluster, guest)?);
        }
        while !host.is_empty() {
            let claimed = self.parking.claim(&host, Some(guest), output)?;
            let claimed = claimed.ok_or_else(|| used_twice(host.start))?;
            let len = claimed.len();
            match claimed {
                Claimed::Zeroes(_) => {}
                Claimed::InPlace(len) => output.keep(guest, len)?,
                Claimed::Bytes(bytes) => {
                    self.vacate(guest, len, output)?;
                    output.plain_owned(bytes, guest)?;
                }
            }
            host.start += len;
            guest += len;
        }
        Ok(())
    }

    /// Reads a reserved range, which is neither data nor a table. It may name other ranges without data.
    pub(super) fn read_reserved(&mut self, bytes: &[u8]) {
        for at in self.layout.unallocated(bytes) {
            // Whatever is not remembered is parked needlessly, and nothing worse.
            if self.unallocated.len() * NO_DATA_BYTES < self.limits.index_bytes / 8 {
                self.unallocated.insert(at);
                self.parking.discard(&(at..at + self.layout.park_alignment()));
            }
        }
    }

    /// Once the last table has been read, what is parked belongs to no address of the guest.
    pub(super) fn settle_if_complete(
        &mut self,
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        if self.tables_left == 0 {
            self.parking.abandon(output)?;
            self.unallocated.clear();
        }
        Ok(())
    }

    /// Fails if the index would exceed `Limits::index_bytes` with `more` expected regions.
    pub(super) fn check_index(&self, more: usize) -> Result<(), OnePassError> {
        let to_come =
            (self.expected.len() + self.tables.len() + more) * ExpectedRegions::ENTRY_BYTES;
        let parked = self.parking.index_bytes();
        if to_come + parked + self.unallocated.len() * NO_DATA_BYTES > self.limits.index_bytes {
            let because = format!(
                "its clusters are too scattered to be remembered in {} bytes",
                self.limits.index_bytes
            );
            return Err(OnePassError::NeedsRandomAccess { because });
        }
        Ok(())
    }
}
