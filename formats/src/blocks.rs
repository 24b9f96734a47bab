//! Formats whose data lies in blocks of one size, found through tables of one number for each block: all but qcow2.
//!
//! | Format | Block | A number |
//! |---|---|---|
//! | vmdk | a grain, mostly 64 KiB | the sector of the file, in tables that a directory names |
//! | vdi | 1 MiB | which of the blocks behind the map |
//! | vhd | mostly 2 MiB | the sector of a bitmap, which the data follows |
//! | vhdx | 1 to 256 MiB | the MiB of the file, and what is there |

use std::ops::Range;

use crate::Error;
use crate::bytes::{be_u32, le_u32, le_u64};
use crate::cluster::{Codec, GRAIN_HEADER};
use crate::index::{Layout, Merged, Names, Piece, PieceKind};
use crate::vmdk::Markers;

pub(crate) const SECTOR: u64 = 512;
/// Clusters that are not whole when they are parked would be waited for: they are not larger than this.
const SLOT_MAX: u64 = 64 << 10;
/// Offsets beyond this could overflow once something is added.
const OFFSET_MAX: u64 = 1 << 62;

/// From the header of such an image.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) names: &'static Names,
    pub(crate) virtual_size: u64,
    pub(crate) file_len: Option<u64>,
    /// A power of two.
    pub(crate) block_size: u64,
    /// Known bytes at the beginning that hold no data.
    pub(crate) head_len: u64,
    /// Blocks that one table maps.
    pub(crate) per_table: u64,
    pub(crate) tables: Places,
    pub(crate) numbers: Numbers,
    /// What else lies where no data may be, behind the head. Ascending, apart from each other.
    pub(crate) metadata: Vec<(Range<u64>, &'static str)>,
    pub(crate) markers: Option<Markers>,
}

#[derive(Debug)]
pub(crate) enum Places {
    /// At `at`, sector numbers name them.
    Directory { at: u64 },
    /// One behind the other from `at` on, `stride` bytes each; the last is shorter.
    Row { at: u64, stride: u64 },
}

/// What the numbers of a table mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers {
    Vmdk { one_is_zero: bool, compressed: bool },
    Vdi { data_at: u64, blocks: u64 },
    Vhd { bitmap_len: u64 },
    Vhdx,
}

impl Numbers {
    fn len(self) -> u64 {
        match self {
            Self::Vmdk { .. } | Self::Vdi { .. } | Self::Vhd { .. } => 4,
            Self::Vhdx => 8,
        }
    }

    fn compressed(self) -> bool {
        matches!(self, Self::Vmdk { compressed: true, .. })
    }

    /// Where the block is whose number is `entry`, found at byte `at`. `None`: it is zero.
    fn block_at(self, entry: &[u8], at: u64, block_size: u64) -> Result<Option<u64>, Error> {
        Ok(match self {
            Self::Vmdk { one_is_zero, .. } => match le_u32(entry, 0) {
                0 => None,
                1 if one_is_zero => None,
                sector => Some(u64::from(sector) * SECTOR),
            },
            Self::Vdi { data_at, blocks } => match u64::from(le_u32(entry, 0)) {
                0xffff_ffff | 0xffff_fffe => None, // never written, and given back
                block if block < blocks => Some(data_at + block * block_size),
                block => return Err(Error::Field { what: "block number", at, value: block }),
            },
            Self::Vhd { bitmap_len } => match be_u32(entry, 0) {
                u32::MAX => None,
                sector => Some(u64::from(sector) * SECTOR + bitmap_len),
            },
            Self::Vhdx => {
                let entry = le_u64(entry, 0);
                let host = entry & !0xf_ffff;
                match entry & 7 {
                    _ if entry & 0xf_fff8 != 0 => {
                        return Err(Error::ReservedBits { what: "block entry", at, entry });
                    }
                    0..=3 => None, // not present, undefined, zero, unmapped
                    6 if host < OFFSET_MAX => Some(host),
                    7 => {
                        let feature = "partially present blocks of a difference";
                        return Err(Error::Unsupported { what: "vhdx image", feature });
                    }
                    _ => return Err(Error::ReservedBits { what: "block entry", at, entry }),
                }
            }
        })
    }
}

impl Blocks {
    fn block_count(&self) -> u64 {
        self.virtual_size.div_ceil(self.block_size)
    }

    /// The blocks that a table maps.
    fn blocks_of(&self, index: u64) -> Range<u64> {
        let first = index * self.per_table;
        first..(first + self.per_table).min(self.block_count())
    }

    /// The piece that is the block number `block`, found at byte `host`.
    fn piece(&self, block: u64, host: u64) -> Result<Piece, Error> {
        let guest = block * self.block_size;
        let guest_len = self.block_size.min(self.virtual_size - guest);
        if self.numbers.compressed() {
            let what = self.names.compressed;
            let header = host..host + GRAIN_HEADER as u64 + 1;
            self.check_apart(what, &header)?;
            self.check_within_file(what, &header)?;
            // Its length is written there. No writer lets it become longer.
            let end = host + GRAIN_HEADER as u64 + 2 * self.block_size;
            let host_len = self.file_len.map_or(end, |file_len| end.min(file_len)) - host;
            return Ok(Piece { guest, guest_len, host, host_len, kind: PieceKind::Compressed });
        }
        let range = host..host + guest_len;
        self.check_apart(self.names.cluster, &range)?;
        self.check_within_file(self.names.cluster, &range)?;
        Ok(Piece { guest, guest_len, host, host_len: guest_len, kind: PieceKind::Plain })
    }

