//! VHD, as Virtual PC, Hyper-V, Azure and `qemu-img` write it.
//!
//! ```text
//!  dynamic:  │ footer (copy) │ header │ block table │ bitmap │ block │ bitmap │ block │ … │ footer │
//!  fixed:    │ the disk                                                               │ footer │
//! ```
//!
//! Source of the layout: "Virtual Hard Disk Image Format Specification" 1.0, and what `qemu-img` reads. The bitmaps
//! mark the sectors of a block that were written, which matters to differences only: the others are zero.

use std::sync::Arc;

use crate::Error;
use crate::blocks::{Blocks, Numbers, Places, SECTOR, apart, check_virtual_size};
use crate::bytes::{be_u16, be_u32, be_u64};
use crate::image::{KnownBytes, Stop};
use crate::index::{Layout, Names};

/// Bytes of a footer.
pub const FOOTER_LEN: usize = 512;
const HEADER_LEN: u64 = 1024;
const VERSION: u32 = 1 << 16;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const DIFFERENCE: u32 = 4;
/// Blocks that one part of the table describes.
const PER_TABLE: u64 = 4096;
/// The specification's largest disk, in cylinders, heads and sectors: larger ones give this too.
const GEOMETRY_MAX: u64 = 65535 * 16 * 255;
const BLOCK_SIZES: std::ops::RangeInclusive<u64> = SECTOR..=256 << 20;

const NAMES: Names = Names {
    root: "block table",
    table: "block table",
    other_table: "block table",
    cluster: "block",
    compressed: "block",
};

/// Reads and checks the headers of a dynamic image.
pub(crate) fn open(known: &KnownBytes) -> Result<Arc<dyn Layout>, Stop> {
    let footer = known.bytes(0..FOOTER_LEN as u64, "vhd footer")?;
    check_footer(footer)?;
    match be_u32(footer, 60) {
        DYNAMIC => {}
        DIFFERENCE => return Err(Error::Parent { format: "vhd" }.into()),
        kind => {
            return Err(Error::Field { what: "disk type", at: 60, value: kind.into() }.into());
        }
    }
    let virtual_size = virtual_size(footer);
    check_virtual_size(virtual_size)?;

    let header_at = be_u64(footer, 16);
    if header_at < FOOTER_LEN as u64 || header_at >= 1 << 62 {
        return Err(Error::Field { what: "header offset", at: 16, value: header_at }.into());
    }
    let header = known.bytes(header_at..header_at + HEADER_LEN, "vhd header")?;
    if &header[..8] != b"cxsparse" {
        return Err(corrupt("vhd header", header_at, "it does not begin as one").into());
    }
    if be_u32(header, 24) != VERSION {
        let version = be_u32(header, 24);
        return Err(Error::UnsupportedVersion { format: "vhd header", version }.into());
    }
    if be_u32(header, 36) != checksum(header, 36) {
        return Err(corrupt("vhd header", header_at, "its checksum is wrong").into());
    }
    let block_size = u64::from(be_u32(header, 32));
    if !block_size.is_power_of_two() || !BLOCK_SIZES.contains(&block_size) {
        let at = header_at + 32;
        return Err(Error::Field { what: "block size", at, value: block_size }.into());
    }
    let (blocks, needed) = (u64::from(be_u32(header, 28)), virtual_size.div_ceil(block_size));
    if blocks < needed {
        return Err(Error::MapTooSmall { what: "block table", entries: blocks, needed }.into());
    }
    let table_at = be_u64(header, 16);
    let header_range = header_at..header_at + HEADER_LEN;
    if table_at < FOOTER_LEN as u64 || table_at >= 1 << 62 {
        let at = header_at + 16;
        return Err(Error::Field { what: "block table offset", at, value: table_at }.into());
    }
    let (used, end) = (table_at + needed * 4, table_at + blocks * 4);
    if table_at < header_range.end && header_range.start < end {
        return Err(Error::Overlap { what: "block table", at: table_at, with: "header" }.into());
    }
    let image = Blocks {
        names: &NAMES,
        virtual_size,
        file_len: known.file_len(),
        block_size,
        head_len: FOOTER_LEN as u64,
        per_table: PER_TABLE,
        tables: Places::Row { at: table_at, stride: PER_TABLE * 4 },
        numbers: Numbers::Vhd { bitmap_len: (block_size / SECTOR / 8).next_multiple_of(SECTOR) },
        metadata: apart(vec![(header_range, "header"), (used..end, "block table")])?,
        markers: None,
    };
    image.check_within_file("block table", &(table_at..end))?;
    Ok(Arc::new(image))
}

/// Whether the last bytes of a file of `file_len` bytes make it a fixed image: then how long the disk is. A footer counts
/// only if its checksum, its type and its size agree.
pub fn fixed_size(last: &[u8], file_len: u64) -> Option<u64> {
    let footer = last.get(last.len().checked_sub(FOOTER_LEN)?..)?;
    let size = be_u64(footer, 48);
    let is_footer = check_footer(footer).is_ok()
        && be_u32(footer, 60) == FIXED
        && size.checked_add(FOOTER_LEN as u64) == Some(file_len);
    is_footer.then_some(size)
}

fn check_footer(footer: &[u8]) -> Result<(), Error> {
    if &footer[..8] != b"conectix" {
        return Err(Error::NotThisFormat { format: "vhd" });
    }
    if be_u32(footer, 64) != checksum(footer, 64) {
        return Err(corrupt("vhd footer", 64, "its checksum is wrong"));
    }
    if be_u32(footer, 12) != VERSION {
        return Err(Error::UnsupportedVersion { format: "vhd", version: be_u32(footer, 12) });
    }
    Ok(())
}

/// As `qemu-img` computes it: Virtual PC and old versions of QEMU round the size down to whole cylinders, and mean that;
/// everybody else means the size as it is given.
fn virtual_size(footer: &[u8]) -> u64 {
    const EXACT: [&[u8; 4]; 6] = [b"win ", b"qem2", b"d2v ", b"tap\0", b"CTXS", b"wa\0\0"];
    let geometry = u64::from(be_u16(footer, 56)) * u64::from(footer[58]) * u64::from(footer[59]);
    let exact = EXACT.iter().any(|creator| footer[28..32] == **creator);
    if exact || geometry == GEOMETRY_MAX {
        be_u64(footer, 48) / SECTOR * SECTOR
    } else {
        geometry * SECTOR
    }
}

/// The ones' complement of the sum of all bytes, without those at `place`.
fn checksum(bytes: &[u8], place: usize) -> u32 {
    let outside = bytes[..place].iter().chain(&bytes[place + 4..]);
    !outside.fold(0_u32, |sum, &byte| sum.wrapping_add(byte.into()))
}

fn corrupt(what: &'static str, at: u64, because: &'static str) -> Error {
    Error::Corrupt { what, at, because }
}
