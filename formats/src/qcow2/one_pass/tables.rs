//! What the decoder learns from tables: where data will be, and where what is parked belongs.

use super::OnePassError;
use super::agenda::{Agenda, Batch};
use super::decoder::{OnePass, used_twice};
use super::output::Output;
use super::parking::Claimed;
use crate::Error;
use crate::qcow2::header::check_begin;
use crate::qcow2::l1;
use crate::qcow2::pieces::{Piece, PieceKind, Pieces};

/// Bits 9 to 63 of an entry of the reference count table.
const REFCOUNT_BLOCK_OFFSET: u64 = !0x1ff;
/// Memory that it takes to remember one, about.
const REFCOUNT_BLOCK_BYTES: usize = 16;

impl OnePass {
    /// Takes entries of the L1 table, the first of them found at byte `at`.
    pub(super) fn read_l1(
        &mut self,
        at: u64,
        entries: impl Iterator<Item = u64>,
    ) -> Result<(), OnePassError> {
        for (at, entry) in (at..).step_by(8).zip(entries) {
            if let Some(table) = l1::l2_offset(&self.header, entry, at)? {
                let index = (at - self.header.l1_range().start) / 8;
                self.l2_tables.push((table, index as u32)); // the table has at most 2^22 entries
                self.check_index(0)?;
            }
        }
        Ok(())
    }

    /// The L1 table has been read: L2 tables are still to come, or are parked.
    pub(super) fn complete_l1(&mut self, output: &mut dyn Output) -> Result<(), OnePassError> {
        let mut tables = std::mem::take(&mut self.l2_tables);
        tables.sort_unstable();
        if let Some(pair) = tables.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (what, with) = ("L2 table", "another L2 table");
            return Err(Error::Overlap { what, at: pair[0].0, with }.into());
        }
        self.tables_left += tables.len();
        self.tables_left -= 1;
        let passed = tables.partition_point(|&(table, _)| table < self.cursor);
        self.agenda.add_l2_tables(tables.drain(passed..));
        for (at, index) in tables {
            let range = at..at + self.header.cluster_size();
            let table = self.parking.claim_all(&range, output)?;
            if (table.len() as u64) < self.header.cluster_size() {
                return Err(used_twice(at));
            }
            self.read_l2(index, at, &table, output)?;
        }
        self.settle_if_complete(output)
    }

    /// Takes an L2 table: what it maps is still to come, or parked.
    pub(super) fn read_l2(
        &mut self,
        index: u32,
        at: u64,
        table: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let header = self.header.clone();
        let guest = u64::from(index) * header.l2_coverage();
        let guest_end = header.virtual_size().min(guest + header.l2_coverage());
        let mut batch = Batch::new(guest..guest_end, header.plain_unit());
        for piece in Pieces::new(&header, u64::from(index), at, table)? {
            let piece = piece?;
            let host = piece.host_range();
            if host.start < at + header.cluster_size() && at < host.end {
                let (what, with) = (piece.name(), "L2 table");
                return Err(Error::Overlap { what, at: host.start, with }.into());
            }
            if host.start < self.cursor {
                self.unpark(&piece, output)?;
            } else {
                batch.push(&piece);
            }
            self.check_index(batch.len())?;
        }
        self.agenda.add(batch);
        self.tables_left -= 1;
        Ok(())
    }

    /// Hands over what has passed before its table was known.
    fn unpark(&mut self, piece: &Piece, output: &mut dyn Output) -> Result<(), OnePassError> {
        let (mut host, mut guest) = (piece.host_range(), piece.guest);
        if piece.kind == PieceKind::Compressed {
            let cluster = self.parking.claim_compressed(&host, output)?;
            let cluster = cluster.ok_or_else(|| used_twice(host.start))?;
            self.vacate(guest, self.header.cluster_size(), output)?;
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

    /// Takes entries of the reference count table: there is no data in the blocks it names.
    pub(super) fn read_refcount_table(&mut self, entries: impl Iterator<Item = u64>) {
        let cluster_size = self.header.cluster_size();
        let blocks = entries.map(|entry| entry & REFCOUNT_BLOCK_OFFSET);
        for block in blocks.filter(|&block| check_begin("block", block, cluster_size).is_ok()) {
            // Whatever is not remembered is parked needlessly, and nothing worse.
            let remembered = self.refcount_blocks.len() * REFCOUNT_BLOCK_BYTES;
            if block != 0 && remembered < self.limits.index_bytes / 8 {
                self.refcount_blocks.insert(block);
                self.parking.discard(&(block..block + cluster_size));
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
            self.refcount_blocks.clear();
        }
        Ok(())
    }

    /// Refuses to remember more than was agreed, with `more` runs about to be added to the agenda.
    pub(super) fn check_index(&self, more: usize) -> Result<(), OnePassError> {
        let to_come = (self.agenda.len() + self.l2_tables.len() + more) * Agenda::ENTRY_BYTES;
        let parked = self.parking.index_bytes();
        if to_come + parked + self.refcount_blocks.len() * REFCOUNT_BLOCK_BYTES
            > self.limits.index_bytes
        {
            let because = format!(
                "its clusters are too scattered to be remembered in {} bytes",
                self.limits.index_bytes
            );
            return Err(OnePassError::NeedsRandomAccess { because });
        }
        Ok(())
    }
}
