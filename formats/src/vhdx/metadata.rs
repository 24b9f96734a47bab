//! The metadata region: a table of items by name, and the items.

use std::ops::Range;

use super::{Guid, guid};
use crate::Error;
use crate::bytes::{le_u16, le_u32, le_u64};
use crate::image::{KnownBytes, Stop};

const WHAT: &str = "vhdx metadata";
/// The table, with all its entries.
const TABLE_LEN: u64 = 64 << 10;
const ENTRIES_MAX: u16 = 2047;
/// Items of images that were never used for anything else lie in so many bytes: read together with the table.
const USUAL_LEN: u64 = TABLE_LEN + 4096;
const REQUIRED: u32 = 1 << 2;
const HAS_PARENT: u32 = 1 << 1;
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=256 << 20;

const FILE_PARAMETERS: Guid =
    guid(0xcaa1_6737, 0xfa36, 0x4d43, [0xb3, 0xb6, 0x33, 0xf0, 0xaa, 0x44, 0xe7, 0x6b]);
const VIRTUAL_SIZE: Guid =
    guid(0x2fa5_4224, 0xcd1b, 0x4876, [0xb2, 0x11, 0x5d, 0xbe, 0xd8, 0x3b, 0xf4, 0xb8]);
const LOGICAL_SECTOR: Guid =
    guid(0x8141_bf1d, 0xa96f, 0x4709, [0xba, 0x47, 0xf2, 0x33, 0xa8, 0xfa, 0xab, 0x5f]);
const PHYSICAL_SECTOR: Guid =
    guid(0xcda3_48c7, 0x445d, 0x4471, [0x9c, 0xc9, 0xe9, 0x88, 0x52, 0x51, 0xc5, 0x56]);
const DISK_ID: Guid =
    guid(0xbeca_12ab, 0xb2e6, 0x4523, [0x93, 0xef, 0xc3, 0x09, 0xe0, 0x00, 0xc7, 0x46]);
const PARENT: Guid =
    guid(0xa8d3_5f2d, 0xb30b, 0x454d, [0xab, 0xf7, 0xd3, 0xd8, 0x48, 0x34, 0xab, 0x0c]);

/// What a reader needs of it.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) virtual_size: u64,
    pub(super) block_size: u64,
    /// Of the guest: 512 or 4096.
    pub(super) sector_size: u64,
}

impl Metadata {
    pub(super) fn read(known: &KnownBytes, region: &Range<u64>) -> Result<Self, Stop> {
        // A region is at least 1 MiB.
        let usual = known.bytes(region.start..region.start + USUAL_LEN, WHAT)?;
        let table = &usual[..TABLE_LEN as usize];
        let corrupt = |because| Error::Corrupt { what: WHAT, at: region.start, because };
        if &table[..8] != b"metadata" {
            return Err(corrupt("it does not begin as such").into());
        }
        let count = le_u16(table, 10);
        if count > ENTRIES_MAX {
            return Err(corrupt("it has too many items").into());
        }
        let entries = table[32..].chunks_exact(32).take(count.into());
        for entry in entries.clone() {
            let id = &entry[..16];
            if id == PARENT {
                return Err(Error::Parent { format: "vhdx" }.into());
            }
            let known = [FILE_PARAMETERS, VIRTUAL_SIZE, LOGICAL_SECTOR, PHYSICAL_SECTOR, DISK_ID];
            if le_u32(entry, 24) & REQUIRED != 0 && !known.iter().any(|known| known == id) {
                let feature = "metadata that has to be known";
                return Err(Error::Unsupported { what: "vhdx image", feature }.into());
            }
        }
        let item = |wanted: Guid, part, len: u64| -> Result<&[u8], Stop> {
            let entry = entries.clone().find(|entry| entry[..16] == wanted);
            let entry = entry.ok_or(Error::Missing { what: WHAT, part })?;
            let (offset, stored) = (u64::from(le_u32(entry, 16)), u64::from(le_u32(entry, 20)));
            if offset < TABLE_LEN || offset + len > region.end - region.start || stored < len {
                return Err(corrupt("an item is not where it has to be").into());
            }
            known.bytes(region.start + offset..region.start + offset + len, part)
        };
        let parameters = item(FILE_PARAMETERS, "vhdx file parameters", 8)?;
        if le_u32(parameters, 4) & HAS_PARENT != 0 {
            return Err(Error::Parent { format: "vhdx" }.into());
        }
        let field = |what, value| Error::Field { what, at: region.start, value };
        let block_size = u64::from(le_u32(parameters, 0));
        if !block_size.is_power_of_two() || !BLOCK_SIZES.contains(&block_size) {
            return Err(field("block size", block_size).into());
        }
        let sector_size = le_u32(item(LOGICAL_SECTOR, "vhdx sector size", 4)?, 0).into();
        if ![512, 4096].contains(&sector_size) {
            return Err(field("sector size", sector_size).into());
        }
        let virtual_size = le_u64(item(VIRTUAL_SIZE, "vhdx virtual disk size", 8)?, 0);
        if !virtual_size.is_multiple_of(sector_size) {
            return Err(Error::VirtualSize { size: virtual_size }.into());
        }
        Ok(Self { virtual_size, block_size, sector_size })
    }
}
