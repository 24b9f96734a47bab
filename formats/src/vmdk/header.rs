//! The header, which streams repeat as their footer, and the markers between their grains.

use std::ops::Range;

use crate::Error;
use crate::blocks::SECTOR;
use crate::bytes::{le_u16, le_u32, le_u64};

pub(crate) const END: u32 = 0;
pub(crate) const TABLE: u32 = 1;
pub(crate) const DIRECTORY: u32 = 2;
pub(crate) const FOOTER: u32 = 3;

const NEWLINES_ARE_VALID: u32 = 1 << 0;
const ONE_IS_ZERO: u32 = 1 << 2;
const COMPRESSED: u32 = 1 << 16;
const MARKERS: u32 = 1 << 17;
/// As the place of a directory: the footer knows it.
const AT_END: u64 = u64::MAX;
/// In sectors.
const GRAINS: std::ops::RangeInclusive<u64> = 8..=4096;
const TABLE_ENTRIES: std::ops::RangeInclusive<u64> = 1..=512;
/// Sector numbers beyond this could overflow once they are bytes.
const SECTORS_MAX: u64 = 1 << 52;

/// The fields of a header, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) capacity: u64,
    pub(crate) grain: u64,
    /// Entries of a grain table.
    pub(crate) per_table: u64,
    pub(crate) descriptor: Option<Range<u64>>,
    /// `None`: the footer knows.
    pub(crate) directory: Option<u64>,
    /// What is before the first grain.
    pub(crate) overhead: u64,
    pub(crate) one_is_zero: bool,
    /// Each grain, with a marker before it.
    pub(crate) compressed: bool,
}

impl Header {
    /// Takes the sector found at `at` apart.
    pub(crate) fn parse(sector: &[u8], at: u64) -> Result<Self, Error> {
        if &sector[..4] != b"KDMV" {
            return Err(Error::NotThisFormat { format: "vmdk" });
        }
        let version = le_u32(sector, 4);
        if !(1..=3).contains(&version) {
            return Err(Error::UnsupportedVersion { format: "vmdk", version });
        }
        let flags = le_u32(sector, 8);
        if flags & NEWLINES_ARE_VALID != 0 && &sector[73..77] != b"\n \r\n" {
            let because = "its line ends were changed, as if it were text";
            return Err(Error::Corrupt { what: "vmdk header", at: at + 73, because });
        }
        let field = |what, offset: u64, value| Error::Field { what, at: at + offset, value };
        let sectors = |what, offset: usize| match le_u64(sector, offset) {
            value if value <= SECTORS_MAX => Ok(value * SECTOR),
            value => Err(field(what, offset as u64, value)),
        };
        let capacity = sectors("capacity", 12)?;
        let grain = le_u64(sector, 20);
        if !grain.is_power_of_two() || !GRAINS.contains(&grain) {
            return Err(field("grain sector count", 20, grain));
        }
        let per_table = le_u32(sector, 44).into();
        if !TABLE_ENTRIES.contains(&per_table) {
            return Err(field("grain table entry count", 44, per_table));
        }
        let descriptor_at = sectors("descriptor offset", 28)?;
        let descriptor_len = sectors("descriptor length", 36)?;
        let descriptor = (descriptor_at > 0 && descriptor_len > 0)
            .then(|| descriptor_at..descriptor_at + descriptor_len);
        let directory = match le_u64(sector, 56) {
            AT_END => None,
            _ => Some(sectors("grain directory offset", 56)?),
        };
        let compressed = flags & COMPRESSED != 0;
        let algorithm = le_u16(sector, 77);
        if compressed && (flags & MARKERS == 0 || algorithm != 1) {
            let feature = "compressed grains without markers, or not deflated";
            return Err(Error::Unsupported { what: "vmdk", feature });
        }
        if !compressed && (flags & MARKERS != 0 || directory.is_none()) {
            let feature = "markers without compression";
            return Err(Error::Unsupported { what: "vmdk", feature });
        }
        Ok(Self {
            capacity,
            grain: grain * SECTOR,
            per_table,
            descriptor,
            directory,
            overhead: sectors("first grain offset", 64)?,
            one_is_zero: flags & ONE_IS_ZERO != 0,
            compressed,
        })
    }

    /// Where the footer `last`, found at `at`, has the directory of an image that begins with this header.
    pub(crate) fn directory_by(&self, last: &Self, at: u64) -> Result<u64, Error> {
        let same = (last.capacity, last.grain, last.per_table)
            == (self.capacity, self.grain, self.per_table);
        match last.directory {
            Some(directory) if same && last.compressed => Ok(directory),
            _ => {
                let because = "it does not agree with the header";
                Err(Error::Corrupt { what: "vmdk footer", at, because })
            }
        }
    }
}

/// A marker: a number of sectors (of a grain, its address), the bytes of a grain, and what follows if there are none.
pub(crate) fn marker(sector: &[u8]) -> (u64, u32, u32) {
    (le_u64(sector, 0), le_u32(sector, 8), le_u32(sector, 12))
}
