//! The header: all that is known before the first table is read, and most of what is refused.
//!
//! Sources of the layout: the qcow2 specification (docs/interop/qcow2.txt of QEMU), and what `qemu-img` 7.2 does.

use std::ops::Range;

use super::extensions;
use crate::Error;
use crate::bytes::{be_u32, be_u64};
use crate::cluster::Codec;
use crate::index::Layout;

/// `QFI\xfb`
const MAGIC: u32 = 0x5146_49fb;
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Version 2 ends here; version 3 continues with feature bits.
const V2_LENGTH: usize = 72;
const V3_LENGTH: u32 = 104;
/// 32 MiB of entries of 8 bytes, as in QEMU.
const L1_ENTRIES_MAX: u64 = (32 << 20) / 8;
/// 8 MiB, as in QEMU.
const REFCOUNT_TABLE_MAX: u64 = 8 << 20;
const SECTOR: u64 = 512;
/// Equal parts of a cluster, where L2 entries are extended.
const SUBCLUSTERS: u64 = 32;

// Incompatible features, bytes 72-79. Bit 0: reference counts may be stale, which matters to no reader.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// The header of a qcow2 image, checked.
///
/// It exists only for an image that stands alone (no data file, no encryption, and no backing file but the one that
/// [`parse_delta`](Header::parse_delta) was given), that its tables
/// are within the file as far as its length is known, and that their sizes are bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    version: u32,
    cluster_bits: u32,
    virtual_size: u64,
    l1_offset: u64,
    l1_entries: u64,
    refcount_table: Range<u64>,
    refcount_bits: u32,
    compression: Codec,
    extended_l2: bool,
    dirty: bool,
    snapshots: u32,
    file_len: Option<u64>,
}

impl Header {
    /// So many bytes of the image are enough for [`parse`](Self::parse).
    pub const HEAD_LEN: usize = 64 << 10;

    /// Reads and checks the header. `head` is the image's first [`HEAD_LEN`](Self::HEAD_LEN) bytes, more, or all of it;
    /// `file_len` the length of the image, where it is known before its end.
    ///
    /// # Errors
    /// For whatever the header alone is reason to refuse: see [`Error`].
    pub fn parse(head: &[u8], file_len: Option<u64>) -> Result<Self, Error> {
        Self::parse_with(head, file_len, None)
    }

    /// The same for an image that holds only what has changed since the one called `backing`, directories left out. It is
    /// the caller's to have that, and to distinguish what is zero from what is not allocated
    /// ([`Layout::zeroes`]).
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and when there is no backing file or another one.
    pub fn parse_delta(head: &[u8], file_len: Option<u64>, backing: &str) -> Result<Self, Error> {
        Self::parse_with(head, file_len, Some(backing))
    }

    fn parse_with(
        head: &[u8],
        file_len: Option<u64>,
        backing: Option<&str>,
    ) -> Result<Self, Error> {
        let file_len = file_len.or((head.len() < Self::HEAD_LEN).then_some(head.len() as u64));
        if head.len() < 8 || be_u32(head, 0) != MAGIC {
            return Err(Error::NotThisFormat { format: "qcow2" });
        }
        let version = be_u32(head, 4);
        if !(2..=3).contains(&version) {
            return Err(Error::UnsupportedVersion { format: "qcow2", version });
        }
        let fixed_length = if version == 2 { V2_LENGTH } else { V3_LENGTH as usize };
        if head.len() < fixed_length {
            return Err(Error::Truncated { what: "qcow2 header", at: head.len() as u64 });
        }
        let cluster_bits = be_u32(head, 20);
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(Error::ClusterSize { bits: cluster_bits });
        }
        let cluster_size = 1_u64 << cluster_bits;
        let length = if version == 2 { V2_LENGTH as u32 } else { be_u32(head, 100) };
        if length < fixed_length as u32 || u64::from(length) > cluster_size {
            return Err(Error::HeaderLength { length });
        }
        if head.len() < length as usize && head.len() < Self::HEAD_LEN {
            return Err(Error::Truncated { what: "qcow2 header", at: head.len() as u64 });
        }

