//! VHDX, as Hyper-V and `qemu-img` write it.
//!
//! ```text
//!  0      64 K     128 K    192 K      256 K          1 M
//!  │ file │ header │ header │ regions │ regions │ … │ log, metadata, block table and blocks, in any order …
//! ```
//!
//! Source of the layout: \[MS-VHDX\], "Virtual Hard Disk v2 (VHDX) File Format". Of two headers the newer counts, of two
//! region tables the first that is whole. An image whose log is not empty was not closed, and is refused: what its blocks
//! hold may be half of a change.

mod crc32c;
mod metadata;

use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::blocks::{Blocks, Numbers, Places, apart, check_virtual_size};
use crate::bytes::{is_zero, le_u16, le_u32, le_u64};
use crate::image::{KnownBytes, Stop};
use crate::index::{Layout, Names};
use metadata::Metadata;

const HEADER_LEN: u64 = 4096;
const HEADERS_AT: [u64; 2] = [64 << 10, 128 << 10];
const REGIONS_LEN: u64 = 64 << 10;
const REGIONS_AT: [u64; 2] = [192 << 10, 256 << 10];
const REGIONS_MAX: u32 = 2047;
/// Everything but the headers begins at a multiple of this, and behind the first.
const MIB: u64 = 1 << 20;
const ENTRY: u64 = 8;

const BLOCK_TABLE: Guid =
    guid(0x2dc2_7766, 0xf623, 0x4200, [0x9d, 0x64, 0x11, 0x5e, 0x9b, 0xfd, 0x4a, 0x08]);
const METADATA: Guid =
    guid(0x8b7c_a206, 0x4790, 0x4b9a, [0xb8, 0xfe, 0x57, 0x5f, 0x05, 0x0f, 0x88, 0x6e]);

const NAMES: Names = Names {
    root: "block table",
    table: "block table",
    other_table: "block table",
    cluster: "block",
    compressed: "block",
};

/// As the file has it: the first three parts little endian.
pub(crate) type Guid = [u8; 16];

pub(crate) const fn guid(first: u32, second: u16, third: u16, rest: [u8; 8]) -> Guid {
    let (a, b, c, d) = (first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes(), rest);
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]
}

/// Reads and checks headers, regions and metadata.
pub(crate) fn open(known: &KnownBytes) -> Result<Arc<dyn Layout>, Stop> {
    if known.bytes(0..8, "vhdx file identifier")? != b"vhdxfile" {
        return Err(Error::NotThisFormat { format: "vhdx" }.into());
    }
    let log = current_log(known)?;
    let regions = regions(known)?;
    let region = |wanted: Guid, what| {
        let found = regions.iter().find(|(id, _)| *id == wanted).map(|(_, range)| range.clone());
        found.ok_or(Error::Missing { what: "vhdx region table", part: what })
    };
    let table = region(BLOCK_TABLE, "block table")?;
    let metadata_at = region(METADATA, "metadata")?;
    let metadata = Metadata::read(known, &metadata_at)?;
    check_virtual_size(metadata.virtual_size)?;

    // Behind the entries of so many blocks there is one for their bitmaps, which only differences have.
    let per_table = (metadata.sector_size << 23) / metadata.block_size;
    let blocks = metadata.virtual_size.div_ceil(metadata.block_size);
    let needed = blocks + blocks.saturating_sub(1) / per_table;
    let entries = (table.end - table.start) / ENTRY;
    if entries < needed {
        return Err(Error::MapTooSmall { what: "block table", entries, needed }.into());
    }
    let used = table.start + needed * ENTRY;
    let mut parts = vec![
        (0..MIB, "header"),
        (log, "log"),
        (metadata_at, "metadata"),
        (table.clone(), "block table"),
    ];
    parts = apart(parts)?;
    parts.retain(|(range, _)| range.start > 0 && *range != table);
    parts.push((used..table.end, "block table"));
    let image = Blocks {
        names: &NAMES,
        virtual_size: metadata.virtual_size,
        file_len: known.file_len(),
        block_size: metadata.block_size,
        head_len: MIB,
        per_table,
        tables: Places::Row { at: table.start, stride: (per_table + 1) * ENTRY },
        numbers: Numbers::Vhdx,
        metadata: apart(parts)?,
        markers: None,
    };
    for (range, what) in &image.metadata {
        image.check_within_file(what, range)?;
    }
    Ok(Arc::new(image))
}

