//! VDI, as VirtualBox and `qemu-img` write it: one map of 1 MiB blocks at the front, and the blocks.
//!
//! Source of the layout: the comment at the top of QEMU's block/vdi.c, and what `qemu-img` 7.2 reads. Dynamic and static
//! images are the same to a reader. Refused: differences to other images, blocks of another size or with something added,
//! and maps that cannot be.

use std::sync::Arc;

use crate::Error;
use crate::blocks::{Blocks, Numbers, Places, SECTOR, apart, check_virtual_size};
use crate::bytes::{is_zero, le_u32, le_u64};
use crate::image::{KnownBytes, Stop};
use crate::index::{Layout, Names};

const HEADER_LEN: u64 = 512;
const SIGNATURE: u32 = 0xbeda_107f;
const VERSION: u32 = 1 << 16 | 1;
const DYNAMIC: u32 = 1;
const STATIC: u32 = 2;
const BLOCK: u64 = 1 << 20;
/// Blocks that one part of the map describes.
const PER_TABLE: u64 = 4096;

const NAMES: Names = Names {
    root: "block map",
    table: "block map",
    other_table: "block map",
    cluster: "block",
    compressed: "block",
};

/// Reads and checks the header.
pub(crate) fn open(known: &KnownBytes) -> Result<Arc<dyn Layout>, Stop> {
    let header = known.bytes(0..HEADER_LEN, "vdi header")?;
    let number = |at| u64::from(le_u32(header, at));
    if le_u32(header, 0x40) != SIGNATURE {
        return Err(Error::NotThisFormat { format: "vdi" }.into());
    }
    if le_u32(header, 0x44) != VERSION {
        let version = le_u32(header, 0x44);
        return Err(Error::UnsupportedVersion { format: "vdi", version }.into());
    }
    let kind = le_u32(header, 0x4c);
    // A difference has the identity of its parent; other kinds are not documented.
    if ![DYNAMIC, STATIC].contains(&kind) || !is_zero(&header[0x1a8..0x1c8]) {
        return Err(Error::Parent { format: "vdi" }.into());
    }
    let field = |what, at: usize, value: u64| Error::Field { what, at: at as u64, value };
    for (what, at, expected) in [
        ("sector size", 0x168, SECTOR),
        ("block size", 0x178, BLOCK),
        ("additional block data length", 0x17c, 0),
    ] {
        if number(at) != expected {
            return Err(field(what, at, number(at)).into());
        }
    }
    let size = le_u64(header, 0x170);
    let virtual_size = size.checked_next_multiple_of(SECTOR).ok_or(Error::VirtualSize { size })?;
    check_virtual_size(virtual_size)?;
    let (blocks, needed) = (number(0x180), virtual_size.div_ceil(BLOCK));
    if blocks < needed {
        return Err(Error::MapTooSmall { what: "block map", entries: blocks, needed }.into());
    }
    let (map_at, data_at) = (number(0x154), number(0x158));
    let map_end = map_at + blocks * 4;
    for (what, at, value) in [("block map offset", 0x154, map_at), ("data offset", 0x158, data_at)]
    {
        if value < HEADER_LEN || !value.is_multiple_of(SECTOR) {
            return Err(field(what, at, value).into());
        }
    }
    if data_at < map_end {
        return Err(Error::Overlap { what: "data", at: data_at, with: "block map" }.into());
    }
    let map_used = map_at + needed * 4;
    let image = Blocks {
        names: &NAMES,
        virtual_size,
        file_len: known.file_len(),
        block_size: BLOCK,
        head_len: HEADER_LEN,
        per_table: PER_TABLE,
        tables: Places::Row { at: map_at, stride: PER_TABLE * 4 },
        numbers: Numbers::Vdi { data_at, blocks },
        metadata: apart(vec![(map_used..map_end, "block map")])?,
        markers: None,
    };
    image.check_within_file("block map", &(map_at..map_end))?;
    Ok(Arc::new(image))
}
