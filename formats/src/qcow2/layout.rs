//! qcow2 as the readers see it: an L1 table that names L2 tables.

use std::ops::Range;

use super::header::{Header, check_begin};
use super::pieces::Pieces;
use super::{table, zeroes};
use crate::Error;
use crate::bytes::be_u64;
use crate::cluster::Codec;
use crate::index::{Layout, Merged, Names, Piece};

/// Bits 9 to 63 of an entry of upstream CDI count table.
const REFCOUNT_BLOCK_OFFSET: u64 = !0x1ff;

const NAMES: Names = Names {
    root: "L1 table",
    table: "L2 table",
    other_table: "another L2 table",
    cluster: "cluster",
    compressed: "compressed cluster",
};

impl Layout for Header {
    fn names(&self) -> &'static Names {
        &NAMES
    }

    fn virtual_size(&self) -> u64 {
        self.virtual_size()
    }

    fn file_len(&self) -> Option<u64> {
        self.file_length()
    }

    fn codec(&self) -> Codec {
        self.compression()
    }

    fn has_compressed(&self) -> bool {
        true
    }

    fn cluster_size(&self) -> u64 {
        self.cluster_size()
    }

    fn head_len(&self) -> u64 {
        self.cluster_size()
    }

    fn root_range(&self) -> Range<u64> {
        self.l1_range()
    }

    fn table_count(&self) -> u64 {
        self.l2_tables()
    }

    fn coverage(&self) -> u64 {
        self.l2_coverage()
    }

    fn table_len(&self, _: u64) -> u64 {
        self.cluster_size()
    }

    fn table_at(&self, _: u64, entry: &[u8], at: u64) -> Result<Option<u64>, Error> {
        table::l1_entry(self, be_u64(entry, 0), at)
    }

    fn pieces<'a>(
        &'a self,
        index: u64,
        at: u64,
        table: &'a [u8],
    ) -> Result<Box<dyn Iterator<Item = Result<Piece, Error>> + 'a>, Error> {
        Ok(Box::new(Merged::new(Pieces::new(self, index, at, table)?)))
    }

    fn zeroes(&self, index: u64, at: u64, table: &[u8]) -> Result<Vec<Range<u64>>, Error> {
        zeroes::of_table(self, index, at, table)
    }

    fn raw_alignment(&self) -> u64 {
        self.subcluster_size()
    }

    fn park_alignment(&self) -> u64 {
        self.cluster_size()
    }

    fn metadata_in(&self, range: &Range<u64>) -> Option<&'static str> {
        self.named_in(range)
    }

    fn reserved_ranges(&self) -> Vec<(Range<u64>, &'static str)> {
        vec![(self.refcount_table(), "reference count table")]
    }

    /// The blocks that the refcount table names.
    fn unallocated(&self, aside: &[u8]) -> Vec<u64> {
        let blocks = aside.chunks_exact(8).map(|entry| be_u64(entry, 0) & REFCOUNT_BLOCK_OFFSET);
        let is_block = |&at: &u64| at != 0 && check_begin("block", at, self.cluster_size()).is_ok();
        blocks.filter(is_block).collect()
    }
}