        check_backing(head, cluster_size, backing)?;
        match be_u32(head, 32) {
            0 => {}
            1 => return Err(Error::Encrypted { method: "AES".into() }),
            2 => return Err(Error::Encrypted { method: "LUKS".into() }),
            other => return Err(Error::Encrypted { method: format!("method {other}") }),
        }
        let features = if version == 2 { 0 } else { be_u64(head, 72) };
        let names = extensions::feature_names(head, length, cluster_size)?;
        let (compression, extended_l2) = read_features(head, length, features, &names)?;
        if extended_l2 && cluster_bits < 14 {
            return Err(Error::SubclusterSize { bits: cluster_bits });
        }
        let refcount_order = if version == 2 { 4 } else { be_u32(head, 96) };
        if refcount_order > 6 {
            return Err(Error::RefcountWidth { order: refcount_order });
        }

        let size = be_u64(head, 24);
        if i64::try_from(size).is_err() {
            return Err(Error::VirtualSize { size });
        }
        let header = Self {
            version,
            cluster_bits,
            // A guest sees whole sectors, and so does qemu-img.
            virtual_size: size / SECTOR * SECTOR,
            l1_offset: be_u64(head, 40),
            l1_entries: u64::from(be_u32(head, 36)),
            refcount_table: refcount_table(head, cluster_size)?,
            refcount_bits: 1 << refcount_order,
            compression,
            extended_l2,
            dirty: features & DIRTY != 0,
            snapshots: be_u32(head, 60),
            file_len,
        };
        header.check_tables()?;
        Ok(header)
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes of the guest's disk: a multiple of 512.
    pub fn virtual_size(&self) -> u64 {
        self.virtual_size
    }

    /// Bytes of a cluster: a power of two from 512 to 2 MiB. Also the length of an L2 table.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// How compressed clusters are compressed.
    pub fn compression(&self) -> Codec {
        self.compression
    }

    /// Whether clusters are divided into 32 subclusters.
    pub fn extended_l2(&self) -> bool {
        self.extended_l2
    }

    /// The width of a reference count, 1 to 64.
    pub fn refcount_bits(&self) -> u32 {
        self.refcount_bits
    }

    /// Whether the writer did not close the image, so that its reference counts may be stale. Its data is not.
    pub fn dirty(&self) -> bool {
        self.dirty
    }

    /// How many internal snapshots there are. They are never read.
    pub fn snapshots(&self) -> u32 {
        self.snapshots
    }

    /// Where the file has the entries of the first-level table that map the guest's disk, 8 bytes each. The table may go
    /// on behind them, with the memory of a saved machine.
    pub fn l1_range(&self) -> Range<u64> {
        self.l1_offset..self.l1_offset + self.l2_tables() * 8
    }

    /// How many second-level tables it takes to map the guest's disk.
    pub fn l2_tables(&self) -> u64 {
        self.virtual_size.div_ceil(self.l2_coverage())
    }

    /// Guest bytes that one second-level table maps.
    pub fn l2_coverage(&self) -> u64 {
        self.l2_entries() << self.cluster_bits
    }

    /// Entries in a second-level table.
    pub(super) fn l2_entries(&self) -> u64 {
        self.cluster_size() / self.l2_entry_size()
    }

    pub(super) fn l2_entry_size(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// The smallest range that is plain data by itself: a subcluster, or a cluster.
    pub(super) fn subcluster_size(&self) -> u64 {
        if self.extended_l2 { self.cluster_size() / SUBCLUSTERS } else { self.cluster_size() }
    }

    pub(super) fn cluster_bits(&self) -> u32 {
        self.cluster_bits
    }

    pub(super) fn refcount_table(&self) -> Range<u64> {
        self.refcount_table.clone()
    }

    pub(super) fn file_length(&self) -> Option<u64> {
        self.file_len
    }

    /// The whole first-level table.
    fn l1_whole(&self) -> Range<u64> {
        self.l1_offset..self.l1_offset + self.l1_entries * 8
    }

    /// What of the metadata known from the header lies in `range`.
    pub(super) fn named_in(&self, range: &Range<u64>) -> Option<&'static str> {
        let overlaps = |other: Range<u64>| range.start < other.end && other.start < range.end;
        if overlaps(0..self.cluster_size()) {
            Some("header")
        } else if overlaps(self.l1_whole()) {
            Some("L1 table")
        } else if overlaps(self.refcount_table()) {
            Some("reference count table")
        } else {
            None
        }
    }