    fn check_apart(&self, what: &'static str, range: &Range<u64>) -> Result<(), Error> {
        match self.metadata_in(range) {
            Some(with) => Err(Error::Overlap { what, at: range.start, with }),
            None => Ok(()),
        }
    }
}

impl Layout for Blocks {
    fn names(&self) -> &'static Names {
        self.names
    }

    fn virtual_size(&self) -> u64 {
        self.virtual_size
    }

    fn file_len(&self) -> Option<u64> {
        self.file_len
    }

    fn codec(&self) -> Codec {
        Codec::Grain
    }

    fn has_compressed(&self) -> bool {
        self.numbers.compressed()
    }

    fn cluster_size(&self) -> u64 {
        self.block_size
    }

    fn head_len(&self) -> u64 {
        self.head_len
    }

    fn root_range(&self) -> Range<u64> {
        match self.tables {
            Places::Directory { at } => at..at + self.table_count() * 4,
            Places::Row { .. } => 0..0,
        }
    }

    fn table_count(&self) -> u64 {
        self.block_count().div_ceil(self.per_table)
    }

    fn coverage(&self) -> u64 {
        self.per_table * self.block_size
    }

    fn table_len(&self, index: u64) -> u64 {
        match self.tables {
            Places::Directory { .. } => self.per_table * self.numbers.len(),
            Places::Row { stride, .. } if index + 1 < self.table_count() => stride,
            Places::Row { .. } => {
                let blocks = self.blocks_of(index);
                (blocks.end - blocks.start) * self.numbers.len()
            }
        }
    }

    fn table_at(&self, index: u64, entry: &[u8], _: u64) -> Result<Option<u64>, Error> {
        Ok(match self.tables {
            Places::Directory { .. } => {
                let at = u64::from(le_u32(entry, 0)) * SECTOR;
                (at != 0).then_some(at)
            }
            Places::Row { at, stride } => Some(at + index * stride),
        })
    }

    fn pieces<'a>(
        &'a self,
        index: u64,
        at: u64,
        table: &'a [u8],
    ) -> Result<Box<dyn Iterator<Item = Result<Piece, Error>> + 'a>, Error> {
        if (table.len() as u64) < self.table_len(index) {
            return Err(Error::Truncated { what: self.names.table, at: at + table.len() as u64 });
        }
        let entries = table.chunks_exact(self.numbers.len() as usize);
        let entry_len = self.numbers.len();
        let pieces = self.blocks_of(index).zip(entries).enumerate();
        let pieces = pieces.filter_map(move |(number, (block, entry))| {
            let at = at + number as u64 * entry_len;
            let host = self.numbers.block_at(entry, at, self.block_size).transpose()?;
            Some(host.and_then(|host| self.piece(block, host)))
        });
        Ok(Box::new(Merged::new(pieces)))
    }

    fn raw_alignment(&self) -> u64 {
        self.block_size
    }

    fn park_alignment(&self) -> u64 {
        self.block_size.min(SLOT_MAX)
    }

    fn metadata_in(&self, range: &Range<u64>) -> Option<&'static str> {
        if range.start < self.head_len {
            return Some("header");
        }
        let overlaps = |other: &Range<u64>| range.start < other.end && other.start < range.end;
        if overlaps(&self.root_range()) {
            return Some(self.names.root);
        }
        self.metadata.iter().find(|(other, _)| overlaps(other)).map(|(_, name)| *name)
    }

    fn reserved_ranges(&self) -> Vec<(Range<u64>, &'static str)> {
        self.metadata.clone()
    }

    fn markers(&self) -> Option<Markers> {
        self.markers
    }
}

/// Refuses a disk that is no disk: of more than 64 TiB, which no such format can have, or not in whole sectors.
pub(crate) fn check_virtual_size(size: u64) -> Result<(), Error> {
    const VIRTUAL_SIZE_MAX: u64 = 64 << 40;
    if size > VIRTUAL_SIZE_MAX || !size.is_multiple_of(SECTOR) {
        return Err(Error::VirtualSize { size });
    }
    Ok(())
}

/// Refuses metadata that overlaps, and sorts it.
pub(crate) fn apart(
    mut metadata: Vec<(Range<u64>, &'static str)>,
) -> Result<Vec<(Range<u64>, &'static str)>, Error> {
    metadata.retain(|(range, _)| !range.is_empty());
    metadata.sort_by_key(|(range, _)| range.start);
    match metadata.windows(2).find(|pair| pair[0].0.end > pair[1].0.start) {
        Some(pair) => Err(Error::Overlap { what: pair[1].1, at: pair[1].0.start, with: pair[0].1 }),
        None => Ok(metadata),
    }
}