/// Where the log is, by the newer of two headers. It has to be empty.
fn current_log(known: &KnownBytes) -> Result<Range<u64>, Stop> {
    let mut newest = None;
    for at in HEADERS_AT {
        let header = known.bytes(at..at + HEADER_LEN, "vhdx header")?;
        let whole = &header[..4] == b"head" && le_u32(header, 4) == crc32c::sum(header, 4);
        let sequence = le_u64(header, 8);
        if whole && newest.is_none_or(|(_, before)| sequence > before) {
            newest = Some((at, sequence));
        }
    }
    let Some((at, _)) = newest else {
        let because = "neither of its headers is whole";
        return Err(Error::Corrupt { what: "vhdx image", at: HEADERS_AT[0], because }.into());
    };
    let header = known.bytes(at..at + HEADER_LEN, "vhdx header")?;
    let version = u32::from(le_u16(header, 66));
    if version != 1 {
        return Err(Error::UnsupportedVersion { format: "vhdx", version }.into());
    }
    if !is_zero(&header[48..64]) {
        return Err(Error::OpenLog { format: "vhdx" }.into());
    }
    let (len, log_at) = (u64::from(le_u32(header, 68)), le_u64(header, 72));
    if len == 0 {
        return Ok(0..0);
    }
    Ok(region_range("vhdx log", log_at, len)?)
}

/// The regions and their names. Some are not documented.
fn regions(known: &KnownBytes) -> Result<Vec<(Guid, Range<u64>)>, Stop> {
    for at in REGIONS_AT {
        let table = known.bytes(at..at + REGIONS_LEN, "vhdx region table")?;
        if &table[..4] != b"regi" || le_u32(table, 4) != crc32c::sum(table, 4) {
            continue;
        }
        let count = le_u32(table, 8);
        if count > REGIONS_MAX {
            let what = "region count";
            return Err(Error::Field { what, at: at + 8, value: count.into() }.into());
        }
        let mut regions: Vec<(Guid, Range<u64>)> = Vec::new();
        for entry in table[16..].chunks_exact(32).take(count as usize) {
            let mut id = [0; 16];
            id.copy_from_slice(&entry[..16]);
            if ![BLOCK_TABLE, METADATA].contains(&id) {
                if le_u32(entry, 28) & 1 != 0 {
                    let feature = "a region that has to be known";
                    return Err(Error::Unsupported { what: "vhdx image", feature }.into());
                }
                continue;
            }
            let range = region_range("vhdx region", le_u64(entry, 16), le_u32(entry, 24).into())?;
            if regions.iter().any(|(other, _)| *other == id) {
                let because = "it names a region twice";
                return Err(Error::Corrupt { what: "vhdx region table", at, because }.into());
            }
            regions.push((id, range));
        }
        return Ok(regions);
    }
    let because = "neither of its region tables is whole";
    Err(Error::Corrupt { what: "vhdx image", at: REGIONS_AT[0], because }.into())
}

fn region_range(what: &'static str, at: u64, len: u64) -> Result<Range<u64>, Error> {
    if !(MIB..1 << 62).contains(&at) || !at.is_multiple_of(MIB) {
        let because = "it begins in the header, or not at a whole MiB";
        return Err(Error::Corrupt { what, at, because });
    }
    if len == 0 || !len.is_multiple_of(MIB) {
        return Err(Error::Field { what: "region length", at, value: len });
    }
    Ok(at..at + len)
}