    fn check_tables(&self) -> Result<(), Error> {
        if self.l1_entries > L1_ENTRIES_MAX {
            return Err(Error::L1TooBig { entries: self.l1_entries, max: L1_ENTRIES_MAX });
        }
        let needed = self.l2_tables();
        if self.l1_entries < needed {
            return Err(Error::L1TooSmall { entries: self.l1_entries, needed });
        }
        check_begin("L1 table", self.l1_offset, self.cluster_size())?;
        if self.l1_entries > 0 {
            if self.l1_offset == 0 {
                return Err(Error::Overlap { what: "L1 table", at: 0, with: "header" });
            }
            let (l1, refcounts) = (self.l1_whole(), &self.refcount_table);
            if l1.start < refcounts.end && refcounts.start < l1.end {
                let with = "reference count table";
                return Err(Error::Overlap { what: "L1 table", at: l1.start, with });
            }
            self.check_within_file("L1 table", &l1)?;
        }
        self.check_within_file("reference count table", &self.refcount_table)
    }
}

/// Refuses an offset no cluster begins at, or so large that adding a table to it could overflow.
pub(super) fn check_begin(what: &'static str, at: u64, cluster_size: u64) -> Result<(), Error> {
    if !at.is_multiple_of(cluster_size) || at >= 1 << 62 {
        return Err(Error::Unaligned { what, at });
    }
    Ok(())
}

/// Refuses every other file than the one that is allowed, and that it is not there.
fn check_backing(head: &[u8], cluster_size: u64, allowed: Option<&str>) -> Result<(), Error> {
    let (at, length) = (be_u64(head, 8), be_u32(head, 16));
    // The name lies in the header's cluster. Anywhere else it is not a name, and no more welcome.
    let end = at.checked_add(length.into()).filter(|&end| end <= cluster_size);
    let name = end.and_then(|end| head.get(at as usize..end as usize)).unwrap_or_default();
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    match (at, allowed) {
        (0, None) => Ok(()),
        (1.., Some(allowed)) if base == allowed.as_bytes() => Ok(()),
        (_, None) => Err(Error::BackingFile { name: extensions::readable(name) }),
        (0, Some(expected)) => {
            Err(Error::OtherBacking { name: "no image".into(), expected: expected.to_owned() })
        }
        (_, Some(expected)) => Err(Error::OtherBacking {
            name: extensions::readable(name),
            expected: expected.to_owned(),
        }),
    }
}

/// The compression type, and whether L2 entries are extended. Refuses what cannot be read.
fn read_features(
    head: &[u8],
    length: u32,
    features: u64,
    names: &extensions::FeatureNames,
) -> Result<(Codec, bool), Error> {
    let unknown = features & !(DIRTY | CORRUPT | DATA_FILE | COMPRESSION_TYPE | EXTENDED_L2);
    if unknown != 0 {
        return Err(Error::UnknownFeatures { names: names.describe(unknown) });
    }
    if features & DATA_FILE != 0 {
        return Err(Error::DataFile);
    }
    if features & CORRUPT != 0 {
        return Err(Error::MarkedCorrupt);
    }
    let kind = if length > V3_LENGTH { head[V3_LENGTH as usize] } else { 0 };
    let compression = match kind {
        0 => Codec::Deflate,
        1 => Codec::Zstd,
        kind => return Err(Error::UnknownCompression { kind }),
    };
    if (features & COMPRESSION_TYPE != 0) != (compression != Codec::Deflate) {
        return Err(Error::CompressionFlag { kind });
    }
    Ok((compression, features & EXTENDED_L2 != 0))
}

fn refcount_table(head: &[u8], cluster_size: u64) -> Result<Range<u64>, Error> {
    let (at, clusters) = (be_u64(head, 48), be_u32(head, 56));
    let length = u64::from(clusters) * cluster_size;
    if length == 0 || length > REFCOUNT_TABLE_MAX {
        return Err(Error::RefcountTableSize { clusters });
    }
    check_begin("reference count table", at, cluster_size)?;
    if at == 0 {
        return Err(Error::Overlap { what: "reference count table", at, with: "header" });
    }
    Ok(at..at + length)
}
